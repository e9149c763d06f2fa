// SPDX-License-Identifier: MIT
//! Why a process does not go on: who owes what it waits for, and what keeps them, to the end of
//! the chain, across processes.
//!
//! In: a process id, or a core file. Out: a [`WhyReport`]. Threads of the process that poll are
//! looked at as `spin` does it; those of others are read from /proc, and looked at only where the
//! chain comes to one that polls. Who ends a wait that no lock's word tells of is asked of copies
//! (`effects.rs`). Blind spots: of words and channels that no copy comes to use, any thread that
//! is left may be the one that owes.

mod asked;
mod causes;
mod children;
mod choose;
mod each;
mod examine;
mod files;
mod flags;
mod go;
mod held;
mod home;
pub(crate) mod hotspot;
mod in_core;
mod ipc;
mod java;
mod java_code;
mod java_frames;
mod java_kinds;
mod java_objects;
mod java_owes;
mod java_polls;
mod left;
mod locked;
mod mounts;
mod next;
mod obstacle;
mod perl;
mod place;
mod process;
mod recorded;
mod report;
mod ruby;
mod runtime;
mod semaphore;
mod sender;
mod served;
mod sockets;
mod source_map;
mod stacks;
mod stopped;
mod terminal;
mod terms;
mod tested;
mod unread;
mod v8;
mod v8_awaits;
mod vm_structs;
mod walk;
mod way;

use std::path::Path;
use std::rc::Rc;

use flagfinder_code::Spot;
use flagfinder_failure::Failure;
use flagfinder_linux::arguments::title;
use flagfinder_linux::proc::{self, program, Stat};
use flagfinder_replica::CoreFile;
use rustc_hash::FxHashMap;

use crate::dead::{look_at_threads, CoreOptions};
use crate::report::{Class, Source, SpinReport, ThreadReport};
use crate::sample;
use crate::silent;
use crate::spin::{first_look, look, Progress, SpinOptions};
use crate::thread_ways::Told;
pub use asked::{Asked, InSource};
pub use each::{why_each, Answered};
pub(crate) use go::resumed_goroutines;
pub(crate) use java_objects::never_changes;
use obstacle::Weight;
use process::Processes;
pub use recorded::why_recorded;
use report::{Known, Node, RootKind};
pub use report::{Link, Root, WhyReport};
use terms::Terms;
pub(crate) use vm_structs::LIBRARY as HOTSPOT;
use walk::Walk;

/// Where the chain begins, and how threads are looked at on the way.
#[derive(Clone, Debug, Default)]
pub struct WhyOptions {
    /// Begin with this thread, instead of one that polls, or the first.
    pub thread: Option<u32>,
    /// How those that poll are looked at.
    pub spin: SpinOptions,
    /// What is known of its threads by code that is not the machine's.
    pub in_source: InSource,
    /// Tell of all open calls of all threads.
    pub stacks: bool,
}

/// What the kernel alone tells at one look, without any of the process's files: what is left where
/// the rest gets no answer.
pub fn why_at_first(pid: u32) -> WhyReport {
    begun(&first_look(pid))
}

/// Most threads of which the first look is told.
const GLANCES: usize = 8;

/// Before any link is known: what its threads do, as `spin` saw it.
fn begun(spun: &SpinReport) -> WhyReport {
    let first = spun.threads.iter().find(|one| one.tid == spun.pid);
    let node = Node {
        pid: spun.pid,
        tid: spun.pid,
        name: first.map_or_else(String::new, |one| one.name.clone()),
        task: None,
    };
    let mut report = so_far(
        spun.source,
        spun.pid,
        spun.program.clone(),
        node,
        Vec::new(),
    );
    let told = spun.threads.iter().take(GLANCES);
    let told = told.map(|one| format!("thread {} ({}): {}", one.tid, one.name, one.reason));
    report.notes.extend(told);
    report
}

/// How far `spin` is, as how far the chain is.
fn as_chain(progress: Progress<SpinReport>) -> Progress<WhyReport> {
    match progress {
        Progress::Begins { threads, stepped } => Progress::Begins { threads, stepped },
        Progress::SoFar(spun) => Progress::SoFar(Box::new(begun(&spun))),
    }
}

/// A chain that was not followed further than to `at`.
fn so_far(source: Source, pid: u32, program: String, at: Node, links: Vec<Link>) -> WhyReport {
    let root = Root {
        kind: RootKind::Unknown,
        pid: Some(at.pid),
        tid: Some(at.tid),
        name: at.name,
        task: at.task,
        what: "what keeps it was not found within the time limit".into(),
        at: None,
        note: None,
        assumed: false,
    };
    WhyReport::of_chain(source, pid, program, links, root)
}

