// SPDX-License-Identifier: MIT
//! Traces for the Perfetto UI (ui.perfetto.dev): tracks of processes and threads, slices, arrows.
//!
//! Messages and field numbers are those of perfetto's protos/perfetto/trace; only what is needed is
//! here. Times are ns. Names, and texts that many slices share, are written once and then meant by
//! their numbers ("interned").

pub mod ftrace;
mod interned;

use std::collections::BTreeSet;
use std::io::{Result, Write};

use prost::Message;

use interned::{Interned, InternedData};

/// All packets are of one writer.
const SEQUENCE: u32 = 1;
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
/// Flags of a packet: what was interned before counts no more; it means interned texts.
const CLEARED: u32 = 1;
const NEEDS: u32 = 2;
/// Ids of tracks are free to choose, but no thread has that of a process.
const PROCESSES: u64 = 1 << 32;

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(string, tag = "6")]
    process_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(int32, tag = "2")]
    tid: i32,
    #[prost(string, tag = "5")]
    thread_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, tag = "9")]
    kind: i32,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, tag = "11")]
    track_uuid: u64,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, tag = "1")]
    name_iid: u64,
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(uint64, optional, tag = "17")]
    string_value_iid: Option<u64>,
}

#[derive(Clone, Debug)]
enum Value {
    Number(u64),
    Text(String),
    Shared(String),
}

/// A fact shown beside a slice or an instant.
#[derive(Clone, Debug)]
pub struct Annotation {
    name: &'static str,
    value: Value,
}

impl Annotation {
    /// A number, shown in decimal.
    pub fn number(name: &'static str, value: u64) -> Annotation {
        let value = Value::Number(value);
        Annotation { name, value }
    }

    /// A text that few have.
    pub fn text(name: &'static str, value: String) -> Annotation {
        let value = Value::Text(value);
        Annotation { name, value }
    }

    /// A text that many have: a stack.
    pub fn shared(name: &'static str, value: String) -> Annotation {
        let value = Value::Shared(value);
        Annotation { name, value }
    }
}

/// What a track shows at a time, or from a time on.
#[derive(Clone, Debug, Default)]
pub struct Mark {
    /// The thread's number, as [`Writer::threads`] got it.
    pub thread: u32,
    /// By which the UI can filter: `syscall`, ..
    pub category: &'static str,
    /// What the slice is labelled with.
    pub name: String,
    /// Ids of arrows (not 0) that begin here, and that end here.
    pub arrows_from: Vec<u64>,
    /// See `arrows_from`.
    pub arrows_to: Vec<u64>,
    /// Shown once it is chosen.
    pub facts: Vec<Annotation>,
}

/// A thread that has a track.
#[derive(Clone, Debug)]
pub struct Thread {
    /// The process under which its track stands.
    pub pid: u32,
    /// Shown beside its name.
    pub tid: u32,
    /// Of its track.
    pub name: String,
    /// Of its process; the first that is not empty counts.
    pub process_name: String,
}

/// Writes a trace packet by packet: a list in parts is the same list.
pub struct Writer<W: Write> {
    output: W,
    interned: Interned,
    begun: bool,
}

impl<W: Write> Writer<W> {
    /// Writes nothing yet.
    pub fn new(output: W) -> Self {
        Writer {
            output,
            interned: Interned::default(),
            begun: false,
        }
    }

    /// Gives each a track; they are numbered from 0 in this order. To be called once, and first.
    ///
    /// # Errors
    /// Those of the output, as of all that follow.
    pub fn threads(&mut self, threads: &[Thread]) -> Result<()> {
        let pids: BTreeSet<u32> = threads.iter().map(|thread| thread.pid).collect();
        for pid in pids {
            let named = |thread: &&Thread| thread.pid == pid && !thread.process_name.is_empty();
            let process_name = threads.iter().find(named).map(|t| t.process_name.clone());
            let process = ProcessDescriptor {
                pid: pid as i32,
                process_name: process_name.unwrap_or_default(),
            };
            self.track(TrackDescriptor {
                uuid: PROCESSES + u64::from(pid),
                process: Some(process),
                ..TrackDescriptor::default()
            })?;
        }
        for (thread, uuid) in threads.iter().zip(1..) {
            let described = ThreadDescriptor {
                pid: thread.pid as i32,
                tid: thread.tid as i32,
                thread_name: thread.name.clone(),
            };
            self.track(TrackDescriptor {
                uuid,
                parent_uuid: Some(PROCESSES + u64::from(thread.pid)),
                thread: Some(described),
                ..TrackDescriptor::default()
            })?;
        }
        Ok(())
    }

    /// A slice with a beginning and an end.
    pub fn slice(&mut self, from: u64, to: u64, mark: Mark) -> Result<()> {
        let thread = mark.thread;
        self.begin(from, mark)?;
        self.end(to, thread)
    }

    /// The beginning of a slice whose end is to follow.
    pub fn begin(&mut self, ts: u64, mark: Mark) -> Result<()> {
        self.event(ts, SLICE_BEGIN, mark)
    }

    /// The end of the slice of a thread that began last.
    pub fn end(&mut self, ts: u64, thread: u32) -> Result<()> {
        let end = TrackEvent {
            kind: SLICE_END,
            track_uuid: u64::from(thread) + 1,
            ..TrackEvent::default()
        };
        self.packet(Packet {
            timestamp: Some(ts),
            track_event: Some(end),
            ..Packet::default()
        })
    }

    /// A moment without a length.
    pub fn instant(&mut self, ts: u64, mark: Mark) -> Result<()> {
        self.event(ts, INSTANT, mark)
    }

    /// Flushes the output; to be called last.
    pub fn flush(&mut self) -> Result<()> {
        self.output.flush()
    }

    fn packet(&mut self, packet: Packet) -> Result<()> {
        let flags = if self.begun { NEEDS } else { CLEARED | NEEDS };
        self.begun = true;
        let packet = Packet {
            trusted_packet_sequence_id: SEQUENCE,
            sequence_flags: Some(flags),
            interned_data: self.interned.take(),
            ..packet
        };
        let part = Trace {
            packet: vec![packet],
        };
        self.output.write_all(&part.encode_to_vec())
    }

    fn track(&mut self, descriptor: TrackDescriptor) -> Result<()> {
        self.packet(Packet {
            track_descriptor: Some(descriptor),
            ..Packet::default()
        })
    }

    fn event(&mut self, ts: u64, kind: i32, mark: Mark) -> Result<()> {
        let interned = &mut self.interned;
        let facts = mark.facts.into_iter().map(|fact| {
            let annotation = DebugAnnotation {
                name_iid: interned.fact(fact.name),
                ..DebugAnnotation::default()
            };
            match fact.value {
                Value::Number(value) => DebugAnnotation {
                    uint_value: Some(value),
                    ..annotation
                },
                Value::Text(text) => DebugAnnotation {
                    string_value: Some(text),
                    ..annotation
                },
                Value::Shared(text) => DebugAnnotation {
                    string_value_iid: Some(interned.text(&text)),
                    ..annotation
                },
            }
        });
        let debug_annotations = facts.collect();
        let event = TrackEvent {
            debug_annotations,
            kind,
            track_uuid: u64::from(mark.thread) + 1,
            category_iids: vec![self.interned.category(mark.category)],
            name_iid: Some(self.interned.name(&mark.name)),
            flow_ids: mark.arrows_from,
            terminating_flow_ids: mark.arrows_to,
        };
        self.packet(Packet {
            timestamp: Some(ts),
            track_event: Some(event),
            ..Packet::default()
        })
    }
}
