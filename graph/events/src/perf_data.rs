// SPDX-License-Identifier: MIT
//! From what `perf record -a` wrote to a file of events.
//!
//! In: a perf.data file with sched:sched_switch and sched:sched_waking; with raw_syscalls,
//! signal:signal_generate and timer:hrtimer_* where it has them. Out: the events that our own
//! recorder would have written of them. Blind spots: descriptors, stacks and code are not taken
//! over; times are perf's clock; without raw_syscalls nothing tells which call a thread blocks in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::Path;

use flagfinder_files::open_regular;
use linux_perf_data::linux_perf_event_reader::{
    CommonData, EventRecord, PerfEventType, RawEventRecord, RecordType, SampleRecord,
};
use linux_perf_data::{Feature, PerfFile, PerfFileReader, PerfFileRecord, PerfRecordIter};

use crate::error::cant_read;
use crate::event::Kind;
use crate::facts::{Info, ThreadFact};
use crate::formats::{self, Format};
use crate::import::{context, halves, name_words, At, Import, Imported};
use crate::protocol as p;
use crate::{perf_bounds, Failure, Result};

/// The kernel's thread that starts all its others.
const KTHREADD: u32 = 2;

type Records = PerfRecordIter<BufReader<File>>;

fn refused(found: impl Into<String>) -> Failure {
    Failure::bad_file(
        "This is no perf recording that can be imported",
        found,
        "Record with `perf record -a -e sched:sched_switch -e sched:sched_waking`.",
        "Other recordings are unaffected.",
    )
}

fn refused_damaged(found: String) -> Failure {
    Failure {
        fix: "Record again, or copy the file again from where it came.".into(),
        ..refused(found)
    }
}

fn foreign(error: &linux_perf_data::Error) -> Failure {
    refused(error.to_string())
}

fn open(path: &Path) -> Result<(PerfFile, Records)> {
    let mut file = open_regular(path).map_err(|error| cant_read(path, &error))?;
    perf_bounds::check(&file).map_err(refused_damaged)?;
    // The reader begins where the file stands.
    file.rewind().map_err(|error| cant_read(path, &error))?;
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
pub(crate) fn import_perf(input: &Path, output: &Path) -> Result<Imported> {
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
    let mut perf = Perf {
        output: Import::create(output, &info)?,
        threads: BTreeMap::new(),
        kernel: BTreeSet::new(),
        names: HashMap::new(),
        timers: HashMap::new(),
    };
    loop {
        let record = records.next_record(&mut file);
        match record.map_err(|error| foreign(&error))? {
            Some(PerfFileRecord::EventRecord { attr_index, record }) => {
                let format = tracepoints.get(attr_index).and_then(Option::as_ref);
                perf.take(&record, format)?;
            }
            Some(PerfFileRecord::UserRecord(_)) => {}
            None => break,
        }
    }
    perf.finish()
}

struct Perf {
    output: Import,
    /// Threads that were there before the recording.
    threads: BTreeMap<u32, ThreadFact>,
    /// Processes that the kernel's own thread started.
    kernel: BTreeSet<u32>,
    names: HashMap<u32, String>,
    /// The timer whose function runs, by CPU.
    timers: HashMap<u16, u64>,
}

impl Perf {
    fn take(&mut self, record: &RawEventRecord, format: Option<&Format>) -> Result<()> {
        let common = record.common_data().unwrap_or_default();
        let at = |common: &CommonData| At {
            ts: common.timestamp.unwrap_or(0),
            cpu: common.cpu.unwrap_or(0) as u16,
            tid: common.tid.unwrap_or(0) as u32,
        };
        let at = at(&common);
        // Only these: of others the library believes every length, and ends the process.
        let is_taken = [
            RecordType::SAMPLE,
            RecordType::COMM,
            RecordType::FORK,
            RecordType::EXIT,
            RecordType::LOST,
        ]
        .contains(&record.record_type);
        if !is_taken {
            return Ok(());
        }
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
                self.output.event(
                    at,
                    Kind::Fork,
                    0,
                    (fork.ptid as u32, fork.tid as u32),
                    words,
                )
            }
            Ok(EventRecord::Exit(exit)) => {
                let words = [u64::from(exit.pid as u32), 0, 0];
                self.output
                    .event(at, Kind::Exit, 0, (exit.tid as u32, 0), words)
            }
            Ok(EventRecord::Lost(lost)) => self.output.lost(at, lost.count),
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
                ..ThreadFact::default()
            };
            self.threads.insert(tid, thread);
            return Ok(());
        }
        if is_exec {
            let words = [halves(pid, tid), low, high];
            return self.output.event(at, Kind::Exec, 0, (tid, 0), words);
        }
        self.output
            .event(at, Kind::Rename, 0, (at.tid, tid), [low, high, 0])
    }

    fn sample(&mut self, at: At, sample: &SampleRecord, format: &Format) -> Result<()> {
        let Some(raw) = &sample.raw else {
            return Ok(());
        };
        let raw = raw.as_slice();
        let number = |field: &str| format.number(&raw, field).unwrap_or(0);
        let mut context = context(number("common_flags"));
        match format.name.as_str() {
            "sched_switch" => {
                let threads = (number("prev_pid") as u32, number("next_pid") as u32);
                self.output.switch(at, number("prev_state"), threads)
            }
            "sched_waking" => {
                let woken = number("pid") as u32;
                let interrupts = [p::CONTEXT_HARDIRQ, p::CONTEXT_SOFTIRQ].contains(&context);
                let timer = self.timers.get(&at.cpu).copied().filter(|_| interrupts);
                if let Some(timer) = timer {
                    context = p::CONTEXT_TIMER;
                    self.output
                        .event(at, Kind::Fire, 0, (at.tid, woken), [timer, 0, 0])?;
                }
                let place = (number("target_cpu"), number("prio"));
                self.output.waking(at, context, woken, place)
            }
            "sys_enter" => {
                let first = number("args");
                self.output.enter(at, number("id"), first)
            }
            "sys_exit" => self.output.exit_call(at, number("id"), number("ret")),
            "signal_generate" => {
                let word = (number("sig") as u32, number("result") as u32);
                self.output.signal(at, context, number("pid") as u32, word)
            }
            "hrtimer_start" if context == p::CONTEXT_TASK => {
                let word = number("hrtimer");
                self.output
                    .event(at, Kind::Arm, 0, (at.tid, 0), [word, 0, 0])
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
                self.output.skip(other);
                Ok(())
            }
        }
    }

    fn finish(mut self) -> Result<Imported> {
        for (pid, thread) in &mut self.threads {
            thread.kernel = *pid == KTHREADD || self.kernel.contains(&thread.pid);
        }
        let threads: Vec<ThreadFact> = self.threads.into_values().collect();
        self.output.finish(&threads)
    }
}
