//! A recording from beginning to end: loads the programs, and drains their ring on a thread of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flagfinder_bpf::{clock, per_cpu_offset, require, Capability, Counts, Object, Ring, Table};
use serde::Deserialize;

use crate::container::BlockKind;
use crate::descriptors::Descriptors;
use crate::drain::Drain;
use crate::event::Kind;
use crate::facts::{End, Info, MapsFact, Mark, Note};
use crate::hang::HangWatch;
use crate::processes;
use crate::protocol::{self, Config, Cpu, Ranges};
use crate::writer::EventWriter;
use crate::{EventsError, Result};

/// How long the consumer sleeps when the ring was nearly empty.
const NAP: Duration = Duration::from_millis(10);
/// Records that make another look worth it without a nap.
const BUSY: usize = 50_000;
const DRAINED: usize = 1 << 18;
/// What is kept back is written at least so often: a killed recorder's file holds the rest.
const OLD: Duration = Duration::from_secs(1);
/// A program has mapped its libraries after so many ms, sooner or later; one that was forked has them at once.
const LOADED: [u64; 5] = [0, 10, 30, 100, 300];
const SMALLEST_RING: u64 = 1 << 16;
const LARGEST_RING: u64 = 1 << 31;

/// Which system calls are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Syscalls {
    Off,
    /// The call that a thread blocks in, and the one a waker is in.
    #[default]
    Lazy,
    /// Also every call of the recorded processes.
    Target,
}

/// Which call sites a stack keeps (seed 004, fig. 4): the innermost in the program, all in the program, one of each module, all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackMode {
    #[default]
    Off,
    Application,
    ApplicationAll,
    Library,
    All,
}

/// What to record.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Options {
    pub output: PathBuf,
    /// Their descendants too.
    #[serde(default)]
    pub pids: Vec<u32>,
    /// Scheduling of all processes.
    #[serde(default)]
    pub everything: bool,
    #[serde(default)]
    pub syscalls: Syscalls,
    #[serde(default)]
    pub stacks: StackMode,
    /// Call sites kept of one stack, at most [`protocol::STACK_MOST`] - 1.
    #[serde(default)]
    pub stack_budget: u32,
    /// Of the ring between kernel and recorder.
    pub buffer_bytes: u64,
    /// Marks the moment when the first thread of `pids` has not been back at its event wait for so long.
    #[serde(default)]
    pub mark_on_hang_ns: Option<u64>,
    #[serde(default)]
    pub command: Vec<String>,
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub events: u64,
    pub bytes: u64,
    pub lost: u64,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    events: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
}

/// A running recording. Dropping it detaches everything; so does the kernel when this process dies.
pub struct Recorder {
    object: Option<Object>,
    shared: Arc<Shared>,
    marks: Sender<Mark>,
    worker: Option<JoinHandle<Result<Consumer>>>,
}

