// SPDX-License-Identifier: MIT
//! Why a process does not go on: who owes what it waits for, and what keeps them, to the end of
//! the chain, across processes.
//!
//! In: a process id, or a core file. Out: a [`WhyReport`]. Threads of the process that poll are
//! looked at as `spin` does it; those of others are read from /proc, and looked at only where the
//! chain comes to one that polls. Blind spots: of a process of several threads it is not known
//! which one serves a connection, unless it is in a call on it; words without an owner (condition
//! variables, semaphores) are owed by whoever is left.

mod asked;
mod causes;
mod children;
mod choose;
mod each;
mod examine;
mod files;
mod flags;
mod goroutines;
mod held;
mod hotspot;
mod in_core;
mod ipc;
mod java;
mod java_objects;
mod locked;
mod mounts;
mod obstacle;
mod place;
mod process;
mod recorded;
mod report;
mod semaphore;
mod sender;
mod served;
mod sockets;
mod stopped;
mod story;
mod terminal;
mod undecided;
mod vm_structs;
mod walk;
mod way;

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use flagfinder_failure::Failure;
use flagfinder_linux::proc::title;
use flagfinder_replica::CoreFile;

use crate::dead::{look_at_core, CoreOptions};
use crate::pick::Told;
use crate::report::{Class, Source, SpinReport, ThreadReport};
use crate::sample;
use crate::spin::{spin, Progress, SpinOptions};
pub use asked::Asked;
pub use each::why_each;
pub(crate) use java_objects::never_changes;
use obstacle::Weight;
use process::Processes;
pub use recorded::why_recorded;
pub use report::{Link, Root, WhyReport};
pub(crate) use vm_structs::LIBRARY as HOTSPOT;
use walk::Walk;

/// Where the chain begins, and how threads are looked at on the way.
#[derive(Clone, Debug, Default)]
pub struct WhyOptions {
    /// Begin with this thread, instead of one that polls, or the first.
    pub thread: Option<u32>,
    /// How those that poll are looked at.
    pub spin: SpinOptions,
    /// What threads of the process poll in code that is not the machine's.
    pub asked: Vec<Asked>,
}

/// Looks at the process; `told` hears which of its threads are about to be stepped.
///
/// # Errors
/// Those of [`spin`].
pub fn why(
    pid: u32,
    options: &WhyOptions,
    told: impl FnOnce(&Progress),
) -> Result<WhyReport, Failure> {
    let spin_options = SpinOptions {
        threads: options.thread.into_iter().collect(),
        ..options.spin.clone()
    };
    let is_told = |tid| {
        options
            .asked
            .iter()
            .any(|one| one.tid == tid && one.tells_all)
    };
    let by_program = |tid| is_told(tid).then_some(Told::Known);
    let spun = spin(pid, &spin_options, told, by_program)?;
    let mut processes = Processes::default();
    let mut report = follow(spun, &mut processes, options.thread, &options.asked, true);
    finish(&mut report, &mut processes);
    Ok(report)
}

/// Most processes of a chain whose titles are told.
const TITLES: usize = 3;

/// What to do next in a living process, and what could not be looked at.
fn finish(report: &mut WhyReport, processes: &mut Processes) {
    let is_java = |pid| {
        let process = processes.get(pid);
        process.is_some_and(|process| process.hot_spot().is_some())
    };
    let stopped_by = |pid, tid| stopped::by(pid, &sample::now(pid, tid)?);
    report.next = story::next(&report.links, &report.root, is_java, stopped_by);
    let mut chain: Vec<u32> = report.links.iter().map(|link| link.waiter.pid).collect();
    chain.extend(report.root.pid);
    chain.dedup();
    let titles = chain.into_iter().filter_map(|pid| Some((pid, title(pid)?)));
    let told = titles.map(|(pid, title)| format!("process {pid} calls itself \"{title}\""));
    report.notes.extend(told.take(TITLES));
    if processes.owners.partial {
        let note = "not every process could be looked at: as root more is seen";
        report.notes.push(note.into());
    }
}

