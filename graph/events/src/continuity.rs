// SPDX-License-Identifier: MIT
//! Whether every switch to a thread is followed by one away from it. Some kernels do not report
//! all: `perf sched` has the same holes there.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::event::{Event, Kind};
use crate::names::NamePatterns;
use crate::protocol::FORK_NOT_FOLLOWED;
use crate::reader::EventFile;

/// Thread ids named in a sentence.
const NAMED: usize = 8;

pub(crate) struct Continuity {
    /// All switches are recorded, not only those of the target's processes.
    everything: bool,
    names: NamePatterns,
    /// Whose switches are recorded, as far as known: of the target's processes, or of threads with
    /// such names. Those of other threads are recorded in part.
    members: BTreeSet<u32>,
    /// Who runs on a CPU.
    running: FxHashMap<u16, u32>,
    /// Threads that were seen to give up a CPU.
    left: BTreeSet<u32>,
    /// Switches away that are missing, by thread.
    missing: BTreeMap<u32, u64>,
}

impl Continuity {
    pub fn of(file: &EventFile) -> Continuity {
        let everything = file.info.everything && file.info.thread_names.is_empty();
        let mut continuity = Continuity::new(everything, file.info.names());
        for thread in &file.threads {
            continuity.named(thread.tid, &thread.name);
        }
        continuity
    }

    fn new(everything: bool, names: NamePatterns) -> Continuity {
        Continuity {
            everything,
            names,
            members: BTreeSet::new(),
            running: FxHashMap::default(),
            left: BTreeSet::new(),
            missing: BTreeMap::new(),
        }
    }

    fn named(&mut self, tid: u32, name: &str) {
        if self.names.fits(name) {
            self.members.insert(tid);
        } else {
            self.members.remove(&tid);
        }
    }

    pub fn see(&mut self, event: &Event) {
        match event.kind {
            Kind::Switch => {
                let before = self.running.insert(event.cpu, event.b);
                let seen = self.everything || before.is_some_and(|tid| self.members.contains(&tid));
                if let Some(tid) = before.filter(|&tid| tid != event.a && seen) {
                    *self.missing.entry(tid).or_default() += 1;
                }
                self.left.insert(event.a);
            }
            // Of a process that is not followed, switches to it are recorded, but few away from it.
            Kind::Fork if event.flags & FORK_NOT_FOLLOWED != 0 => {}
            Kind::Fork => self.named(event.b, &event.name(1)),
            Kind::Rename => self.named(event.b, &event.name(0)),
            // Its process may be forgotten before its last switch.
            Kind::Exit => {
                self.members.remove(&event.a);
            }
            // A thread that is not its process's first takes the first one's id. Switches may only
            // be recorded from later on.
            Kind::Exec => {
                let known = self.running.get_mut(&event.cpu);
                known.into_iter().for_each(|tid| *tid = event.a);
                self.named(event.a, &event.name(1));
            }
            Kind::Lost => {
                self.running.remove(&event.cpu);
            }
            _ => {}
        }
    }

    /// Missing switches of threads that never gave up a CPU as far as was reported: the kernel
    /// hides them.
    pub fn note(&self) -> Option<String> {
        self.tell("the kernel did not report", |tid| !self.left.contains(&tid))
    }

    /// Missing switches of threads whose other ones are there: they got lost on our way.
    pub fn violation(&self) -> Option<String> {
        self.tell("there is no record of", |tid| self.left.contains(&tid))
    }

    fn tell(&self, what: &str, wanted: impl Fn(u32) -> bool) -> Option<String> {
        let holes = || self.missing.iter().filter(|(&tid, _)| wanted(tid));
        let count: u64 = holes().map(|(_, count)| count).sum();
        let tids: Vec<String> = holes().map(|(tid, _)| tid.to_string()).collect();
        let more = match tids.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = tids[..tids.len().min(NAMED)].join(", ");
        (count > 0).then(|| format!("{what} {count} switches away from threads {named}{more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(ts: u64, a: u32, b: u32) -> Event {
        Event {
            ts,
            a,
            b,
            cpu: 0,
            kind: Kind::Switch,
            flags: 1,
            stack: 0,
            words: [0; 3],
        }
    }

    fn seen(everything: bool, events: &[Event]) -> Continuity {
        let mut continuity = Continuity::new(everything, NamePatterns::default());
        continuity.members = [5, 6].into();
        events.iter().for_each(|event| continuity.see(event));
        continuity
    }

    #[test]
    fn a_thread_that_never_leaves_is_the_kernel_s_doing_one_that_does_is_ours() {
        let hidden = seen(true, &[switch(1, 0, 5), switch(2, 0, 6), switch(3, 6, 0)]);
        let note = "the kernel did not report 1 switches away from threads 5";
        assert_eq!(hidden.note().as_deref(), Some(note));
        assert_eq!(hidden.violation(), None);
        let ours = [
            switch(1, 0, 5),
            switch(2, 5, 0),
            switch(3, 0, 5),
            switch(4, 0, 6),
        ];
        assert_eq!(seen(true, &ours).note(), None);
        assert!(seen(true, &ours).violation().is_some());
    }

    #[test]
    fn what_was_before_the_first_switch_is_no_hole() {
        let exec = Event {
            kind: Kind::Exec,
            ..switch(1, 5, 0)
        };
        let begun = seen(
            true,
            &[exec, switch(2, 6, 5), switch(3, 5, 6), switch(4, 6, 0)],
        );
        assert_eq!((begun.note(), begun.violation()), (None, None));
    }

    #[test]
    fn a_process_that_is_not_followed_is_outside_the_target() {
        let fork = |flags| Event {
            kind: Kind::Fork,
            flags,
            words: [9, 0, 0],
            ..switch(1, 5, 9)
        };
        let after = [switch(2, 5, 9), switch(3, 6, 5)];
        let events = |flags| [&[fork(flags)][..], &after].concat();
        assert!(seen(false, &events(0)).note().is_some());
        assert_eq!(seen(false, &events(FORK_NOT_FOLLOWED)).note(), None);
    }

    #[test]
    fn strangers_come_and_go_unseen_and_losses_explain_holes() {
        let strangers = [switch(1, 5, 9), switch(2, 0, 5), switch(3, 5, 0)];
        assert_eq!(seen(false, &strangers).note(), None);
        assert!(seen(true, &strangers).note().is_some());
        let lost = Event {
            kind: Kind::Lost,
            ..switch(2, 0, 0)
        };
        let gap = [switch(1, 0, 5), lost, switch(3, 6, 0)];
        assert_eq!(seen(true, &gap).note(), None);
    }
}