fn name_of(value: impl std::fmt::Debug) -> String {
    let mut text = String::new();
    for letter in format!("{value:?}").chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

fn info(options: &Options, contexts: bool) -> Info {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Info {
        recorder: format!("flagfinder {}", env!("CARGO_PKG_VERSION")),
        command: options.command.clone(),
        pids: options.pids.clone(),
        everything: options.everything,
        syscalls: name_of(options.syscalls),
        stacks: name_of(options.stacks),
        stack_budget: options.stack_budget,
        contexts,
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        kernel: kernel.trim().into(),
        buffer_bytes: options.buffer_bytes,
        started: clock::monotonic(),
        started_unix_ns: clock::wall(),
    }
}

const ALWAYS: [(&str, &str); 10] = [
    ("ff_sched_process_fork", "sched_process_fork"),
    ("ff_sched_process_exec", "sched_process_exec"),
    ("ff_sched_process_exit", "sched_process_exit"),
    ("ff_task_rename", "task_rename"),
    ("ff_hrtimer_expire_entry", "hrtimer_expire_entry"),
    ("ff_hrtimer_expire_exit", "hrtimer_expire_exit"),
    ("ff_hrtimer_start", "hrtimer_start"),
    ("ff_signal_generate", "signal_generate"),
    ("ff_sched_waking", "sched_waking"),
    ("ff_sched_switch", "sched_switch"),
];
const SYSTEM_CALLS: [(&str, &str); 2] =
    [("ff_sys_enter", "sys_enter"), ("ff_sys_exit", "sys_exit")];

fn check(options: &Options) -> Result<()> {
    let usage = |what: &str, found: String, fix: &str| {
        Err(EventsError::usage(
            what,
            found,
            fix,
            "Everything else stands.",
        ))
    };
    let bytes = options.buffer_bytes;
    if !bytes.is_power_of_two() || !(SMALLEST_RING..=LARGEST_RING).contains(&bytes) {
        let found = format!("{bytes} bytes were asked for");
        return usage(
            "The buffer can't have this size",
            found,
            "Give a power of two from 64K to 2G, as in --buffer 128M.",
        );
    }
    if options.stack_budget as usize >= protocol::STACK_MOST {
        let found = format!("a budget of {}", options.stack_budget);
        return usage(
            "Stacks can't be that deep",
            found,
            "Give --stack-budget 31 or less.",
        );
    }
    if options.pids.is_empty() && !options.everything {
        return usage(
            "There is nothing to record",
            "no process, and not --all".into(),
            "Write `-- PROGRAM`, --pid PID or --all.",
        );
    }
    if options.mark_on_hang_ns.is_some() && options.pids.is_empty() {
        return usage(
            "There is no main thread to watch for hangs",
            "no process was named".into(),
            "Write `-- PROGRAM` or --pid PID.",
        );
    }
    if options.mark_on_hang_ns.is_some() && options.syscalls == Syscalls::Off {
        return usage(
            "A hang can't be noticed",
            "calls that threads block in are not recorded".into(),
            "Leave out --syscalls off.",
        );
    }
    for pid in &options.pids {
        if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
            return usage(
                "There is no such process",
                format!("pid {pid}"),
                "Check the process id.",
            );
        }
    }
    Ok(())
}

impl Recorder {
    /// Starts recording. `object` is the compiled `bpf/events.bpf.c`.
    ///
    /// # Errors
    /// In four parts: privileges, the request, the output, what the kernel refuses.
    pub fn start(options: &Options, object: &[u8]) -> Result<Recorder> {
        check(options)?;
        require("Recording events", &[Capability::Bpf, Capability::Perfmon])?;
        let offsets = per_cpu_offset("runqueues").zip(per_cpu_offset("__preempt_count"));
        let stack_words = match options.stacks {
            StackMode::Off => 0,
            StackMode::Application => 2,
            _ => options.stack_budget + 1,
        };
        let config = Config {
            runqueues: offsets.map_or(0, |o| o.0),
            preempt_count: offsets.map_or(0, |o| o.1),
            everything: options.everything.into(),
            syscalls: match options.syscalls {
                Syscalls::Off => protocol::SYSCALLS_OFF,
                Syscalls::Lazy => protocol::SYSCALLS_LAZY,
                Syscalls::Target => protocol::SYSCALLS_TARGET,
            },
            stack_words,
            program_only: matches!(
                options.stacks,
                StackMode::Application | StackMode::ApplicationAll
            )
            .into(),
        };
        let sizes = [("events", options.buffer_bytes as u32)];
        let mut object = Object::load_sized(object, ("ff_config", &config), &sizes)?;
        let mut writer = EventWriter::create(&options.output, &info(options, offsets.is_some()))?;
        if offsets.is_none() {
            let text = "this kernel does not tell where __preempt_count is: wakes have the context `unknown`";
            writer.fact(
                BlockKind::Note,
                &Note {
                    level: "fallback".into(),
                    text: text.into(),
                },
            )?;
        }
        let mut consumer = Consumer {
            ring: object.ring("events")?,
            counts: object.counts("cpus")?,
            tree: object.table("tree")?,
            writer,
            drain: Drain::default(),
            descriptors: Descriptors::default(),
            fresh: Vec::new(),
            stacks: stack_words > 0,
            hangs: HangWatch::new(&options.pids, options.mark_on_hang_ns.unwrap_or(u64::MAX)),
            maps: BTreeMap::new(),
        };
        for pid in processes::descendants(&options.pids) {
            if !consumer.tree.insert(pid, Ranges::default()) {
                return Err(EventsError::unavailable(
                    "The processes can't be recorded",
                    "the kernel's table of processes is full",
                    "Record fewer processes, or use --all.",
                ));
            }
        }
        let target = options.syscalls == Syscalls::Target;
        let calls = SYSTEM_CALLS.iter().filter(|_| target);
        for (program, tracepoint) in ALWAYS.iter().chain(calls) {
            object.trace(program, tracepoint)?;
        }
        consumer.learn_threads(options)?;
        let shared = Arc::new(Shared::default());
        let (marks, received) = channel();
        let theirs = Arc::clone(&shared);
        let worker = std::thread::Builder::new()
            .name("ff-events".into())
            .spawn(move || consumer.run(&theirs, &received));
        let worker = worker.map_err(|error| {
            EventsError::unavailable(
                "The recorder's thread can't be started",
                error.to_string(),
                "Free some memory.",
            )
        })?;
        Ok(Recorder {
            object: Some(object),
            shared,
            marks,
            worker: Some(worker),
        })
    }

