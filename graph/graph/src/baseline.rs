// SPDX-License-Identifier: MIT
//! The wait that went well, to compare a hang with: similar by its semantic events, different in
//! its result (Argus, section 5.4).

use std::collections::BTreeSet;

use flagfinder_linux::futex;
use rustc_hash::FxHashMap;

use crate::edge::{Edge, EdgeKind, NOBODY};
use crate::graph::{Graph, Wait};
use crate::question::{Choice, Guide, Question, Topic};
use crate::retries::whole_waits;

/// A baseline took at most this part of the hang's time.
const MUCH_SHORTER: u64 = 4;
/// Most baselines that are offered.
const OFFERED: usize = 4;

/// Whether two waits are in one call, and on one futex or descriptor.
pub fn same_place(graph: &Graph, a: u32, b: u32) -> bool {
    let (a, b) = (graph.vertex(a), graph.vertex(b));
    let Some((first, second)) = a.call().zip(b.call()) else {
        return false;
    };
    // Of a futex or descriptor the first argument is part of the meaning; of others it is a
    // buffer's address.
    let has_object = futex::is_futex(first.number.into()) || first.descriptor().is_some();
    first.number == second.number && (!has_object || first.first == second.first)
}

fn ended_by_thread(graph: &Graph, wait: &Wait) -> bool {
    ending(graph, wait).is_some()
}

/// The edge by which a thread ended a wait; `None` where no thread did it. A signal of which the
/// waiting thread died is no end of what it waited for, nor is one that stopped it.
fn end_of(graph: &Graph, wait: &Wait) -> Option<Edge> {
    let next = wait.next?;
    let row = graph.vertex(next);
    let died = || row.blocks == 0 && graph.of(row.thread).last() == Some(&next);
    let by_signal = || died() || graph.meta.stopped.contains_key(&next);
    let is_end = |edge: &Edge| {
        edge.kind().is_strong()
            && !graph.woke_nobody(edge)
            && !(edge.kind() == EdgeKind::Signal && by_signal())
    };
    let others = || graph.others_into(next).iter().copied().rfind(is_end);
    graph.cause(next).filter(is_end).or_else(others)
}

/// The edge from the thread that ended a wait, and so owed the wake.
pub fn ender(graph: &Graph, wait: &Wait) -> Option<Edge> {
    end_of(graph, wait).filter(|edge| edge.from != NOBODY)
}

/// How the wait ended, and by which thread: `None` where no thread did it.
fn ending(graph: &Graph, wait: &Wait) -> Option<(EdgeKind, u32)> {
    let end = end_of(graph, wait)?;
    let from = match end.from {
        NOBODY => u32::MAX,
        from => graph.vertex(from).thread,
    };
    Some((end.kind(), from))
}

/// Much shorter waits in the same place.
pub fn shorter<'g>(graph: &'g Graph, hang: &Wait) -> impl Iterator<Item = Wait> + 'g {
    let hang = *hang;
    let thread = graph.vertex(hang.vertex).thread;
    whole_waits(graph, thread).filter(move |wait| {
        wait.vertex != hang.vertex
            && same_place(graph, wait.vertex, hang.vertex)
            && wait.dur().saturating_mul(MUCH_SHORTER) <= hang.dur()
            && ended_by_thread(graph, wait)
    })
}

/// How many of the vertex and those before it, `preceding` at most, have the same semantic events,
/// up to the first that has not.
fn similarity(graph: &Graph, a: u32, b: u32, preceding: usize) -> usize {
    let back = |vertex: u32| {
        let list = graph.of(graph.vertex(vertex).thread);
        let place = list.partition_point(|&other| other < vertex);
        let before = list[..=place].iter().rev();
        before.map(|&other| graph.details(other).semantics)
    };
    let both = back(a).zip(back(b)).take(preceding + 1);
    both.take_while(|(a, b)| a == b).count()
}

