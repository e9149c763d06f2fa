// SPDX-License-Identifier: MIT
//! From a process id to the report: sample, choose, step in helpers, describe the rest.

use std::fs;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Duration;

use flagfinder_code::{Names, NamesInput};
use flagfinder_failure::Failure;
use flagfinder_linux::proc::{lives, path, threads, Stat};
use flagfinder_step::{unable, unable_by};

use crate::chosen_threads::Choice;
use crate::counted;
use crate::deadline::Deadline;
use crate::driver::{does, unlooked, Driver, Target, DESCRIBED};
use crate::findings::{denied, findings};
use crate::helpers::{Copies, Helpers};
use crate::later;
use crate::memory::{refused, Memory};
use crate::others::Others;
use crate::owed;
use crate::prove::prove;
use crate::report::{SpinReport, ThreadReport};
use crate::sample::{self, Activity, SAMPLE};
use crate::silent;
use crate::stack::Stack;
use crate::thread_ways::{self, Told, Way};
use crate::wait::Describer;
use crate::why::hotspot::HotSpot;
use flagfinder_waits::Owners;

/// What is looked at in a live process, and how long.
#[derive(Clone, Debug)]
pub struct SpinOptions {
    /// Only these threads; empty: those that seem to repeat something.
    pub threads: Vec<u32>,
    /// Of those that seem to repeat something only the first thread, and those that use a
    /// processor: the others are left for later.
    pub only_urgent: bool,
    /// The longest pause of each thread.
    pub budget: Duration,
    /// The most threads that are stepped.
    pub most: usize,
    /// Step the threads themselves; otherwise copies are looked at, and a thread itself is stepped
    /// only where its copy does not do what it does.
    pub in_place: bool,
    /// Time for copies of other threads, which show who would write the word of the first thread
    /// that polls one.
    pub copies: Duration,
    /// What is not done by then is left out.
    pub deadline: Deadline,
}

impl Default for SpinOptions {
    fn default() -> Self {
        SpinOptions {
            threads: Vec::new(),
            only_urgent: false,
            budget: Duration::from_millis(800),
            most: 4,
            in_place: false,
            copies: owed::TIME,
            deadline: Deadline::default(),
        }
    }
}

/// What the caller hears meanwhile.
#[derive(Clone, Debug)]
pub enum Progress<Report> {
    /// Threads are about to be looked at.
    Begins {
        /// How many, with those that only wait.
        threads: usize,
        /// Thread ids of those that will be looked at while they repeat something.
        stepped: Vec<u32>,
    },
    /// The report as far as it is known: what is left where the rest gets no answer.
    SoFar(Box<Report>),
}

/// Looks at the process; `hear` is told how far that is. `by_program`: what the
/// program's own code tells of a thread. One of which it tells something is not stepped, and no
/// words are tried out for it; of one whose loop ends by itself no copy is needed. It is asked
/// while copies are looked at.
///
/// # Errors
/// Four parts: the process is gone, may not be looked at, or is no 64-bit program.
pub fn spin(
    pid: u32,
    options: &SpinOptions,
    hear: &dyn Fn(Progress<SpinReport>),
    by_program: impl Fn(u32) -> Option<Told>,
) -> Result<SpinReport, Failure> {
    look(pid, options, hear, by_program).map(|(report, _)| report)
}

/// What was learnt of a process beside the report.
pub(crate) struct Looked {
    pub names: Names,
    /// What its threads do, if none was looked at further: then no time has passed since.
    pub activities: Option<Vec<Activity>>,
    /// Threads that repeat something, and were left for later.
    pub later: Vec<u32>,
}

