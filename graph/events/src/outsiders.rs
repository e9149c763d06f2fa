// SPDX-License-Identifier: MIT
//! Who threads outside the target are that wake its threads, take their CPU, or have a file's lock:
//! looked up in /proc when they first do, as they may end at any time.

use flagfinder_linux::proc::Status;
use flagfinder_waits::Looked;
use rustc_hash::FxHashSet;

use crate::event::{Context, Event, Kind};
use crate::processes::thread_name;
use crate::protocol::{ELSEWHERE, STATE_PREEMPTED};
use crate::threads::Threads;

/// Most outsiders that are named.
const MOST: usize = 2000;

#[derive(Debug, Default)]
pub(crate) struct Outsiders {
    met: FxHashSet<u32>,
    new: Vec<Looked>,
}

impl Outsiders {
    /// Looks up who woke another, sent it a signal, or runs in the place of one that could go on,
    /// if it is not known.
    pub fn see(&mut self, event: &Event, threads: &Threads) {
        let tid = match event.kind {
            Kind::Waking | Kind::Signal if event.context() == Context::Task => event.a,
            Kind::Switch if event.flags == STATE_PREEMPTED => event.b,
            Kind::Refused if event.b == 0 => event.halves(0).0,
            Kind::Refused => event.b,
            _ => return,
        };
        let is_thread = tid != 0 && tid < ELSEWHERE;
        let is_new = is_thread && !self.met.contains(&tid) && self.met.len() < MOST;
        if !is_new || threads.pid(tid).is_some() {
            return;
        }
        self.met.insert(tid);
        let Some(pid) = Status::of(tid).and_then(|status| status.number("Tgid:")) else {
            return;
        };
        self.new.push(Looked {
            ts: event.ts,
            tid,
            pid,
            name: thread_name(pid, tid),
            state: Looked::UNKNOWN,
            call: None,
            first: 0,
            how: None,
            by: Vec::new(),
            descriptors: Vec::new(),
        });
    }

    /// Processes that are new since the last call.
    pub fn take(&mut self) -> Vec<Looked> {
        std::mem::take(&mut self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::STATE_SLEEPS;

    fn waking(a: u32, flags: u8) -> Event {
        Event {
            ts: 7,
            a,
            b: 1,
            cpu: 0,
            kind: Kind::Waking,
            flags,
            stack: 0,
            words: [0; 3],
        }
    }

    #[test]
    fn a_waker_is_looked_up_once_and_an_interrupted_thread_is_not() {
        let own = std::process::id();
        let (task, softirq) = (1, 2);
        let mut outsiders = Outsiders::default();
        let threads = Threads::default();
        outsiders.see(&waking(own, softirq), &threads);
        outsiders.see(&waking(0, task), &threads);
        assert_eq!(outsiders.take(), []);
        outsiders.see(&waking(own, task), &threads);
        outsiders.see(&waking(own, task), &threads);
        let found = outsiders.take();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].tid, found[0].pid), (own, own));
        assert!(!found[0].name.is_empty());
    }

    #[test]
    fn a_thread_that_takes_anothers_cpu_is_looked_up() {
        let own = std::process::id();
        for (state, known) in [(STATE_SLEEPS, 0), (STATE_PREEMPTED, 1)] {
            let switch = Event {
                kind: Kind::Switch,
                b: own,
                ..waking(1, state)
            };
            let mut outsiders = Outsiders::default();
            outsiders.see(&switch, &Threads::default());
            assert_eq!(outsiders.take().len(), known);
        }
    }
}
