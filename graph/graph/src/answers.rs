// SPDX-License-Identifier: MIT
//! Whether a thread that waited again and again waited for one that answered slower than it does.
//!
//! In: a thread that did many short things in a stretch of time. Out: the last vertex of the thread
//! that ended most of its waits then, if these took much longer than at other times. Who asks more
//! often than usual, and is answered as fast as ever, owes that itself.

use std::collections::BTreeMap;

use crate::baseline::ender;
use crate::graph::Graph;

/// Slow answers take so many times as long as others.
const SLOWER: u64 = 4;
/// So many others are enough to compare with.
const FEWEST: usize = 3;

fn typical(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}

pub(crate) fn slow_answerer(graph: &Graph, thread: u32, from: u64, to: u64) -> Option<u32> {
    let mut by: BTreeMap<u32, (Vec<u64>, Vec<u64>, u32)> = BTreeMap::new();
    for wait in graph.waits(thread) {
        let Some(end) = ender(graph, &wait) else {
            continue;
        };
        let other = graph.vertex(end.from).thread;
        let (then, else_, last) = by.entry(other).or_default();
        if from <= wait.start && wait.end <= to {
            then.push(wait.dur());
            *last = end.from;
        } else {
            else_.push(wait.dur());
        }
    }
    by.remove(&thread);
    let most = by
        .into_values()
        .max_by_key(|(then, ..)| then.iter().sum::<u64>());
    let (then, else_, last) = most?;
    let is_most = then.iter().sum::<u64>() * 2 >= to - from;
    let is_known = else_.len() >= FEWEST;
    let is_slow = is_most && is_known && typical(then) >= typical(else_).saturating_mul(SLOWER);
    is_slow.then_some(last)
}
