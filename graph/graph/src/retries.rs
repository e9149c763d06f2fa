// SPDX-License-Identifier: MIT
//! Waits that are one: a thread that was woken for a lock, did not get it and waits on.
//!
//! In: the waits of a thread. Out: those at one futex with nothing but a look in between, as one
//! wait. Who takes a free lock for less than [`LOOK`] and lets it go unasked looks the same.

use flagfinder_linux::futex;

use crate::graph::{Graph, Wait};

/// ns on a CPU that a thread needs to look at a lock and to wait again.
const LOOK: u64 = 50_000;

/// Whether the thread of a wait waits on in another: it was woken by a thread, only looked, and
/// woke nobody.
fn goes_on(graph: &Graph, wait: &Wait, again: &Wait) -> bool {
    let calls = graph
        .vertex(wait.vertex)
        .call()
        .zip(graph.vertex(again.vertex).call());
    let is_one_futex = calls.is_some_and(|(one, other)| {
        futex::is_futex(one.number.into()) && (one.number, one.first) == (other.number, other.first)
    });
    let look = graph.vertex(again.vertex);
    is_one_futex
        && wait.next == Some(again.vertex)
        && look.cause().is_strong()
        && look.run <= LOOK
        && !graph.causes_any(again.vertex)
}

/// The waits of a thread, in order.
pub fn whole_waits(graph: &Graph, thread: u32) -> impl Iterator<Item = Wait> + '_ {
    let mut waits = graph.waits(thread).peekable();
    std::iter::from_fn(move || {
        let mut whole = waits.next()?;
        let mut last = whole;
        while let Some(again) = waits.next_if(|again| goes_on(graph, &last, again)) {
            last = again;
            (whole.next, whole.end) = (again.next, again.end);
        }
        Some(whole)
    })
}
