// SPDX-License-Identifier: MIT
//! Traces in, report out.

use flagfinder_analysis::{self as analysis, loop_search, tasks, Analysis};
use flagfinder_code::Names;
use flagfinder_diff::input::FlowError;
use flagfinder_diff::{Callback, CodePlace, Divergence, Parting, PartingKind, Verdict as Parted};
use flagfinder_linux::syscalls::{self, Role};
use flagfinder_machine::{tail_window, Window};
use flagfinder_trace::{Event, Failure, Flow, Process, Thread, Trace};
use rustc_hash::FxHashSet;
use thiserror::Error;

use crate::choose_thread::{self, has_flag};
use crate::evidence::Outside;
use crate::finder;
use crate::frames;
use crate::loop_condition::loop_condition;
use crate::naming::Naming;
use crate::owed::Compared;
use crate::recent_intake::takes_data;
use crate::report::{DivergenceReport, Flag, Report, ThreadName, Verdict};
use crate::run::Run;
use crate::run_evidence::{gather, Waiting};
use crate::sleeper::{self, Worker};
use crate::standstill;

/// What is looked for, and in how many threads.
#[derive(Clone, Debug)]
pub struct Options {
    /// Look at this thread only.
    pub thread: Option<u32>,
    /// Most threads that are looked at.
    pub threads: usize,
    /// Look for writers (one more pass over each trace).
    pub writers: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            thread: None,
            threads: 4,
            writers: true,
        }
    }
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Failure {
        match error {
            FindError::Trace(failure) => failure,
            FindError::Flow(error) => error.into(),
            FindError::NoThreads => Failure::bad_file(
                "The spin trace can't be searched",
                "it holds no thread",
                "Record again, long enough for the loop to be reached.",
                "`flagfinder trace info FILE` shows what it holds.",
            ),
        }
    }
}

/// Why there is no report.
#[derive(Debug, Error)]
pub enum FindError {
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] Failure),
    /// The flow of a trace cannot be read or compared.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// There is none to look at.
    #[error("the spin trace holds no thread")]
    NoThreads,
}

/// One spinning thread, analysed.
struct Case<'t> {
    thread: &'t Thread,
    window: Window,
    analysis: Analysis,
    parting: Option<&'t Parting>,
}

impl Case<'_> {
    fn waiting(&self) -> Waiting<'_> {
        let counterpart = self.parting.and_then(|p| p.normal_thread.as_ref());
        Waiting {
            tid: self.thread.tid,
            reader: counterpart.map(|thread| thread.tid),
            window: &self.window,
            analysis: &self.analysis,
            // A task's window holds its own steps only, so it needs as many as the task had blocks.
            length: match self.parting {
                Some(parting) => parting.spin_loop.length,
                None if self.analysis.of_task => u64::from(self.window.len()),
                None => 0,
            },
        }
    }
}

/// Why there is nothing to see at the end of a thread.
enum Nothing {
    /// At its end the thread only changes from task to task.
    Schedules(String),
    Other(String),
}

/// Looks at the end of a thread.
fn analyse<'t>(
    run: &mut Run<'t>,
    thread: &'t Thread,
    parting: Option<&'t Parting>,
) -> Result<Result<Case<'t>, Nothing>, FindError> {
    let header = parting.and_then(|parting| run_time(run.process, &parting.spin_loop.header));
    let preferred: Vec<u64> = header.into_iter().collect();
    let enough = |window: &Window| {
        loop_search::find(window, &preferred)
            .is_some_and(|spin| spin.iterations >= 12 && analysis::waits_for_others(window, &spin))
    };
    let window = tail_window(&run.blocks, thread, enough)?;
    let tid = thread.tid;
    if window.is_empty() {
        return Ok(Err(Nothing::Other(format!(
            "thread {tid} has no recorded values; record with --level values, or re-record with \
             --values-in"
        ))));
    }
    let names = &run.names;
    let look = |window: Window| {
        let analysis = analysis::analyse(&window, names, &preferred, true)?;
        Some((window, analysis))
    };
    let of_task = |task: Window| {
        let (task, mut analysis) = look(task)?;
        tasks::polls(&mut analysis, &task, names).then_some((task, analysis))
    };
    let tasks = tasks::windows(&window);
    let found = tasks.into_iter().find_map(of_task).or_else(|| look(window));
    let Some((window, mut analysis)) = found else {
        let note = format!("thread {tid} repeats nothing at its end");
        return Ok(Err(Nothing::Other(note)));
    };
    if tasks::only_schedules(&analysis.spin, &window, names) {
        let note = format!("thread {tid} does nothing at its end but look for a goroutine to run");
        return Ok(Err(Nothing::Schedules(note)));
    }
    if analysis.finds_nothing(&window) {
        analysis.progress.consumes |= takes_data(thread)?;
    }
    let (names, threads) = (&mut run.names, run.process.threads());
    frames::name_frames(names, &run.blocks, threads, tid, &window, &analysis)?;
    frames::name_allocations(names, &run.code, &analysis)?;
    Ok(Ok(Case {
        thread,
        window,
        analysis,
        parting,
    }))
}

