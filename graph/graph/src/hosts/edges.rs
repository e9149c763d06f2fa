// SPDX-License-Identifier: MIT
//! Edges between vertices of different hosts.

use flagfinder_events::{Call, Exchange, FlowFact};
use rustc_hash::{FxHashMap, FxHashSet};

use super::pairs::Message;
use super::part::{Numbers, Part, Sent};
use super::times::Times;
use crate::edge::{Edge, EdgeKind, NOBODY};
use crate::graph::Graph;
use crate::vertices::Vertices;

/// An item that a message begins is split off when the call that read it returns.
const SPLITS: u64 = 100_000;

/// The vertex that sent something.
fn sender(part: &Part, message: &Message) -> Option<u32> {
    let one = &part.exchanges[message.sent];
    part.graph.at(one.tid, one.began.unwrap_or(one.ts))
}

/// The vertex that goes on with what was received.
pub(super) fn receiver(graph: &Graph, one: &Exchange) -> Option<u32> {
    let now = graph.at(one.tid, one.ts)?;
    let list = graph.of(one.tid);
    let next = list
        .get(list.partition_point(|&other| other <= now))
        .copied();
    let is_split = next.filter(|&next| {
        graph.vertex(now).blocks == 0 && graph.vertex(next).start < one.ts + SPLITS
    });
    is_split.or(Some(now))
}

/// Whether a descriptor, in words, is the socket of a flow, as far as is known.
fn is_socket_of(target: &str, flow: &FlowFact) -> bool {
    let to = target.strip_prefix("a socket to ");
    let remote = flow.remote.to_string();
    to.map_or(target.starts_with("a socket that"), |to| {
        to.split(',').next() == Some(&remote[..])
    })
}

/// Whether what came over a flow may be what made a vertex begin: its thread waited for messages,
/// and no thread of its own host is known to have ended that.
pub(super) fn may_begin(graph: &Graph, vertex: u32, flow: Option<&FlowFact>) -> bool {
    let row = graph.vertex(vertex);
    let before = graph.before(vertex);
    let Some(before) = before.filter(|&before| graph.vertex(before).blocks == 1) else {
        return row.cause() == EdgeKind::Weak && graph.is_item(vertex);
    };
    let call = graph.vertex(before).call();
    let reads = call.is_some_and(|call| Call::receives(call.number));
    let looks = call.is_some_and(|call| Call::looks(call.number));
    let read_from = graph.target(before).filter(|_| reads).zip(flow);
    if read_from.is_some_and(|(target, flow)| !is_socket_of(target, flow)) {
        return false;
    }
    match row.cause() {
        EdgeKind::Interrupt | EdgeKind::Unknown => reads || looks || call.is_none(),
        // On a softirq the thread that was interrupted may have been sending something, too.
        EdgeKind::Ipc => {
            let is_strange = row.from == NOBODY || !graph.thread(row.from).followed;
            read_from.is_some() || (reads || looks) && is_strange
        }
        _ => false,
    }
}

/// Adds those of messages from one host to another.
pub(super) fn cross(
    parts: &[Part],
    numbers: &[Numbers],
    times: &Times,
    (from, to): (usize, usize),
    messages: &[Message],
    vertices: &mut Vertices,
    others: &mut Vec<Edge>,
) {
    let doubt = times.widths(from).1 + times.widths(to).1;
    let flows: FxHashMap<u32, &FlowFact> = parts[to]
        .flows
        .iter()
        .map(|flow| (flow.number, flow))
        .collect();
    let mut begun: FxHashSet<u32> = FxHashSet::default();
    for message in messages {
        let got = &parts[to].exchanges[message.received];
        let ends = sender(&parts[from], message).zip(receiver(&parts[to].graph, got));
        let Some((sender, receiver)) = ends else {
            continue;
        };
        let one = &parts[from].exchanges[message.sent];
        let sent = times.of(from, one.began.unwrap_or(one.ts));
        let (cause, vertex) = (numbers[from].vertex(sender), numbers[to].vertex(receiver));
        let flow = flows.get(&got.flow);
        let was_there = sent <= vertices.get(vertex).start + doubt;
        if was_there
            && may_begin(&parts[to].graph, receiver, flow.copied())
            && begun.insert(receiver)
        {
            vertices.caused(vertex, EdgeKind::Ipc, cause);
            continue;
        }
        others.push(Edge {
            from: cause,
            to: vertex,
            ts: times.of(to, got.ts),
            kind: EdgeKind::Ipc as u32,
            stack: 0,
        });
    }
}

