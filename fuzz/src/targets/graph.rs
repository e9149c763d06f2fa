// SPDX-License-Identifier: MIT
//! Opens arbitrary bytes as a graph and asks it everything: no panic, bounded memory.

use flagfinder_graph::Graph;

use super::questions::ask;
use crate::{repair_graph, MemoryFile};

/// See the module.
pub fn run(data: &[u8]) {
    let mut bytes = data.to_vec();
    if data.len() & 7 != 0 {
        repair_graph(&mut bytes);
    }
    let input = MemoryFile::new(&bytes).expect("a file in memory");
    if let Ok(graph) = Graph::open(&input.path()) {
        ask(&graph);
    }
}
