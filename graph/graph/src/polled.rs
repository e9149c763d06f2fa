// SPDX-License-Identifier: MIT
//! When a thread polled a data flag, by what a watch saw: from its first look that found nothing to
//! the look that saw another thread's write.

use crate::activity::is_poll;
use crate::edge::{Edge, EdgeKind, NOBODY};
use crate::graph::{Graph, Wait};

/// Stretches of `from..to` in which a thread polled a flag that was not yet written, each with the
/// edge from the write that ended it. A thread that reads once and finds the flag written has not
/// waited. It waits from the end of the vertex in which it first looked, or, if it did not sleep
/// meanwhile, from the beginning of that vertex.
pub(crate) fn polled(graph: &Graph, thread: u32, from: u64, to: u64) -> Vec<(Wait, Edge)> {
    let list = graph.of(thread);
    let first = list.partition_point(|&index| graph.vertex(index).end < from);
    let mut found = Vec::new();
    // The vertex in which it first looked at what it now waits for, and how often since.
    let mut looking: Option<(u32, u32)> = None;
    for &index in &list[first.saturating_sub(1)..] {
        let (vertex, looks) = (graph.vertex(index), graph.details(index).flags);
        if vertex.start >= to {
            break;
        }
        if looks == 0 {
            // The watch may leave out reads of a hot reader; a sleep in between is part of the
            // polling.
            let before = graph.before(index);
            let slept = before.is_some_and(|before| {
                let wait = Wait {
                    vertex: before,
                    next: Some(index),
                    start: graph.vertex(before).end,
                    end: vertex.start,
                };
                is_poll(graph, &wait)
            });
            looking = looking.filter(|_| slept);
            continue;
        }
        let (begin, before) = looking.unwrap_or((index, 0));
        looking = Some((begin, before + looks));
        let edges = graph.others_into(index).iter();
        let is_flag = |edge: &&Edge| edge.kind() == EdgeKind::Flag && edge.from != NOBODY;
        let Some(edge) = edges.copied().rfind(|edge| is_flag(&edge)) else {
            continue;
        };
        let since = if begin == index {
            vertex.start
        } else {
            graph.vertex(begin).end
        };
        // It had looked before the look that saw the write.
        if before + looks > 1 {
            let wait = Wait {
                vertex: begin,
                next: Some(index),
                start: since.max(from),
                end: edge.ts.min(to),
            };
            if wait.start < wait.end {
                found.push((wait, edge));
            }
        }
        looking = Some((index, 0));
    }
    found
}