/// From the threads at the other ends to threads that asked something and wait for the answer to
/// the end of their recording.
pub(super) fn awaited(
    parts: &[Part],
    numbers: &[Numbers],
    times: &Times,
    sent: &Sent,
) -> Vec<Edge> {
    // The flow of another host that is the other end of a flow, by messages that went over it.
    let mut ends: FxHashMap<(usize, u32), (usize, u32)> = FxHashMap::default();
    for (&(from, to), messages) in sent {
        for message in messages {
            let one = (from, parts[from].exchanges[message.sent].flow);
            let other = (to, parts[to].exchanges[message.received].flow);
            ends.insert(one, other);
            ends.insert(other, one);
        }
    }
    let mut last: FxHashMap<(usize, u32), u32> = FxHashMap::default();
    for (host, part) in parts.iter().enumerate() {
        for one in &part.exchanges {
            last.insert((host, one.flow), one.tid);
        }
    }
    let mut edges = Vec::new();
    for (host, part) in parts.iter().enumerate() {
        let mut newest: FxHashMap<u32, usize> = FxHashMap::default();
        // By process: its only flow, or none.
        let mut only: FxHashMap<u32, Option<u32>> = FxHashMap::default();
        for (place, one) in part.exchanges.iter().enumerate() {
            newest.insert(one.tid, place);
            let pid = part.graph.meta.threads[one.tid as usize].pid;
            let flow = only.entry(pid).or_insert(Some(one.flow));
            *flow = flow.filter(|&flow| flow == one.flow);
        }
        for (thread, place) in newest {
            let one = &part.exchanges[place];
            let waiting = part.graph.of(thread).last().copied();
            let Some(waiting) = waiting.filter(|&v| one.sent && waits_on(part, v, one.flow, &only))
            else {
                continue;
            };
            let Some(&(other, flow)) = ends.get(&(host, one.flow)) else {
                continue;
            };
            let graph = &parts[other].graph;
            let ts = times
                .of(host, part.graph.meta.last)
                .min(times.of(other, graph.meta.last));
            let peer = last
                .get(&(other, flow))
                .and_then(|&peer| graph.of(peer).last());
            edges.extend(peer.map(|&peer| Edge {
                from: numbers[other].vertex(peer),
                to: numbers[host].vertex(waiting),
                ts,
                kind: EdgeKind::Peer as u32,
                stack: 0,
            }));
        }
    }
    edges
}

/// Whether a vertex ends in a wait for what comes over a flow: it reads from it, or looks at
/// descriptors in a process that has no other flow.
fn waits_on(part: &Part, vertex: u32, flow: u32, only: &FxHashMap<u32, Option<u32>>) -> bool {
    let row = part.graph.vertex(vertex);
    let Some(call) = row.call().filter(|_| row.blocks == 1) else {
        return false;
    };
    if Call::receives(call.number) {
        let fact = part.flows.iter().find(|fact| fact.number == flow);
        let read_from = part.graph.target(vertex).zip(fact);
        return read_from.is_some_and(|(target, fact)| is_socket_of(target, fact));
    }
    let pid = part.graph.thread(vertex).pid;
    Call::looks(call.number) && only.get(&pid) == Some(&Some(flow))
}
