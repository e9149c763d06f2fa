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
        .max_by_key(|edge| (edge.kind().is_strong(), edge.ts))
        .copied()
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
