// SPDX-License-Identifier: MIT
//! Threads that could have run and had no CPU: for how long, and who had it.

use serde::Serialize;

use crate::graph::Graph;
use crate::vertex::Vertex;

/// A thread that could run, and had a CPU for less than a half of the time.
#[derive(Clone, Debug, Serialize)]
pub struct Starved {
    /// ns without a CPU.
    pub dur: u64,
    /// Who had that CPU for most of that time, as far as that was recorded. (A limit of the CPU's
    /// time holds a thread back, too, and then nobody needs to have it.)
    pub tid: Option<u32>,
    pub thread: Option<String>,
}

/// Shorter times without a CPU are usual, ns.
const SHORTEST: u64 = 1_000_000;

/// Whether a thread had no CPU for most of a vertex.
pub fn is_starved(vertex: &Vertex) -> bool {
    let whole = vertex.end - vertex.start;
    vertex.run < whole / 2 && whole - vertex.run >= SHORTEST
}

/// Of the thread of a vertex in which it could run all the time.
pub fn starved(graph: &Graph, vertex: u32) -> Option<Starved> {
    let row = graph.vertex(vertex);
    is_starved(&row).then(|| {
        let dur = row.end - row.start - row.run;
        let by = busiest(graph, row.cpu, (row.start, row.end), row.thread);
        let by = by.filter(|&(_, ran)| ran * 2 > dur);
        let by = by.map(|(thread, _)| &graph.meta.threads[thread as usize]);
        Starved {
            dur,
            tid: by.map(|thread| thread.tid),
            thread: by.map(|thread| thread.name.clone()),
        }
    })
}

/// ns on a CPU, in proportion, of what a vertex did in `from..to`.
pub fn share_of_run(vertex: &Vertex, from: u64, to: u64) -> u64 {
    let (start, end) = (vertex.start.max(from), vertex.end.min(to));
    if start >= end {
        return 0;
    }
    let run = u128::from(vertex.run) * u128::from(end - start);
    (run / u128::from(vertex.end - vertex.start)) as u64
}

/// The thread, other than `except`, that had a CPU for longest in a stretch of time, and for how
/// many ns.
pub fn busiest(graph: &Graph, cpu: u16, (from, to): (u64, u64), except: u32) -> Option<(u32, u64)> {
    let run = |thread: u32| -> u64 {
        let list = graph.of(thread);
        let first = list.partition_point(|&index| graph.vertex(index).end < from);
        let vertices = list[first..].iter().map(|&index| graph.vertex(index));
        let inside = vertices.take_while(|vertex| vertex.start < to);
        inside
            .filter(|vertex| vertex.cpu == cpu)
            .map(|vertex| share_of_run(&vertex, from, to))
            .sum()
    };
    let threads = 0..graph.meta.threads.len() as u32;
    let others = threads.filter(|&thread| thread != except);
    let (most, thread) = others.map(|thread| (run(thread), thread)).max()?;
    (most > 0).then_some((thread, most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Meta, ThreadMeta};
    use crate::vertices::Vertices;

    const MS: u64 = 1_000_000;

    /// Thread 0 could run for 100 ms; threads 1 and 2 ran meanwhile, on its CPU and on another.
    fn graph(run: u64) -> Graph {
        let mut vertices = Vertices::default();
        for (thread, cpu, run) in [(0, 3, run), (1, 3, 80), (2, 4, 100)] {
            vertices.push(Vertex {
                thread,
                cpu,
                run: run * MS,
                start: 10 * MS,
                end: 110 * MS,
                ..Vertex::default()
            });
        }
        let thread = |tid: u32| ThreadMeta {
            tid,
            name: format!("t{tid}"),
            ..ThreadMeta::default()
        };
        let meta = Meta {
            threads: [5, 6, 7].map(thread).to_vec(),
            ..Meta::default()
        };
        Graph::new(meta, vertices, Vec::new())
    }

    #[test]
    fn the_thread_that_had_a_starved_threads_cpu_is_named() {
        let told = starved(&graph(20), 0).unwrap();
        assert_eq!((told.dur, told.tid), (80 * MS, Some(6)));
        assert_eq!(told.thread.as_deref(), Some("t6"));
        assert!(starved(&graph(60), 0).is_none());
    }

    #[test]
    fn who_had_the_cpu_for_a_small_part_only_held_nobody_back() {
        let mut graph = graph(20);
        graph.vertices.change(1, |row| row.run = 30 * MS);
        assert_eq!(starved(&graph, 0).unwrap().tid, None);
    }
}
