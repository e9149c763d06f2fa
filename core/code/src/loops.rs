// SPDX-License-Identifier: MIT
//! The loops of an observed graph, nested.
//!
//! A loop is a strongly connected region; its headers are the nodes by which it is
//! entered. One header makes it a natural loop; several make it irreducible. Inner
//! loops are what stays strongly connected without the edges back to the headers
//! (Steensgaard's loop nesting; for reducible graphs the same as natural loops that
//! share a header joined together).

use crate::graph::Graph;

/// One loop. Nodes are the graph's ids, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// More than one: irreducible.
    pub headers: Vec<u32>,
    /// All of it, those of inner loops too.
    pub nodes: Vec<u32>,
    /// Edges within the loop that lead to a header.
    pub back_edges: Vec<(u32, u32)>,
    /// Edges that leave the loop.
    pub exits: Vec<(u32, u32)>,
    /// Index of the loop directly around it.
    pub parent: Option<usize>,
    /// 0 for outermost.
    pub depth: usize,
}

impl Loop {
    /// Whether the node with this id belongs to it, or to a loop within it.
    pub fn contains(&self, id: u32) -> bool {
        self.nodes.binary_search(&id).is_ok()
    }
}

/// All loops, each after the one around it.
#[derive(Clone, Debug, Default)]
pub struct Loops {
    list: Vec<Loop>,
}

struct Region {
    nodes: Vec<u32>,
    parent: Option<usize>,
    depth: usize,
}

impl Loops {
    /// Finds the loops of all nodes that the graph has.
    pub fn new(graph: &Graph) -> Self {
        let successors = graph.successor_table();
        let mut finder = Components::new(graph.len());
        // Edges cut so far: those to the headers of the loops around.
        let mut cut = vec![false; graph.len()];
        let mut list = Vec::new();
        let whole = Region {
            nodes: (0..graph.len() as u32).collect(),
            parent: None,
            depth: 0,
        };
        let mut work = vec![whole];
        let mut inside = vec![false; graph.len()];
        while let Some(region) = work.pop() {
            for nodes in finder.find(successors, &region.nodes, &cut) {
                for &node in &nodes {
                    inside[node as usize] = true;
                }
                let found = describe(graph, &nodes, &inside, &region);
                for &node in &nodes {
                    inside[node as usize] = false;
                }
                for &header in &found.headers {
                    if let Some(index) = graph.index(header) {
                        cut[index as usize] = true;
                    }
                }
                list.push(found);
                work.push(Region {
                    nodes,
                    parent: Some(list.len() - 1),
                    depth: region.depth + 1,
                });
            }
        }
        Loops { list }
    }

    /// Each after the one around it.
    pub fn all(&self) -> &[Loop] {
        &self.list
    }
}

fn describe(graph: &Graph, nodes: &[u32], inside: &[bool], region: &Region) -> Loop {
    let enters = |&node: &u32| {
        let from_outside = graph.predecessor_table()[node as usize]
            .iter()
            .any(|&p| !inside[p as usize]);
        from_outside || node == 0
    };
    let mut headers: Vec<u32> = nodes.iter().copied().filter(enters).collect();
    if headers.is_empty() {
        // Observed from its middle on and never entered: the first node seen stands in.
        headers.extend(nodes.iter().min());
    }
    let mut back_edges = Vec::new();
    let mut exits = Vec::new();
    for &from in nodes {
        for &to in &graph.successor_table()[from as usize] {
            let edge = (graph.id(from), graph.id(to));
            if !inside[to as usize] {
                exits.push(edge);
            } else if headers.contains(&to) {
                back_edges.push(edge);
            }
        }
    }
    let ids = |list: &[u32]| {
        let mut ids: Vec<u32> = list.iter().map(|&i| graph.id(i)).collect();
        ids.sort_unstable();
        ids
    };
    Loop {
        headers: ids(&headers),
        nodes: ids(nodes),
        back_edges,
        exits,
        parent: region.parent,
        depth: region.depth,
    }
}

/// Tarjan's strongly connected components, restricted to a region, without recursion.
struct Components {
    number: Vec<u32>,
    low: Vec<u32>,
    on_stack: Vec<bool>,
    member: Vec<bool>,
}

impl Components {
    fn new(nodes: usize) -> Self {
        Components {
            number: vec![0; nodes],
            low: vec![0; nodes],
            on_stack: vec![false; nodes],
            member: vec![false; nodes],
        }
    }

    /// The components of `region` that hold a cycle, edges to `cut` nodes left out.
    fn find(&mut self, successors: &[Vec<u32>], region: &[u32], cut: &[bool]) -> Vec<Vec<u32>> {
        for &node in region {
            self.member[node as usize] = true;
            self.number[node as usize] = 0;
        }
        let mut found = Vec::new();
        let mut counter = 0;
        let mut path: Vec<u32> = Vec::new();
        let mut calls: Vec<(u32, usize)> = Vec::new();
        for &root in region {
            if self.number[root as usize] != 0 {
                continue;
            }
            calls.push((root, 0));
            while let Some(&(node, next)) = calls.last() {
                let n = node as usize;
                if next == 0 {
                    counter += 1;
                    self.number[n] = counter;
                    self.low[n] = counter;
                    self.on_stack[n] = true;
                    path.push(node);
                }
                if let Some(&to) = successors[n].get(next) {
                    if let Some(top) = calls.last_mut() {
                        top.1 += 1;
                    }
                    let t = to as usize;
                    if !self.member[t] || cut[t] {
                        continue;
                    }
                    if self.number[t] == 0 {
                        calls.push((to, 0));
                    } else if self.on_stack[t] {
                        self.low[n] = self.low[n].min(self.number[t]);
                    }
                    continue;
                }
                calls.pop();
                if let Some(&(caller, _)) = calls.last() {
                    let c = caller as usize;
                    self.low[c] = self.low[c].min(self.low[n]);
                }
                if self.low[n] == self.number[n] {
                    let at = path.iter().rposition(|&p| p == node).unwrap_or(0);
                    let component = path.split_off(at);
                    for &done in &component {
                        self.on_stack[done as usize] = false;
                    }
                    let cyclic = component.len() > 1 || (successors[n].contains(&node) && !cut[n]);
                    if cyclic {
                        found.push(component);
                    }
                }
            }
        }
        for &node in region {
            self.member[node as usize] = false;
        }
        found
    }
}