/// The same, with what else was learnt.
pub(crate) fn look(
    pid: u32,
    options: &SpinOptions,
    hear: &dyn Fn(Progress<SpinReport>),
    by_program: impl Fn(u32) -> Option<Told>,
) -> Result<(SpinReport, Looked), Failure> {
    let deadline = &options.deadline;
    check(pid)?;
    let memory = Memory::open(pid).map_err(|e| refused(pid, &e))?;
    let read = || NamesInput::from_live(pid).map_err(|e| refused(pid, &e));
    let mut names = Names::new(read()?);
    let all = activities(pid, &memory, &names)?;
    let mut choice = Choice::of(pid, all.clone(), &options.threads, options.most)?;
    let later = match options.only_urgent {
        true => choice.leave_for_later(),
        false => Vec::new(),
    };
    hear(Progress::Begins {
        threads: choice.threads.len(),
        stepped: choice.tids().to_vec(),
    });
    // Threads and their stacks may have moved since.
    names.renew(read()?);
    let mut copies = match options.in_place {
        true => Copies::default(),
        false => {
            let budget = (options.budget, deadline);
            Copies::look(pid, &choice.named(), budget, &names, &by_program)?
        }
    };
    let of_program = choice.leave(&copies, |tid| match options.in_place {
        true => None,
        false => by_program(tid),
    });
    let counted = match options.in_place {
        true => Vec::new(),
        false => counted::look(pid, &choice, &mut copies, (&names, deadline))?,
    };
    let mut to_step = choice.to_step(&copies);
    to_step.retain(|(tid, _)| counted.iter().all(|(known, _)| known != tid));
    let is_still = choice.tids().is_empty() && of_program.is_empty();
    if !options.in_place && !to_step.is_empty() {
        names.renew(read()?);
    }
    let sleepers = choice.sleepers();
    let mut helpers = Helpers::new(pid, &names, &copies, (options.budget, deadline));
    let threads = names.input().threads.iter();
    let mut driver = Driver {
        describer: Describer {
            pid: Some(pid),
            memory: &memory,
            names: &names,
            threads: threads.map(|t| (t.own_id, t.tid)).collect(),
            owners: Owners::default(),
        },
        choice,
        deadline,
        report: SpinReport {
            started: started(pid).unwrap_or(0),
            budget_ms: options.budget.as_millis() as u64,
            ..SpinReport::of_live(pid)
        },
    };
    to_step.retain(|(tid, _)| !driver.leaves_out(*tid));
    helpers.start(&to_step)?;
    driver.describe();
    // A thread that was asked for is looked at, and no other.
    if let Some(room) = driver.choice.room(copies.fit.len()) {
        for tid in helpers.follow(&sleepers, room)? {
            driver.choice.took_over(tid);
            let report = &mut driver.report;
            report.threads.retain(|thread| thread.tid != tid);
            report.notes.push(format!(
                "thread {tid} began to run while others were held, and was stepped too"
            ));
        }
    }
    let uncopied = match options.in_place {
        true => "no copy was asked for",
        false => "it began to run while others were held",
    };
    let mut seen = findings(&driver.choice, &copies, helpers, uncopied);
    seen.extend(counted);
    let way = |tid| driver.choice.get(tid).map(|(_, way)| way);
    let is_hot = |tid| way(tid) == Some(&Way::Hot);
    later::look(pid, &mut seen, (&memory, deadline), is_hot);
    for (tid, finding) in &seen {
        driver.add(*tid, finding);
    }
    driver.add_unlooked();
    let any = driver.report.threads.iter().any(|t| t.steps > 0);
    if let Some(tid) = denied(&seen).filter(|_| !any) {
        let error = std::io::Error::from_raw_os_error(libc::EPERM);
        return Err(unable_by(format!("Thread {tid} cannot be traced"), &error));
    }
    hear(Progress::SoFar(driver.report.so_far()));
    let target = LiveTarget {
        pid,
        names: &names,
        memory: &memory,
        budget: options.budget,
    };
    driver.settle(&target, &all, &of_program, options.copies);
    let mut report = driver.report;
    report.tell_late();
    report.settle(deadline);
    silent::note(pid, &names, &mut report.notes);
    let activities = all.into_iter().map(|(activity, _)| activity);
    let looked = Looked {
        activities: is_still.then(|| activities.collect()),
        names,
        later,
    };
    Ok((report, looked))
}

struct LiveTarget<'a> {
    pid: u32,
    names: &'a Names,
    memory: &'a Memory,
    budget: Duration,
}

impl Target for LiveTarget<'_> {
    fn prove(&self, thread: &mut ThreadReport, others: &Others, time: Duration) {
        let limits = (time, self.budget);
        prove(self.pid, thread, others, self.names, self.memory, limits);
    }
}

/// What the kernel alone tells at one look, without any of the process's files: what is left where
/// the rest gets no answer.
pub fn first_look(pid: u32) -> SpinReport {
    let tids = threads(pid).unwrap_or_default();
    let looked = tids.into_iter().take(DESCRIBED);
    let activities = looked.filter_map(|tid| sample::now(pid, tid));
    let told = activities.map(|activity| unlooked(&activity));
    SpinReport {
        started: started(pid).unwrap_or(0),
        threads: told.collect(),
        ..SpinReport::of_live(pid)
    }
}

/// What a thread does, in a few words, as the kernel tells it; `None`: it has ended.
pub fn at_a_glance(pid: u32, tid: u32) -> Option<String> {
    sample::now(pid, tid).map(|activity| does(&activity))
}

