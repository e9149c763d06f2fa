// SPDX-License-Identifier: MIT
//! Opens arbitrary bytes as a file of events, reads all of it and builds the graph: no panic,
//! bounded memory.

use crate::{repair_events, MemoryFile};
use flagfinder_events::{check, dump, summary, EventFile};
use flagfinder_graph::{build, diagnose, profile, query, QueryRequest, Request};

/// See the module.
pub fn run(data: &[u8]) {
    let mut bytes = data.to_vec();
    if data.len() & 7 != 0 {
        repair_events(&mut bytes);
    }
    let input = MemoryFile::new(&bytes).expect("a file in memory");
    let Ok(file) = EventFile::open(&input.path()) else {
        return;
    };
    let _ = summary(&file);
    let _ = check(&file);
    let _ = dump(&file, 0, 0, 100, |_| {});
    let _ = profile(&file);
    let graph = build(&file, &[]);
    let _ = query(&graph, &QueryRequest::all(100));
    let _ = diagnose(&graph, &Request::default());
}
