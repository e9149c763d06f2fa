// SPDX-License-Identifier: MIT
//! What was seen of the threads that were looked at: in their copies, or in place.

use flagfinder_code::Names;
use flagfinder_flags::{Report, ThreadName, Verdict};
use flagfinder_machine::Window;

use crate::chosen_threads::Choice;
use crate::helpers::{Copies, Helpers};
use crate::memory::Memory;
use crate::report::Via;
use crate::stepping_job::{look_at_tasks, Finding};

/// What was seen, thread by thread.
pub(crate) struct Seen {
    pub findings: Vec<(u32, Finding)>,
    /// What was seen in place, where it may be part of a task that goes from thread to thread.
    parts: Vec<(ThreadName, Window)>,
}

impl Seen {
    /// Waits for the helpers. `uncopied` is why a thread was seen in place that had no copy.
    pub fn of(choice: &Choice, copies: &Copies, helpers: Helpers, uncopied: &str) -> Seen {
        let mut seen = Seen {
            findings: Vec::new(),
            parts: Vec::new(),
        };
        let fit = copies.fit.iter();
        seen.findings
            .extend(fit.filter(|(tid, _)| choice.get(*tid).is_some()).cloned());
        for (tid, mut finding, window) in helpers.results() {
            let Some((activity, _)) = choice.get(tid) else {
                continue;
            };
            let unfit = copies.unfit.get(&tid);
            let (held, why) = unfit.map_or((0.0, uncopied), |(held, why)| (*held, why.as_str()));
            finding.via = Via::InPlace;
            finding.via_reason = why.to_owned();
            finding.pause_ms = ((held + finding.pause_ms) * 100.0).round() / 100.0;
            let name = activity.name.clone();
            seen.parts
                .extend(window.map(|window| (ThreadName { tid, name }, window)));
            seen.findings.push((tid, finding));
        }
        seen
    }

    /// The first thread that could not be stepped, as the system does not permit it.
    pub fn denied(&self) -> Option<u32> {
        let mut findings = self.findings.iter();
        let denied = findings.find(|(_, finding)| finding.denied);
        denied.map(|(tid, _)| *tid)
    }

    /// Where no thread has a flag, a task that goes from thread to thread may have one.
    pub fn ask_tasks(&mut self, pid: u32, names: &Names, memory: &Memory) {
        // A thread that could not be stepped has no verdict.
        let no_flag = |report: &Report| report.verdict == Verdict::NoFlag;
        let mut findings = self.findings.iter();
        if !findings.all(|(_, finding)| finding.report.as_ref().is_none_or(no_flag)) {
            return;
        }
        let of_task = look_at_tasks(pid, std::mem::take(&mut self.parts), names, memory);
        let spin = of_task
            .as_ref()
            .and_then(|report| report.threads.spin.as_ref());
        let Some(tid) = spin.map(|spin| spin.tid) else {
            return;
        };
        if let Some((_, finding)) = self.findings.iter_mut().find(|(of, _)| *of == tid) {
            let facts = finding.report.take().map(|report| report.facts);
            finding.report = of_task.map(|report| Report {
                facts: facts.unwrap_or_default(),
                ..report
            });
        }
    }
}
