// SPDX-License-Identifier: MIT
//! Vertices of a thread with what caused them, as JSON.

use flagfinder_linux::futex;
use serde_json::{json, Value};

use crate::edge::NOBODY;
use crate::graph::Graph;
use crate::slice::is_boosted;
use crate::vertex::{Vertex, NO_RESULT};

/// The address of the word that a futex call waits on.
fn futex(vertex: &Vertex) -> Option<String> {
    let call = vertex.call()?;
    let is_futex = futex::is_futex(call.number.into());
    is_futex.then(|| format!("{:#x}", call.first))
}

fn cause(graph: &Graph, vertex: u32) -> Vec<Value> {
    let edges = graph.into(vertex);
    edges
        .map(|edge| {
            let from = (edge.from != NOBODY).then_some(edge.from);
            json!({
                "edge": edge.kind().name(),
                "ts": edge.ts,
                "vertex": from,
                "tid": from.map(|index| graph.thread(index).tid),
                "thread": from.map(|index| graph.thread(index).name.as_str()),
                "stack": graph.stack(edge.stack),
                "boosted": is_boosted(graph, &edge),
            })
        })
        .collect()
}

/// Vertices that overlap `start..end`, of the thread `tid` (0: all), at most `limit`, as a JSON
/// list.
pub fn query(graph: &Graph, tid: u32, start: u64, end: u64, limit: usize) -> String {
    let all = 0..graph.vertices.len() as u32;
    let wanted = all.filter(|&index| {
        let vertex = graph.vertex(index);
        vertex.start < end && vertex.end >= start && (tid == 0 || graph.thread(index).tid == tid)
    });
    let list = wanted.take(limit).map(|index| {
        let vertex = graph.vertex(index);
        let (thread, details) = (graph.thread(index), graph.details(index));
        json!({
            "vertex": index,
            "tid": thread.tid,
            "pid": thread.pid,
            "thread": thread.name,
            "start": vertex.start,
            "dur": vertex.end - vertex.start,
            "run": vertex.run,
            "ends_in": vertex.call().map(|call| call.name()),
            "target": graph.target(index),
            "futex": futex(&vertex),
            "stack": graph.stack(details.stack),
            "result": (details.result != NO_RESULT).then_some(details.result),
            "yields": details.yields,
            "flags": details.flags,
            "ran": graph.ran(index),
            "causes": cause(graph, index),
        })
    });
    Value::Array(list.collect()).to_string()
}
