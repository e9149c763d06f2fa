// SPDX-License-Identifier: MIT
//! The report of `spin` for a process that left a core file.
//!
//! In: a core file. Out: a [`SpinReport`]. A copy of each thread is made from the core and goes on:
//! the copies that go round show what they poll, the others are described from their registers and
//! stacks. Where a copy comes to a call whose answer is not known, others are given each answer
//! that the call may have had. The thread went round its loop: so the answer that it got is one
//! with which a copy comes round, and holds what the core holds. Blind spots: what came to a
//! descriptor is not in a core; of answers with which copies do the same, none is told.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use flagfinder_code::{Maps, Names};
use flagfinder_failure::Failure;
use flagfinder_flags::{
    find_in_live_window, find_in_task, has_flag, FlagKind, Report, Standing, ThreadName, Verdict,
};
use flagfinder_linux::futex;
use flagfinder_linux::syscalls::{self, role, Role};
use flagfinder_machine::Window;
use flagfinder_replica::{
    go_round, keep, CoreFile, CoreThread, Guess, Guessed, Halt, Pages, Replica, ThreadState,
};
use flagfinder_waits::proc::Call;
use flagfinder_waits::{call, Owners};
use rustc_hash::FxHashMap;

use crate::chosen_threads::Choice;
use crate::deadline::Deadline;
use crate::driver::{Driver, Target};
use crate::memory::NamedMemory;
use crate::original::{take_turns, takes_input};
use crate::others::{Others, Process};
use crate::owed;
use crate::prove::{begin, try_out};
use crate::report::{Source, SpinReport, ThreadReport, Via};
use crate::sample::Activity;
use crate::spin::Progress;
use crate::stepping_job::{is_long_enough, Finding, MOST};
use crate::task_copies::is_of_task;
use crate::thread_ways::{self, Way};
use crate::tried::halted;
use crate::turns::{given, waits_again};
use crate::wait::Describer;
use crate::why::{resumed_goroutines, HOTSPOT};

/// Time between two reports that are handed on while threads are looked at.
const BETWEEN: Duration = Duration::from_millis(200);
/// Most threads of a core that are looked at, unless they were asked for.
const MOST_THREADS: usize = 1000;
/// Most calls of a thread whose answers are guessed, and most copies that are given guesses.
const MOST_GUESSES: usize = 6;
const MOST_GUESSING: usize = 40;
/// Time for one of these, at most; all together have the time of one that is given none.
const GUESSING: Duration = Duration::from_secs(2);
/// A call of the loop is made so often, at least.
const LEAST_GUESSED: u32 = 3;

/// Most files that the report names because they could not be read.
const MOST_MISSING: usize = 100;

/// What is looked at in a core file.
#[derive(Clone, Debug)]
pub struct CoreOptions {
    /// Thread ids as the core file has them; empty: all.
    pub threads: Vec<u32>,
    /// Those of which the program's own code tells what they wait for: no words are tried out.
    pub of_program: Vec<u32>,
    /// For how long the copy of each thread goes on, at most.
    pub budget: Duration,
    /// What is not done by then is left out.
    pub deadline: Deadline,
}

/// Looks at the threads of the dead process; `hear` is told how far that is.
///
/// # Errors
/// Four parts: the core has no such thread.
pub fn look_at_core(
    core: &CoreFile,
    options: &CoreOptions,
    hear: &dyn Fn(Progress<SpinReport>),
) -> Result<SpinReport, Failure> {
    let mut report = look_at_threads(core, options, hear)?;
    report.settle(&options.deadline);
    Ok(report)
}

