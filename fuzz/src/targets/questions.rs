// SPDX-License-Identifier: MIT
//! What is asked of a graph, wherever it came from.

use std::path::Path;

use flagfinder_graph::{
    bottleneck, critical_path, diagnose, edge_records, query, timeline, BottleneckRequest, Graph,
    PathRequest, QueryRequest, Request, TimelineRequest,
};

/// Threads that are asked about one by one.
const THREADS: usize = 3;

/// Asks everything that the commands of a graph ask.
pub fn ask(graph: &Graph) {
    let _ = graph.summary();
    let edges = graph.edges();
    let _ = edge_records(&edges);
    let _ = graph
        .vertices
        .records(|_| Ok::<(), std::convert::Infallible>(()));
    let _ = query(graph, &QueryRequest::all(1000));
    let _ = diagnose(graph, &Request::default());
    let _ = bottleneck(graph, &BottleneckRequest::default());
    let tids = || graph.meta.threads.iter().map(|thread| thread.tid);
    for tid in tids().take(THREADS) {
        let path = PathRequest {
            thread: tid,
            host: None,
            from: None,
            to: None,
            most: Some(100),
        };
        let _ = critical_path(graph, &path);
        for answers in [None, Some(vec![1, 2])] {
            let request = Request {
                thread: Some(tid),
                preceding: 2,
                answers,
                ..Request::default()
            };
            let _ = diagnose(graph, &request);
        }
    }
    let all = TimelineRequest {
        threads: tids().take(64).collect(),
        from: 0,
        to: u64::MAX,
    };
    let _ = timeline(graph, &all);
    graph
        .export_perfetto(Path::new("/dev/null"))
        .expect("written");
}
