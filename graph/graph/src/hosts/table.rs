// SPDX-License-Identifier: MIT
//! What a host sent and received, as rows, for tables in which other hosts' rows are looked up.

use bytemuck::{cast_slice, Pod, Zeroable};
use flagfinder_events::{EventFile, FlowFact};
use rustc_hash::{FxHashMap, FxHashSet};

use super::edges::{may_begin, receiver};
use crate::build::build_with_exchanges;
use crate::edge::NOBODY;
use crate::graph::Graph;

/// Something that was sent, or that was received and may have made a vertex begin.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Exchanged {
    /// CLOCK_MONOTONIC, ns: when all of it was sent, or received.
    pub ts: u64,
    /// As [`flagfinder_events::Exchange`] has it.
    pub position: u64,
    /// How many.
    pub bytes: u32,
    /// Number of its [`FlowFact`].
    pub flow: u32,
    /// Index into `Meta::threads`.
    pub thread: u32,
    /// Of what was received: the vertex that it may have made begin; else [`NOBODY`].
    pub vertex: u32,
    /// 1: it was sent.
    pub sent: u32,
    reserved: u32,
}

/// Rows as bytes, in the layout of [`Exchanged`].
pub fn exchange_records(all: &[Exchanged]) -> &[u8] {
    cast_slice(all)
}

/// The graph of one host's recording, and what it exchanged with others, in order of time.
pub fn build_with_table(file: &EventFile) -> (Graph, Vec<Exchanged>) {
    let (graph, exchanges) = build_with_exchanges(file, &[]);
    let flows = file.flows.iter().map(|flow| (flow.number, flow));
    let flows: FxHashMap<u32, &FlowFact> = flows.collect();
    let mut begun: FxHashSet<u32> = FxHashSet::default();
    let mut rows = Vec::new();
    for one in exchanges {
        let mut vertex = NOBODY;
        if !one.sent {
            let flow = flows.get(&one.flow).copied();
            let found = receiver(&graph, &one).filter(|&found| may_begin(&graph, found, flow));
            let Some(found) = found.filter(|found| begun.insert(*found)) else {
                continue;
            };
            vertex = found;
        }
        rows.push(Exchanged {
            ts: one.ts,
            position: one.position,
            bytes: one.bytes,
            flow: one.flow,
            thread: one.tid,
            vertex,
            sent: one.sent.into(),
            reserved: 0,
        });
    }
    (graph, rows)
}