/// The same, for a question that goes on: what is left out is told at its end.
pub(crate) fn look_at_threads(
    core: &CoreFile,
    options: &CoreOptions,
    hear: &dyn Fn(Progress<SpinReport>),
) -> Result<SpinReport, Failure> {
    let names = Names::new(core.names_input());
    for tid in &options.threads {
        core.thread(*tid)?;
    }
    let most_used = core.threads().iter().map(|thread| thread.used).max();
    let with_way = |thread: &CoreThread| {
        let mut activity = activity(thread);
        activity.cpu = match most_used {
            Some(most @ 1..) => thread.used as f64 / most as f64,
            _ => activity.wants,
        };
        let way = match thread_ways::way(&activity, core) {
            // How soon it would wake is not in a core.
            Way::Waits if wakes_at_a_time(&activity, core) => Way::Repeats,
            way => way,
        };
        (activity, way)
    };
    let all: Vec<(Activity, Way)> = core.threads().iter().map(with_way).collect();
    let choice = Choice::of(core.pid(), all.clone(), &options.threads, MOST_THREADS)?;
    let mut driver = Driver {
        choice,
        describer: Describer {
            pid: None,
            memory: core,
            names: &names,
            threads: core.threads().iter().map(|t| (t.tid, t.tid)).collect(),
            owners: Owners::default(),
        },
        deadline: &options.deadline,
        report: SpinReport {
            source: Source::Core,
            program: core.program().to_owned(),
            budget_ms: options.budget.as_millis() as u64,
            ..SpinReport::of_none(core.pid())
        },
    };
    driver.describe();
    let _keeping = keep();
    let mut handed_on = Instant::now();
    let mut states = FxHashMap::default();
    for tid in driver.choice.tids().to_vec() {
        if driver.leaves_out(tid) {
            continue;
        }
        let dead = Dead {
            core,
            names: &names,
            thread: core.thread(tid)?,
            time: options.deadline.at_most(options.budget),
        };
        match dead.look() {
            // It had not come back from its call, and does not in its copy.
            Ok(seen) if seen.is_stuck() => driver.add_waiting(tid),
            Ok(seen) => {
                driver.add(tid, &seen.finding);
                states.insert(tid, seen.state);
            }
            Err(error) => {
                let why = format!("no copy of it could be made: {error}");
                driver.add(tid, &Finding::missing(why));
            }
        }
        if handed_on.elapsed() > BETWEEN {
            hear(Progress::SoFar(driver.report.so_far()));
            handed_on = Instant::now();
        }
    }
    driver.add_unlooked();
    let target = CoreTarget {
        core,
        names: &names,
        states: &states,
    };
    driver.settle(&target, &all, &options.of_program, owed::TIME);
    let mut report = driver.report;
    let missing = core.missing();
    for (path, why) in missing.iter().take(MOST_MISSING) {
        report.notes.push(format!(
            "{} {why}: its code is unknown, and so is what it does; --sysroot DIR names a folder \
             that has it",
            path.display()
        ));
    }
    if let Some(more @ 1..) = missing.len().checked_sub(MOST_MISSING) {
        let note = format!("{more} more files of the process can't be read");
        report.notes.push(note);
    }
    if let Some(most) = core.asked_only() {
        let note = format!("the process maps more files than {most}: no more were asked for");
        report.notes.push(note);
    }
    Ok(report)
}

/// Is it a wait until some point in time?
fn wakes_at_a_time(activity: &Activity, core: &CoreFile) -> bool {
    let timeout = activity.call.and_then(|c| call::timeout(&c, core));
    timeout.is_some_and(|timeout| timeout.absolute)
}

/// What is known of a thread that is no more. One that was in no call ran.
pub(crate) fn activity(thread: &CoreThread) -> Activity {
    let registers = &thread.state.registers;
    let (state, wants) = match thread.call {
        Some(_) => ('?', 0.0),
        None => ('R', 1.0),
    };
    Activity {
        tid: thread.tid,
        name: thread.name.clone(),
        state,
        cpu: 0.0,
        wants,
        sleeps: 0,
        tracer: 0,
        call: thread.call.map(|(number, args)| Call {
            number,
            args,
            sp: registers.rsp,
            pc: registers.rip,
        }),
        sleeps_in: String::new(),
    }
}