/// Looks at the process; `hear` is told how far that is.
///
/// # Errors
/// Those of [`crate::spin`].
pub fn why(
    pid: u32,
    options: &WhyOptions,
    hear: &dyn Fn(Progress<WhyReport>),
) -> Result<WhyReport, Failure> {
    let deadline = &options.spin.deadline;
    let spin_options = SpinOptions {
        threads: options.thread.into_iter().collect(),
        only_urgent: options.thread.is_none(),
        ..options.spin.clone()
    };
    let is_told = |tid| {
        let mut asked = options.in_source.asked.iter();
        asked.any(|one| one.tid == tid && one.tells_all)
    };
    let by_program = |tid| is_told(tid).then_some(Told::Known);
    let hear_spin = |progress| hear(as_chain(progress));
    let hear_links = |links: Vec<Link>| {
        let last = links.last();
        let last = last.map(|link| {
            link.owed_by
                .as_ref()
                .map_or(&link.waiter, |owed| &owed.node)
        });
        if let Some(at) = last.cloned() {
            hear(Progress::SoFar(Box::new(so_far(
                Source::Live,
                pid,
                program(pid),
                at,
                links,
            ))));
        }
    };
    let (spun, mut looked) = look(pid, &spin_options, &hear_spin, by_program)?;
    let mut later = std::mem::take(&mut looked.later);
    let mut processes = Processes::after_spin(pid, looked);
    let terms = Terms {
        deadline,
        hear: &hear_links,
        looks: true,
        core: None,
    };
    let in_source = &options.in_source;
    let mut search = Search::begin(spun, &mut processes, options.thread, in_source, terms);
    let of_java = search.walk.told_by_java(pid, &mut later);
    search.walk.leave(&later);
    let mut found = search.follow();
    let mut of_java = of_java.into_iter();
    if let Some(polls) =
        of_java.find(|tid| !found.is_sure() && search.walk.polls_in_java(pid, *tid))
    {
        search.begins.insert(0, polls);
        found = search.follow();
    }
    let what = || format!("what {} more threads do", later.len());
    if !(later.is_empty() || found.is_sure() || deadline.leaves_out(what)) {
        // What is known by now is not to be forgotten meanwhile.
        let hear_begin = |progress| match progress {
            Progress::Begins { .. } => hear(as_chain(progress)),
            Progress::SoFar(_) => {}
        };
        let options = SpinOptions {
            threads: later,
            only_urgent: false,
            ..spin_options
        };
        if let Ok((more, _)) = look(pid, &options, &hear_begin, by_program) {
            search.learn(more.threads, &found);
            found = search.follow();
        }
    }
    let loops = loops(&search.walk);
    let mut report = search.report(found);
    if options.stacks {
        let in_loop = |tid| loops.get(&tid).cloned();
        report.stacks = Some(stacks::stacks(&mut processes, pid, in_source, in_loop));
    }
    finish(&mut report, &mut processes, in_source);
    report.settle(deadline);
    let inside = processes
        .get(pid)
        .and_then(|process| process.inside.as_ref());
    if let Some(inside) = inside {
        silent::note(pid, &inside.names, &mut report.notes);
    }
    Ok(report)
}

/// Where threads loop, by thread id.
fn loops(walk: &Walk) -> FxHashMap<u32, Spot> {
    let threads = walk.spun.values();
    let known = threads.filter_map(|one| Some((one.tid, one.spin_loop.as_ref()?.at.clone()?)));
    known.collect()
}

/// Most processes of a chain whose titles and homes are told.
const TITLES: usize = 3;

/// What to do next in a living process, and what could not be looked at.
fn finish(report: &mut WhyReport, processes: &mut Processes, in_source: &InSource) {
    let stopped_by = |pid, tid| stopped::by(pid, &sample::now(pid, tid)?);
    let parent = |pid| {
        let is_over = Stat::of_thread(pid, pid).is_some_and(|stat| proc::is_over(stat.state()));
        is_over.then(|| process::status_number(pid, "PPid:"))?
    };
    let facts = next::Facts {
        stopped_by: &stopped_by,
        stacks_of: report.stacks.as_ref().map(|_| report.pid),
        parent: &parent,
    };
    let found = next::of(&report.links, &report.root, facts);
    report.next.extend(found);
    let chain = report.chain();
    report.tests = tested::tests(processes, &chain, in_source);
    report.homes = chain.iter().filter_map(|pid| home::of(*pid)).collect();
    let own = home::of(std::process::id());
    let homes = report
        .homes
        .iter()
        .filter_map(|one| home::told(one, own.as_ref()));
    report.notes.extend(homes.take(TITLES));
    let titles = chain.into_iter().filter_map(|pid| Some((pid, title(pid)?)));
    let told = titles.map(|(pid, title)| format!("process {pid} calls itself \"{title}\""));
    report.notes.extend(told.take(TITLES));
    if processes.owners.partial {
        let note = "not every process could be looked at: as root more is seen";
        report.notes.push(note.into());
    }
}

