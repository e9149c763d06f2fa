// SPDX-License-Identifier: MIT
//! Vertices of a thread with what caused them, as JSON.

use std::cmp::Reverse;

use flagfinder_linux::futex;
use serde::Deserialize;
use serde_json::{json, Value};

use crate::edge::NOBODY;
use crate::graph::{Graph, ThreadMeta};
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

/// What vertices are sorted by, the largest first; by their start, the earliest.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Key {
    #[default]
    Start,
    /// Their length.
    Dur,
    /// Time on a CPU.
    Run,
    /// The wait that follows.
    Wait,
    /// How many vertices of other threads they made begin.
    Woke,
}

/// Which vertices are wanted, as JSON has it.
#[derive(Clone, Debug, Deserialize)]
pub struct QueryRequest {
    /// Thread ids; null: all threads.
    pub tids: Option<Vec<u32>>,
    /// Vertices that overlap `start..end`, ns.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// What comes first.
    #[serde(default)]
    pub sort: Key,
    /// Vertices at most.
    pub limit: usize,
}

impl QueryRequest {
    /// The earliest vertices of all threads.
    pub fn all(limit: usize) -> QueryRequest {
        QueryRequest {
            tids: None,
            start: 0,
            end: u64::MAX,
            sort: Key::Start,
            limit,
        }
    }
}

fn waited(graph: &Graph, vertex: u32) -> u64 {
    graph.wait_after(vertex).map_or(0, |wait| wait.dur())
}

/// Vertices as a JSON list.
pub fn query(graph: &Graph, request: &QueryRequest) -> String {
    // How long a thread did anything is not known if its switches were not recorded.
    let needs_times = matches!(request.sort, Key::Dur | Key::Run | Key::Wait);
    let is_meant = |thread: &ThreadMeta| match &request.tids {
        Some(tids) => tids.contains(&thread.tid),
        None => thread.followed || !needs_times,
    };
    let all = 0..graph.vertices.len() as u32;
    let mut wanted: Vec<u32> = all
        .filter(|&index| {
            let vertex = graph.vertex(index);
            let is_then = vertex.start < request.end && vertex.end >= request.start;
            is_then && is_meant(graph.thread(index))
        })
        .collect();
    let key = |&index: &u32| {
        let vertex = graph.vertex(index);
        Reverse(match request.sort {
            Key::Start => 0,
            Key::Dur => vertex.end - vertex.start,
            Key::Run => vertex.run,
            Key::Wait => waited(graph, index),
            Key::Woke => graph.woke(index).into(),
        })
    };
    wanted.sort_by_cached_key(key);
    let list = wanted.into_iter().take(request.limit).map(|index| {
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
            "wait": graph.wait_after(index).map(|wait| wait.dur()),
            "woke": graph.woke(index),
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
