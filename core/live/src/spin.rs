// SPDX-License-Identifier: MIT
//! From a process id to the report: sample, choose, step in helpers, describe the rest.

use std::fs;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flagfinder_code::{own_id, Names, NamesInput};
use flagfinder_failure::Failure;
use flagfinder_flags::{Flag, LoopKind, Report};
use flagfinder_linux::proc::{lives, path, threads, Stat};
use flagfinder_linux::syscalls;
use flagfinder_step::{unable, unable_by};

use crate::candidate::Candidate;
use crate::chain;
use crate::choice::Choice;
use crate::deadline::Deadline;
use crate::helpers::{what_it_does, Copies, Helpers};
use crate::hot_call;
use crate::look::Finding;
use crate::machine;
use crate::memory::{refused, Memory};
use crate::nearly;
use crate::order;
use crate::others::{Other, Others};
use crate::owed;
use crate::pick::{self, Told, Way};
use crate::prove::{not_proved, prove};
use crate::report::{Class, SpinReport, ThreadReport};
use crate::sample::{self, Activity};
use crate::seen::Seen;
use crate::service;
use crate::silent;
use crate::wait::Describer;
use flagfinder_waits::Owners;

/// What is looked at in a live process, and how long.
#[derive(Clone, Debug)]
pub struct SpinOptions {
    /// Only these threads; empty: those that seem to repeat something.
    pub threads: Vec<u32>,
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

const SAMPLE: Duration = Duration::from_millis(200);
/// Most blocked threads that are described.
pub(crate) const DESCRIBED: usize = 64;

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
    let deadline = &options.deadline;
    check(pid)?;
    let memory = Memory::open(pid).map_err(|e| refused(pid, &e))?;
    let read = || NamesInput::from_live(pid).map_err(|e| refused(pid, &e));
    let mut names = Names::new(read()?);
    let all = activities(pid, &memory, &names)?;
    let mut choice = Choice::of(pid, all.clone(), &options.threads, options.most)?;
    hear(Progress::Begins {
        threads: choice.threads.len(),
        stepped: choice.tids().to_vec(),
    });
    // Threads and their stacks may have moved since.
    names.renew(read()?);
    let copies = match options.in_place {
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
    let to_step = choice.to_step(&copies);
    if !options.in_place && !to_step.is_empty() {
        names.renew(read()?);
    }
    let sleepers = choice.sleepers();
    let mut helpers = Helpers::new(pid, &names, options.budget, deadline);
    let is_left_out = |tid: u32| deadline.leaves_out(|| what_it_does(tid));
    let to_step: Vec<_> = to_step
        .into_iter()
        .filter(|(tid, _)| !is_left_out(*tid))
        .collect();
    helpers.start(&to_step)?;
    let threads = choice.threads.iter();
    let mut describer = Describer {
        pid: Some(pid),
        memory: &memory,
        names: &names,
        threads: threads.map(|(a, _)| (own_id(pid, a.tid), a.tid)).collect(),
        owners: Owners::default(),
    };
    let mut report = SpinReport {
        started: started(pid).unwrap_or(0),
        budget_ms: options.budget.as_millis() as u64,
        ..SpinReport::of_live(pid)
    };
    describe(&choice, &mut describer, &mut report, deadline);
    // A thread that was asked for is looked at, and no other.
    if let Some(room) = choice.room(copies.fit.len()) {
        for tid in helpers.follow(&sleepers, room)? {
            choice.took_over(tid);
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
    let mut seen = Seen::of(&choice, &copies, helpers, uncopied, &memory);
    seen.ask_tasks(pid, &names, &memory);
    for (tid, finding) in &seen.findings {
        if let Some((activity, way)) = choice.get(*tid) {
            let thread = stepped(activity, way, finding, &mut describer);
            report.threads.push(thread);
            if !finding.late.is_empty() {
                report.notes.push(format!("thread {tid} {}", finding.late));
            }
        }
    }
    for (activity, _) in choice.tids().iter().filter_map(|tid| choice.get(*tid)) {
        if !report.threads.iter().any(|told| told.tid == activity.tid) {
            report.threads.push(unlooked(activity));
        }
    }
    hear(Progress::SoFar(report.so_far()));
    let others = others(&report.threads, &all);
    let mut time = options.copies;
    // If some thread has a flag, the others are not asked more closely.
    let has_none = !report.threads.iter().any(ThreadReport::has_flag);
    let is_open = |thread: &&mut ThreadReport| {
        thread.has_flag() || machine::is_open(thread) || has_none && nearly::is_open(thread)
    };
    let begin = Instant::now();
    for thread in report.threads.iter_mut().filter(is_open) {
        if of_program.contains(&thread.tid) || machine::is_late(thread, begin.elapsed()) {
            machine::leave(thread);
            continue;
        }
        let tid = thread.tid;
        if deadline.leaves_out(|| format!("who owes what thread {tid} polls, and its proof")) {
            not_proved(thread, "the time limit was over");
            machine::leave(thread);
            continue;
        }
        prove(
            pid,
            thread,
            &others,
            &names,
            &memory,
            deadline.at_most(time),
        );
        time = time.min(owed::TIME_OF_OTHERS);
        hot_call::tell(pid, thread, &memory, &mut describer.owners);
    }
    let any = report.threads.iter().any(|t| t.steps > 0);
    if let Some(tid) = seen.denied().filter(|_| !any) {
        let error = std::io::Error::from_raw_os_error(libc::EPERM);
        return Err(unable_by(format!("Thread {tid} cannot be traced"), &error));
    }
    arrange(&mut report, choice.left_out());
    report.settle(deadline);
    silent::note(pid, &names, &mut report.notes);
    Ok(report)
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

/// A thread of which there is no time to ask more.
pub(crate) fn unlooked(activity: &Activity) -> ThreadReport {
    let class = match activity.wants >= pick::HOT || activity.state == 'R' {
        true => Class::LongRunning,
        false => Class::LongWait,
    };
    ThreadReport {
        reason: format!("not looked at, for want of time; {}", does(activity)),
        ..blank(activity, class)
    }
}

/// What a thread does, in a few words, as the kernel tells it; `None`: it has ended.
pub fn at_a_glance(pid: u32, tid: u32) -> Option<String> {
    sample::now(pid, tid).map(|activity| does(&activity))
}

fn does(activity: &Activity) -> String {
    let call = activity.call.map(|call| syscalls::name(call.number));
    let call = call.map_or(String::new(), |name| format!(" in {name}"));
    let place = match activity.sleeps_in.as_str() {
        "" => String::new(),
        place => format!(" (in the kernel's {place})"),
    };
    let state = match activity.state {
        'R' => "runs, or is ready to",
        'D' => "waits without being interruptible",
        'T' | 't' => "is stopped",
        'Z' | 'X' => "has ended",
        _ => "waits",
    };
    format!("it {state}{call}{place}")
}

/// What each thread does, and whether it may be looked at. Files with names are read meanwhile:
/// the helpers are forks, and share what was read.
fn activities(pid: u32, memory: &Memory, names: &Names) -> Result<Vec<(Activity, Way)>, Failure> {
    let over = AtomicBool::new(false);
    let activities = std::thread::scope(|scope| {
        scope.spawn(|| names.warm(|| !over.load(Ordering::Relaxed)));
        let activities = sample::sample(pid, SAMPLE);
        over.store(true, Ordering::Relaxed);
        activities
    });
    let activities = activities.map_err(|e| refused(pid, &e))?.into_iter();
    let with_ways = activities.map(|activity| {
        let way = pick::way(&activity, memory);
        (activity, way)
    });
    Ok(with_ways.collect())
}

/// Adds the threads that are not looked at.
fn describe(
    choice: &Choice,
    describer: &mut Describer,
    report: &mut SpinReport,
    deadline: &Deadline,
) {
    let is_left = |(activity, _): &&(Activity, Way)| !choice.tids().contains(&activity.tid);
    let left: Vec<&(Activity, Way)> = choice.threads.iter().filter(is_left).collect();
    for (activity, way) in left.iter().take(DESCRIBED) {
        let tid = activity.tid;
        let thread = match deadline.leaves_out(|| format!("what thread {tid} waits for")) {
            true => unlooked(activity),
            false => untouched(activity, way, describer),
        };
        report.threads.push(thread);
    }
    if left.len() > DESCRIBED {
        let more = left.len() - DESCRIBED;
        report.notes.push(format!(
            "{more} more blocked threads are not shown; --thread TID shows one"
        ));
    }
}

/// The threads that tell most come first, with those that wait for them; `left_out` more repeat
/// something and were not looked at.
fn arrange(report: &mut SpinReport, left_out: usize) {
    report.threads.iter_mut().for_each(service::leave);
    service::leave_idle(&mut report.threads);
    order::sort(&mut report.threads);
    let tells = |thread: &ThreadReport| thread.has_flag() || thread.steps > 0;
    let fixed = report.threads.iter().take_while(|t| tells(t)).count();
    let chains = chain::sort(&mut report.threads, fixed);
    report.notes.extend(chains);
    if left_out > 0 {
        report.notes.push(format!(
            "{left_out} more threads repeat something and were not stepped; --thread TID steps one"
        ));
    }
}

/// The threads that may be copied, those that were described first, and why another one may not.
fn others(reports: &[ThreadReport], threads: &[(Activity, Way)]) -> Others {
    let known = |tid: u32| reports.iter().find(|report| report.tid == tid);
    let mut others = Others::default();
    for (activity, way) in threads {
        match (way, known(activity.tid)) {
            (Way::Untouchable(why), _) => {
                let why = format!("thread {} can't be copied: {why}", activity.tid);
                others.left_out.get_or_insert(why);
            }
            (_, Some(report)) => others.list.push(Other::of(report)),
            (way, None) => others.list.push(Other {
                tid: activity.tid,
                name: activity.name.clone(),
                waits: (*way == Way::Waits)
                    .then(|| activity.call.map(|call| syscalls::name(call.number)))
                    .flatten(),
                polls: false,
            }),
        }
    }
    others.list.sort_by_key(|other| known(other.tid).is_none());
    others
}

fn blank(activity: &Activity, class: Class) -> ThreadReport {
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    ThreadReport {
        name: activity.name.clone(),
        cpu: round(activity.cpu),
        wants: round(activity.wants),
        sleeps_per_second: round(activity.sleeps as f64 / SAMPLE.as_secs_f64()),
        ..ThreadReport::blank(activity.tid, class)
    }
}

pub(crate) fn untouched(activity: &Activity, way: &Way, describer: &mut Describer) -> ThreadReport {
    let class = match way {
        Way::Hot | Way::Told(Told::Ends) => Class::LongRunning,
        Way::Repeats | Way::Told(Told::Known) => Class::RepeatedYield,
        Way::Waits | Way::Untouchable(_) => Class::LongWait,
    };
    let wait = describer.wait(activity.call, &activity.sleeps_in);
    ThreadReport {
        reason: match way {
            Way::Untouchable(why) => format!("not stepped: {why}"),
            Way::Hot | Way::Repeats => "not stepped: others seemed to tell more".into(),
            Way::Waits => wait.summary.clone(),
            Way::Told(Told::Known) => "not stepped: the program's own code tells its loop".into(),
            Way::Told(Told::Ends) => {
                "its loop comes to an end by itself, as its own code tells".into()
            }
        },
        wait: Some(wait),
        ..blank(activity, class)
    }
}

pub(crate) fn stepped(
    activity: &Activity,
    way: &Way,
    finding: &Finding,
    describer: &mut Describer,
) -> ThreadReport {
    let mut report = blank(activity, class(way, finding.report.as_ref()));
    report.steps = finding.steps;
    report.pause_ms = finding.pause_ms;
    if report.steps > 0 {
        report.via = Some(finding.via);
        report.via_reason = Some(finding.via_reason.clone());
    }
    report.held.clone_from(&finding.held);
    match &finding.report {
        Some(found) => {
            let candidates = |flags: &[Flag]| flags.iter().cloned().map(Candidate::new).collect();
            report.verdict = Some(found.verdict);
            report.reason.clone_from(&found.reason);
            report.spin_loop.clone_from(&found.spin_loop);
            report.flags = candidates(&found.flags);
            report.considered = candidates(&found.considered);
            report.groups.clone_from(&found.groups);
            report.notes.clone_from(&found.notes);
            report.explain.clone_from(&found.explain);
            report.facts = found.facts.clone();
        }
        None => {
            let error = finding.error.as_deref().unwrap_or_default();
            report.reason = format!("not stepped: {error}");
        }
    }
    if !finding.ended.is_empty() {
        report.reason += &format!("; {}", finding.ended);
    }
    if activity.call.is_some() && !report.has_flag() {
        report.wait = Some(describer.wait(activity.call, &activity.sleeps_in));
    }
    report
}

/// A thread that polls repeats a wait, whether it gives way or not; a thread that computes runs
/// long.
fn class(way: &Way, found: Option<&Report>) -> Class {
    let kind = found.and_then(|found| Some(found.spin_loop.as_ref()?.kind));
    let gives_way = matches!(
        kind,
        Some(LoopKind::Yield | LoopKind::Sleep | LoopKind::Syscall)
    );
    let polls = found.is_some_and(|found| !found.flags.is_empty());
    if polls || gives_way || *way == Way::Repeats {
        Class::RepeatedYield
    } else {
        Class::LongRunning
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
