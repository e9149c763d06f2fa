// SPDX-License-Identifier: MIT
//! The loop nest of one function's observed graph, with one header a loop.

use crate::space::{PlaceId, NO_PLACE};
use flagfinder_code::{Graph, Loops};
use rustc_hash::{FxHashMap, FxHashSet};

/// From a node to a node; [`NO_PLACE`] as source is an entry, as target an exit.
pub type NodeEdge = (PlaceId, PlaceId);

#[derive(Clone, Debug)]
pub struct Loop {
    pub header: PlaceId,
    pub parent: Option<u32>,
    /// All nodes, inner loops' too.
    pub nodes: FxHashSet<PlaceId>,
}

/// All loops of a graph, outer ones before inner ones.
#[derive(Clone, Debug, Default)]
pub struct LoopNest {
    pub loops: Vec<Loop>,
    innermost: FxHashMap<PlaceId, u32>,
}

impl LoopNest {
    /// Finds the loops among edges with weights (how often each was taken).
    pub fn new(edges: &FxHashMap<NodeEdge, u64>) -> LoopNest {
        // A stack that was first seen in the middle of a function is no second entry of its loops.
        let entry = edges
            .iter()
            .filter(|((from, _), _)| *from == NO_PLACE)
            .max_by_key(|(edge, weight)| (**weight, **edge))
            .map(|(edge, _)| *edge);
        let mut list: Vec<NodeEdge> = edges
            .keys()
            .copied()
            .filter(|&(from, to)| to != NO_PLACE && from != NO_PLACE)
            .chain(entry)
            .collect();
        list.sort_unstable();
        let mut arrivals: FxHashMap<PlaceId, u64> = FxHashMap::default();
        for ((_, to), weight) in edges {
            *arrivals.entry(*to).or_default() += weight;
        }
        let mut nest = LoopNest::default();
        for (number, found) in Loops::new(&Graph::new(NO_PLACE, list))
            .all()
            .iter()
            .enumerate()
        {
            for &node in &found.nodes {
                nest.innermost.insert(node, number as u32);
            }
            // Of several headers the busiest: what most iterations begin with.
            let busiest = found
                .headers
                .iter()
                .copied()
                .max_by_key(|header| arrivals.get(header));
            nest.loops.push(Loop {
                header: busiest.unwrap_or(NO_PLACE),
                parent: found.parent.map(|parent| parent as u32),
                nodes: found.nodes.iter().copied().collect(),
            });
        }
        nest
    }

    /// The innermost loop a node is in.
    pub fn innermost(&self, node: PlaceId) -> Option<u32> {
        self.innermost.get(&node).copied()
    }

    /// The loops a node is in, innermost first.
    pub fn around(&self, node: PlaceId) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.innermost(node), |&number| {
            self.loops[number as usize].parent
        })
    }
}
