// SPDX-License-Identifier: MIT
//! Postdominators.
//!
//! Cooper, Harvey, Kennedy: "A Simple, Fast Dominance Algorithm" (2001): iterate
//! over reverse postorder, intersecting along the tree built so far.

use crate::graph::Graph;

const NONE: u32 = u32::MAX;

/// A tree of postdominators, with a virtual exit as its root.
#[derive(Clone, Debug)]
pub struct Postdominators {
    /// Immediate postdominator by index; the root's is itself, unreachable nodes' `NONE`.
    immediate: Vec<u32>,
    depth: Vec<u32>,
}

impl Postdominators {
    /// `exits` are the nodes from which control leaves; nodes without
    /// successors are exits by themselves. A virtual exit joins them. A region that
    /// never leaves (an endless loop) is tied to the virtual exit at its last node in
    /// postorder, so that every node reachable from the entry has a postdominator.
    pub fn new(graph: &Graph, exits: &[u32]) -> Self {
        let nodes = graph.len() as u32;
        let exit = nodes;
        let mut forward = graph.successor_table().to_vec();
        let mut backward = graph.predecessor_table().to_vec();
        forward.push(Vec::new());
        backward.push(Vec::new());
        let mut is_exit: Vec<bool> = forward.iter().map(Vec::is_empty).collect();
        is_exit[exit as usize] = false;
        for index in exits.iter().filter_map(|&id| graph.index(id)) {
            is_exit[index as usize] = true;
        }
        let mut tie = |node: u32, forward: &mut Vec<Vec<u32>>| {
            forward[node as usize].push(exit);
            backward[exit as usize].push(node);
        };
        for node in (0..nodes).filter(|&n| is_exit[n as usize]) {
            tie(node, &mut forward);
        }
        // The first node in postorder is deepest: the tail of an endless region.
        let mut leaves = vec![false; nodes as usize + 1];
        mark(graph.predecessor_table(), &is_exit, &mut leaves);
        for node in postorder(graph.successor_table(), 0) {
            if !leaves[node as usize] {
                tie(node, &mut forward);
                let mut start = vec![false; nodes as usize];
                start[node as usize] = true;
                mark(graph.predecessor_table(), &start, &mut leaves);
            }
        }
        Self::compute(&backward, &forward, exit)
    }

    fn compute(successors: &[Vec<u32>], predecessors: &[Vec<u32>], root: u32) -> Self {
        let order = postorder(successors, root);
        let mut number = vec![NONE; successors.len()];
        for (position, &node) in order.iter().enumerate() {
            number[node as usize] = position as u32;
        }
        let mut immediate = vec![NONE; successors.len()];
        immediate[root as usize] = root;
        let mut changed = true;
        while changed {
            changed = false;
            for &node in order.iter().rev().filter(|&&node| node != root) {
                let mut known = predecessors[node as usize]
                    .iter()
                    .copied()
                    .filter(|&p| immediate[p as usize] != NONE);
                let Some(first) = known.next() else { continue };
                let joined = known.fold(first, |a, b| intersect(&immediate, &number, a, b));
                if immediate[node as usize] != joined {
                    immediate[node as usize] = joined;
                    changed = true;
                }
            }
        }
        let mut depth = vec![0; successors.len()];
        for &node in order.iter().rev().filter(|&&node| node != root) {
            depth[node as usize] = depth[immediate[node as usize] as usize] + 1;
        }
        Postdominators { immediate, depth }
    }

    /// Does `a` postdominate `b`? Every node in the tree postdominates itself.
    pub fn postdominates(&self, graph: &Graph, a: u32, b: u32) -> bool {
        let (Some(a), Some(mut b)) = (graph.index(a), graph.index(b)) else {
            return false;
        };
        if !self.reaches(a) || !self.reaches(b) {
            return false;
        }
        while self.depth[b as usize] > self.depth[a as usize] {
            b = self.immediate[b as usize];
        }
        a == b
    }

    /// Is the node in the tree (reachable from the root)?
    fn reaches(&self, index: u32) -> bool {
        self.immediate[index as usize] != NONE
    }
}

fn intersect(immediate: &[u32], number: &[u32], mut a: u32, mut b: u32) -> u32 {
    while a != b {
        while number[a as usize] < number[b as usize] {
            a = immediate[a as usize];
        }
        while number[b as usize] < number[a as usize] {
            b = immediate[b as usize];
        }
    }
    a
}

/// Adds to `reached` what can be reached from `start` along `edges`.
fn mark(edges: &[Vec<u32>], start: &[bool], reached: &mut [bool]) {
    let mut work: Vec<u32> = (0..edges.len() as u32)
        .filter(|&n| start[n as usize] && !reached[n as usize])
        .collect();
    for &node in &work {
        reached[node as usize] = true;
    }
    while let Some(node) = work.pop() {
        for &next in &edges[node as usize] {
            if !std::mem::replace(&mut reached[next as usize], true) {
                work.push(next);
            }
        }
    }
}

/// Depth-first postorder from `root`, without recursion.
pub(crate) fn postorder(successors: &[Vec<u32>], root: u32) -> Vec<u32> {
    let mut order = Vec::new();
    let mut seen = vec![false; successors.len()];
    let mut stack = vec![(root, 0)];
    seen[root as usize] = true;
    while let Some((node, next)) = stack.last_mut() {
        if let Some(&successor) = successors[*node as usize].get(*next) {
            *next += 1;
            if !std::mem::replace(&mut seen[successor as usize], true) {
                stack.push((successor, 0));
            }
        } else {
            order.push(*node);
            stack.pop();
        }
    }
    order
}
