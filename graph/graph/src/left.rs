// SPDX-License-Identifier: MIT
//! Who may owe the end of a wait that nobody is seen to owe, by what threads did at other times.
//!
//! In: a wait at a futex, or on a pipe that several processes have open. Out: the thread that is
//! left of those that ended waits there, as all others wait there themselves; the one thread that
//! ended all waits of the waiting one; a thread of the same process in a deadlock; the process that
//! was seen at the other end before. They are likely, not certain: a lock does not tell who has it,
//! and memory is used again.

use std::collections::BTreeSet;

use flagfinder_events::Call;
use flagfinder_linux::{futex, traits};

use crate::activity::{at, during, sleeps, waits_for_events, Activity, Class};
use crate::baseline::{asked, ender, same_place};
use crate::edge::EdgeKind;
use crate::graph::{Graph, Wait};
use crate::retries::whole_waits;

/// Bytes of one lock or condition: a condition of glibc has two words that threads wait at.
const OBJECT: u64 = 48;
/// So many waits that one thread ended are no chance.
const FEWEST: usize = 3;

/// The address of the futex that a thread waits at in the end of a vertex.
fn address(graph: &Graph, vertex: u32) -> Option<u64> {
    let call = graph.vertex(vertex).call()?;
    futex::is_futex(call.number.into()).then_some(call.first)
}

/// Whether threads of one process wait at one lock or condition in the ends of two vertices.
pub(crate) fn is_one_object(graph: &Graph, a: u32, b: u32) -> bool {
    let whose = |vertex| (graph.thread(vertex).host, graph.thread(vertex).pid);
    let both = address(graph, a).zip(address(graph, b));
    whose(a) == whose(b) && both.is_some_and(|(a, b)| a.abs_diff(b) < OBJECT)
}

/// A stretch of polling at a futex, or of looks at descriptors, and the wait behind it, as one
/// wait: a thread that waits for a lock in pieces, an event loop with a clock. It has no end where
/// something else follows.
pub(crate) fn whole_poll(graph: &Graph, activity: &Activity) -> Option<Wait> {
    let looks = |vertex: u32| {
        let call = graph.vertex(vertex).call();
        let wait = graph.wait_after(vertex).filter(|wait| !sleeps(graph, wait));
        wait.is_some() && call.is_some_and(|call| traits::looks(call.number.into()))
    };
    let is_same = |vertex: u32| {
        is_one_object(graph, activity.vertex, vertex)
            || looks(vertex) && same_place(graph, activity.vertex, vertex)
    };
    if !is_same(activity.vertex) {
        return None;
    }
    let thread = graph.vertex(activity.vertex).thread;
    let mut waits = graph.waits(thread);
    let is_next = |wait: &Wait| graph.vertex(wait.vertex).start >= activity.end;
    let last = waits
        .find(is_next)
        .filter(|wait| graph.vertex(wait.vertex).start == activity.end && is_same(wait.vertex));
    Some(Wait {
        vertex: activity.vertex,
        next: last.and_then(|last| last.next),
        start: activity.start,
        end: last.map_or(activity.end, |last| last.end),
    })
}

/// The threads of a vertex's process.
fn process(graph: &Graph, vertex: u32) -> impl Iterator<Item = u32> + '_ {
    let whose = graph.thread(vertex);
    let threads = (0..).zip(&graph.meta.threads);
    let same = threads.filter(|(_, one)| (one.host, one.pid) == (whose.host, whose.pid));
    same.map(|(thread, _)| thread)
}

/// Threads of the process that ended waits at the futex of a vertex, if that is no chance.
fn enders(graph: &Graph, vertex: u32) -> BTreeSet<u32> {
    let waits = process(graph, vertex).flat_map(|thread| graph.waits(thread));
    let there = waits.filter(|wait| is_one_object(graph, wait.vertex, vertex));
    let by = there.filter_map(|wait| ender(graph, &wait));
    let by: Vec<u32> = by.map(|edge| graph.vertex(edge.from).thread).collect();
    match by.len() < FEWEST {
        true => BTreeSet::new(),
        false => by.into_iter().collect(),
    }
}

/// What the one thread did during a wait that ended waits there and does not wait there itself. A
/// thread that computes comes before those that sleep or wait for events.
pub(crate) fn left(graph: &Graph, wait: &Wait) -> Option<Activity> {
    address(graph, wait.vertex)?;
    let own = graph.vertex(wait.vertex).thread;
    let others = enders(graph, wait.vertex).into_iter();
    let others = others.filter(|&thread| thread != own);
    let did: Vec<Option<Activity>> = others
        .map(|thread| during(graph, thread, wait.start, wait.end))
        .filter(|did| did.is_none_or(|did| !is_one_object(graph, did.vertex, wait.vertex)))
        .collect();
    let computes = |did: &&Activity| matches!(did.class, Class::LongRunning | Class::HotCalls);
    let mut computing = did.iter().flatten().filter(computes);
    if let Some(only) = computing.next() {
        return computing.next().is_none().then_some(*only);
    }
    let [Some(only)] = did[..] else {
        return None;
    };
    let is_idle =
        waits_for_events(graph, &only) || only.wait.is_some_and(|wait| sleeps(graph, &wait));
    (!is_idle).then_some(only)
}

