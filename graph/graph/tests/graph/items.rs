// SPDX-License-Identifier: MIT
//! A server that answers two clients in one wake-up, and reads the second one's request first.

use flagfinder_events::container::BlockKind;
use flagfinder_events::DescriptorFact;
use flagfinder_graph::{build, critical_path, Edge, EdgeKind, Graph, PathRequest};

use crate::made_up::{scratch, Recording, POLL, READ, WRITE};

const SERVER: u32 = 9;

/// The client asks, and waits for the answer.
fn asks(all: &mut Recording, wakes: bool, next: u32) {
    all.enter(WRITE, 3);
    if wakes {
        all.wakes(SERVER, WRITE);
    }
    all.returns(WRITE, 4);
    all.blocks(READ, 3, next);
}

/// The server reads a request, and answers it.
fn answers(all: &mut Recording, descriptor: u64, client: u32) {
    all.enter(READ, descriptor);
    all.returns(READ, 4);
    all.enter(WRITE, descriptor);
    all.wakes(client, WRITE);
    all.returns(WRITE, 4);
}

fn descriptor(pid: u32, fd: i32, own: &str, peer: &str) -> DescriptorFact {
    DescriptorFact {
        ts: 0,
        pid,
        fd,
        target: format!("socket:[{own}]"),
        peer: Some(format!("socket:[{peer}]")),
        ..DescriptorFact::default()
    }
}

fn graph() -> Graph {
    let mut all = Recording::of(&[1, 2, SERVER]);
    all.running = SERVER;
    all.blocks(POLL, 0, 1);
    asks(&mut all, true, 2);
    asks(&mut all, false, SERVER);
    all.returns(POLL, 2);
    answers(&mut all, 5, 2);
    answers(&mut all, 4, 1);
    all.blocks(POLL, 0, 2);
    let ends = [
        descriptor(SERVER, 4, "40", "10"),
        descriptor(SERVER, 5, "50", "20"),
        descriptor(1, 3, "10", "40"),
        descriptor(2, 3, "20", "50"),
    ];
    let file = all.file(|writer| writer.fact(BlockKind::Descriptors, &ends).unwrap());
    build(&file, &[])
}

/// The thread that made a vertex begin.
fn woken_by(graph: &Graph, vertex: u32) -> Option<(EdgeKind, u32)> {
    let edge: Edge = graph.cause(vertex)?;
    Some((edge.kind(), graph.thread(edge.from).tid))
}

#[test]
fn each_item_leads_to_who_asked_and_each_answer_to_its_item() {
    let graph = graph();
    let server = graph.of(graph.thread_of(SERVER).unwrap());
    let causes: Vec<_> = server.iter().map(|&v| woken_by(&graph, v)).collect();
    let ipc = |tid| Some((EdgeKind::Ipc, tid));
    // It was woken by the first client, for whom it did nothing at first.
    assert_eq!(causes, [None, ipc(1), ipc(2), ipc(1)]);
    for (client, item) in [(2, server[2]), (1, server[3])] {
        let last = *graph.of(graph.thread_of(client).unwrap()).last().unwrap();
        assert_eq!(graph.cause(last).unwrap().from, item);
    }
}

#[test]
fn items_share_out_the_time_of_their_wake_up() {
    let graph = graph();
    let thread = graph.thread_of(SERVER).unwrap();
    let server = graph.of(thread);
    let rows: Vec<_> = server.iter().map(|&v| graph.vertex(v)).collect();
    assert_eq!(
        rows.iter().map(|v| v.blocks).collect::<Vec<_>>(),
        [1, 0, 0, 1]
    );
    assert!(rows[1..].windows(2).all(|two| two[0].end == two[1].start));
    // It has the CPU from the switch at 110 to its own.
    let run: u64 = rows[1..].iter().map(|v| v.run).sum();
    assert_eq!(run, rows[3].end - 110);
    assert_eq!(
        graph.runs(thread).map(<[u32]>::len).collect::<Vec<_>>(),
        [1, 3]
    );
    assert_eq!(
        server.iter().map(|&v| graph.is_item(v)).collect::<Vec<_>>(),
        [false, false, true, true]
    );
    assert_eq!(graph.first_item(server[3]), server[1]);
    let request = PathRequest {
        thread: SERVER,
        host: None,
        from: None,
        to: None,
        most: None,
    };
    let path = critical_path(&graph, &request).unwrap();
    assert!(path.segments.iter().all(|segment| segment.dur > 0));
}

#[test]
fn a_saved_graph_is_the_same() {
    let made = graph();
    let path = scratch("saved.graph");
    made.save(&path).unwrap();
    let opened = Graph::open(&path);
    std::fs::remove_file(path).unwrap();
    let opened = opened.unwrap();
    assert!(made.vertices.iter().eq(opened.vertices.iter()));
    assert_eq!(
        made.vertices.details_records(),
        opened.vertices.details_records()
    );
    assert_eq!(made.edges(), opened.edges());
    assert_eq!(made.summary(), opened.summary());
}
