//! Finding the flag: which memory (or system call) a spinning thread waits for.
//!
//! In: a spin trace, normal traces, and where they part; or a [`Window`] of a live
//! thread. Out: a [`Report`]. See `docs/architecture.md`.

mod access_path;
mod analysis;
mod block_set;
mod choose;
mod compound;
mod condition;
mod contents;
mod counterpart;
mod deciding_call;
pub mod decoded;
pub mod decoded_blocks;
mod dependence;
mod effects;
mod endings;
mod evaluate_alu;
mod evaluate_bits;
mod evaluate_move;
mod evaluate_shift;
mod evaluate_string;
pub mod evaluator;
mod evidence;
mod expression;
mod find;
mod finder;
mod frames;
mod gather;
mod generated;
mod idle_call;
mod instead;
mod interpreter;
mod lately;
mod later;
mod live;
mod look_again;
mod naming;
mod natural;
mod operands;
mod own_wakeup;
mod passes;
mod position;
mod progress;
mod rank;
mod reads;
pub mod registers;
pub mod replayer;
mod report;
mod run;
mod slice;
mod spin_loop;
mod stores;
pub mod syscalls;
mod tasks;
mod trace_window;
mod twins;
mod vain;
pub mod value;
mod window;

use flagfinder_code::Names;

use analysis::Analysis;

pub use choose::has_flag;
pub use find::{find_flags, find_flags_in, FindError, Options};
pub use live::LiveMemory;
pub use report::{
    Addresses, DivergenceReport, Flag, FlagKind, Group, LoopKind, LoopReport, Report, ThreadName,
    Threads, Values, Verdict, Writer,
};
pub use tasks::switches;
pub use trace_window::tail_window;
pub use window::{Interruption, Syscall, Window, CLOCK_STEPS};

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

/// The flag of a task that a scheduler in user space hands from one to another of these threads, whose windows have a
/// clock. `None`: there is no such task, or it has no flag.
pub fn find_in_tasks(
    windows: &[Window],
    names: &Names,
    thread: ThreadName,
    process: &dyn LiveMemory,
) -> Option<Report> {
    let of_task = |task: &Window| {
        let mut analysis = analysis::analyse(task, names, &[], false)?;
        let polls = tasks::polls(&mut analysis, task, names);
        polls
            .then(|| tell_live(task, &analysis, names, thread.clone(), process))
            .filter(choose::has_flag)
    };
    tasks::windows(windows).iter().find_map(of_task)
}

fn tell_live(
    window: &Window,
    analysis: &Analysis,
    names: &Names,
    thread: ThreadName,
    process: &dyn LiveMemory,
) -> Report {
    let outside = live::evidence(window, analysis, names, process);
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
    let own = std::slice::from_ref(window);
    if let Some(report) = find_in_tasks(own, names, thread.clone(), process) {
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
    // A strlen ends a scan as well: only where nothing else is found.
    match report.verdict {
        Verdict::NoFlag => of_thread(true).filter(choose::has_flag).unwrap_or(report),
        _ => report,
    }
}

/// What tells whether a window is long enough to judge by.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Whole iterations of the loop at the window's end.
    pub iterations: u64,
    /// They are an interpreter's: many of them may be one of the loop that it runs.
    pub interprets: bool,
    /// Something but the thread itself decides when the loop is left. If not, it may be the pause within another,
    /// of which the window shows too little.
    pub waits_for_others: bool,
}

/// Looks at the loop at the window's end; `None` without one.
pub fn seen(window: &Window) -> Option<Seen> {
    let spin = spin_loop::find(window, &[])?;
    Some(Seen {
        iterations: spin.iterations,
        interprets: interpreter::interprets(window, &spin),
        waits_for_others: analysis::waits_for_others(window, &spin),
    })
}
