// SPDX-License-Identifier: MIT
//! What `flagfinder spin` hands on: the `flagfinder.spin/1` report.

use std::time::Duration;

use flagfinder_flags::{loop_condition, Facts, Group, LoopCondition, LoopReport, Verdict};
use flagfinder_linux::proc::program;
use serde::{Deserialize, Serialize};

use crate::candidate::Candidate;
use crate::deadline::Deadline;
use crate::wait::Wait;

/// The classes of hang (Argus, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Class {
    /// It repeats a look at something, whether it gives the processor away in between or not.
    RepeatedYield,
    /// It uses the processor, and polls nothing that was found.
    LongRunning,
    /// It is blocked in the kernel.
    LongWait,
}

/// Where a thread's instructions were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// In a copy of it.
    Replica,
    /// In the thread itself, which was single-stepped.
    InPlace,
}

#[derive(Clone, Debug, Serialize)]
pub struct ThreadReport {
    pub tid: u32,
    pub name: String,
    pub class: Class,
    /// Share of the sample on a processor.
    pub cpu: f64,
    /// The same with the time it waited for one.
    pub wants: f64,
    /// Times that it went to sleep, a second.
    pub sleeps_per_second: f64,
    /// Verdict of the flag search; null when it was not stepped.
    pub verdict: Option<Verdict>,
    pub reason: String,
    #[serde(rename = "loop")]
    pub spin_loop: Option<LoopReport>,
    /// As in `flagfinder.diff/1`.
    pub flags: Vec<Candidate>,
    pub considered: Vec<Candidate>,
    pub groups: Vec<Group>,
    /// What would end the loop, by all its flags.
    pub condition: Option<LoopCondition>,
    pub notes: Vec<String>,
    pub explain: Vec<String>,
    pub wait: Option<Wait>,
    /// What else is known of its loop.
    #[serde(skip)]
    pub facts: Facts,
    /// Pages that belong to one moment in a copy of it: it writes them, or others do.
    #[serde(skip)]
    pub held: Vec<u64>,
    /// Why stepping held it for longer than it was to; empty: it did not.
    #[serde(skip)]
    pub late: String,
    /// Pairs of words: a copy in which the first was changed moved the second on.
    #[serde(skip)]
    pub moves: Vec<(u64, u64)>,
    /// It waits for work of its virtual machine.
    #[serde(skip)]
    pub serves: bool,
    /// Words by whose values its copy left the loop only as an exception does.
    #[serde(skip)]
    pub thrown: Vec<u64>,
    /// There was no time to try all of its words in copies.
    #[serde(skip)]
    pub not_all_tried: bool,
    /// An answer that its copy was given is not known to be the true one.
    #[serde(skip)]
    pub is_assumed: bool,
    /// Why its copy went no further: `it comes to read, whose answer is not known`.
    #[serde(skip)]
    pub halted: Option<String>,
    /// Instructions that it was stepped over.
    pub steps: u64,
    /// For how long it was kept from running.
    pub pause_ms: f64,
    /// Null: none were looked at.
    pub via: Option<Via>,
    /// What speaks for the copy; or why the thread was stepped in place.
    pub via_reason: Option<String>,
}

impl ThreadReport {
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_secs_f64(self.pause_ms.max(0.0) / 1000.0)
    }

    /// Of a thread of which nothing is known yet.
    pub fn blank(tid: u32, class: Class) -> ThreadReport {
        ThreadReport {
            tid,
            name: String::new(),
            class,
            cpu: 0.0,
            wants: 0.0,
            sleeps_per_second: 0.0,
            verdict: None,
            reason: String::new(),
            spin_loop: None,
            flags: Vec::new(),
            considered: Vec::new(),
            groups: Vec::new(),
            condition: None,
            notes: Vec::new(),
            explain: Vec::new(),
            wait: None,
            facts: Facts::default(),
            held: Vec::new(),
            late: String::new(),
            moves: Vec::new(),
            serves: false,
            thrown: Vec::new(),
            not_all_tried: false,
            is_assumed: false,
            halted: None,
            steps: 0,
            pause_ms: 0.0,
            via: None,
            via_reason: None,
        }
    }

    /// Says what would end the loop, now that its flags are known.
    pub(crate) fn settle_condition(&mut self) {
        let told = self
            .flags
            .iter()
            .filter(|flag| flag.flag.standing.is_told());
        let owed = |flag: &Candidate| flag.owed().iter().map(|owed| owed.tid).collect();
        let told: Vec<_> = told.map(|flag| (&flag.flag, owed(flag))).collect();
        self.condition = loop_condition(&self.facts, &self.groups, &told);
    }

    pub fn has_flag(&self) -> bool {
        !self.flags.is_empty()
    }
    pub fn confidence(&self) -> f64 {
        self.flags
            .first()
            .map_or(0.0, |first| first.flag.confidence)
    }
}

