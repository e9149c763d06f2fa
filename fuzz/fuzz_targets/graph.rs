// SPDX-License-Identifier: MIT
//! Opens arbitrary bytes as a graph and asks it everything: no panic, bounded memory.

#![no_main]

use std::path::Path;

use flagfinder_fuzz::{repair_graph, MemoryFile};
use flagfinder_graph::{critical_path, diagnose, query, Graph, PathRequest, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    if data.len() & 7 != 0 {
        repair_graph(&mut bytes);
    }
    let input = MemoryFile::new(&bytes).expect("a file in memory");
    let Ok(graph) = Graph::open(&input.path()) else {
        return;
    };
    let _ = graph.summary();
    let _ = graph.edges();
    let _ = query(&graph, 0, 0, u64::MAX, 1000);
    let _ = diagnose(&graph, &Request::default());
    for thread in graph.meta.threads.iter().take(3) {
        let request = PathRequest {
            thread: thread.tid,
            from: None,
            to: None,
            most: Some(100),
        };
        let _ = critical_path(&graph, &request);
        let request = Request {
            thread: Some(thread.tid),
            ..Request::default()
        };
        let _ = diagnose(&graph, &request);
    }
    graph
        .export_perfetto(Path::new("/dev/null"))
        .expect("written");
});