/// A thread of which copies are looked at.
struct Dead<'a> {
    core: &'a CoreFile,
    names: &'a Names,
    thread: &'a CoreThread,
    /// For each copy.
    time: Duration,
}

/// What a copy showed.
struct Seen {
    finding: Finding,
    window: Window,
    /// Why it went no further.
    halt: Option<Halt>,
    /// Where it began, with what it was told of calls of which nothing is known.
    state: ThreadState,
    /// What the call may have answered at which it halted.
    open: Vec<Guess>,
    /// It comes round, again and again, with each of its guesses.
    is_round: bool,
    /// How many words of its memory are others than in the core.
    changed: usize,
}

impl Seen {
    fn is_stuck(&self) -> bool {
        let halts = matches!(self.halt, Some(Halt::Blocks { .. } | Halt::Call { .. }));
        halts && self.finding.steps <= 1
    }

    fn guesses(&self) -> &[Guess] {
        &self.state.recalled.guesses
    }

    fn has_flag(&self) -> bool {
        self.finding.report.as_ref().is_some_and(has_flag)
    }

    /// What copies are given that are to go further.
    fn further(&self) -> impl Iterator<Item = Vec<Guess>> + '_ {
        let may_go = self.guesses().len() < MOST_GUESSES;
        let with = |guess: &Guess| [self.guesses(), std::slice::from_ref(guess)].concat();
        self.open.iter().filter(move |_| may_go).map(with)
    }
}

