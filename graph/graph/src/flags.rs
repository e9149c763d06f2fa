// SPDX-License-Identifier: MIT
//! Flag edges: from a write that `flagfinder watch` saw to the reads that saw its value.

use std::collections::HashMap;

use serde::Deserialize;

use crate::edge::{Edge, EdgeKind};
use crate::graph::Graph;

/// The part of a line of docs/watch-format.md that matters here.
#[derive(Deserialize)]
struct Line {
    event: String,
    ts: u64,
    tid: u32,
    watch: u32,
    value: Option<String>,
}

/// Adds flag events and edges. Lines of other kinds are passed over.
pub(crate) fn add(graph: &mut Graph, watched: &[String]) {
    // (watch file, watch) to the newest write: its vertex, thread and value.
    let mut written: HashMap<(usize, u32), (u32, u32, Option<String>)> = HashMap::new();
    let mut edges = Vec::new();
    let mut counts: Vec<u32> = Vec::new();
    for (file, text) in watched.iter().enumerate() {
        for line in text
            .lines()
            .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        {
            let Some(vertex) = graph.thread_of(line.tid).and_then(|t| graph.at(t, line.ts)) else {
                continue;
            };
            let key = (file, line.watch);
            match line.event.as_str() {
                "data_flag_write" => {
                    written.insert(key, (vertex, line.tid, line.value));
                }
                "data_flag_read" => {
                    let source = written
                        .get(&key)
                        .filter(|w| w.1 != line.tid && w.2 == line.value);
                    edges.extend(source.map(|w| Edge {
                        from: w.0,
                        to: vertex,
                        ts: line.ts,
                        kind: EdgeKind::Flag as u32,
                        stack: 0,
                    }));
                }
                _ => continue,
            }
            counts.push(vertex);
        }
    }
    if counts.is_empty() {
        return;
    }
    graph.meta.flags = counts.len() as u64;
    counts
        .into_iter()
        .for_each(|vertex| graph.vertices.details_mut(vertex).flags += 1);
    graph.others.extend(edges);
    graph.others.sort_by_key(|edge| edge.to);
}
