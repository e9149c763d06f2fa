//! From what `perf record -a` wrote to a file of events.
//!
//! In: a perf.data file with sched:sched_switch and sched:sched_waking; with raw_syscalls, signal:signal_generate and timer:hrtimer_* where it has them.
//! Out: the events that our own recorder would have written of them. Blind spots: descriptors, stacks and code are not taken over; times are perf's
//! clock; without raw_syscalls nothing tells which call a thread blocks in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use linux_perf_data::linux_perf_event_reader::{
    CommonData, EventRecord, PerfEventType, RawEventRecord, SampleRecord,
};
use linux_perf_data::{Feature, PerfFile, PerfFileReader, PerfFileRecord, PerfRecordIter};
use serde::Serialize;

use crate::call::Call;
use crate::container::BlockKind;
use crate::error::{cant_read, BAD_FILE};
use crate::event::{Event, Kind};
use crate::facts::{End, Info, ThreadFact};
use crate::formats::{self, Format};
use crate::protocol::{self as p, NAME_BYTES};
use crate::writer::EventWriter;
use crate::{EventsError, Result};

/// Events of a CPU that make a block worth writing.
const BLOCK: usize = 16_384;
/// Of `common_flags` (include/linux/trace_events.h).
const FLAG_HARDIRQ: u64 = 8;
const FLAG_SOFTIRQ: u64 = 16;
const FLAG_NMI: u64 = 64;
/// The kernel's thread that starts all its others.
const KTHREADD: u32 = 2;

/// What was taken over.
#[derive(Debug, Default, Serialize)]
pub struct Imported {
    pub events: u64,
    pub lost: u64,
    /// Records of tracepoints that say nothing to the graph, by name.
    pub skipped: BTreeMap<String, u64>,
}

type Records = PerfRecordIter<BufReader<File>>;

fn refused(found: impl Into<String>) -> EventsError {
    EventsError {
        exit_code: BAD_FILE,
        what: "This is no perf recording that can be imported".into(),
        found: found.into(),
        fix: "Record with `perf record -a -e sched:sched_switch -e sched:sched_waking`.".into(),
        still_works: "Other recordings are unaffected.".into(),
    }
}

fn foreign(error: &linux_perf_data::Error) -> EventsError {
    refused(error.to_string())
}

fn open(path: &Path) -> Result<(PerfFile, Records)> {
    let file = File::open(path).map_err(|error| cant_read(path, &error))?;
    let opened = PerfFileReader::parse_file(BufReader::new(file));
    let PerfFileReader {
        perf_file,
        record_iter,
    } = opened.map_err(|error| foreign(&error))?;
    Ok((perf_file, record_iter))
}

/// The tracepoint of each attribute.
fn tracepoints(file: &PerfFile) -> Vec<Option<Format>> {
    let section = file.feature_section_data(Feature::TRACING_DATA);
    let mut formats = formats::parse(section.unwrap_or_default());
    let attributes = file.event_attributes().iter();
    attributes
        .map(|attribute| match attribute.attr.type_ {
            PerfEventType::Tracepoint(id) => formats.remove(&id),
            _ => None,
        })
        .collect()
}

/// Writes the events of `input` to `output`.
///
/// # Errors
/// When `input` is no perf.data file or has no switches, or a file can't be read or written.
pub fn import_perf(input: &Path, output: &Path) -> Result<Imported> {
    let (mut file, mut records) = open(input)?;
    let tracepoints = tracepoints(&file);
    let has = |name: &str| {
        tracepoints
            .iter()
            .flatten()
            .any(|format| format.name == name)
    };
    if !has("sched_switch") {
        return Err(refused("it has no sched:sched_switch"));
    }
    let version = file
        .perf_version()
        .ok()
        .flatten()
        .unwrap_or("of unknown version");
    let info = Info {
        recorder: format!(
            "perf {version}, imported by flagfinder {}",
            env!("CARGO_PKG_VERSION")
        ),
        everything: true,
        syscalls: if has("sys_enter") { "target" } else { "off" }.into(),
        stacks: "off".into(),
        contexts: true,
        kernel: file.os_release().ok().flatten().unwrap_or_default().into(),
        ..Info::default()
    };
    let mut import = Import {
        writer: EventWriter::create(output, &info)?,
        cpus: BTreeMap::new(),
        threads: BTreeMap::new(),
        kernel: BTreeSet::new(),
        names: HashMap::new(),
        calls: HashMap::new(),
        timers: HashMap::new(),
        done: Imported::default(),
    };
    loop {
        let record = records.next_record(&mut file);
        match record.map_err(|error| foreign(&error))? {
            Some(PerfFileRecord::EventRecord { attr_index, record }) => {
                let format = tracepoints.get(attr_index).and_then(Option::as_ref);
                import.take(&record, format)?;
            }
            Some(PerfFileRecord::UserRecord(_)) => {}
            None => break,
        }
    }
    import.finish()
}

