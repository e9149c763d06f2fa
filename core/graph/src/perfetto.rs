//! The graph as a trace for the Perfetto UI: a track for each thread, slices for runs and waits, arrows for wakes and flags.
//!
//! Messages and field numbers are those of perfetto's protos/perfetto/trace; only what is needed is here.

use std::collections::BTreeSet;
use std::io::{BufWriter, Write};
use std::path::Path;

use flagfinder_events::Result;
use prost::Message;

use crate::file::failed;
use crate::graph::{Edge, EdgeKind, Graph, NOBODY};

/// All packets are of one writer.
const SEQUENCE: u32 = 1;
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
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
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<Annotation>,
    #[prost(int32, tag = "9")]
    kind: i32,
    #[prost(uint64, tag = "11")]
    track_uuid: u64,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Annotation {
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, tag = "10")]
    name: String,
}

fn number(name: &str, value: u64) -> Annotation {
    Annotation {
        name: name.into(),
        uint_value: Some(value),
        string_value: None,
    }
}

fn stack(graph: &Graph, name: &str, stack: u32) -> Option<Annotation> {
    let text = graph.stack(stack).join("\n");
    (!text.is_empty()).then(|| Annotation {
        name: name.into(),
        uint_value: None,
        string_value: Some(text),
    })
}

struct Export<'g, W: Write> {
    graph: &'g Graph,
    output: W,
}

impl<W: Write> Export<'_, W> {
    /// A trace is a list of packets, and a list in parts is the same list.
    fn packet(&mut self, packet: Packet) -> std::io::Result<()> {
        let part = Trace {
            packet: vec![packet],
        };
        self.output.write_all(&part.encode_to_vec())
    }

    fn track(&mut self, descriptor: TrackDescriptor) -> std::io::Result<()> {
        self.packet(Packet {
            trusted_packet_sequence_id: SEQUENCE,
            track_descriptor: Some(descriptor),
            ..Packet::default()
        })
    }

    fn event(&mut self, ts: u64, event: TrackEvent) -> std::io::Result<()> {
        self.packet(Packet {
            timestamp: Some(ts),
            trusted_packet_sequence_id: SEQUENCE,
            track_event: Some(event),
            ..Packet::default()
        })
    }

    fn tracks(&mut self) -> std::io::Result<()> {
        let threads = &self.graph.meta.threads;
        let pids: BTreeSet<u32> = threads.iter().map(|thread| thread.pid).collect();
        for pid in pids {
            let main = threads.iter().find(|thread| thread.tid == pid);
            let process = ProcessDescriptor {
                pid: pid as i32,
                process_name: main.map(|thread| thread.name.clone()).unwrap_or_default(),
            };
            self.track(TrackDescriptor {
                uuid: PROCESSES + u64::from(pid),
                process: Some(process),
                ..TrackDescriptor::default()
            })?;
        }
        for (thread, index) in threads.iter().zip(1..) {
            let described = ThreadDescriptor {
                pid: thread.pid as i32,
                tid: thread.tid as i32,
                thread_name: thread.name.clone(),
            };
            self.track(TrackDescriptor {
                uuid: index,
                parent_uuid: Some(PROCESSES + u64::from(thread.pid)),
                thread: Some(described),
                ..TrackDescriptor::default()
            })?;
        }
        Ok(())
    }

    /// A slice with a beginning and an end.
    fn slice(&mut self, from: u64, to: u64, event: TrackEvent) -> std::io::Result<()> {
        let end = TrackEvent {
            kind: SLICE_END,
            track_uuid: event.track_uuid,
            ..TrackEvent::default()
        };
        self.event(from, event)?;
        self.event(to, end)
    }

    fn thread(&mut self, thread: u32) -> std::io::Result<()> {
        let graph = self.graph;
        let track_uuid = u64::from(thread) + 1;
        for &index in graph.of(thread) {
            let vertex = graph.vertex(index);
            let arrows = graph
                .numbered_into(index)
                .filter(|(_, edge)| is_arrow(edge));
            let run = TrackEvent {
                kind: SLICE_BEGIN,
                track_uuid,
                categories: vec!["run".into()],
                name: Some("runs".into()),
                terminating_flow_ids: arrows.map(|(number, _)| flow(number)).collect(),
                debug_annotations: vec![
                    number("vertex", index.into()),
                    number("on CPU ns", vertex.run),
                ],
                ..TrackEvent::default()
            };
            self.slice(vertex.start, vertex.end, run)?;
        }
        for wait in graph.waits(thread) {
            let vertex = graph.vertex(wait.vertex);
            let call = vertex.call().map_or("blocked".into(), |call| call.name());
            let name = match graph.target(wait.vertex) {
                Some(target) => format!("{call} {target}"),
                None => call,
            };
            let blocked = TrackEvent {
                kind: SLICE_BEGIN,
                track_uuid,
                categories: vec!["wait".into()],
                name: Some(name),
                debug_annotations: stack(graph, "stack", vertex.stack).into_iter().collect(),
                ..TrackEvent::default()
            };
            self.slice(wait.start, wait.end, blocked)?;
        }
        Ok(())
    }

    /// Where arrows begin.
    fn arrows(&mut self) -> std::io::Result<()> {
        let graph = self.graph;
        for (number, edge) in graph.edges.iter().enumerate() {
            if !is_arrow(edge) {
                continue;
            }
            let event = TrackEvent {
                kind: INSTANT,
                track_uuid: u64::from(graph.vertex(edge.from).thread) + 1,
                categories: vec![edge.kind().name().into()],
                name: Some(format!(
                    "{} {}",
                    edge.kind().name(),
                    graph.thread(edge.to).tid
                )),
                flow_ids: vec![flow(number)],
                debug_annotations: stack(graph, "stack", edge.stack).into_iter().collect(),
                ..TrackEvent::default()
            };
            self.event(edge.ts, event)?;
        }
        Ok(())
    }
}

/// Weak edges are no arrows: the track itself shows them.
fn is_arrow(edge: &Edge) -> bool {
    edge.from != NOBODY && edge.kind() != EdgeKind::Weak
}

/// A flow's id is not 0.
fn flow(number: usize) -> u64 {
    number as u64 + 1
}

impl Graph {
    /// Writes a trace for ui.perfetto.dev. Times are the graph's.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn export_perfetto(&self, path: &Path) -> Result<()> {
        let write = || -> std::io::Result<()> {
            let mut export = Export {
                graph: self,
                output: BufWriter::new(std::fs::File::create(path)?),
            };
            export.tracks()?;
            for thread in 0..self.meta.threads.len() as u32 {
                export.thread(thread)?;
            }
            export.arrows()?;
            export.output.flush()
        };
        write().map_err(|error| failed("exported", path, &error))
    }
}
