// SPDX-License-Identifier: MIT
//! A directed graph of observed control flow, from an edge list.

use rustc_hash::FxHashMap;

/// Nodes are the caller's `u32`s; inside they are dense indices in order of first sight.
#[derive(Clone, Debug)]
pub struct Graph {
    ids: Vec<u32>,
    index: FxHashMap<u32, u32>,
    successors: Vec<Vec<u32>>,
    predecessors: Vec<Vec<u32>>,
}

impl Graph {
    /// `entry` is a node even when no edge names it; parallel edges count once.
    pub fn new(entry: u32, edges: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut graph = Graph {
            ids: Vec::new(),
            index: FxHashMap::default(),
            successors: Vec::new(),
            predecessors: Vec::new(),
        };
        graph.add(entry);
        for (from, to) in edges {
            let (from, to) = (graph.add(from), graph.add(to));
            graph.successors[from as usize].push(to);
        }
        for from in 0..graph.ids.len() {
            let list = &mut graph.successors[from];
            list.sort_unstable();
            list.dedup();
            for i in 0..list.len() {
                let to = graph.successors[from][i] as usize;
                graph.predecessors[to].push(from as u32);
            }
        }
        graph
    }

    fn add(&mut self, id: u32) -> u32 {
        let next = self.ids.len() as u32;
        let index = *self.index.entry(id).or_insert(next);
        if index == next {
            self.ids.push(id);
            self.successors.push(Vec::new());
            self.predecessors.push(Vec::new());
        }
        index
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }
    /// The caller's ids, entry first.
    pub fn nodes(&self) -> &[u32] {
        &self.ids
    }
    pub(crate) fn index(&self, id: u32) -> Option<u32> {
        self.index.get(&id).copied()
    }
    pub(crate) fn id(&self, index: u32) -> u32 {
        self.ids[index as usize]
    }
    pub(crate) fn successor_table(&self) -> &[Vec<u32>] {
        &self.successors
    }
    pub(crate) fn predecessor_table(&self) -> &[Vec<u32>] {
        &self.predecessors
    }
}
