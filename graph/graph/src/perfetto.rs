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

/// The arrows that begin in a thread and are still to be written: with their numbers, by time.
type Arrows<'a> = Peekable<Copied<Iter<'a, (u64, Edge)>>>;

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
    fn thread(&mut self, thread: u32, arrows: &[(u64, Edge)]) -> std::io::Result<()> {
        let graph = self.graph;
        let mut waits = graph.waits(thread).peekable();
        let mut arrows = arrows.iter().copied().peekable();
        for &index in graph.of(thread) {
            self.run(thread, index, &mut arrows)?;
            while let Some(wait) = waits.next_if(|wait| wait.vertex == index) {
                self.wait(thread, &wait, &mut arrows)?;
            }
        }
        arrows.try_for_each(|arrow| self.arrow(arrow))
    }

    fn run(&mut self, thread: u32, index: u32, arrows: &mut Arrows<'_>) -> std::io::Result<()> {
        let graph = self.graph;
        let vertex = graph.vertex(index);
        let into = arrows_into(graph, index);
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
        self.slice((vertex.start, vertex.end), run, arrows)
    }

    fn wait(&mut self, thread: u32, wait: &Wait, arrows: &mut Arrows<'_>) -> std::io::Result<()> {
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
        self.slice((wait.start, wait.end), blocked, arrows)
    }

    fn slice(
        &mut self,
        (from, to): (u64, u64),
        mark: Mark,
        arrows: &mut Arrows<'_>,
    ) -> std::io::Result<()> {
        let thread = mark.thread;
        while let Some(early) = arrows.next_if(|(_, edge)| edge.ts < from) {
            self.arrow(early)?;
        }
        self.output.begin(from, mark)?;
        while let Some(within) = arrows.next_if(|(_, edge)| edge.ts <= to) {
            self.arrow(within)?;
        }
        self.output.end(to, thread)
    }

    /// The beginning of an arrow.
    fn arrow(&mut self, (number, edge): (u64, Edge)) -> std::io::Result<()> {
        let graph = self.graph;
        let kind = edge.kind().name();
        let begins = Mark {
            thread: graph.vertex(edge.from).thread,
            category: kind,
            name: format!("{kind} {}", graph.thread(edge.to).tid),
            arrows_from: vec![number],
            facts: stack(graph, "stack", edge.stack).into_iter().collect(),
            ..Mark::default()
        };
        self.output.instant(edge.ts, begins)
    }
}

/// Those that begin in each thread, by time.
fn arrows(graph: &Graph) -> Vec<Vec<(u64, Edge)>> {
    let mut by_thread = vec![Vec::new(); graph.meta.threads.len()];
    let all = 0..graph.vertices.len() as u32;
    for (number, edge) in all.flat_map(|vertex| arrows_into(graph, vertex)) {
        by_thread[graph.vertex(edge.from).thread as usize].push((number, edge));
    }
    for arrows in &mut by_thread {
        arrows.sort_by_key(|(_, edge)| edge.ts);
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
            for (thread, arrows) in (0..).zip(arrows(self)) {
                export.thread(thread, &arrows)?;
            }
            export.output.flush()
        };
        flagfinder_files::write_private(path, write)
            .map_err(|error| failed("exported", path, &error))
    }
}
