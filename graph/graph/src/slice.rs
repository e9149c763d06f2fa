// SPDX-License-Identifier: MIT
//! Walking backwards along causes (Argus, Algorithm 1, InteractiveSlice).

use std::cmp::Reverse;

use crate::edge::{Edge, EdgeKind, NOBODY};
use crate::graph::Graph;
use crate::question::{Choice, Guide, Question, Topic};

/// A longer path says no more.
const LONGEST: usize = 64;
/// Paths of a beam are compared after so many steps, as in Argus: a wrong turn shows only later.
const STEPS: usize = 5;
/// Most paths that are kept for each one that a comparison leaves.
const BRANCHES: usize = 32;

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
    if guide.by_rule() && guide.beam > 1 {
        return Ok(beam(graph, vertex, since, guide.beam));
    }
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

/// A path of a beam.
#[derive(Clone)]
struct Path {
    steps: Vec<Step>,
    /// When its last vertex caused the one before.
    until: u64,
    /// How doubtful it is that all of it is causal.
    doubt: u32,
    /// Edges with a boost.
    boosted: u32,
    /// How far down in the rule's order its edges are.
    order: u32,
    /// It can't go further back.
    is_whole: bool,
}

impl Path {
    /// The least key is the best.
    fn rank(&self) -> (u32, Reverse<u32>, u32) {
        (self.doubt, Reverse(self.boosted), self.order)
    }

    fn end(&self) -> u32 {
        self.steps[self.steps.len() - 1].vertex
    }
}

/// How far an edge is from one that is certainly causal. As in Argus's own program (columbia/
/// ArgusDebugger, utils/beam_search.cpp), strong edges, boosted weak ones and other weak ones are
/// equally far apart. Our additions: a message that woke nobody is in between, and an edge from a
/// thread's own order is strong.
fn doubt(graph: &Graph, edge: &Edge, boosted: bool) -> u32 {
    const HALF: u32 = 1;
    const MAYBE: u32 = 2;
    match edge.kind() {
        kind if kind.was_ordered() => 0,
        EdgeKind::Weak if boosted => HALF,
        kind if kind.is_strong() && (boosted || !graph.woke_nobody(edge)) => 0,
        kind if kind.is_strong() => HALF,
        _ => MAYBE,
    }
}

/// The path back with the least doubt, among the `width` best ones that are followed at once, as
/// the final version of Argus searches: a wrong turn at an ambiguous vertex shows in the weak edges
/// that follow it. Our additions: of two equally doubtful paths the one with more boosted edges is
/// better, then the one that keeps to the rule's order; paths that meet become one; one path is
/// taken in the end.
fn beam(graph: &Graph, vertex: u32, since: u64, width: usize) -> Vec<Step> {
    let mut paths = vec![Path {
        steps: vec![Step { vertex, edge: None }],
        until: u64::MAX,
        doubt: 0,
        boosted: 0,
        order: 0,
        is_whole: false,
    }];
    for step in 1..LONGEST {
        let (mut next, open): (Vec<Path>, Vec<Path>) =
            paths.into_iter().partition(|path| path.is_whole);
        if open.is_empty() {
            paths = next;
            break;
        }
        for path in open {
            longer(graph, path, since, &mut next);
        }
        next.sort_by_key(Path::rank);
        let mut ends = Vec::new();
        next.retain(|path| {
            let is_new = path.is_whole || !ends.contains(&path.end());
            ends.push(path.end());
            is_new
        });
        let kept = if step % STEPS == 0 {
            width
        } else {
            width * BRANCHES
        };
        next.truncate(kept);
        paths = next;
    }
    let best = paths.into_iter().min_by_key(Path::rank);
    best.map_or_else(Vec::new, |path| path.steps)
}

