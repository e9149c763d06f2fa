// SPDX-License-Identifier: MIT
//! What other recorders' files have in common when they become a file of events.
//!
//! In: what happened, in order of time, in the words of the kernel's tracepoints. Out: the events
//! that our own recorder would have written of it.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;

use serde::Serialize;

use crate::call::Call;
use crate::container::BlockKind;
use crate::event::{Event, Kind};
use crate::facts::{End, Info, ThreadFact};
use crate::protocol::{self as p, NAME_BYTES};
use crate::writer::EventWriter;
use crate::Result;

/// Events of a CPU that make a block worth writing.
const BLOCK: usize = 16_384;
/// Of `common_flags` (include/linux/trace_events.h).
const FLAG_HARDIRQ: u64 = 8;
const FLAG_SOFTIRQ: u64 = 16;
const FLAG_NMI: u64 = 64;

/// What was taken over.
#[derive(Debug, Default, Serialize)]
pub struct Imported {
    pub(crate) events: u64,
    pub(crate) lost: u64,
    /// Records that say nothing to the graph, by name.
    pub(crate) skipped: BTreeMap<String, u64>,
}

/// Where and when a record was made.
#[derive(Clone, Copy)]
pub(crate) struct At {
    pub ts: u64,
    pub cpu: u16,
    pub tid: u32,
}

#[derive(Default)]
struct Cpu {
    events: Vec<Event>,
    last_ts: u64,
}

pub(crate) struct Import {
    writer: EventWriter<File>,
    cpus: BTreeMap<u16, Cpu>,
    /// The call that each thread is in, packed as in events.
    calls: HashMap<u32, u64>,
    pub done: Imported,
}

pub(crate) fn halves(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

pub(crate) fn name_words(name: &str) -> [u64; 2] {
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

pub(crate) fn context(flags: u64) -> u8 {
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
    pub fn create(output: &Path, info: &Info) -> Result<Import> {
        Ok(Import {
            writer: EventWriter::create(output, info)?,
            cpus: BTreeMap::new(),
            calls: HashMap::new(),
            done: Imported::default(),
        })
    }

    /// A thread gives up the CPU, in the state that its bits in the tracepoint tell.
    pub fn switch(&mut self, at: At, bits: u64, (from, to): (u32, u32)) -> Result<()> {
        let call = self.calls.get(&from).copied().unwrap_or(0);
        self.event(at, Kind::Switch, state(bits), (from, to), [call, 0, 0])
    }

    /// `context`: one of the protocol's. `place`: the CPU that it is to run on, and its priority.
    pub fn waking(&mut self, at: At, context: u8, woken: u32, place: (u64, u64)) -> Result<()> {
        let call = self.calls.get(&at.tid).copied().unwrap_or(0);
        let (cpu, priority) = place;
        let word = call >> p::CALL_SHIFT | cpu << 16 & 0xffff_0000 | (priority & 0xff) << 32;
        self.event(at, Kind::Waking, context, (at.tid, woken), [word, 0, 0])
    }

    pub fn enter(&mut self, at: At, number: u64, first: u64) -> Result<()> {
        if number >= 0xffff {
            return Ok(()); // a call that there is not
        }
        let call = Call {
            number: number as u16,
            first,
        };
        self.calls.insert(at.tid, call.pack());
        self.event(at, Kind::Enter, 0, (at.tid, 0), [call.pack(), 0, 0])
    }

    pub fn exit_call(&mut self, at: At, number: u64, result: u64) -> Result<()> {
        self.calls.remove(&at.tid);
        let end = Call {
            number: number as u16,
            first: result,
        };
        self.event(at, Kind::ExitCall, 0, (at.tid, 0), [end.pack(), 0, 0])
    }

    /// `word`: the signal, and what became of it.
    pub fn signal(&mut self, at: At, context: u8, to: u32, word: (u32, u32)) -> Result<()> {
        let words = [halves(word.0, word.1), 0, 0];
        self.event(at, Kind::Signal, context, (at.tid, to), words)
    }

    pub fn lost(&mut self, at: At, count: u64) -> Result<()> {
        self.done.lost += count;
        let since = self.cpus.get(&at.cpu).map_or(0, |cpu| cpu.last_ts);
        self.event(at, Kind::Lost, 0, (0, 0), [count, since, 0])
    }

    pub fn skip(&mut self, name: &str) {
        *self.done.skipped.entry(name.to_owned()).or_default() += 1;
    }

    pub fn event(
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

    /// Writes what is left. `threads`: those that were there before.
    pub fn finish(mut self, threads: &[ThreadFact]) -> Result<Imported> {
        for (number, cpu) in &self.cpus {
            self.writer.events(*number, &cpu.events)?;
        }
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
