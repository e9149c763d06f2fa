// SPDX-License-Identifier: MIT
//! The graph as a trace for the Perfetto UI: a track for each thread, slices for runs and waits,
//! arrows for wakes and flags.

use std::io::{BufWriter, Write};
use std::iter::{Copied, Peekable};
use std::path::Path;
use std::slice::Iter;

use flagfinder_events::Result;
use flagfinder_perfetto::{Annotation, Mark, Thread, Writer};

use crate::edge::{Edge, NOBODY};
use crate::file::failed;
use crate::graph::{Graph, Wait};

fn stack(graph: &Graph, name: &'static str, stack: u32) -> Option<Annotation> {
    let text = graph.stack(stack).join("\n");
    (!text.is_empty()).then(|| Annotation::shared(name, text))
}

/// The edges into a vertex that become arrows, and their numbers from 1. Weak ones do not: the
/// track itself shows them.
fn arrows_into(graph: &Graph, vertex: u32) -> impl Iterator<Item = (u64, Edge)> + '_ {
    let cause = graph.cause(vertex).map(|edge| (u64::from(vertex), edge));
    let places = graph.places_into(vertex);
    let others = places.map(|place| ((graph.vertices.len() + place) as u64, graph.others[place]));
    let all = cause.into_iter().chain(others);
    all.filter(|(_, edge)| edge.from != NOBODY)
        .map(|(number, edge)| (number + 1, edge))
}

/// An end of an arrow that is shown beside a thread's slices.
#[derive(Clone, Copy)]
struct Tip {
    ts: u64,
    number: u64,
    edge: Edge,
    /// Else it begins here.
    ends: bool,
}

/// The ends of arrows in a thread that are still to be written, by time.
type Tips<'a> = Peekable<Copied<Iter<'a, Tip>>>;

struct Export<'g, W: Write> {
    graph: &'g Graph,
    output: Writer<W>,
}

impl<W: Write> Export<'_, W> {
    fn tracks(&mut self) -> std::io::Result<()> {
        let threads = self.graph.meta.threads.iter();
        let tracks: Vec<Thread> = threads
            .map(|thread| Thread {
                pid: thread.pid,
                tid: thread.tid,
                name: thread.name.clone(),
                process_name: if thread.tid == thread.pid {
                    thread.name.clone()
                } else {
                    String::new()
                },
            })
            .collect();
        self.output.threads(&tracks)
    }

    /// What a thread did, in order of time: what is shown beside a slice comes before its end.
    fn thread(&mut self, thread: u32, tips: &[Tip]) -> std::io::Result<()> {
        let graph = self.graph;
        let mut waits = graph.waits(thread).peekable();
        let mut tips = tips.iter().copied().peekable();
        for &index in graph.of(thread) {
            self.run(thread, index, &mut tips)?;
            while let Some(wait) = waits.next_if(|wait| wait.vertex == index) {
                self.wait(thread, &wait, &mut tips)?;
            }
        }
        tips.try_for_each(|tip| self.tip(tip))
    }

    fn run(&mut self, thread: u32, index: u32, tips: &mut Tips<'_>) -> std::io::Result<()> {
        let graph = self.graph;
        let vertex = graph.vertex(index);
        let into = arrows_into(graph, index).filter(|(_, edge)| !graph.woke_nobody(edge));
        let run = Mark {
            thread,
            category: "run",
            name: "runs".into(),
            arrows_to: into.map(|(number, _)| number).collect(),
            facts: vec![
                Annotation::number("vertex", index.into()),
                Annotation::number("on CPU ns", vertex.run),
            ],
            ..Mark::default()
        };
        self.slice((vertex.start, vertex.end), run, tips)
    }

    fn wait(&mut self, thread: u32, wait: &Wait, tips: &mut Tips<'_>) -> std::io::Result<()> {
        let graph = self.graph;
        let vertex = graph.vertex(wait.vertex);
        let call = vertex.call().map_or("blocked".into(), |call| call.name());
        let name = match graph.target(wait.vertex) {
            Some(target) => format!("{call} {target}"),
            None => call,
        };
        let blocked = Mark {
            thread,
            category: "wait",
            name,
            facts: stack(graph, "stack", graph.details(wait.vertex).stack)
                .into_iter()
                .collect(),
            ..Mark::default()
        };
        self.slice((wait.start, wait.end), blocked, tips)
    }

    fn slice(
        &mut self,
        (from, to): (u64, u64),
        mark: Mark,
        tips: &mut Tips<'_>,
    ) -> std::io::Result<()> {
        let thread = mark.thread;
        while let Some(early) = tips.next_if(|tip| tip.ts < from) {
            self.tip(early)?;
        }
        self.output.begin(from, mark)?;
        while let Some(within) = tips.next_if(|tip| tip.ts <= to) {
            self.tip(within)?;
        }
        self.output.end(to, thread)
    }

    fn tip(&mut self, tip: Tip) -> std::io::Result<()> {
        let (graph, edge) = (self.graph, tip.edge);
        let kind = edge.kind().name();
        let (here, there) = match tip.ends {
            true => (edge.to, edge.from),
            false => (edge.from, edge.to),
        };
        let mark = Mark {
            thread: graph.vertex(here).thread,
            category: kind,
            name: format!("{kind} {}", graph.thread(there).tid),
            ..Mark::default()
        };
        let mark = match tip.ends {
            true => Mark {
                arrows_to: vec![tip.number],
                ..mark
            },
            false => Mark {
                arrows_from: vec![tip.number],
                facts: stack(graph, "stack", edge.stack).into_iter().collect(),
                ..mark
            },
        };
        self.output.instant(tip.ts, mark)
    }
}

/// The ends of arrows in each thread, by time. An arrow begins a ns before it ends, as a reader
/// takes packets of one time in the file's order, and drops an end without a beginning. That of a
/// message which woke nobody ends when it was sent, within the run that took it.
fn tips(graph: &Graph) -> Vec<Vec<Tip>> {
    let mut by_thread = vec![Vec::new(); graph.meta.threads.len()];
    let all = 0..graph.vertices.len() as u32;
    for (number, edge) in all.flat_map(|vertex| arrows_into(graph, vertex)) {
        let mut add = |vertex, ts, ends| {
            by_thread[graph.vertex(vertex).thread as usize].push(Tip {
                ts,
                number,
                edge,
                ends,
            });
        };
        add(edge.from, edge.ts.saturating_sub(1), false);
        if graph.woke_nobody(&edge) {
            add(edge.to, edge.ts, true);
        }
    }
    for tips in &mut by_thread {
        tips.sort_by_key(|tip| tip.ts);
    }
    by_thread
}

impl Graph {
    /// Writes a trace for ui.perfetto.dev. Times are the graph's.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn export_perfetto(&self, path: &Path) -> Result<()> {
        let write = |file: &mut std::fs::File| -> std::io::Result<()> {
            let mut export = Export {
                graph: self,
                output: Writer::new(BufWriter::new(file)),
            };
            export.tracks()?;
            for (thread, tips) in (0..).zip(tips(self)) {
                export.thread(thread, &tips)?;
            }
            export.output.flush()
        };
        flagfinder_files::write_private(path, write)
            .map_err(|error| failed("exported", path, &error))
    }
}