/// What each thread does, and whether it may be looked at. What names the open calls of blocked
/// threads is read meanwhile, and once a thread stirs all files with names: the helpers are forks,
/// and share what was read.
fn activities(pid: u32, memory: &Memory, names: &Names) -> Result<Vec<(Activity, Way)>, Failure> {
    let over = AtomicBool::new(false);
    let activities = std::thread::scope(|scope| {
        // Where no thread may be started, it is read later.
        let _ = Builder::new().spawn_scoped(scope, || name_calls(pid, memory, names, &over));
        let activities = sample::sample_until(pid, SAMPLE, || {
            let warm = || names.warm(|| !over.load(Ordering::Relaxed));
            let _ = Builder::new().spawn_scoped(scope, warm);
        });
        over.store(true, Ordering::Relaxed);
        activities
    });
    let activities = activities.map_err(|e| refused(pid, &e))?.into_iter();
    let with_ways = activities.map(|activity| {
        let way = thread_ways::way(&activity, memory);
        (activity, way)
    });
    let mut with_ways: Vec<(Activity, Way)> = with_ways.collect();
    leave_machine(names, memory, &mut with_ways);
    Ok(with_ways)
}

/// Threads of Java's virtual machine itself wake again and again, and wait for no word of the
/// program: they are not stepped unless they are busy.
fn leave_machine(names: &Names, memory: &Memory, all: &mut [(Activity, Way)]) {
    leave_monitor(names, memory, all);
    let ids = names
        .input()
        .threads
        .iter()
        .map(|one| (one.own_id, one.tid));
    let repeats = |one: &(Activity, Way)| one.1 == Way::Repeats;
    let machine = all
        .iter()
        .any(repeats)
        .then(|| HotSpot::of(names, memory, &ids.collect()));
    let Some(machine) = machine.flatten() else {
        return;
    };
    for (activity, way) in all.iter_mut().filter(|one| repeats(one)) {
        if machine.is_own(memory, activity.tid, &activity.name) {
            *way = Way::Waits;
        }
    }
}

/// Neither is the thread of Go's runtime that looks after the others.
fn leave_monitor(names: &Names, memory: &Memory, all: &mut [(Activity, Way)]) {
    let is_go = names.go_data().is_some();
    let repeats = |one: &&mut (Activity, Way)| is_go && one.1 == Way::Repeats;
    for (activity, way) in all.iter_mut().filter(repeats) {
        let calls = activity
            .call
            .map(|call| Stack::of(&call, memory, names).calls(names));
        let mut calls = calls.into_iter().flatten();
        if calls.any(|(_, name, _)| name.starts_with("runtime.sysmon")) {
            *way = Way::Waits;
        }
    }
}

/// Names the open calls of the first threads, for what that reads.
fn name_calls(pid: u32, memory: &Memory, names: &Names, over: &AtomicBool) {
    let tids = threads(pid).unwrap_or_default().into_iter().take(DESCRIBED);
    for tid in tids.take_while(|_| !over.load(Ordering::Relaxed)) {
        if let Some(call) = sample::now(pid, tid).and_then(|activity| activity.call) {
            Stack::of(&call, memory, names).spots(names);
        }
    }
}

/// When the process started, in clock ticks since boot; tells it from a later one of its number.
pub(crate) fn started(pid: u32) -> Option<u64> {
    Stat::of(pid)?.field(Stat::STARTED)
}

/// Only 64-bit programs of others are looked at.
pub fn check(pid: u32) -> Result<(), Failure> {
    /// AT_PAGESZ, and a page's bytes.
    const PAGES: [u32; 2] = [6, 4096];
    if pid == std::process::id() {
        return Err(unable(
            "flagfinder cannot step itself",
            format!("Process {pid} is this command"),
            "Name another process",
        ));
    }
    if !fs::exists(format!("/proc/{pid}")).unwrap_or(false) {
        return Err(refused(pid, &ErrorKind::NotFound.into()));
    }
    // What the kernel told the program: its file may lie where nobody answers.
    let told = fs::read(path(pid, "auxv")).and_then(|told| match told.is_empty() {
        true => Err(ErrorKind::NotFound.into()),
        false => Ok(told),
    });
    // While a program begins, nothing is told yet.
    let is_narrow = |told: &[u8]| {
        let narrow = PAGES.map(u32::to_le_bytes).concat();
        told.chunks_exact(narrow.len()).any(|pair| *pair == *narrow)
    };
    match told {
        Ok(told) if !is_narrow(&told) => Ok(()),
        Ok(_) => Err(unable(
            format!("Process {pid} is not stepped"),
            "It is a 32-bit program",
            "Only 64-bit programs are understood",
        )),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(unable(
            format!("Process {pid} is not stepped"),
            without_program(pid),
            "Name another process",
        )),
        Err(e) => Err(refused(pid, &e)),
    }
}

/// Why /proc shows no executable of a process.
fn without_program(pid: u32) -> &'static str {
    match lives(pid) {
        true => "It has no program: it is a thread of the kernel",
        false => "It has ended; only its exit status is left (a zombie)",
    }
}