#[derive(Default)]
struct Cpu {
    events: Vec<Event>,
    last_ts: u64,
}

struct Import {
    writer: EventWriter<File>,
    cpus: BTreeMap<u16, Cpu>,
    /// That were there before.
    threads: BTreeMap<u32, ThreadFact>,
    /// Processes that the kernel's own thread started.
    kernel: BTreeSet<u32>,
    names: HashMap<u32, String>,
    /// The call that each thread is in, packed as in events.
    calls: HashMap<u32, u64>,
    /// The timer whose function runs, by CPU.
    timers: HashMap<u16, u64>,
    done: Imported,
}

/// Where and when a record was made.
#[derive(Clone, Copy)]
struct At {
    ts: u64,
    cpu: u16,
    tid: u32,
}

fn halves(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn name_words(name: &str) -> [u64; 2] {
    let mut bytes = [0; NAME_BYTES];
    let size = name.len().min(NAME_BYTES - 1);
    bytes[..size].copy_from_slice(&name.as_bytes()[..size]);
    let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    [word(0), word(8)]
}

/// As the recorder's own (bpf/events.bpf.c) from the bits that the tracepoint shows.
fn state(bits: u64) -> u8 {
    match bits & 0xff {
        0 => p::STATE_PREEMPTED,
        bits if bits & 1 != 0 => p::STATE_SLEEPS,
        bits if bits & 2 != 0 => p::STATE_DISK,
        bits if bits & (4 | 8) != 0 => p::STATE_STOPPED,
        bits if bits & (0x10 | 0x20) != 0 => p::STATE_DEAD,
        _ => p::STATE_OTHER,
    }
}

fn context(flags: u64) -> u8 {
    if flags & FLAG_NMI != 0 {
        p::CONTEXT_NMI
    } else if flags & FLAG_HARDIRQ != 0 {
        p::CONTEXT_HARDIRQ
    } else if flags & FLAG_SOFTIRQ != 0 {
        p::CONTEXT_SOFTIRQ
    } else {
        p::CONTEXT_TASK
    }
}

impl Import {
    fn take(&mut self, record: &RawEventRecord, format: Option<&Format>) -> Result<()> {
        let common = record.common_data().unwrap_or_default();
        let at = |common: &CommonData| At {
            ts: common.timestamp.unwrap_or(0),
            cpu: common.cpu.unwrap_or(0) as u16,
            tid: common.tid.unwrap_or(0) as u32,
        };
        let at = at(&common);
        match record.parse() {
            Ok(EventRecord::Sample(sample)) => match format {
                Some(format) => self.sample(at, &sample, format),
                None => Ok(()),
            },
            Ok(EventRecord::Comm(comm)) => {
                let name = String::from_utf8_lossy(&comm.name.as_slice())
                    .trim_end_matches('\0')
                    .to_owned();
                let (pid, tid) = (comm.pid as u32, comm.tid as u32);
                self.named(at, pid, tid, &name, comm.is_execve)
            }
            Ok(EventRecord::Fork(fork)) => {
                let (pid, parent) = (fork.pid as u32, fork.ppid as u32);
                if fork.timestamp == 0 {
                    if parent == KTHREADD || pid == KTHREADD {
                        self.kernel.insert(pid);
                    }
                    return Ok(());
                }
                let [low, high] = name_words(self.names.get(&(fork.ptid as u32)).map_or("", |n| n));
                let words = [halves(pid, parent), low, high];
                self.event(
                    at,
                    Kind::Fork,
                    0,
                    (fork.ptid as u32, fork.tid as u32),
                    words,
                )
            }
            Ok(EventRecord::Exit(exit)) => {
                let words = [u64::from(exit.pid as u32), 0, 0];
                self.event(at, Kind::Exit, 0, (exit.tid as u32, 0), words)
            }
            Ok(EventRecord::Lost(lost)) => {
                self.done.lost += lost.count;
                let since = self.cpus.get(&at.cpu).map_or(0, |cpu| cpu.last_ts);
                self.event(at, Kind::Lost, 0, (0, 0), [lost.count, since, 0])
            }
            _ => Ok(()),
        }
    }

    fn named(&mut self, at: At, pid: u32, tid: u32, name: &str, is_exec: bool) -> Result<()> {
        self.names.insert(tid, name.to_owned());
        let [low, high] = name_words(name);
        if at.ts == 0 {
            let name = name.to_owned();
            let kernel = false; // known when all are seen
            let thread = ThreadFact {
                tid,
                pid,
                name,
                kernel,
            };
            self.threads.insert(tid, thread);
            return Ok(());
        }
        if is_exec {
            let words = [halves(pid, tid), low, high];
            return self.event(at, Kind::Exec, 0, (tid, 0), words);
        }
        self.event(at, Kind::Rename, 0, (at.tid, tid), [low, high, 0])
    }

    fn sample(&mut self, at: At, sample: &SampleRecord, format: &Format) -> Result<()> {
        let Some(raw) = &sample.raw else {
            return Ok(());
        };
        let raw = raw.as_slice();
        let number = |field: &str| format.number(&raw, field).unwrap_or(0);
        let call = self.calls.get(&at.tid).copied().unwrap_or(0);
        let mut context = context(number("common_flags"));
        match format.name.as_str() {
            "sched_switch" => {
                let flags = state(number("prev_state"));
                let threads = (number("prev_pid") as u32, number("next_pid") as u32);
                self.event(at, Kind::Switch, flags, threads, [call, 0, 0])
            }
            "sched_waking" => {
                let woken = number("pid") as u32;
                let interrupts = [p::CONTEXT_HARDIRQ, p::CONTEXT_SOFTIRQ].contains(&context);
                let timer = self.timers.get(&at.cpu).copied().filter(|_| interrupts);
                if let Some(timer) = timer {
                    context = p::CONTEXT_TIMER;
                    self.event(at, Kind::Fire, 0, (at.tid, woken), [timer, 0, 0])?;
                }
                let word = call >> p::CALL_SHIFT
                    | number("target_cpu") << 16 & 0xffff_0000
                    | (number("prio") & 0xff) << 32;
                self.event(at, Kind::Waking, context, (at.tid, woken), [word, 0, 0])
            }
            "sys_enter" => {
                let number = number("id");
                if number >= 0xffff {
                    return Ok(()); // a call that there is not
                }
                let call = Call {
                    number: number as u16,
                    first: format.number(&raw, "args").unwrap_or(0),
                };
                self.calls.insert(at.tid, call.pack());
                self.event(at, Kind::Enter, 0, (at.tid, 0), [call.pack(), 0, 0])
            }
            "sys_exit" => {
                self.calls.remove(&at.tid);
                let result = Call {
                    number: number("id") as u16,
                    first: number("ret"),
                };
                self.event(at, Kind::ExitCall, 0, (at.tid, 0), [result.pack(), 0, 0])
            }
            "signal_generate" => {
                let word = halves(number("sig") as u32, number("result") as u32);
                let threads = (at.tid, number("pid") as u32);
                self.event(at, Kind::Signal, context, threads, [word, 0, 0])
            }
            "hrtimer_start" if context == p::CONTEXT_TASK => {
                let word = number("hrtimer");
                self.event(at, Kind::Arm, 0, (at.tid, 0), [word, 0, 0])
            }
            "hrtimer_expire_entry" => {
                self.timers.insert(at.cpu, number("hrtimer"));
                Ok(())
            }
            "hrtimer_expire_exit" => {
                self.timers.remove(&at.cpu);
                Ok(())
            }
            other => {
                *self.done.skipped.entry(other.to_owned()).or_default() += 1;
                Ok(())
            }
        }
    }

    fn event(
        &mut self,
        at: At,
        kind: Kind,
        flags: u8,
        (a, b): (u32, u32),
        words: [u64; 3],
    ) -> Result<()> {
        let cpu = self.cpus.entry(at.cpu).or_default();
        cpu.last_ts = cpu.last_ts.max(at.ts);
        cpu.events.push(Event {
            ts: cpu.last_ts,
            a,
            b,
            cpu: at.cpu,
            kind,
            flags,
            stack: 0,
            words,
        });
        if cpu.events.len() >= BLOCK {
            self.writer
                .events(at.cpu, &std::mem::take(&mut cpu.events))?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Imported> {
        for (number, cpu) in &self.cpus {
            self.writer.events(*number, &cpu.events)?;
        }
        for (pid, thread) in &mut self.threads {
            thread.kernel = *pid == KTHREADD || self.kernel.contains(&thread.pid);
        }
        let threads: Vec<&ThreadFact> = self.threads.values().collect();
        self.writer.fact(BlockKind::Threads, &threads)?;
        self.done.events = self.writer.written().events;
        let end = End {
            ts: self.cpus.values().map(|cpu| cpu.last_ts).max().unwrap_or(0),
            reason: "imported".into(),
            events: self.done.events,
            lost: self.done.lost,
            ..End::default()
        };
        self.writer.fact(BlockKind::End, &end)?;
        self.writer.finish()?;
        Ok(self.done)
    }
}
