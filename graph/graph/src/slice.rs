// SPDX-License-Identifier: MIT
//! Walking backwards along causes (Argus, Algorithm 1, InteractiveSlice).

use std::cmp::Reverse;

use crate::edge::{Edge, EdgeKind, NOBODY};
use crate::graph::Graph;
use crate::question::{Choice, Guide, Question, Topic};

/// A longer path says no more.
const LONGEST: usize = 64;

/// A vertex on the way back, and the edge by which it caused the one before (`None`: the first).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub vertex: u32,
    pub edge: Option<EdgeKind>,
}

/// Where a weak edge leads. Items of a wake-up for which no thread is known to have asked do not
/// explain why the next one began.
fn origin(graph: &Graph, edge: Edge) -> Edge {
    let mut from = edge.from;
    if edge.kind() == EdgeKind::Weak && graph.is_item(edge.to) {
        while graph.cause(from).is_none() && graph.is_item(from) {
            from = graph.before(from).unwrap_or(from);
        }
    }
    Edge { from, ..edge }
}

/// Edges from other vertices that came no later than `until`, when the vertex caused what follows.
/// The best come first: strong ones, among these the one that made it begin, then those with a
/// boost, then the newest.
fn causes(graph: &Graph, vertex: u32, until: u64) -> Vec<Edge> {
    let edges = graph.into(vertex);
    let mut usable: Vec<Edge> = edges
        .filter(|edge| edge.from != NOBODY && edge.from != vertex && edge.ts <= until)
        .map(|edge| origin(graph, edge))
        .collect();
    usable.sort_by_cached_key(|edge| {
        let began = !graph.woke_nobody(edge);
        Reverse((
            edge.kind().is_strong(),
            began,
            is_boosted(graph, edge),
            edge.ts,
        ))
    });
    usable
}

/// The strong edge to follow, if there is one.
pub fn strong_cause(graph: &Graph, vertex: u32) -> Option<Edge> {
    let best = causes(graph, vertex, u64::MAX).into_iter().next();
    best.filter(|edge| edge.kind().is_strong() && !graph.woke_nobody(edge))
}

fn link(graph: &Graph, edge: &Edge) -> Choice {
    let vertex = graph.vertex(edge.from);
    let thread = graph.thread(edge.from);
    Choice {
        vertex: Some(edge.from),
        tid: Some(thread.tid),
        thread: Some(thread.name.clone()),
        start: Some(vertex.start),
        dur: Some(vertex.end - vertex.start),
        edge: Some(edge.kind().name()),
        stack: graph.stack_of(edge.from),
        ..Choice::default()
    }
}

/// The edge to follow. Asks where several threads may be the cause, and where none is known: what
/// the thread itself did before may have nothing to do with it. A timer or a request to io_uring is
/// no doubt: whoever ordered it is its cause.
fn cause(
    graph: &Graph,
    vertex: u32,
    until: u64,
    guide: &mut Guide,
) -> Result<Option<Edge>, Box<Question>> {
    let all = causes(graph, vertex, until);
    let is_strong = |edge: &&Edge| edge.kind().is_strong();
    let mut offered: Vec<Edge> = Vec::new();
    for edge in all.iter().filter(is_strong) {
        let thread = graph.vertex(edge.from).thread;
        if !offered
            .iter()
            .any(|other| graph.vertex(other.from).thread == thread)
        {
            offered.push(*edge);
        }
    }
    let certain = match offered.len() {
        0 => all.iter().find(|edge| edge.kind().was_ordered()),
        1 => offered.first(),
        _ => None,
    };
    if certain.is_some() {
        return Ok(certain.copied());
    }
    if offered.is_empty() {
        offered.extend(all.first());
    }
    if offered.is_empty() {
        return Ok(None);
    }
    let thread = graph.thread(vertex);
    let stop = Choice::default();
    let choices = offered.iter().map(|edge| link(graph, edge)).chain([stop]);
    let chosen = guide.choose(Question {
        topic: Topic::Link,
        vertex,
        tid: thread.tid,
        thread: thread.name.clone(),
        start: graph.vertex(vertex).start,
        choices: choices.collect(),
    })?;
    Ok(offered.get(chosen).copied())
}

/// Whether both ends were in the same rare function: the waker and where the woken thread waited;
/// of a weak edge, where the thread blocked before and where it blocks now. Then they surely work
/// on the same thing.
pub fn is_boosted(graph: &Graph, edge: &Edge) -> bool {
    let blocked = |vertex| graph.details(vertex).stack;
    let (from, to) = match edge.kind() {
        EdgeKind::Weak => (blocked(edge.from), blocked(edge.to)),
        _ => (edge.stack, graph.before(edge.to).map_or(0, blocked)),
    };
    if from == 0 || to == 0 {
        return false;
    }
    let woken: Vec<u32> = graph.functions(to).collect();
    let waker = graph.functions(from);
    let mut shared = waker.filter(|function| woken.contains(function));
    shared.any(|function| graph.is_rare(function))
}