/// Finds the flag. Works with the spin trace alone as well; each normal trace adds
/// evidence, `divergence` says where they part.
///
/// # Errors
/// When a trace cannot be read.
pub fn find_flags(
    spin: &Trace,
    normals: &[Trace],
    divergence: Option<&Divergence>,
    options: &Options,
) -> Result<Report, FindError> {
    let refs: Vec<&Trace> = normals.iter().collect();
    find_flags_in(spin, &refs, divergence, options, &|_| {})
}

/// As [`find_flags`], by reference and with progress.
///
/// # Errors
/// When a trace cannot be read.
pub fn find_flags_in(
    spin: &Trace,
    normals: &[&Trace],
    divergence: Option<&Divergence>,
    options: &Options,
    progress: Callback,
) -> Result<Report, FindError> {
    if spin.processes().iter().all(|p| p.threads().is_empty()) {
        return Err(FindError::NoThreads);
    }
    let none = divergence.filter(|d| d.verdict == Parted::NoDivergence);
    let nothing = |divergence: &Divergence| {
        let mut report = Report::nothing(Verdict::NoDivergence, divergence.reason.clone());
        report.notes.clone_from(&divergence.unlike);
        report.notes.extend_from_slice(&divergence.notes);
        report
    };
    if let Some(divergence) = none.filter(|d| d.partings.is_empty()) {
        return Ok(nothing(divergence));
    }
    let mut reports: Vec<Report> = Vec::new();
    let mut sleepers: Vec<Report> = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    let suspects = candidates(spin, divergence, options)?;
    let mut good = Vec::new();
    for process in normals.iter().flat_map(|normal| normal.processes()) {
        let mut programs = suspects.iter().map(|suspect| suspect.0.program());
        let alike = programs.any(|suspect| suspect == process.program());
        if alike && !process.threads().is_empty() {
            good.push(Run::new(process)?.telling(progress));
        }
    }
    for process in spin.processes() {
        let within = |suspect: &&Suspect| std::ptr::eq(suspect.0, process);
        let suspects: Vec<&Suspect> = suspects.iter().filter(within).collect();
        if suspects.is_empty() {
            continue;
        }
        let mut run = Run::new(process)?.telling(progress);
        let normals: Vec<&Run> = good
            .iter()
            .filter(|normal| normal.process.program() == process.program())
            .collect();
        let all = Compared {
            normals: &normals,
            spin,
            divergence,
        };
        let mut schedules = false;
        // Threads for which the first places showed no flag are looked at in a second place.
        for guess in [false, true] {
            let mut cases = Vec::new();
            for &&(_, thread, parting) in &suspects {
                let is_guess = parting.is_some_and(|parting| parting.second_guess);
                let known = || reports.iter().any(|r| has_flag(r) && is_about(r, thread));
                if is_guess != guess || guess && known() {
                    continue;
                }
                match analyse(&mut run, thread, parting)? {
                    Ok(case) => cases.push(case),
                    Err(Nothing::Other(note)) => notes.push(note),
                    Err(Nothing::Schedules(note)) => {
                        schedules = true;
                        notes.push(note);
                    }
                }
            }
            let judged = judge(&run, &cases, &all, options)?;
            if let Some(divergence) = divergence.filter(|_| options.writers) {
                let workers = cases.iter().zip(&judged).map(|(case, report)| Worker {
                    window: &case.window,
                    loops_from: case.analysis.spin.first_step(),
                    report,
                });
                sleepers.extend(sleeper::find(&run, &all, divergence, workers)?);
            }
            reports.extend(judged);
        }
        if schedules && options.thread.is_none() && !reports.iter().any(has_flag) {
            let mut cases = Vec::new();
            for thread in others(process, &suspects, options.threads) {
                cases.extend(analyse(&mut run, thread, None)?.ok());
            }
            cases.retain(|case| case.analysis.of_task);
            reports.extend(judge(&run, &cases, &all, options)?);
        }
    }
    if let Some(divergence) = none {
        reports.retain(choose_thread::is_left_below);
        if reports.is_empty() {
            return Ok(nothing(divergence));
        }
    }
    reports.append(&mut sleepers);
    let mut report = choose_thread::choose(reports).unwrap_or_else(|| {
        Report::nothing(
            Verdict::NoFlag,
            "no thread of the spin run repeats a loop at its end",
        )
    });
    if let Some(divergence) = divergence {
        report.notes.extend_from_slice(&divergence.unlike);
    }
    report.notes.append(&mut notes);
    let owed = |flag: &Flag| flag.owed.iter().flatten().map(|owed| owed.tid).collect();
    let told: Vec<_> = report.flags.iter().map(|flag| (flag, owed(flag))).collect();
    report.condition = loop_condition(&report.facts, &report.groups, &told);
    Ok(report)
}