/// The thread that ended all waits of the thread at futexes where no other thread waits, as those
/// that are made for one answer. (A lock that several threads take says nothing.)
pub(crate) fn only_ender(graph: &Graph, wait: &Wait) -> Option<u32> {
    address(graph, wait.vertex)?;
    let own = graph.vertex(wait.vertex).thread;
    let others = process(graph, wait.vertex).filter(|&thread| thread != own);
    let others = others.flat_map(|thread| graph.waits(thread));
    let shared: BTreeSet<u64> = others
        .filter_map(|wait| address(graph, wait.vertex))
        .collect();
    let is_alone = |at: u64| {
        shared
            .range(at.saturating_sub(OBJECT)..at + OBJECT)
            .next()
            .is_none()
    };
    let waits = whole_waits(graph, own).filter(|other| {
        other.vertex != wait.vertex && address(graph, other.vertex).is_some_and(is_alone)
    });
    let by: Vec<u32> = waits
        .filter_map(|wait| ender(graph, &wait))
        .map(|edge| graph.vertex(edge.from).thread)
        .collect();
    let only = by.first().filter(|&first| by.iter().all(|by| by == first));
    only.copied().filter(|_| by.len() >= FEWEST)
}

/// Whether a thread is not the one that is to end a wait which goes on: it has ended, waits at a
/// futex itself, or slept in between and then did not end it.
fn has_no_part(graph: &Graph, thread: u32, wait: &Wait) -> bool {
    let Some(&last) = graph.of(thread).last() else {
        return false;
    };
    match graph.wait_after(last) {
        Some(own) if sleeps(graph, &own) => own.dur() * 2 < wait.dur(),
        Some(_) => address(graph, last).is_some(),
        None => graph.vertex(last).end < graph.until(thread),
    }
}

/// What a thread does that is in a deadlock of the process of a wait: it waits to the end for one
/// that waits for it, by way of others or not. `None` if another thread may as well be the one that
/// is to end the wait, and no thread of the deadlock ended one of the waiting thread before.
pub(crate) fn deadlocked(graph: &Graph, wait: &Wait) -> Option<Activity> {
    let holder = |thread: u32| {
        let last = *graph.of(thread).last()?;
        let mut holders = graph.awaited(last, EdgeKind::Holds);
        let edge = holders.next().filter(|_| holders.next().is_none())?;
        Some((graph.vertex(edge.from).thread, edge.ts))
    };
    let most = graph.meta.threads.len();
    let leads = |from: u32, to: u32| {
        let next = |&(thread, _): &(u32, u64)| holder(thread);
        let mut way = std::iter::successors(holder(from), next).take(most);
        way.any(|(other, _)| other == to)
    };
    let all = || process(graph, wait.vertex);
    let thread = all().find(|&thread| leads(thread, thread))?;
    let own = graph.vertex(wait.vertex).thread;
    let ended = graph.waits(own).filter_map(|wait| ender(graph, &wait));
    let ended_one = ended
        .map(|edge| graph.vertex(edge.from).thread)
        .any(|by| leads(by, thread));
    let is_no_other = |one: u32| one == own || leads(one, thread) || has_no_part(graph, one, wait);
    let is_meant = ended_one || all().all(is_no_other);
    at(graph, thread, holder(thread)?.1).filter(|_| is_meant)
}

/// Whether a thread waits in vain for what another one sends it, as it is its own turn: it waits
/// where it got all that the other one sent before, and has sent nothing since.
pub(crate) fn has_turn(graph: &Graph, wait: &Wait, other: u32) -> bool {
    let own = graph.vertex(wait.vertex).thread;
    let is_message = |wait: &Wait| {
        let end = ender(graph, wait).filter(|edge| edge.kind() == EdgeKind::Ipc);
        end.is_some_and(|edge| graph.vertex(edge.from).thread == other)
    };
    let before = graph.waits(own).filter(|before| {
        before.start < wait.start
            && same_place(graph, before.vertex, wait.vertex)
            && is_message(before)
    });
    before.count() >= FEWEST && !asked(graph, wait).contains(&other)
}

/// What a pipe, a FIFO or a queue is called in both processes; `None` of others.
pub(crate) fn object(text: &str) -> Option<&str> {
    let name = text.split(", ").next()?;
    (name.starts_with("pipe:[") || name.starts_with('/')).then_some(name)
}

/// Whether the process of a thread was seen to wait at the other end of what a vertex waits on.
pub(crate) fn has_used(graph: &Graph, thread: u32, vertex: u32) -> bool {
    let sends = |vertex| {
        graph
            .vertex(vertex)
            .call()
            .map(|call| Call::sends(call.number))
    };
    let Some(wanted) = graph.target(vertex).and_then(object) else {
        return false;
    };
    let same = graph
        .of(thread)
        .first()
        .into_iter()
        .flat_map(|&own| process(graph, own));
    let mut all = same.flat_map(|thread| graph.of(thread));
    all.any(|&other| {
        graph.vertex(other).blocks == 1
            && sends(other) != sends(vertex)
            && graph.target(other).and_then(object) == Some(wanted)
    })
}