/// From `vertex` back along strong edges, through weak ones where there are no others, until before
/// `since`.
pub fn slice(
    graph: &Graph,
    vertex: u32,
    since: u64,
    guide: &mut Guide,
) -> Result<Vec<Step>, Box<Question>> {
    let mut path = vec![Step { vertex, edge: None }];
    let (mut now, mut until) = (vertex, u64::MAX);
    while path.len() < LONGEST && graph.vertex(now).start >= since {
        let Some(edge) = cause(graph, now, until, guide)? else {
            break;
        };
        // Time goes back. A timer that was armed in the same vertex must not lead into a circle.
        if path.iter().any(|step| step.vertex == edge.from) {
            break;
        }
        path.push(Step {
            vertex: edge.from,
            edge: Some(edge.kind()),
        });
        (now, until) = (edge.from, edge.ts);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Meta, ThreadMeta};
    use crate::vertex::Vertex;
    use crate::vertices::Vertices;

    fn wake(from: u32, to: u32, stack: u32, ts: u64) -> Edge {
        Edge {
            from,
            to,
            ts,
            kind: EdgeKind::Wake as u32,
            stack,
        }
    }

    /// A thread that waited in stack 1 goes on; two others may have made it do so.
    fn graph(sites: [&str; 4]) -> Graph {
        let mut vertices = Vertices::default();
        for (thread, stack) in [(0, 1), (1, 2), (2, 3), (0, 0)] {
            let vertex = vertices.push(Vertex {
                thread,
                ..Vertex::default()
            });
            vertices.details_mut(vertex).stack = stack;
        }
        let meta = Meta {
            threads: vec![ThreadMeta::default(); 3],
            sites: sites.map(str::to_owned).to_vec(),
            // What was waited in, two wakers, and many others that share `main`.
            stacks: [vec![], vec![0, 3], vec![1, 3], vec![2, 3]]
                .into_iter()
                .chain((0..200).map(|_| vec![3]))
                .collect(),
            ..Meta::default()
        };
        Graph::new(meta, vertices, vec![wake(1, 3, 2, 2), wake(2, 3, 3, 3)])
    }

    #[test]
    fn a_rare_function_that_both_were_in_decides_between_wakes() {
        let plain = graph(["wait+0x1", "wake+0x1", "other+0x1", "main+0x1"]);
        assert_eq!(strong_cause(&plain, 3).map(|edge| edge.from), Some(2));
        let shared = graph(["serve+0x1", "serve+0x9", "other+0x1", "main+0x1"]);
        assert_eq!(strong_cause(&shared, 3).map(|edge| edge.from), Some(1));
    }

    #[test]
    fn items_that_nobody_is_known_to_have_asked_for_are_one_doubt() {
        let mut vertices = Vertices::default();
        for (thread, blocks) in [(1, 1), (0, 1), (0, 0), (0, 0), (0, 0)] {
            vertices.push(Vertex {
                thread,
                blocks,
                ..Vertex::default()
            });
        }
        // The first of three items.
        vertices.change(2, |row| (row.cause, row.from) = (EdgeKind::Ipc as u8, 0));
        let meta = Meta {
            threads: vec![ThreadMeta::default(); 2],
            ..Meta::default()
        };
        let graph = Graph::new(meta, vertices, Vec::new());
        let mut guide = Guide::new(Some(&[1]));
        let path = slice(&graph, 4, 0, &mut guide).unwrap();
        let way: Vec<_> = path.iter().map(|step| (step.vertex, step.edge)).collect();
        let (weak, ipc) = (Some(EdgeKind::Weak), Some(EdgeKind::Ipc));
        assert_eq!(way, [(4, None), (2, weak), (0, ipc)]);
        assert_eq!(guide.asked.len(), 1);
    }

    #[test]
    fn several_wakers_and_the_way_to_stop_are_offered() {
        let plain = graph(["wait+0x1", "wake+0x1", "other+0x1", "main+0x1"]);
        let asked = slice(&plain, 3, 0, &mut Guide::new(Some(&[]))).unwrap_err();
        let offered: Vec<_> = asked.choices.iter().map(|choice| choice.vertex).collect();
        assert_eq!(offered, [Some(2), Some(1), None]);
        for (answer, way) in [(1, vec![3, 2]), (2, vec![3, 1]), (3, vec![3])] {
            let path = slice(&plain, 3, 0, &mut Guide::new(Some(&[answer]))).unwrap();
            let vertices: Vec<u32> = path.iter().map(|step| step.vertex).collect();
            assert_eq!(vertices, way);
        }
    }

    /// Thread 2 woke thread 0 at 20, and got a message of thread 1 at `received`.
    fn woken_and_told(received: u64) -> Graph {
        let mut vertices = Vertices::default();
        for (thread, start, end) in [(1, 5, 6), (2, 10, 40), (0, 2, 4), (0, 20, 22)] {
            vertices.push(Vertex {
                thread,
                start,
                end,
                blocks: 1,
                ..Vertex::default()
            });
        }
        vertices.change(3, |row| (row.cause, row.from) = (EdgeKind::Wake as u8, 1));
        let meta = Meta {
            threads: vec![ThreadMeta::default(); 3],
            ..Meta::default()
        };
        let message = Edge {
            kind: EdgeKind::Ipc as u32,
            ..wake(0, 1, 0, received)
        };
        Graph::new(meta, vertices, vec![message])
    }

    #[test]
    fn what_came_after_a_wake_is_no_cause_of_it() {
        for (received, way) in [(15, vec![3, 1, 0]), (30, vec![3, 1])] {
            let path = slice(&woken_and_told(received), 3, 0, &mut Guide::new(None)).unwrap();
            assert_eq!(path.iter().map(|s| s.vertex).collect::<Vec<_>>(), way);
        }
    }
}
