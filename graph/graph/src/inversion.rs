// SPDX-License-Identifier: MIT
//! Locks and conditions, told by the functions that wait for them; and priorities that a lock
//! inverted: the thread that had it was less urgent than the thread that needed it, and others had
//! its CPU.

use flagfinder_linux::futex;
use serde::Serialize;

use crate::edge::EdgeKind;
use crate::graph::{Graph, Wait};
use crate::slice::strong_cause;
use crate::starved::{busiest, share_of_run};

/// A holder that had no CPU for this part of the wait (1 / n) was starved.
const STARVED: u64 = 10;
/// Names of functions that wait for locks and for conditions, and that release or signal them.
const LOCKS: [&str; 4] = ["mutex_lock", "mutex_timedlock", "lll_lock", "rwlock_"];
const CONDITIONS: [&str; 2] = ["cond_wait", "cond_timedwait"];
const UNLOCKS: [&str; 3] = ["mutex_unlock", "lll_unlock", "rwlock_unlock"];
const SIGNALS: [&str; 2] = ["cond_signal", "cond_broadcast"];

/// A less urgent thread had the lock that a more urgent one needed.
#[derive(Clone, Debug, Serialize)]
pub struct Inversion {
    /// Kernel priorities: lower is more urgent.
    pub waiter: u8,
    pub holder: u8,
    /// ns that the holder could have run but had no CPU, and who had it.
    pub starved: u64,
    pub instead_tid: Option<u32>,
    pub instead: Option<String>,
}

fn names_any(stack: &[&str], words: &[&str]) -> Option<usize> {
    stack
        .iter()
        .position(|site| words.iter().any(|word| site.contains(word)))
}

/// What a futex was, by the call sites of the threads that waited and woke; the innermost one that
/// tells counts.
fn by_sites(stack: &[&str], wake_stack: &[&str]) -> Option<&'static str> {
    let tell = |stack, locks: &[&str], conditions: &[&str]| match (
        names_any(stack, locks),
        names_any(stack, conditions),
    ) {
        (Some(lock), Some(condition)) if condition < lock => Some("condition"),
        (Some(_), _) => Some("lock"),
        (None, Some(_)) => Some("condition"),
        (None, None) => None,
    };
    tell(stack, &LOCKS, &CONDITIONS).or_else(|| tell(wake_stack, &UNLOCKS, &SIGNALS))
}

/// What a futex was that a thread waited for: `lock`, `condition`. `wake_stack`: where it was woken
/// from.
pub fn futex_kind(graph: &Graph, vertex: u32, wake_stack: u32) -> Option<&'static str> {
    let call = graph.vertex(vertex).call()?;
    let stack = || graph.stack(graph.details(vertex).stack);
    let is_futex = futex::is_futex(call.number.into());
    is_futex
        .then(|| by_sites(&stack(), &graph.stack(wake_stack)))
        .flatten()
}

/// Whether the thread `holder` had the lock that a wait was for: it released it in the end, or was
/// seen to have it.
fn held(graph: &Graph, wait: &Wait, holder: u32) -> bool {
    let is_holder = |from: u32| graph.vertex(from).thread == holder;
    let end = wait.next.and_then(|next| strong_cause(graph, next));
    if let Some(end) = end.filter(|edge| is_holder(edge.from)) {
        return futex_kind(graph, wait.vertex, end.stack) == Some("lock");
    }
    let is_futex = |number: u16| futex::is_futex(number.into());
    let call = graph.vertex(wait.vertex).call();
    let mut holders = graph.awaited(wait.vertex, EdgeKind::Holds);
    call.is_some_and(|call| is_futex(call.number)) && holders.any(|edge| is_holder(edge.from))
}

/// Whether the holder of the lock that a wait was for was less urgent than the waiter, and who had
/// its CPU if it had none for a part of the wait. `None` also if priorities are not known.
pub fn inversion(graph: &Graph, wait: &Wait, holder: u32) -> Option<Inversion> {
    let meta = &graph.meta.threads[holder as usize];
    // The priority when it released the lock; recordings of others do not have it.
    let woken = wait.next.map(|next| graph.details(next));
    let woken = woken.filter(|details| details.waker_priority != 0);
    let (waiter, less) = match woken {
        Some(details) => (details.priority as u8, details.waker_priority as u8),
        None => (graph.thread(wait.vertex).priority, meta.priority),
    };
    if waiter == 0 || less <= waiter || !held(graph, wait, holder) {
        return None;
    }
    let list = graph.of(holder);
    let first = list.partition_point(|&index| graph.vertex(index).end < wait.start);
    let own = list[first..].iter().map(|&index| graph.vertex(index));
    let own = own.take_while(|vertex| vertex.start < wait.end);
    // When it could run, and for how long it then had no CPU.
    let delays = own.map(|vertex| {
        let span = (vertex.start.max(wait.start), vertex.end.min(wait.end));
        let run = share_of_run(&vertex, span.0, span.1);
        (
            (span.1.saturating_sub(span.0)).saturating_sub(run),
            span,
            vertex.cpu,
        )
    });
    let delays: Vec<_> = delays.collect();
    let starved: u64 = delays.iter().map(|(delay, ..)| delay).sum();
    let longest = delays.iter().max_by_key(|(delay, ..)| *delay);
    let instead = longest.filter(|_| starved * STARVED >= wait.dur());
    let instead = instead.and_then(|&(_, span, cpu)| busiest(graph, cpu, span, holder));
    let instead = instead.map(|(thread, _)| &graph.meta.threads[thread as usize]);
    Some(Inversion {
        waiter,
        holder: less,
        starved,
        instead_tid: instead.map(|thread| thread.tid),
        instead: instead.map(|thread| thread.name.clone()),
    })
}