/// The same of a process that left the core file at `path`, with all `stacks` if wanted. `options`
/// are those of [`crate::look_at_core`], and name no threads.
///
/// # Errors
/// Those of [`crate::look_at_core`].
pub fn why_of_core(
    core: &Rc<CoreFile>,
    path: &Path,
    thread: Option<u32>,
    stacks: bool,
    options: &CoreOptions,
    hear: &dyn Fn(Progress<WhyReport>),
) -> Result<WhyReport, Failure> {
    if let Some(tid) = thread {
        core.thread(tid)?;
    }
    let mut spun = look_at_threads(core, options, &|progress| hear(as_chain(progress)))?;
    let notes = std::mem::take(&mut spun.notes);
    let terms = Terms {
        deadline: &options.deadline,
        hear: &|_| {},
        looks: false,
        core: Some(core),
    };
    let nothing = InSource::default();
    let mut processes = Processes::of_core(core);
    let mut search = Search::begin(spun, &mut processes, thread, &nothing, terms);
    let found = search.follow();
    let loops = loops(&search.walk);
    let mut report = search.report(found);
    if stacks {
        let in_loop = |tid| loops.get(&tid).cloned();
        report.stacks = Some(stacks::stacks(
            &mut processes,
            core.pid(),
            &nothing,
            in_loop,
        ));
    }
    report.tests = tested::tests(&mut processes, &[core.pid()], &nothing);
    if !stacks {
        report.next.push(next::of_core(path));
    }
    report.notes = notes;
    report.settle(&options.deadline);
    if let Some(fault) = fault(core.signal()) {
        report.notes.push(format!(
            "{fault} ended the process: its threads did what they did just then, and may not have \
             hung"
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

/// A chain that was found, and what its end explains.
struct Found {
    links: Vec<Link>,
    root: Root,
    weight: Weight,
}

impl Found {
    /// No thread that only wakes again and again would explain more: something is wrong in itself,
    /// or the first thread is known to wait for another one, and that one's wait is explained.
    fn is_sure(&self) -> bool {
        let is_assumed = |link: &Link| link.known == Known::Assumed;
        let is_owed = self.links.iter().any(|link| link.owed_by.is_some());
        let explains = self.weight >= Weight::Fault || self.weight == Weight::Outside && is_owed;
        explains && !self.root.assumed && !self.links.iter().any(is_assumed)
    }
}

/// The search for the chain of one process.
struct Search<'a> {
    walk: Walk<'a>,
    pid: u32,
    source: Source,
    program: String,
    /// The thread that was asked for.
    thread: Option<u32>,
    /// Threads to begin with, the most telling first.
    begins: Vec<u32>,
    /// No threads hold each other's locks.
    has_no_circle: bool,
}

impl<'a> Search<'a> {
    /// `spun`: what `spin` or a core told of the threads.
    fn begin(
        spun: SpinReport,
        processes: &'a mut Processes,
        thread: Option<u32>,
        in_source: &InSource,
        terms: Terms<'a>,
    ) -> Search<'a> {
        let begins = begins(&spun, thread);
        let threads = spun.threads.into_iter().map(|thread| (thread.tid, thread));
        Search {
            walk: Walk::new(processes, threads.collect(), in_source, terms),
            pid: spun.pid,
            source: spun.source,
            program: spun.program,
            thread,
            begins,
            has_no_circle: false,
        }
    }

    /// What further threads do that wake again and again. `found`: what was found without them.
    fn learn(&mut self, threads: Vec<ThreadReport>, found: &Found) {
        let polls = threads.first().filter(|polls| polls.has_flag());
        // Where one of the first look has a flag, the chain begins there.
        let has_flag = |tid: &u32| self.walk.spun.get(tid).is_some_and(ThreadReport::has_flag);
        if let Some(polls) = polls.filter(|_| !self.begins.iter().any(has_flag)) {
            // A thread that only wakes does not come before one that uses a processor all the time.
            let at = match found.root.kind {
                RootKind::Computes => self.begins.len(),
                _ => 0,
            };
            self.begins.insert(at, polls.tid);
        }
        self.walk.learn(threads);
    }

    fn follow(&mut self) -> Found {
        let mut best: Option<(Vec<Link>, Root, Weight)> = None;
        for tid in self.begins.clone() {
            let found = self.walk.follow(self.pid, tid);
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
        let best = best.unwrap_or_else(|| self.walk.follow(self.pid, self.pid));
        let (mut links, mut root, mut weight) = best;
        if self.thread.is_none() && weight < Weight::Fault && !self.has_no_circle {
            self.has_no_circle = true;
            if let Some(circle) = self.walk.any_circle(self.pid) {
                (links, root) = circle;
                weight = Weight::Fault;
                self.has_no_circle = false;
            }
        }
        Found {
            links,
            root,
            weight,
        }
    }

    fn report(self, found: Found) -> WhyReport {
        WhyReport::of_chain(self.source, self.pid, self.program, found.links, found.root)
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
    let is_hot =
        |t: &ThreadReport| t.class != Class::LongWait && t.wants >= crate::thread_ways::HOT;
    match report.threads.first() {
        Some(polls) if polls.has_flag() && polls.tid != first && is_hot(polls) => vec![polls.tid],
        Some(polls) if polls.has_flag() && polls.tid != first => vec![polls.tid, first],
        _ => vec![first],
    }
}