impl Dead<'_> {
    /// As it goes on by what is known; where that does not suffice, as it goes on by what is
    /// guessed.
    fn look(&self) -> io::Result<Seen> {
        let first = self.copy(&[], false)?;
        if first.has_flag() || first.is_stuck() {
            return Ok(first);
        }
        if let Some(task) = self.task()? {
            return Ok(task);
        }
        match &first.halt {
            // Others give back what it waits for.
            Some(Halt::Blocks { number, .. }) if futex::is_futex(*number) => {
                let next = self.copy(&[], true)?;
                Ok(if next.has_flag() { next } else { first })
            }
            _ => Ok(self.guess(&first)?.unwrap_or(first)),
        }
    }

    /// The copy that comes round and holds most of what its thread held.
    fn guess(&self, first: &Seen) -> io::Result<Option<Seen>> {
        let begin = Instant::now();
        let mut next: VecDeque<Vec<Guess>> = first.further().collect();
        let mut best: Option<Seen> = None;
        // Other answers with which as much is as it was.
        let mut as_good: Vec<Vec<Guess>> = Vec::new();
        let mut copies = 0;
        while let Some(guesses) = next.pop_front() {
            copies += 1;
            if copies > MOST_GUESSING || begin.elapsed() > self.time {
                break;
            }
            let seen = self.copy(&guesses, false)?;
            next.extend(seen.further());
            let rank = |seen: &Seen| (seen.changed, !seen.has_flag());
            match &best {
                _ if !seen.is_round => {}
                Some(best) if rank(best) < rank(&seen) => {}
                Some(best) if rank(best) == rank(&seen) => as_good.push(seen.guesses().to_vec()),
                _ => {
                    as_good.clear();
                    best = Some(seen);
                }
            }
        }
        if let Some(best) = &mut best {
            self.tell_guesses(best, &as_good);
        }
        Ok(best)
    }

    /// What is guessed is not sure. An answer that might as well be another one is not told.
    fn tell_guesses(&self, seen: &mut Seen, as_good: &[Vec<Guess>]) {
        let others = |guess: &Guess| {
            let of_call = |other: &&Guess| other.is_of_same_call(guess) && *other != guess;
            as_good.iter().flatten().filter(of_call).count()
        };
        let mut window = seen.window.clone();
        for call in &mut window.syscalls {
            let mut of_call = seen
                .guesses()
                .iter()
                .filter(|g| g.is_of(call.number, &call.args));
            if of_call.any(|guess| others(guess) > 0) {
                call.result = None;
            }
        }
        let unsure = Some(self.report(&window)).filter(has_flag);
        let Some(report) = unsure.as_ref().or(seen.finding.report.as_ref()) else {
            return;
        };
        let mut report = report.clone();
        let told = |guess: &Guess| match others(guess) {
            0 => told(guess),
            _ => format!("{}, or something else", told(guess)),
        };
        let told: Vec<String> = seen.guesses().iter().map(told).collect();
        let why = format!(
            "assumed: that {}; with that, its copy comes round, and {} words of its memory are \
             others than in the core",
            told.join(", and that "),
            seen.changed
        );
        doubt_assumed(&mut report, Some(&why));
        seen.finding.report = Some(report);
    }

    /// What a task polls that a scheduler hands from thread to thread, where this one schedules.
    fn task(&self) -> io::Result<Option<Seen>> {
        for resumed in resumed_goroutines(self.core, self.names, &self.thread.state) {
            let report = |window: &Window| {
                let space = self.space();
                find_in_task(window, self.names, self.name(), &space).unwrap_or_else(|| {
                    Report::nothing(Verdict::NoFlag, "a goroutine that it may run polls nothing")
                })
            };
            let mut seen = self.copy_of(resumed.state, false, &report)?;
            if seen.has_flag() {
                let report = seen.finding.report.as_mut();
                report
                    .into_iter()
                    .for_each(|report| is_of_task(report, resumed.id));
                return Ok(Some(seen));
            }
        }
        Ok(None)
    }

    fn copy(&self, guesses: &[Guess], gives_back: bool) -> io::Result<Seen> {
        let mut state: ThreadState = self.thread.state.clone();
        state.recalled.guesses = guesses.to_vec();
        self.copy_of(state, gives_back, &|window| self.report(window))
    }

    fn copy_of(
        &self,
        state: ThreadState,
        gives_back: bool,
        report: &dyn Fn(&Window) -> Report,
    ) -> io::Result<Seen> {
        let begin = Instant::now();
        let guesses = &state.recalled.guesses;
        let pages = Pages::new(self.core);
        let mut copy = Replica::start(&pages, &state)?;
        copy.pretend_output();
        if gives_back {
            copy.let_others_give_back();
        }
        let time = match guesses.is_empty() {
            true => self.time,
            false => self.time.min(GUESSING),
        };
        let is_enough = |window: &Window| {
            is_long_enough(window, begin.elapsed(), time) || gives_back && waits_again(window)
        };
        let go = |copy: &mut Replica| go_round(copy, MOST, time, is_enough);
        let turn = |window: &Window| given(&report(window));
        let (round, turns) = take_turns(&mut copy, gives_back, go, &turn)?;
        let mut report = report(&round.window);
        let is_assumed = copy.has_assumed();
        if is_assumed && guesses.is_empty() {
            doubt_assumed(&mut report, None);
        }
        if takes_input(&round.window) && !has_flag(&report) {
            report.reason =
                "whether it gets on is not known: what it reads is not in the core".into();
        }
        let given_back = copy.given_back() + turns;
        if given_back > 0 {
            report.notes.push(format!(
                "what it waits for was given to its copy {given_back} times"
            ));
        }
        let open = match &round.halt {
            Some(halt) => copy.guesses(halt)?,
            None => Vec::new(),
        };
        let is_made = |(guess, times): (&Guess, &u32)| !guess.decides || *times >= LEAST_GUESSED;
        let made = guesses.iter().zip(copy.guessed()).all(is_made);
        let is_round = round.halt.is_none()
            && report.spin_loop.is_some()
            && made
            && copy.guessed().len() == guesses.len();
        let mut finding = Finding::blank(Via::Replica);
        finding.report = Some(report);
        finding.steps = u64::from(round.window.len());
        finding.halted = round.halt.as_ref().map(halted);
        finding.is_assumed = is_assumed;
        Ok(Seen {
            finding,
            window: round.window,
            halt: round.halt,
            state,
            open,
            is_round,
            changed: copy.changed_words()?,
        })
    }

    fn report(&self, window: &Window) -> Report {
        find_in_live_window(window, self.names, self.name(), &self.space())
    }

    fn name(&self) -> ThreadName {
        ThreadName {
            tid: self.thread.tid,
            name: self.thread.name.clone(),
        }
    }

    fn space(&self) -> NamedMemory<'_> {
        NamedMemory {
            pid: None,
            memory: self.core,
            names: self.names,
        }
    }
}

