// SPDX-License-Identifier: MIT
//! From a Perfetto trace to a file of events.
//!
//! In: a trace of the data source linux.ftrace with sched_switch and sched_waking, whole or
//! compact; with raw_syscalls, signals, interrupts and the process tree where it has them. Out: the
//! events that our own recorder would have written of them. Blind spots: most traces do not tell in
//! which context a wake was made, unless interrupts were recorded too; descriptors, stacks and code
//! are not taken over; times are the trace's clock; system calls are taken over from x86-64 only.
//! All events are held in memory, as the CPUs' bundles come in no order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use flagfinder_perfetto::ftrace::{packets, Bundle, CompactSched, Packet, ProcessTree, What};

use crate::error::cant_read;
use crate::event::Kind;
use crate::facts::{Info, ThreadFact};
use crate::import::{context, halves, name_words, At, Import, Imported};
use crate::protocol as p;
use crate::{Failure, Result};

/// The kernel's thread that starts all its others.
const KTHREADD: i32 = 2;
const CLONE_THREAD: u64 = 0x10000;
const MACHINE: &str = "x86_64";

fn refused(found: impl Into<String>) -> Failure {
    Failure::bad_file(
        "This is no Perfetto trace that can be imported",
        found,
        "Record with the data source linux.ftrace and the events sched/sched_switch and \
         sched/sched_waking.",
        "Other recordings are unaffected.",
    )
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Something that ftrace reported. The thread that ran is not known where sched is compact.
struct Record {
    ts: u64,
    cpu: u16,
    tid: Option<u32>,
    flags: Option<u32>,
    what: Told,
}

enum Told {
    Full(What),
    /// A switch that does not tell who gave up the CPU: the state, the next thread.
    SwitchTo(i64, u32),
    /// The woken thread, the CPU that it is to run on, and its priority.
    Waking(u32, u64, u64),
    Lost,
}

#[derive(Default)]
struct Trace {
    records: Vec<Record>,
    /// As the process tree tells: of each thread its process.
    processes: BTreeMap<u32, u32>,
    names: BTreeMap<u32, String>,
    /// Of processes; what their first threads are called where nothing else tells.
    programs: BTreeMap<u32, String>,
    kernel: BTreeSet<u32>,
    release: String,
    machine: String,
    skipped: u64,
}

impl Trace {
    fn packet(&mut self, packet: Packet) {
        if let Some(bundle) = packet.ftrace_events {
            self.bundle(bundle);
        }
        if let Some(tree) = packet.process_tree {
            self.tree(tree);
        }
        if let Some(name) = packet.system_info.and_then(|info| info.utsname) {
            (self.release, self.machine) = (name.release, name.machine);
        }
    }

    fn name(&mut self, tid: i32, name: &[u8]) {
        if tid > 0 && !name.is_empty() {
            self.names.entry(tid as u32).or_insert_with(|| text(name));
        }
    }

    fn tree(&mut self, tree: ProcessTree) {
        for process in tree.processes {
            let pid = process.pid as u32;
            self.processes.insert(pid, pid);
            if process.pid == KTHREADD || process.ppid == KTHREADD {
                self.kernel.insert(pid);
            }
            let program = process.cmdline.first().map_or(&[][..], |path| path);
            let name = program.rsplit(|&byte| byte == b'/').next();
            self.programs.insert(pid, text(name.unwrap_or_default()));
        }
        for thread in tree.threads {
            self.processes.insert(thread.tid as u32, thread.tgid as u32);
            self.name(thread.tid, &thread.name);
        }
    }

    fn bundle(&mut self, bundle: Bundle) {
        let cpu = bundle.cpu as u16;
        let compact = bundle.compact_sched.unwrap_or_default();
        if bundle.lost_events {
            let full = bundle.event.iter().map(|event| event.timestamp);
            let columns = [&compact.switch_timestamp, &compact.waking_timestamp];
            let first = columns
                .into_iter()
                .filter_map(|times| times.first().copied());
            if let Some(ts) = full.chain(first).min() {
                self.record(ts, cpu, Told::Lost);
            }
        }
        for event in bundle.event {
            let Some(what) = event.what else {
                self.skipped += 1;
                continue;
            };
            match &what {
                What::Switch(switch) => {
                    self.name(switch.prev_pid, &switch.prev_comm);
                    self.name(switch.next_pid, &switch.next_comm);
                }
                What::Waking(waking) => self.name(waking.pid, &waking.comm),
                _ => {}
            }
            self.records.push(Record {
                ts: event.timestamp,
                cpu,
                tid: Some(event.pid),
                flags: event.common_flags,
                what: Told::Full(what),
            });
        }
        self.compact(cpu, &compact);
    }

    fn record(&mut self, ts: u64, cpu: u16, what: Told) {
        self.records.push(Record {
            ts,
            cpu,
            tid: None,
            flags: None,
            what,
        });
    }

    fn compact(&mut self, cpu: u16, sched: &CompactSched) {
        let name = |index: Option<&u32>| {
            let name = index.and_then(|&index| sched.intern_table.get(index as usize));
            name.map_or(&[][..], |name| name)
        };
        let mut ts = 0u64;
        let states = sched.switch_timestamp.iter().zip(&sched.switch_prev_state);
        for (row, ((since, &state), &next)) in states.zip(&sched.switch_next_pid).enumerate() {
            ts = ts.wrapping_add(*since);
            self.name(next, name(sched.switch_next_comm_index.get(row)));
            self.record(ts, cpu, Told::SwitchTo(state, next as u32));
        }
        ts = 0;
        let wakes = sched.waking_timestamp.iter().zip(&sched.waking_pid);
        for (row, (since, &woken)) in wakes.enumerate() {
            ts = ts.wrapping_add(*since);
            self.name(woken, name(sched.waking_comm_index.get(row)));
            let number = |column: &[i32]| column.get(row).map_or(0, |&value| value as u64);
            let place = (number(&sched.waking_target_cpu), number(&sched.waking_prio));
            self.record(ts, cpu, Told::Waking(woken as u32, place.0, place.1));
            if let Some(record) = self.records.last_mut() {
                record.flags = sched.waking_common_flags.get(row).copied();
            }
        }
    }

    fn has(&self, wanted: impl Fn(&What) -> bool) -> bool {
        let full = |record: &Record| matches!(&record.what, Told::Full(what) if wanted(what));
        self.records.iter().any(full)
    }
}

/// In which interrupts a CPU is, as far as their beginnings and ends were recorded.
#[derive(Clone, Copy, Default)]
struct Cpu {
    running: Option<u32>,
    soft: bool,
    hard: bool,
}

struct Writer {
    output: Import,
    cpus: BTreeMap<u16, Cpu>,
    processes: BTreeMap<u32, u32>,
    /// Threads that started meanwhile.
    started: BTreeSet<u32>,
    calls: bool,
}

impl Writer {
    fn take(&mut self, record: Record) -> Result<()> {
        let cpu = self.cpus.entry(record.cpu).or_default();
        let at = At {
            ts: record.ts,
            cpu: record.cpu,
            tid: record.tid.or(cpu.running).unwrap_or(0),
        };
        let context = match (record.flags, cpu.hard, cpu.soft) {
            (Some(flags), ..) => context(flags.into()),
            (None, true, _) => p::CONTEXT_HARDIRQ,
            (None, false, true) => p::CONTEXT_SOFTIRQ,
            (None, false, false) => p::CONTEXT_UNKNOWN,
        };
        match record.what {
            Told::Lost => {
                cpu.running = None;
                self.output.lost(at, 1)
            }
            Told::SwitchTo(state, next) => {
                let before = cpu.running.replace(next);
                if before.is_none() && next == 0 {
                    self.output.skip("sched_switch away from an unknown thread");
                    return Ok(());
                }
                let threads = (before.unwrap_or(0), next);
                self.output.switch(at, state as u64, threads)
            }
            Told::Waking(woken, target, priority) => {
                self.output.waking(at, context, woken, (target, priority))
            }
            Told::Full(What::Switch(switch)) => {
                cpu.running = Some(switch.next_pid as u32);
                let threads = (switch.prev_pid as u32, switch.next_pid as u32);
                self.output.switch(at, switch.prev_state as u64, threads)
            }
            Told::Full(what) => {
                match what {
                    What::SoftIrqEntry(_) => cpu.soft = true,
                    What::SoftIrqExit(_) => cpu.soft = false,
                    What::HardIrqEntry(_) => cpu.hard = true,
                    What::HardIrqExit(_) => cpu.hard = false,
                    _ => {}
                }
                self.full(at, context, what)
            }
        }
    }

    fn full(&mut self, at: At, context: u8, what: What) -> Result<()> {
        let output = &mut self.output;
        match what {
            What::Waking(waking) => {
                let place = (waking.target_cpu as u64, waking.prio as u64);
                output.waking(at, context, waking.pid as u32, place)
            }
            What::SysEnter(call) if self.calls => {
                let first = call.args.first().copied().unwrap_or(0);
                output.enter(at, call.id as u64, first)
            }
            What::SysExit(call) if self.calls => {
                output.exit_call(at, call.id as u64, call.ret as u64)
            }
            What::SysEnter(_) | What::SysExit(_) => {
                output.skip("calls of another machine");
                Ok(())
            }
            What::Signal(signal) => {
                let word = (signal.sig as u32, signal.result as u32);
                output.signal(at, context, signal.pid as u32, word)
            }
            What::NewTask(task) => {
                let tid = task.pid as u32;
                let parent = self.processes.get(&at.tid).copied().unwrap_or(at.tid);
                let is_thread = task.clone_flags & CLONE_THREAD != 0;
                let pid = if is_thread { parent } else { tid };
                self.processes.insert(tid, pid);
                self.started.insert(tid);
                let [low, high] = name_words(&text(&task.comm));
                let words = [halves(pid, parent), low, high];
                output.event(at, Kind::Fork, 0, (at.tid, tid), words)
            }
            What::Rename(rename) => {
                let [low, high] = name_words(&text(&rename.newcomm));
                let threads = (at.tid, rename.pid as u32);
                output.event(at, Kind::Rename, 0, threads, [low, high, 0])
            }
            What::Exec(exec) => {
                let name = exec.filename.rsplit(|&byte| byte == b'/').next();
                let [low, high] = name_words(&text(name.unwrap_or_default()));
                let tid = exec.pid as u32;
                let words = [halves(tid, exec.old_pid as u32), low, high];
                output.event(at, Kind::Exec, 0, (tid, 0), words)
            }
            What::Exit(exit) => {
                let words = [exit.tgid as u64, 0, 0];
                output.event(at, Kind::Exit, 0, (exit.pid as u32, 0), words)
            }
            _ => Ok(()),
        }
    }
}

/// Writes the events of `input` to `output`. A trace that is cut is taken over as far as it goes.
pub(crate) fn import_perfetto(input: &Path, output: &Path) -> Result<Imported> {
    let bytes = std::fs::read(input).map_err(|error| cant_read(input, &error))?;
    let mut trace = Trace::default();
    let whole = packets(&bytes, &mut |packet| trace.packet(packet));
    drop(bytes);
    let switches = |record: &Record| {
        matches!(
            record.what,
            Told::SwitchTo(..) | Told::Full(What::Switch(_))
        )
    };
    if !trace.records.iter().any(switches) {
        let damage = whole.err().map(|error| format!(" ({error})"));
        let damage = damage.unwrap_or_default();
        return Err(refused(format!("it has no sched_switch{damage}")));
    }
    // Of equal times as they stand in the trace.
    trace.records.sort_by_key(|record| record.ts);
    let calls = trace.machine == MACHINE && trace.has(|what| matches!(what, What::SysEnter(_)));
    let interrupts = |what: &What| matches!(what, What::SoftIrqEntry(_) | What::HardIrqEntry(_));
    let info = Info {
        recorder: format!(
            "Perfetto, imported by flagfinder {}",
            env!("CARGO_PKG_VERSION")
        ),
        everything: true,
        syscalls: if calls { "target" } else { "off" }.into(),
        stacks: "off".into(),
        contexts: trace.records.iter().any(|record| record.flags.is_some())
            || trace.has(interrupts),
        kernel: std::mem::take(&mut trace.release),
        ..Info::default()
    };
    let mut writer = Writer {
        output: Import::create(output, &info)?,
        cpus: BTreeMap::new(),
        processes: trace.processes.clone(),
        started: BTreeSet::new(),
        calls,
    };
    for record in std::mem::take(&mut trace.records) {
        writer.take(record)?;
    }
    if trace.skipped > 0 {
        let skipped = &mut writer.output.done.skipped;
        skipped.insert("other ftrace events".into(), trace.skipped);
    }
    if let Err(error) = whole {
        writer.output.skip(&format!("what follows {error}"));
    }
    let tids: BTreeSet<u32> = trace
        .names
        .keys()
        .chain(trace.processes.keys())
        .copied()
        .collect();
    let before = tids.difference(&writer.started).map(|&tid| {
        // Of threads that no process tree mentions the process is not known.
        let pid = trace.processes.get(&tid).copied().unwrap_or(0);
        let name = trace.names.get(&tid).or(trace.programs.get(&tid));
        ThreadFact {
            tid,
            pid,
            name: name.cloned().unwrap_or_default(),
            kernel: trace.kernel.contains(&pid),
            ..ThreadFact::default()
        }
    });
    let threads: Vec<ThreadFact> = before.collect();
    writer.output.finish(&threads)
}