/// The busiest threads that are not suspected. A task that polls is handed from thread to thread,
/// so none of them is seen to stay anywhere for long.
fn others<'t>(process: &'t Process, suspects: &[&Suspect], most: usize) -> Vec<&'t Thread> {
    let is_known = |thread: &&Thread| suspects.iter().any(|(_, other, _)| other.tid == thread.tid);
    let threads = process.threads().iter();
    let mut others: Vec<&Thread> = threads
        .filter(|thread| thread.ended_open() && !is_known(thread))
        .collect();
    others.sort_by_key(|thread| std::cmp::Reverse(thread.flow_bytes()));
    others.truncate(most);
    others
}

fn is_about(report: &Report, thread: &Thread) -> bool {
    let spin = report.threads.spin.as_ref();
    spin.is_some_and(|spin| spin.tid == thread.tid)
}

/// A thread to look at, with where the diff says it parts.
type Suspect<'t> = (&'t Process, &'t Thread, Option<&'t Parting>);

/// Threads worth a look, the most telling first.
fn candidates<'t>(
    spin: &'t Trace,
    divergence: Option<&'t Divergence>,
    options: &Options,
) -> Result<Vec<Suspect<'t>>, FindError> {
    let all = || {
        spin.processes().iter().flat_map(|process| {
            process
                .threads()
                .iter()
                .map(move |thread| (process, thread))
        })
    };
    let wanted = |tid: u32| options.thread.is_none_or(|only| only == tid);
    let mut list: Vec<Suspect> = Vec::new();
    let partings = divergence.map_or(&[][..], |d| &d.partings);
    let parted = divergence.is_some_and(|d| d.verdict != Parted::NoDivergence);
    let worth = |p: &&Parting| p.kind != PartingKind::Alike || !parted;
    for parting in partings.iter().filter(worth) {
        let wanted_image = (parting.thread.pid, parting.thread.image);
        let found = all().find(|(process, thread)| {
            (process.pid, process.image) == wanted_image && thread.tid == parting.thread.tid
        });
        if let Some((process, thread)) = found.filter(|(_, thread)| wanted(thread.tid)) {
            list.push((process, thread, Some(parting)));
        }
    }
    if list.is_empty() {
        let mut others: Vec<(u64, &Process, &Thread)> = Vec::new();
        for (process, thread) in all().filter(|(_, thread)| wanted(thread.tid)) {
            if !process.replaced && thread.ended_open() && !is_blocked(thread)? {
                others.push((thread.flow_bytes(), process, thread));
            }
        }
        others.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
        list.extend(
            others
                .into_iter()
                .map(|(_, process, thread)| (process, thread, None)),
        );
    }
    let mut threads = FxHashSet::default();
    list.retain(|(process, thread, _)| {
        let key = (process.pid, process.image, thread.tid);
        threads.contains(&key) || threads.len() < options.threads && threads.insert(key)
    });
    Ok(list)
}

/// Does the thread wait in a system call that only somebody else can end?
fn is_blocked(thread: &Thread) -> Result<bool, FindError> {
    let mut waiting = None;
    for item in thread.flow_tail(64 << 10) {
        match item? {
            Flow::Event {
                event: Event::SyscallEnter(call),
                ..
            } => waiting = Some((call.number, call.args)),
            Flow::Event {
                event: Event::SyscallExit { .. },
                ..
            }
            | Flow::Block { .. } => waiting = None,
            _ => {}
        }
    }
    Ok(waiting.is_some_and(|(number, args)| {
        !matches!(
            syscalls::role(number, &args),
            Role::Sleep | Role::Yield | Role::Neutral | Role::Poll
        )
    }))
}

