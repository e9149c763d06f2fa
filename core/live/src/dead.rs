// SPDX-License-Identifier: MIT
//! The report of `spin` for a process that left a core file.
//!
//! In: a core file. Out: a [`SpinReport`]. A copy of each thread is made from the core and goes on:
//! the copies that go round show what they poll, the others are described from their registers and
//! stacks. Blind spots: how much of the processor a thread used is not in a core, so each thread is
//! looked at; whether a descriptor was ready is not in it either, and the copy is told that none
//! is.

use std::time::{Duration, Instant};

use flagfinder_code::Names;
use flagfinder_failure::Failure;
use flagfinder_flags::{ThreadName, Verdict};
use flagfinder_replica::{keep, CoreFile, CoreThread, Halt, Pages, Replica};
use flagfinder_step::Limits;

use crate::candidate::Candidate;
use crate::deadline::Deadline;
use crate::helpers::what_it_does;
use crate::look::{look_at_copy, MOST};
use crate::order;
use crate::others::{Other, Others, Process};
use crate::owed;
use crate::pick::Way;
use crate::prove::{begin, not_proved, try_out};
use crate::report::{Class, Source, SpinReport, ThreadReport};
use crate::sample::Activity;
use crate::service;
use crate::spin::{stepped, unlooked, untouched, Progress};
use crate::tried::halted;
use crate::wait::Describer;
use flagfinder_waits::proc::Call;
use flagfinder_waits::Owners;

/// Time between two reports that are handed on while threads are looked at.
const BETWEEN: Duration = Duration::from_millis(200);
/// Most threads of a core that are looked at, unless they were asked for.
const MOST_THREADS: usize = 1000;

/// What is looked at in a core file.
#[derive(Clone, Debug)]
pub struct CoreOptions {
    /// Thread ids as the core file has them; empty: all.
    pub threads: Vec<u32>,
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
    let deadline = &options.deadline;
    let names = Names::new(core.names_input());
    for tid in &options.threads {
        core.thread(*tid)?;
    }
    let mut describer = Describer {
        pid: None,
        memory: core,
        names: &names,
        threads: core.threads().iter().map(|t| (t.tid, t.tid)).collect(),
        owners: Owners::default(),
    };
    let mut report = SpinReport {
        schema: SpinReport::SCHEMA,
        source: Source::Core,
        pid: core.pid(),
        program: core.program().to_owned(),
        started: 0,
        budget_ms: options.budget.as_millis() as u64,
        threads: Vec::new(),
        notes: Vec::new(),
        not_asked: Vec::new(),
    };
    let _keeping = keep();
    let wanted = |tid: u32| options.threads.is_empty() || options.threads.contains(&tid);
    let threads = core.threads().iter().enumerate();
    let mut looked: Vec<_> = threads.filter(|(_, one)| wanted(one.tid)).collect();
    // A thread that was in no call may poll.
    looked.sort_by_key(|(_, thread)| thread.call.is_some());
    let more = looked.len().saturating_sub(MOST_THREADS);
    looked.truncate(MOST_THREADS);
    looked.sort_by_key(|(at, _)| *at);
    let mut handed_on = Instant::now();
    for (_, thread) in looked {
        let told = match deadline.leaves_out(|| what_it_does(thread.tid)) {
            true => unlooked(&activity(thread)),
            false => tell(core, thread, options, &names, &mut describer),
        };
        report.threads.push(told);
        if handed_on.elapsed() > BETWEEN {
            hear(Progress::SoFar(report.so_far()));
            handed_on = Instant::now();
        }
    }
    if more > 0 {
        report.notes.push(format!(
            "{more} more threads were not looked at; --thread TID looks at one"
        ));
    }
    let of_core = |thread: &CoreThread| {
        let told = report.threads.iter().find(|told| told.tid == thread.tid);
        Other::of(told.unwrap_or(&ThreadReport::blank(thread.tid, Class::LongWait)))
    };
    let others = Others {
        list: core.threads().iter().map(of_core).collect(),
        left_out: None,
    };
    let state = |tid: u32| {
        let thread = core.threads().iter().find(|thread| thread.tid == tid);
        let state = thread.map(|thread| thread.state.clone());
        state.ok_or_else(|| format!("the core has no thread {tid}"))
    };
    let mut time = owed::TIME;
    for thread in report.threads.iter_mut().filter(|t| t.has_flag()) {
        let tid = thread.tid;
        if deadline.leaves_out(|| format!("who owes what thread {tid} polls, and its proof")) {
            not_proved(thread, "the time limit was over");
            continue;
        }
        begin(thread);
        let process = Process {
            pid: core.pid(),
            names: &names,
            memory: core,
            others: &others,
            capture: &state,
            learn: &|_| (),
            is_dead: true,
            time: deadline.at_most(time),
        };
        try_out(core, &process, thread);
        time = owed::TIME_OF_OTHERS;
    }
    report.threads.iter_mut().for_each(service::leave);
    order::sort(&mut report.threads);
    for (path, why) in core.missing() {
        report.notes.push(format!(
            "{} {why}: its code is unknown, and so is what it does; --sysroot DIR names a folder \
             that has it",
            path.display()
        ));
    }
    Ok(report)
}

/// What is known of a thread that is no more.
pub(crate) fn activity(thread: &CoreThread) -> Activity {
    let registers = &thread.state.registers;
    Activity {
        tid: thread.tid,
        name: thread.name.clone(),
        state: '?',
        cpu: 0.0,
        wants: 0.0,
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

fn tell(
    core: &CoreFile,
    thread: &CoreThread,
    options: &CoreOptions,
    names: &Names,
    describer: &mut Describer,
) -> ThreadReport {
    let activity = activity(thread);
    let limits = Limits {
        steps: MOST,
        time: options.deadline.at_most(options.budget),
        ..Limits::default()
    };
    let name = ThreadName {
        tid: thread.tid,
        name: thread.name.clone(),
    };
    let pages = Pages::new(core);
    let looked = Replica::start(&pages, &thread.state).and_then(|mut copy| {
        let looked = look_at_copy(&mut copy, &limits, names, name, core)?;
        Ok((looked, copy.has_assumed()))
    });
    let ((finding, halt), has_assumed) = match looked {
        Ok(looked) => looked,
        Err(error) => {
            let why = format!("no copy of it could be made: {error}");
            return untouched(&activity, &Way::Untouchable(why), describer);
        }
    };
    let at_once = finding.steps <= 1;
    let mut told = match (&halt, at_once) {
        (Some(Halt::Blocks { .. } | Halt::Call { .. }), true) if activity.call.is_some() => {
            return untouched(&activity, &Way::Waits, describer);
        }
        _ => stepped(&activity, &Way::Repeats, &finding, describer),
    };
    if let Some(halt) = halt {
        if matches!(halt, Halt::Blocks { .. }) && !told.has_flag() {
            told.class = Class::LongWait;
        }
        let why = halted(&halt);
        told.reason += &format!("; its copy went no further: {why}");
        told.halted = Some(why);
    }
    if has_assumed {
        drop_assumed(&mut told);
    }
    told.is_assumed = has_assumed;
    told
}

/// A call whose answer was assumed is no flag: whether it would answer otherwise is unknown.
fn drop_assumed(told: &mut ThreadReport) {
    told.flags.retain(Candidate::is_word);
    if told.flags.is_empty() {
        told.verdict = Some(Verdict::NoFlag);
        told.reason += "; what was ready is not in the core, so whether it waits is unknown";
    }
}
