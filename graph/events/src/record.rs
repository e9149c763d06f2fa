// SPDX-License-Identifier: MIT
//! A recording from beginning to end: loads the programs, and drains their ring on a thread of its
//! own.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;

use flagfinder_bpf::{
    online_cpus, open_clock, per_cpu_offset, require, tracepoint_arguments, unavailable, Attached,
    Capability, Object,
};
use flagfinder_linux::clock;

use crate::consumer::{Consumer, Finished, Shared, Word};
use crate::descriptors::Descriptors;
use crate::drain::Drain;
use crate::ends::Ends;
use crate::facts::{Mark, Note};
use crate::hang::HangWatch;
use crate::hot::Hot;
use crate::looks::{Looks, LIMIT};
use crate::options::{check, info, Options, StackMode, Syscalls};
use crate::outsiders::Outsiders;
use crate::protocol::{self, Config};
use crate::python::Pythons;
use crate::sites::Sites;
use crate::switch;
use crate::threads::Threads;
use crate::writer::EventWriter;
use crate::{Failure, Result};

/// How far a recording is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events written or about to be.
    pub events: u64,
    /// Length of the file, without what was dropped.
    pub bytes: u64,
    /// Events for which the ring had no room.
    pub lost: u64,
}

/// A running recording. Dropping it detaches everything; so does the kernel when this process dies.
pub struct Recorder {
    attached: Option<(Object, Vec<Attached>)>,
    shared: Arc<Shared>,
    words: Sender<Word>,
    worker: Option<JoinHandle<Result<Consumer>>>,
}

const ALWAYS: [(&str, &str); 9] = [
    ("ff_sched_process_fork", "sched_process_fork"),
    ("ff_sched_process_exec", "sched_process_exec"),
    ("ff_sched_process_exit", "sched_process_exit"),
    ("ff_task_rename", "task_rename"),
    ("ff_hrtimer_expire_entry", "hrtimer_expire_entry"),
    ("ff_hrtimer_expire_exit", "hrtimer_expire_exit"),
    ("ff_hrtimer_start", "hrtimer_start"),
    ("ff_signal_generate", "signal_generate"),
    ("ff_sched_waking", "sched_waking"),
];
/// Those of io_uring, and of files' locks: not every kernel has them.
const IF_THERE: [(&str, &str); 5] = [
    ("ff_posix_lock_inode", "posix_lock_inode"),
    ("ff_flock_lock_inode", "flock_lock_inode"),
    ("ff_task_newtask", "task_newtask"),
    ("ff_io_uring_submit_req", "io_uring_submit_req"),
    ("ff_io_uring_complete", "io_uring_complete"),
];
const SYSTEM_CALLS: [(&str, &str); 2] =
    [("ff_sys_enter", "sys_enter"), ("ff_sys_exit", "sys_exit")];
/// What is sent and received over TCP and UDP.
const NETWORK: [(&str, &str); 2] = [
    ("ff_send_begins", "sys_enter"),
    ("ff_exchange_ends", "sys_exit"),
];
/// Time between two looks at what runs, ns: a hang of a tenth of a second is seen 25 times.
const CLOCK_NS: u64 = 4_000_000;

/// Lets every CPU look at what it runs, by the clock.
fn look(object: &mut Object) -> std::result::Result<Vec<Attached>, String> {
    let program = object.program("ff_clock").map_err(|error| error.found)?;
    let cpus = online_cpus().map_err(|error| error.to_string())?;
    let clocks = cpus.iter().map(|&cpu| open_clock(cpu, CLOCK_NS, program));
    let clocks: std::io::Result<_> = clocks.collect();
    clocks.map_err(|error| format!("no clock: {error}"))
}