    /// Writes "here" into the recording.
    pub fn mark(&self, text: &str) {
        // A consumer that is gone has failed; finish tells why.
        let _ = self.marks.send(Mark {
            ts: clock::monotonic(),
            text: text.into(),
        });
    }

    pub fn progress(&self) -> Progress {
        Progress {
            events: self.shared.events.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
            lost: self.shared.lost.load(Ordering::Relaxed),
        }
    }

    /// Whether the recording has ended by itself: it failed, and `finish` tells why.
    pub fn failed(&self) -> bool {
        self.worker.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Detaches, writes what is left and closes the file.
    ///
    /// # Errors
    /// When the file could not be written, now or before.
    pub fn finish(mut self, reason: &str, exit_status: Option<i32>) -> Result<End> {
        self.object = None;
        self.shared.stop.store(true, Ordering::Release);
        let consumer = match self.worker.take().map(JoinHandle::join) {
            Some(Ok(consumer)) => consumer?,
            _ => {
                return Err(EventsError::unavailable(
                    "The recorder failed",
                    "an internal check did not hold; its message is above",
                    "Please report it. What was written before can be read.",
                ))
            }
        };
        consumer.finish(reason, exit_status)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.object = None;
        self.shared.stop.store(true, Ordering::Release);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

struct Consumer {
    ring: Ring,
    counts: Counts<Cpu>,
    tree: Table<u32, Ranges>,
    writer: EventWriter<File>,
    drain: Drain,
    descriptors: Descriptors,
    /// Processes whose code is still to be read, and from when on.
    fresh: Vec<(Instant, u32)>,
    stacks: bool,
    hangs: HangWatch,
    /// As last written, by process.
    maps: BTreeMap<u32, String>,
}

impl Consumer {
    fn learn_threads(&mut self, options: &Options) -> Result<()> {
        let threads = if options.everything {
            processes::all_threads()
        } else {
            let pids = self.tree.keys();
            pids.into_iter().flat_map(processes::threads_of).collect()
        };
        for thread in &threads {
            self.descriptors.add_thread(thread.tid, thread.pid);
        }
        self.writer.fact(BlockKind::Threads, &threads)?;
        for pid in self.tree.keys() {
            self.learn_code(pid)?;
        }
        Ok(())
    }

    /// Writes where a process has code, if that is new, and tells BPF which words are code addresses.
    fn learn_code(&mut self, pid: u32) -> Result<()> {
        let Some(text) = processes::code_maps(pid) else {
            return Ok(());
        };
        if self.maps.get(&pid) == Some(&text) {
            return Ok(());
        }
        if self.stacks && self.tree.get(&pid).is_some() {
            let ranges = processes::code_ranges(&text, &processes::program(pid));
            // It was there, so there is room for it.
            self.tree.insert(pid, ranges);
        }
        self.maps.insert(pid, text.clone());
        let ts = clock::monotonic();
        self.writer
            .fact(BlockKind::Maps, &MapsFact { ts, pid, text })
    }

    fn take(&mut self) -> usize {
        let (drain, writer, descriptors) =
            (&mut self.drain, &mut self.writer, &mut self.descriptors);
        let (fresh, stacks) = (&mut self.fresh, self.stacks);
        let hangs = &mut self.hangs;
        let now = clock::monotonic();
        self.ring.drain(DRAINED, |record| {
            let Some(event) = drain.take(record, writer) else {
                return;
            };
            descriptors.see(&event, now);
            hangs.see(&event);
            let (pid, other) = event.halves(0);
            let times = match event.kind {
                Kind::Exec => &LOADED[..],
                Kind::Fork if stacks && pid != other => &LOADED[..1],
                _ => return,
            };
            let at = Instant::now();
            let due = times.iter().map(|&ms| at + Duration::from_millis(ms));
            fresh.extend(due.map(|at| (at, pid)));
        })
    }

    fn settle(&mut self, shared: &Shared, marks: &Receiver<Mark>, old: bool) -> Result<()> {
        self.drain.flush(&mut self.writer, old, false)?;
        let found = self.descriptors.take();
        if !found.is_empty() {
            self.writer.fact(BlockKind::Descriptors, &found)?;
        }
        while let Ok(mark) = marks.try_recv() {
            self.writer.fact(BlockKind::Mark, &mark)?;
        }
        let ts = clock::monotonic();
        for tid in self.hangs.late(ts) {
            let text = format!("thread {tid} is not back at its event wait");
            self.writer.fact(BlockKind::Mark, &Mark { ts, text })?;
        }
        let now = Instant::now();
        let due: Vec<u32> = self
            .fresh
            .iter()
            .filter(|(at, _)| *at <= now)
            .map(|f| f.1)
            .collect();
        self.fresh.retain(|(at, _)| *at > now);
        for pid in due {
            self.learn_code(pid)?;
        }
        let lost = self.counts.read().iter().map(|cpu| cpu.lost).sum();
        shared.lost.store(lost, Ordering::Relaxed);
        shared.events.store(self.drain.events, Ordering::Relaxed);
        shared.bytes.store(self.writer.bytes(), Ordering::Relaxed);
        Ok(())
    }

    fn run(mut self, shared: &Shared, marks: &Receiver<Mark>) -> Result<Consumer> {
        let mut written = Instant::now();
        loop {
            // Asked before draining: what is recorded before the end is then surely taken.
            let stop = shared.stop.load(Ordering::Acquire);
            let taken = self.take();
            let old = written.elapsed() > OLD;
            if old {
                written = Instant::now();
            }
            self.settle(shared, marks, old)?;
            if taken < BUSY {
                if stop {
                    return Ok(self);
                }
                std::thread::sleep(NAP);
            }
        }
    }

    fn finish(mut self, reason: &str, exit_status: Option<i32>) -> Result<End> {
        for pid in self.tree.keys() {
            self.learn_code(pid)?;
        }
        let counts = self.counts.read();
        let totals: Vec<u64> = counts.iter().map(|cpu| cpu.sequence).collect();
        let ts = clock::monotonic();
        self.drain.finish(&mut self.writer, &totals, ts)?;
        let lossy = counts.iter().zip(0u32..).filter(|(cpu, _)| cpu.lost > 0);
        let end = End {
            ts,
            reason: reason.into(),
            exit_status,
            events: self.drain.events,
            raw_bytes: self.drain.raw_bytes,
            lost: counts.iter().map(|cpu| cpu.lost).sum(),
            lost_cpus: lossy.map(|(cpu, number)| (number, cpu.lost)).collect(),
            stacks_dropped: self.writer.stacks_dropped,
        };
        self.writer.fact(BlockKind::End, &end)?;
        self.writer.finish()?;
        Ok(end)
    }
}
