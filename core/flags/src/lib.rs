// SPDX-License-Identifier: MIT
//! Finding the flag: which memory (or system call) a spinning thread waits for.
//!
//! In: a spin trace, normal traces, and where they part; or a [`Window`] of a live
//! thread. Out: a [`Report`]. See `docs/architecture.md`.

mod access_path;
mod block_set;
mod choose_thread;
mod contents;
mod counted_call;
mod counterpart;
mod deciding_call;
mod discover;
mod endless;
mod evidence;

mod exit_depths;
mod exit_signs;
mod find;
mod finder;
mod frames;
mod live_evidence;
mod loop_condition;
mod moments;
mod naming;
mod owed;
mod passes;
mod places;
mod rank;
mod reads;
mod recent_intake;
mod report;
mod report_builder;
mod rounds;
mod rules;
mod run;
mod run_evidence;
#[cfg(test)]
mod run_rules_tests;
mod sleeper;
mod standing;
mod standstill;
mod stores;
mod touched;
mod twins;
mod waited_word;
mod within_poll;
mod word_flag;

use flagfinder_analysis::{self as analysis, tasks, Analysis};
use flagfinder_code::Names;
use flagfinder_machine::Window;

pub use choose_thread::has_flag;
pub use counted_call::{asks_anew, find_in_calls};
pub use discover::{discover, Discovered, Discovery};
pub use find::{find_flags, find_flags_in, FindError, Options};
pub use finder::OF_INTERPRETER;
pub use flagfinder_analysis::LoopKind;
pub use live_evidence::LiveMemory;
pub use loop_condition::loop_condition;
pub use moments::{Call, Made, Moments, What, Written};
pub use places::Places;
pub use rank::{ENOUGH, ENOUGH_ALONE, INTERPRETER};
pub use report::{
    hex, Addresses, Ask, AskedCall, Facts, Flag, FlagKind, Found, Group, LoopCondition, LoopReport,
    Own, Report, ThreadName, Values, Verdict, VirtualMachine,
};
pub use rules::{Row, Rule, Stage, Weight, MERE_BOUND, RULES};
pub use standing::Standing;

/// Looks for the flag in a window of one thread alone, without other runs.
pub fn find_in_window(window: &Window, names: &Names, thread: ThreadName) -> Report {
    match analysis::analyse(window, names, &[], false) {
        Some(analysis) => {
            let naming = naming::Naming {
                spin: names,
                normal: None,
            };
            let outside = evidence::Outside::default();
            finder::report(window, &analysis, &naming, thread, &outside)
        }
        None => Report::nothing(
            Verdict::NoFlag,
            format!(
                "thread {} repeats nothing within {} instructions",
                thread.tid,
                window.len()
            ),
        ),
    }
}

/// The flag of a task of a scheduler in user space. `None`: it polls none.
pub fn find_in_task(
    task: &Window,
    names: &Names,
    thread: ThreadName,
    process: &dyn LiveMemory,
) -> Option<Report> {
    let mut analysis = analysis::analyse(task, names, &[], false)?;
    let polls = tasks::polls(&mut analysis, task, names);
    polls
        .then(|| tell_live(task, &analysis, names, thread, process))
        .filter(choose_thread::has_flag)
}

fn tell_live(
    window: &Window,
    analysis: &Analysis,
    names: &Names,
    thread: ThreadName,
    process: &dyn LiveMemory,
) -> Report {
    let outside = live_evidence::evidence(window, analysis, names, process);
    let naming = naming::Naming {
        spin: names,
        normal: None,
    };
    finder::report(window, analysis, &naming, thread, &outside)
}

/// As [`find_in_window`], with what the thread's process can still tell.
pub fn find_in_live_window(
    window: &Window,
    names: &Names,
    thread: ThreadName,
    process: &dyn LiveMemory,
) -> Report {
    let tasks = tasks::windows(window);
    let mut polled = tasks
        .iter()
        .filter_map(|task| find_in_task(task, names, thread.clone(), process));
    if let Some(report) = polled.next() {
        return report;
    }
    let of_thread = |scans: bool| {
        let analysis = analysis::analyse(window, names, &[], scans)?;
        if tasks::only_schedules(&analysis.spin, window, names) {
            let reason = "it only looks for a goroutine to run";
            return Some(Report::nothing(Verdict::NoFlag, reason));
        }
        Some(tell_live(window, &analysis, names, thread.clone(), process))
    };
    let Some(report) = of_thread(false) else {
        return find_in_window(window, names, thread);
    };
    // A strlen ends a scan as well, so scans are looked at only if nothing else is found.
    match report.verdict {
        Verdict::NoFlag => of_thread(true)
            .filter(choose_thread::has_flag)
            .unwrap_or(report),
        _ => report,
    }
}
