// SPDX-License-Identifier: MIT
//! Knots of a directed graph: from each node of one all its nodes are reached, and no other.

use std::collections::{BTreeMap, BTreeSet};

type Edges = BTreeMap<u32, BTreeSet<u32>>;

/// Nodes that are reached from one, itself first, in the order in which they are left again.
fn left(edges: &Edges, from: u32, seen: &mut BTreeSet<u32>) -> Vec<u32> {
    let mut order = Vec::new();
    let mut open = vec![(from, false)];
    while let Some((node, is_left)) = open.pop() {
        if is_left {
            order.push(node);
        } else if seen.insert(node) {
            open.push((node, true));
            let next = edges.get(&node).into_iter().flatten();
            open.extend(next.map(|&next| (next, false)));
        }
    }
    order
}

/// Strongly connected components of at least two nodes (by Kosaraju's algorithm) that no edge
/// leaves.
pub(crate) fn knots(all: impl Iterator<Item = (u32, u32)>) -> Vec<Vec<u32>> {
    let (mut onward, mut back) = (Edges::new(), Edges::new());
    for (from, to) in all {
        onward.entry(from).or_default().insert(to);
        back.entry(to).or_default().insert(from);
    }
    let mut seen = BTreeSet::new();
    let nodes: BTreeSet<u32> = onward.keys().chain(back.keys()).copied().collect();
    let order = nodes
        .iter()
        .flat_map(|&node| left(&onward, node, &mut seen));
    let order: Vec<u32> = order.collect();
    let mut seen = BTreeSet::new();
    let parts = order.iter().rev().map(|&node| left(&back, node, &mut seen));
    let is_sink = |part: &Vec<u32>| {
        let next = part.iter().filter_map(|node| onward.get(node)).flatten();
        part.len() > 1 && next.into_iter().all(|next| part.contains(next))
    };
    let mut found: Vec<Vec<u32>> = parts.filter(is_sink).collect();
    found.iter_mut().for_each(|knot| knot.sort_unstable());
    found
}

#[cfg(test)]
mod tests {
    use super::knots;

    #[test]
    fn a_knot_reaches_itself_and_nothing_else() {
        let circle = [(1, 2), (2, 3), (3, 1)];
        assert_eq!(knots(circle.into_iter()), [[1, 2, 3]]);
        let with_an_exit = circle.into_iter().chain([(2, 4)]);
        assert_eq!(knots(with_an_exit), Vec::<Vec<u32>>::new());
        let behind_others = [(7, 1), (1, 2), (2, 1), (7, 8), (8, 7)];
        assert_eq!(knots(behind_others.into_iter()), [[1, 2]]);
    }
}
