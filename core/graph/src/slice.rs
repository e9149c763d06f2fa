//! Walking backwards along causes (seed 000, Algorithm 1, InteractiveSlice).

use crate::graph::{Edge, EdgeKind, Graph, NOBODY};

/// A path this long says no more.
const LONGEST: usize = 64;

/// A vertex on the way back, and the edge by which it caused the one before (`None`: the first).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub vertex: u32,
    pub edge: Option<EdgeKind>,
}

/// The edge to follow: a strong one, the newest; a weak one only where `weak`.
pub fn cause(graph: &Graph, vertex: u32, weak: bool) -> Option<Edge> {
    let edges = graph
        .into(vertex)
        .iter()
        .filter(|edge| edge.from != NOBODY && edge.from != vertex);
    let usable = edges.filter(|edge| edge.kind().is_strong() || weak);
    usable
        .max_by_key(|edge| (edge.kind().is_strong(), is_boosted(graph, edge), edge.ts))
        .copied()
}

/// Whether the waker and the woken thread were in the same rare function: then they surely work on the same thing.
pub fn is_boosted(graph: &Graph, edge: &Edge) -> bool {
    if edge.stack == 0 || edge.kind() == EdgeKind::Weak {
        return false;
    }
    let waits = graph.into(edge.to).iter();
    let before = waits.filter(|other| other.kind() == EdgeKind::Weak);
    let stacks = before.map(|weak| graph.vertex(weak.from).stack);
    let woken: Vec<u32> = stacks.flat_map(|stack| graph.functions(stack)).collect();
    let waker = graph.functions(edge.stack);
    let mut shared = waker.filter(|function| woken.contains(function));
    shared.any(|function| graph.is_rare(function))
}

/// From `vertex` back along strong edges, through weak ones where there are no others, until before `since`.
pub fn slice(graph: &Graph, vertex: u32, since: u64) -> Vec<Step> {
    let mut path = vec![Step { vertex, edge: None }];
    let mut now = vertex;
    while path.len() < LONGEST && graph.vertex(now).start >= since {
        let Some(edge) = cause(graph, now, true) else {
            break;
        };
        // Time goes back; a timer that was armed in the same vertex must not lead round in circles.
        if path.iter().any(|step| step.vertex == edge.from) {
            break;
        }
        path.push(Step {
            vertex: edge.from,
            edge: Some(edge.kind()),
        });
        now = edge.from;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Meta, ThreadMeta, Vertex};

    fn edge(from: u32, to: u32, kind: EdgeKind, stack: u32, ts: u64) -> Edge {
        Edge {
            from,
            to,
            ts,
            kind: kind as u32,
            stack,
        }
    }

    fn graph(sites: [&str; 4]) -> Graph {
        let vertex = |thread, stack| Vertex {
            thread,
            stack,
            ..Vertex::default()
        };
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
        let edges = vec![
            edge(0, 3, EdgeKind::Weak, 0, 1),
            edge(1, 3, EdgeKind::Wake, 2, 2),
            edge(2, 3, EdgeKind::Wake, 3, 3),
        ];
        let vertices = vec![vertex(0, 1), vertex(1, 2), vertex(2, 3), vertex(0, 0)];
        Graph::new(meta, vertices, edges)
    }

    #[test]
    fn a_rare_function_that_both_were_in_decides_between_wakes() {
        let plain = graph(["wait+0x1", "wake+0x1", "other+0x1", "main+0x1"]);
        assert_eq!(cause(&plain, 3, true).map(|edge| edge.from), Some(2));
        let shared = graph(["serve+0x1", "serve+0x9", "other+0x1", "main+0x1"]);
        assert_eq!(cause(&shared, 3, true).map(|edge| edge.from), Some(1));
    }
}