/// `read on fd 3 returns error 11`
fn told(guess: &Guess) -> String {
    let name = syscalls::name(guess.number);
    let on = guess
        .descriptor
        .map_or(String::new(), |fd| format!(" on fd {fd}"));
    match guess.answer {
        Guessed::Result(error @ ..0) => format!("{name}{on} returns error {}", -error),
        Guessed::Result(result) => format!("{name}{on} returns {result}"),
        Guessed::Ready(fd, events) => format!("{name} finds fd {fd} ready (events {events:#x})"),
    }
}

/// What was assumed is not sure. A poll of which it was only assumed that it finds nothing is no
/// flag: whether it would answer otherwise is unknown. `guessed`: what was assumed beside that
/// polls find what they last found.
fn doubt_assumed(report: &mut Report, guessed: Option<&str>) {
    /// Score of what was found so.
    const ASSUMED: f64 = 0.4;
    report.flags.retain(|flag| {
        let call = flag.call.as_ref();
        let polls = call.is_some_and(|call| role(call.number, &call.args) == Role::Poll);
        !polls || call.is_some_and(|call| call.result != Some(0))
    });
    if report.flags.is_empty() {
        report.verdict = Verdict::NoFlag;
        if report.facts.gets_on {
            report.reason = "whether it gets on is not known".into();
        }
        report.reason += "; what was ready is not in the core, so whether it waits is unknown";
    }
    let is_call = |kind: FlagKind| kind == FlagKind::Syscall;
    let doubtful = report.flags.iter_mut();
    for flag in doubtful.filter(|flag| guessed.is_some() || is_call(flag.kind)) {
        flag.confidence = flag.confidence.min(ASSUMED);
        flag.standing = flag.standing.max(Standing::Assumed);
        let why = guessed.unwrap_or("assumed: that polls find what they last found");
        flag.evidence.insert(0, why.into());
    }
}

struct CoreTarget<'a> {
    core: &'a CoreFile,
    names: &'a Names,
    /// How the copies of threads began, and are answered calls of which nothing is known.
    states: &'a FxHashMap<u32, ThreadState>,
}

impl Target for CoreTarget<'_> {
    /// One moment does not show whether the own threads of Java's machine, and its collector's, get
    /// on: what they test then looks like a wait.
    fn tries_unsure(&self) -> bool {
        let mut maps = self.names.input().maps.iter().flat_map(Maps::all);
        !maps.any(|mapping| mapping.path.ends_with(HOTSPOT))
    }

    fn prove(&self, thread: &mut ThreadReport, others: &Others, time: Duration) {
        let state = |tid: u32| {
            let as_it_was = |tid| Ok(&self.core.thread(tid).map_err(|error| error.found)?.state);
            self.states
                .get(&tid)
                .map_or_else(|| as_it_was(tid), Ok)
                .cloned()
        };
        begin(thread);
        let process = Process {
            pid: self.core.pid(),
            names: self.names,
            memory: self.core,
            others,
            capture: &state,
            learn: &|_| (),
            is_dead: true,
            time,
        };
        try_out(self.core, &process, thread);
    }
}