/// The same of a process that left the core file at `path`. `budget` is that of
/// [`look_at_core`].
///
/// # Errors
/// Those of [`look_at_core`].
pub fn why_of_core(
    core: &Rc<CoreFile>,
    path: &Path,
    thread: Option<u32>,
    budget: Duration,
) -> Result<WhyReport, Failure> {
    if let Some(tid) = thread {
        core.thread(tid)?;
    }
    let threads = Vec::new();
    let spun = look_at_core(core, &CoreOptions { threads, budget })?;
    let notes = spun.notes.clone();
    let mut report = follow(spun, &mut Processes::of_core(core), thread, &[], false);
    report.next = story::next_of_core(path, &report.program);
    report.notes = notes;
    if let Some(fault) = fault(core.signal()) {
        report.notes.push(format!(
            "{fault} ended the process: its threads did what they did just then, and may not have hung"
        ));
    }
    Ok(report)
}

/// Signals that the code of a process earns itself.
fn fault(signal: i32) -> Option<&'static str> {
    match signal {
        libc::SIGSEGV => Some("SIGSEGV"),
        libc::SIGBUS => Some("SIGBUS"),
        libc::SIGILL => Some("SIGILL"),
        libc::SIGFPE => Some("SIGFPE"),
        _ => None,
    }
}

/// The chain from the threads that `spin` or a core told of. `looks`: of threads that poll on the
/// way, `spin` is asked what they do.
fn follow(
    spun: SpinReport,
    processes: &mut Processes,
    thread: Option<u32>,
    asked: &[Asked],
    looks: bool,
) -> WhyReport {
    let begins = begins(&spun, thread);
    let (pid, source, program) = (spun.pid, spun.source, spun.program.clone());
    let threads = spun.threads.into_iter().map(|thread| (thread.tid, thread));
    let asked = asked.iter().map(|one| (one.tid, one.clone()));
    let mut walk = Walk::new(processes, threads.collect(), asked.collect(), looks);
    let mut best: Option<(Vec<Link>, Root, Weight)> = None;
    for tid in begins {
        let found = walk.follow(pid, tid);
        let passes = |tid: u32| found.0.iter().any(|link| link.waiter.tid == tid);
        best = Some(match best {
            None => found,
            // The first thread's way leads through the one that polls, or to something that is
            // wrong in itself.
            Some(before) if before.0.first().is_some_and(|l| passes(l.waiter.tid)) => found,
            Some(before) if found.2 > before.2 && found.2 >= Weight::Fault => found,
            // A word that nobody is to write is that of a thread which waits for work.
            Some(before) if before.2 <= Weight::Idle && found.2 >= Weight::Circle => found,
            Some(before) => before,
        });
    }
    let (mut links, mut root, weight) = best.unwrap_or_else(|| walk.follow(pid, pid));
    if thread.is_none() && weight < Weight::Fault {
        if let Some(circle) = walk.any_circle(pid) {
            (links, root) = circle;
        }
    }
    WhyReport {
        schema: WhyReport::SCHEMA,
        source,
        pid,
        program,
        story: story::story(&links, &root),
        next: Vec::new(),
        links,
        root,
        notes: Vec::new(),
    }
}

/// Threads to begin with, the most telling first.
fn begins(report: &SpinReport, asked: Option<u32>) -> Vec<u32> {
    if let Some(tid) = asked {
        return vec![tid];
    }
    // The first thread may have ended, which a core does not tell.
    let all = || report.threads.iter().map(|thread| thread.tid);
    let first = match report.source {
        Source::Core if !all().any(|tid| tid == report.pid) => all().min().unwrap_or(report.pid),
        _ => report.pid,
    };
    let is_hot = |t: &ThreadReport| t.class != Class::LongWait && t.wants >= crate::pick::HOT;
    match report.threads.first() {
        Some(polls) if polls.has_flag() && polls.tid != first && is_hot(polls) => vec![polls.tid],
        Some(polls) if polls.has_flag() && polls.tid != first => vec![polls.tid, first],
        _ => vec![first],
    }
}