impl Recorder {
    /// Starts recording. `object` is the compiled `bpf/events.bpf.c`.
    ///
    /// # Errors
    /// In four parts: privileges, the request, the output, what the kernel refuses.
    pub fn start(options: &Options, object: &[u8]) -> Result<Recorder> {
        let names = check(options)?;
        require("Recording events", &[Capability::Bpf, Capability::Perfmon])?;
        // From Linux 6.2 to 6.14 it is a part of another variable.
        let preempt_count = per_cpu_offset("__preempt_count", None)
            .or_else(|| per_cpu_offset("pcpu_hot", Some("preempt_count")));
        let offsets = per_cpu_offset("runqueues", None).zip(preempt_count);
        let stack_words = match options.stacks {
            StackMode::Off => 0,
            StackMode::Application => 2,
            // What is in which library is told apart later (sites.rs).
            StackMode::Library => protocol::STACK_MOST as u32 - 1,
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
            copy_bytes: options.stack_copy,
            name_begins: names.begins,
            name_repeats: names.repeats,
            name_ends: names.ends,
        };
        let tables = [("ff_names", &names.next[..])];
        let sizes = [
            ("events", Some(options.buffer_bytes as u32)),
            ("tree", options.most_processes),
        ];
        let sizes: Vec<(&str, u32)> = sizes
            .iter()
            .filter_map(|&(map, size)| Some((map, size?)))
            .collect();
        let mut object = Object::load(object, ("ff_config", &config), &tables, &sizes)?;
        object.find_namespace()?;
        let info = info(options, offsets.is_some());
        let writer = EventWriter::create(&options.output, &info)?;
        let room = options.size_bytes.map(|size| writer.within(size));
        let mut consumer = Consumer {
            ring: object.ring("events")?,
            counts: object.counts("cpus")?,
            tree: object.table("tree")?,
            interpreters: object.table("pythons")?,
            pythons: Pythons::default(),
            writer,
            drain: Drain::default(),
            threads: Threads::default(),
            descriptors: Descriptors::default(),
            fresh: Vec::new(),
            stacks: stack_words > 0,
            sites: Sites::new(
                options.stacks,
                options.stack_budget,
                options.stack_copy > 0,
                (clock::wall() / 1_000_000_000) as i64,
            ),
            hangs: HangWatch::new(&options.pids, options.mark_on_hang_ns.unwrap_or(u64::MAX)),
            hot: Hot::default(),
            looks: Looks::default(),
            ends: Ends::default(),
            outsiders: Outsiders::default(),
            maps: BTreeMap::new(),
            not_followed: None,
            info,
            notes: Vec::new(),
            room: room.transpose()?,
            keeper: 0,
        };
        if offsets.is_none() {
            let text =
                "this kernel does not tell where __preempt_count is: wakes have the context \
                 `unknown`";
            consumer.announce(Note {
                level: "fallback".into(),
                text: text.into(),
            })?;
        }
        consumer.follow(&options.pids, true)?;
        consumer.follow(&options.beside, false)?;
        let target = options.syscalls == Syscalls::Target;
        let calls = SYSTEM_CALLS.iter().filter(|_| target);
        let network = NETWORK.iter().filter(|_| options.network);
        for (program, tracepoint) in ALWAYS.iter().chain(calls).chain(network) {
            object.trace(program, tracepoint)?;
        }
        let switched = if options.stateless_switches {
            switch::STATELESS
        } else {
            switch::program_for(&tracepoint_arguments("sched_switch")?)?
        };
        object.trace(switched, "sched_switch")?;
        // Those that were started before forks were seen.
        consumer.follow(&options.pids, true)?;
        consumer.follow(&options.beside, false)?;
        let missing = IF_THERE.iter().filter_map(|(program, tracepoint)| {
            let refused = object.trace(program, tracepoint).err()?;
            Some(format!("{tracepoint}: {}", refused.found))
        });
        let missing: Vec<String> = missing.collect();
        if !missing.is_empty() {
            consumer.announce(Note {
                level: "fallback".into(),
                text: format!(
                    "what io_uring's requests led to, or who has a file's lock, is not recorded: \
                     {}",
                    missing.join("; ")
                ),
            })?;
        }
        let looks = look(&mut object).or_else(|refused| {
            consumer.announce(Note {
                level: "fallback".into(),
                text: format!(
                    "it is not recorded which functions threads run, and threads that call \
                     sched_yield are only seen where another one runs then: {refused}"
                ),
            })?;
            Ok::<_, Failure>(Vec::new())
        })?;
        consumer.learn_threads(options)?;
        let shared = Arc::new(Shared::default());
        let (words, received) = channel();
        let theirs = Arc::clone(&shared);
        let worker = std::thread::Builder::new()
            .name("ff-events".into())
            .spawn(move || consumer.run(&theirs, &received));
        let worker = worker.map_err(|error| {
            unavailable(
                "The recorder's thread can't be started",
                error.to_string(),
                "Free some memory.",
            )
        })?;
        Ok(Recorder {
            attached: Some((object, looks)),
            shared,
            words,
            worker: Some(worker),
        })
    }

    /// Writes "here" into the recording.
    pub fn mark(&self, text: &str) {
        // If the consumer is gone, it has failed; finish says why.
        let _ = self.words.send(Word::Mark(Mark {
            ts: clock::kernel(),
            text: text.into(),
            tid: None,
            host: None,
        }));
    }

    /// Looks at what the target's threads are in and whom they wait for, while they are still
    /// there: to be called just before `finish`.
    pub fn look(&self) {
        let (done, ended) = channel();
        if self.words.send(Word::Look(done)).is_ok() {
            // It ends by being dropped. A consumer that is late is waited for by `finish`.
            let _ = ended.recv_timeout(2 * LIMIT);
        }
    }

    /// Counts so far, about as old as the last flush.
    pub fn progress(&self) -> Progress {
        Progress {
            events: self.shared.events.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
            lost: self.shared.lost.load(Ordering::Relaxed),
        }
    }

    /// Whether the processes that were asked for have ended, and all that they started. Those
    /// beside them do not count.
    pub fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::Relaxed)
    }

    /// Whether the recording has ended by itself: it failed, and `finish` tells why.
    pub fn failed(&self) -> bool {
        self.worker.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Detaches, writes what is left and closes the file.
    ///
    /// # Errors
    /// When the file could not be written, now or before.
    pub fn finish(mut self, reason: &str, exit_status: Option<i32>) -> Result<Finished> {
        // Detaching takes a while, in which wakes are missed.
        let until = clock::kernel();
        self.attached = None;
        self.shared.stop.store(true, Ordering::Release);
        let consumer = match self.worker.take().map(JoinHandle::join) {
            Some(Ok(consumer)) => consumer?,
            _ => {
                return Err(unavailable(
                    "The recorder failed",
                    "an internal check did not hold; its message is above",
                    "Please report it. What was written before can be read.",
                ))
            }
        };
        consumer.finish(until, reason, exit_status)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.attached = None;
        self.shared.stop.store(true, Ordering::Release);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}