/// The path with each of the edges that may have caused its end.
fn longer(graph: &Graph, path: Path, since: u64, found: &mut Vec<Path>) {
    let end = path.end();
    let is_far = graph.vertex(end).start < since;
    let mut causes = if is_far {
        Vec::new()
    } else {
        causes(graph, end, path.until)
    };
    causes.retain(|edge| !path.steps.iter().any(|step| step.vertex == edge.from));
    if causes.is_empty() {
        found.push(Path {
            is_whole: true,
            ..path
        });
        return;
    }
    for (edge, order) in causes.iter().zip(0..) {
        let boosted = is_boosted(graph, edge);
        let mut steps = path.steps.clone();
        steps.push(Step {
            vertex: edge.from,
            edge: Some(edge.kind()),
        });
        found.push(Path {
            steps,
            until: edge.ts,
            doubt: path.doubt + doubt(graph, edge, boosted),
            boosted: path.boosted + u32::from(boosted),
            order: path.order + order,
            is_whole: false,
        });
    }
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

    /// Vertex 6 of thread 0 was woken by two: by thread 2, of which nobody knows why it ran, and
    /// before by thread 1, which a request of thread 3 had set off.
    fn ambiguous() -> Graph {
        let mut vertices = Vertices::default();
        for (thread, start) in [(3, 10), (1, 5), (1, 20), (2, 1), (2, 30), (0, 2), (0, 40)] {
            vertices.push(Vertex {
                thread,
                start,
                end: start + 2,
                blocks: 1,
                ..Vertex::default()
            });
        }
        vertices.change(2, |row| (row.cause, row.from) = (EdgeKind::Ipc as u8, 0));
        vertices.change(6, |row| (row.cause, row.from) = (EdgeKind::Wake as u8, 4));
        let meta = Meta {
            threads: vec![ThreadMeta::default(); 4],
            ..Meta::default()
        };
        Graph::new(meta, vertices, vec![wake(2, 6, 0, 39)])
    }

    fn by_rule(graph: &Graph, beam: usize) -> Vec<u32> {
        let mut guide = Guide::new(None).with_beam(beam);
        let path = slice(graph, 6, 3, &mut guide).unwrap();
        path.iter().map(|step| step.vertex).collect()
    }

    #[test]
    fn of_two_wakers_a_beam_follows_the_one_whose_own_cause_is_known() {
        let graph = ambiguous();
        assert_eq!(
            by_rule(&graph, 1),
            [6, 4, 3],
            "the newest, through a weak edge"
        );
        assert_eq!(by_rule(&graph, 4), [6, 2, 0]);
        let asked = slice(&graph, 6, 3, &mut Guide::new(Some(&[])));
        assert!(asked.is_err(), "who answers is asked all the same");
    }

    #[test]
    fn a_beam_takes_the_rule_s_way_where_nothing_else_decides() {
        let plain = graph(["wait+0x1", "wake+0x1", "other+0x1", "main+0x1"]);
        let shared = graph(["serve+0x1", "serve+0x9", "other+0x1", "main+0x1"]);
        for (graph, way) in [(plain, [3, 2]), (shared, [3, 1])] {
            let mut guide = Guide::new(None).with_beam(4);
            let path = slice(&graph, 3, 0, &mut guide).unwrap();
            assert_eq!(path.iter().map(|step| step.vertex).collect::<Vec<_>>(), way);
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
            for beam in [1, 4] {
                let mut guide = Guide::new(None).with_beam(beam);
                let path = slice(&woken_and_told(received), 3, 0, &mut guide).unwrap();
                assert_eq!(path.iter().map(|s| s.vertex).collect::<Vec<_>>(), way);
            }
        }
    }

    #[test]
    fn a_weak_edge_within_one_rare_function_is_half_a_doubt() {
        let sites = ["serve+0x1", "serve+0x9", "other+0x1", "main+0x1"];
        for (after, expected) in [(2, 1), (3, 2)] {
            let mut graph = graph(sites);
            graph.vertices.details_mut(3).stack = after;
            let weak = Graph::into(&graph, 3).next().unwrap();
            assert_eq!((weak.kind(), weak.from), (EdgeKind::Weak, 0));
            let doubt = doubt(&graph, &weak, is_boosted(&graph, &weak));
            assert_eq!(doubt, expected, "{after}");
        }
    }
}