/// Where a report comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A process.
    Live,
    /// A process that left a core file.
    Core,
    /// Recordings of a good run and a bad one.
    Recordings,
}

#[derive(Clone, Debug, Serialize)]
pub struct SpinReport {
    pub schema: &'static str,
    /// [`Source::Live`] or [`Source::Core`].
    pub source: Source,
    pub pid: u32,
    pub program: String,
    /// `ticks since boot` of its start: with the pid, which process this was.
    pub started: u64,
    /// The longest pause that was allowed, each thread.
    pub budget_ms: u64,
    pub threads: Vec<ThreadReport>,
    pub notes: Vec<String>,
    /// What the time limit left no time for.
    pub not_asked: Vec<String>,
}

impl SpinReport {
    pub const SCHEMA: &'static str = "flagfinder.spin/1";

    /// A live process of which nothing is told yet.
    pub(crate) fn of_live(pid: u32) -> SpinReport {
        SpinReport {
            program: program(pid),
            ..SpinReport::of_none(pid)
        }
    }

    /// A process of which nothing is known yet.
    pub(crate) fn of_none(pid: u32) -> SpinReport {
        SpinReport {
            schema: SpinReport::SCHEMA,
            source: Source::Live,
            pid,
            program: String::new(),
            started: 0,
            budget_ms: 0,
            threads: Vec::new(),
            notes: Vec::new(),
            not_asked: Vec::new(),
        }
    }

    /// Tells which threads stood still for longer than the budget.
    pub(crate) fn tell_late(&mut self) {
        let budget = self.budget_ms as f64;
        let is_late =
            |thread: &&ThreadReport| thread.via == Some(Via::InPlace) && thread.pause_ms > budget;
        for thread in self.threads.iter().filter(is_late) {
            let why = match &*thread.late {
                "" => "its copies took so long",
                why => why,
            };
            self.notes.push(format!(
                "thread {} stood still for {:.0} ms, where {budget:.0} ms are allowed: {why}",
                thread.tid, thread.pause_ms
            ));
        }
    }

    /// Tells what was left out.
    pub(crate) fn settle(&mut self, deadline: &Deadline) {
        let (not_asked, note) = deadline.not_asked();
        self.not_asked = not_asked;
        self.notes.extend(note);
    }

    /// As it is now, where it is not the last word.
    pub(crate) fn so_far(&self) -> Box<SpinReport> {
        let mut report = self.clone();
        let flags = report
            .threads
            .iter_mut()
            .flat_map(|thread| &mut thread.flags);
        for flag in flags.filter(|flag| flag.trial.is_none()) {
            flag.owed_by_nobody("nobody could be asked any more");
        }
        Box::new(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_was_too_long_is_told_with_its_cause() {
        let stepped = |tid, pause_ms, late: &str| ThreadReport {
            pause_ms,
            late: late.into(),
            via: Some(Via::InPlace),
            ..ThreadReport::blank(tid, Class::LongRunning)
        };
        let mut report = SpinReport {
            budget_ms: 800,
            threads: vec![
                stepped(1, 800.0, ""),
                stepped(2, 900.0, ""),
                stepped(3, 1000.0, "why"),
            ],
            ..SpinReport::of_none(1)
        };
        report.tell_late();
        let [copies, steps] = &report.notes[..] else {
            panic!("{:?}", report.notes)
        };
        let told = "stood still for 900 ms, where 800 ms are allowed: its copies took so long";
        assert_eq!(*copies, format!("thread 2 {told}"));
        assert!(steps.ends_with("1000 ms, where 800 ms are allowed: why"));
    }
}