/// Run-time address of a place that the diff named.
pub(crate) fn run_time(process: &Process, place: &CodePlace) -> Option<u64> {
    let modules = process.modules().iter().rev();
    let named = modules.filter(|m| m.path.rsplit('/').next() == Some(place.module.as_str()));
    let module = named.min_by_key(|m| m.unload_ts.is_some())?;
    Some(module.base.wrapping_add(place.offset))
}

/// Asks all runs about the cases of one process.
fn judge(
    run: &Run,
    cases: &[Case],
    compared: &Compared,
    options: &Options,
) -> Result<Vec<Report>, FindError> {
    let normals = compared.normals;
    let waiting: Vec<Waiting> = cases.iter().map(Case::waiting).collect();
    let evidence = gather(run, &waiting, normals, options.writers)?;
    let naming = Naming {
        spin: &run.names,
        normal: normals.first().map(|normal| &normal.names),
    };
    let mut reports = Vec::new();
    for (case, mut outside) in cases.iter().zip(evidence) {
        let mut report = tell(run, case, &mut outside, &naming);
        compared.tell(&mut report, &outside)?;
        reports.push(report);
    }
    Ok(reports)
}

fn tell(run: &Run, case: &Case, outside: &mut Outside, naming: &Naming) -> Report {
    if let Some(parting) = case.parting {
        let at = |place: &CodePlace| run_time(run.process, place);
        outside.parting = parting.branch.as_ref().and_then(at);
        outside.also_parting = parting
            .others
            .iter()
            .filter_map(|outcome| at(&outcome.instruction))
            .collect();
    }
    let thread = ThreadName {
        tid: case.thread.tid,
        name: case.thread.name.clone(),
    };
    let mut report = finder::report(&case.window, &case.analysis, naming, thread, outside);
    if let Some(parting) = case.parting {
        join(&mut report, run.process, parting, &run.names);
    }
    if report.divergence.is_none() {
        report.divergence = at_the_test(run, case, &report, outside);
    }
    report.stood_still = standstill::seconds(run.process, case.thread);
    if case.window.contradictions > 0 {
        report.notes.push(format!(
            "recorded values contradicted the recorded flow {} times; knowledge was dropped there",
            case.window.contradictions
        ));
    }
    report
}

/// The diff saw no branch, because the normal run was never seen in this loop: the flag's test is
/// then a branch by which the spin run never leaves.
fn at_the_test(
    run: &Run,
    case: &Case,
    report: &Report,
    outside: &Outside,
) -> Option<DivergenceReport> {
    let group = report
        .groups
        .iter()
        .find(|group| group.flags.contains(&1))?;
    let (window, exits) = (&case.window, &case.analysis.exits);
    let exit = exits
        .iter()
        .find(|exit| run.names.code(window.pc(exit.step)) == group.branch)?;
    let left = outside
        .other_way
        .get(&window.pc(exit.step))
        .is_some_and(|count| *count > 0);
    Some(DivergenceReport {
        branch: group.branch.clone(),
        normal_target: exit.other.filter(|_| left).map(|pc| run.names.code(pc)),
        spin_target: run.names.code(window.next_pc(exit.step)?),
    })
}

/// Puts what the diff found into the report.
fn join(report: &mut Report, process: &Process, parting: &Parting, names: &Names) {
    report.threads.normal = parting.normal_thread.as_ref().map(|thread| ThreadName {
        tid: thread.tid,
        name: thread.name.clone(),
    });
    if let Some(spin_loop) = &mut report.spin_loop {
        spin_loop.iterations = spin_loop.iterations.max(parting.spin_loop.iterations);
    }
    let code = |place: &CodePlace| run_time(process, place).map(|pc| names.code(pc));
    let branch = parting.branch.as_ref().and_then(code);
    let target = parting.spin_target.as_ref().and_then(code);
    if let Some((branch, spin_target)) = branch.zip(target) {
        report.divergence = Some(DivergenceReport {
            branch,
            normal_target: parting.normal_target.as_ref().and_then(code),
            spin_target,
        });
    }
    let mut explain = parting.why.clone();
    explain.append(&mut report.explain);
    report.explain = explain;
}