/// How many call sites two vertices block at have in common, from the innermost one on; all, and no
/// more on either side, is most.
fn common_frames(graph: &Graph, a: u32, b: u32) -> usize {
    let sites = |vertex: u32| graph.sites(graph.details(vertex).stack);
    let (a, b) = (sites(a), sites(b));
    if !a.is_empty() && a == b {
        return usize::MAX;
    }
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Threads to which vertices sent something, or which they woke, by vertex.
struct Receivers(FxHashMap<u32, BTreeSet<u32>>);

impl Receivers {
    fn of(graph: &Graph, vertices: impl Iterator<Item = u32>) -> Receivers {
        let mut found: FxHashMap<u32, BTreeSet<u32>> =
            vertices.map(|vertex| (vertex, BTreeSet::new())).collect();
        for row in graph.vertices.iter() {
            if let Some(threads) = found.get_mut(&row.from) {
                threads.insert(row.thread);
            }
        }
        for edge in &graph.others {
            if let Some(threads) = found.get_mut(&edge.from) {
                threads.insert(graph.vertex(edge.to).thread);
            }
        }
        for (&vertex, threads) in &mut found {
            threads.remove(&graph.vertex(vertex).thread);
        }
        Receivers(found)
    }

    /// In percent of the frames that either has; 0 if one has none.
    fn common(&self, a: u32, b: u32) -> usize {
        let (a, b) = (&self.0[&a], &self.0[&b]);
        let all = a.union(b).count().max(1);
        100 * a.intersection(b).count() / all
    }
}

/// Threads that the vertex before a wait woke or sent something to.
pub fn asked(graph: &Graph, wait: &Wait) -> Vec<u32> {
    let mut receivers = Receivers::of(graph, [wait.vertex].into_iter());
    let own = receivers.0.remove(&wait.vertex).unwrap_or_default();
    own.into_iter().collect()
}

/// Whether the wait that went well asked other threads than the hang did, and none of the same.
pub fn asked_others(graph: &Graph, hang: &Wait, well: &Wait) -> bool {
    let (a, b) = (asked(graph, hang), asked(graph, well));
    !a.is_empty() && !b.is_empty() && !a.iter().any(|thread| b.contains(thread))
}

/// Whether the thread that ended a wait is of a process that the hang is known to wait for.
fn is_by_peer(graph: &Graph, hang: &Wait, wait: &Wait) -> bool {
    let by = ending(graph, wait).and_then(|(_, thread)| graph.meta.threads.get(thread as usize));
    let mut peers = graph.awaited(hang.vertex, EdgeKind::Peer);
    peers.any(|edge| {
        let peer = graph.thread(edge.from);
        by.is_some_and(|by| (peer.host, peer.pid) == (by.host, by.pid))
    })
}

/// The best of those that the same thread ended in the same way stands for all of these. The rule's
/// choice is first: one that a known peer ended, whose call stack has most in common, whose
/// messages went to the same threads, which is the most similar; of those the newest before the
/// hang, else the first after it.
fn offered(graph: &Graph, hang: &Wait, preceding: usize) -> Vec<Wait> {
    let mut all: Vec<Wait> = shorter(graph, hang).collect();
    let vertices = all.iter().map(|wait| wait.vertex);
    let receivers = Receivers::of(graph, vertices.chain([hang.vertex]));
    all.sort_by_cached_key(|wait| {
        let alike = (
            is_by_peer(graph, hang, wait),
            common_frames(graph, wait.vertex, hang.vertex),
            receivers.common(wait.vertex, hang.vertex),
        );
        let similar = similarity(graph, wait.vertex, hang.vertex, preceding);
        let distance = wait.start.abs_diff(hang.start);
        (
            std::cmp::Reverse((alike, similar)),
            wait.start > hang.start,
            distance,
        )
    });
    // A word of memory is used again for another lock: what happened there once is chance.
    let call = graph.vertex(hang.vertex).call();
    let is_futex = call.is_some_and(|call| futex::is_futex(call.number.into()));
    let fewest = if is_futex { 2 } else { 1 };
    let mut counts: FxHashMap<Option<(EdgeKind, u32)>, u32> = FxHashMap::default();
    for wait in &all {
        *counts.entry(ending(graph, wait)).or_default() += 1;
    }
    all.retain(|wait| counts.insert(ending(graph, wait), 0) >= Some(fewest));
    all.truncate(OFFERED);
    all
}

/// As an answer to a question, and as what a hang was compared with.
pub fn choice(graph: &Graph, wait: &Wait) -> Choice {
    let (edge, by) = ending(graph, wait).unzip();
    let by = by.and_then(|thread| graph.meta.threads.get(thread as usize));
    let thread = graph.thread(wait.vertex);
    Choice {
        vertex: Some(wait.vertex),
        tid: Some(thread.tid),
        thread: Some(thread.name.clone()),
        start: Some(wait.start),
        dur: Some(wait.dur()),
        edge: edge.map(EdgeKind::name),
        by_tid: by.map(|by| by.tid),
        by_thread: by.map(|by| by.name.clone()),
        stack: graph.stack_of(wait.vertex),
    }
}

/// Asks which of the waits that went well, if different threads ended them.
pub fn baseline(
    graph: &Graph,
    hang: &Wait,
    preceding: usize,
    guide: &mut Guide,
) -> Result<Option<Wait>, Box<Question>> {
    let offered = offered(graph, hang, preceding);
    if offered.len() < 2 {
        return Ok(offered.first().copied());
    }
    let thread = graph.thread(hang.vertex);
    let chosen = guide.choose(Question {
        topic: Topic::Baseline,
        vertex: hang.vertex,
        tid: thread.tid,
        thread: thread.name.clone(),
        start: hang.start,
        choices: offered.iter().map(|wait| choice(graph, wait)).collect(),
    })?;
    Ok(Some(offered[chosen]))
}
