// SPDX-License-Identifier: MIT
//! A server that two clients ask, and that answers both in one wake-up: of the second it reads
//! first.

use std::path::PathBuf;

use flagfinder_events::container::BlockKind;
use flagfinder_events::{
    Call, DescriptorFact, Event, EventFile, EventWriter, Info, Kind, ThreadFact,
};
use flagfinder_graph::{build, critical_path, Edge, EdgeKind, Graph, PathRequest};

const READ: u16 = 0;
const WRITE: u16 = 1;
const POLL: u16 = 7;
const SLEEPS: u8 = 1;
const TASK: u8 = 1;
const SERVER: u32 = 9;

/// Events of one CPU, ten ns apart.
#[derive(Default)]
struct Recording {
    events: Vec<Event>,
    running: u32,
}

impl Recording {
    fn event(&mut self, kind: Kind, flags: u8, b: u32, word: u64) {
        self.events.push(Event {
            ts: 10 * (self.events.len() as u64 + 1),
            a: self.running,
            b,
            cpu: 0,
            kind,
            flags,
            stack: 0,
            words: [word, 0, 0],
        });
    }

    fn enter(&mut self, number: u16, first: u64) {
        self.event(Kind::Enter, 0, 0, Call { number, first }.pack());
    }

    fn returns(&mut self, number: u16, result: u64) {
        let first = result;
        self.event(Kind::ExitCall, 0, 0, Call { number, first }.pack());
    }

    fn wakes(&mut self, other: u32, caller: u16) {
        self.event(Kind::Waking, TASK, other, u64::from(caller) + 1);
    }

    /// The running thread blocks in a call, and another goes on.
    fn blocks(&mut self, number: u16, first: u64, next: u32) {
        self.enter(number, first);
        self.event(Kind::Switch, SLEEPS, next, Call { number, first }.pack());
        self.running = next;
    }

    /// The client asks, and waits for the answer.
    fn asks(&mut self, wakes: bool, next: u32) {
        self.enter(WRITE, 3);
        if wakes {
            self.wakes(SERVER, WRITE);
        }
        self.returns(WRITE, 4);
        self.blocks(READ, 3, next);
    }

    /// The server reads a request, and answers it.
    fn answers(&mut self, descriptor: u64, client: u32) {
        self.enter(READ, descriptor);
        self.returns(READ, 4);
        self.enter(WRITE, descriptor);
        self.wakes(client, WRITE);
        self.returns(WRITE, 4);
    }
}

fn descriptor(pid: u32, fd: i32, own: &str, peer: &str) -> DescriptorFact {
    DescriptorFact {
        ts: 0,
        pid,
        fd,
        target: format!("socket:[{own}]"),
        peer: Some(format!("socket:[{peer}]")),
        records: false,
    }
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ff-{name}-{}", std::process::id()))
}

fn graph(name: &str) -> Graph {
    let mut all = Recording {
        running: SERVER,
        ..Recording::default()
    };
    all.blocks(POLL, 0, 1);
    all.asks(true, 2);
    all.asks(false, SERVER);
    all.returns(POLL, 2);
    all.answers(5, 2);
    all.answers(4, 1);
    all.blocks(POLL, 0, 2);
    let path = scratch(name);
    let mut writer = EventWriter::create(&path, &Info::default()).unwrap();
    let threads = [1, 2, SERVER].map(|tid| ThreadFact {
        tid,
        pid: tid,
        name: format!("thread-{tid}"),
        kernel: false,
    });
    writer.fact(BlockKind::Threads, &threads).unwrap();
    let ends = [
        descriptor(SERVER, 4, "40", "10"),
        descriptor(SERVER, 5, "50", "20"),
        descriptor(1, 3, "10", "40"),
        descriptor(2, 3, "20", "50"),
    ];
    writer.fact(BlockKind::Descriptors, &ends).unwrap();
    writer.events(0, &all.events).unwrap();
    writer.finish().unwrap();
    let file = EventFile::open(&path).unwrap();
    let graph = build(&file, &[]);
    std::fs::remove_file(path).unwrap();
    graph
}

/// The thread that made a vertex begin.
fn woken_by(graph: &Graph, vertex: u32) -> Option<(EdgeKind, u32)> {
    let edge: Edge = graph.cause(vertex)?;
    Some((edge.kind(), graph.thread(edge.from).tid))
}

#[test]
fn each_item_leads_to_who_asked_and_each_answer_to_its_item() {
    let graph = graph("items");
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
    let graph = graph("share");
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
        from: None,
        to: None,
    };
    let path = critical_path(&graph, &request).unwrap();
    assert!(path.segments.iter().all(|segment| segment.dur > 0));
}

#[test]
fn a_saved_graph_is_the_same() {
    let made = graph("saved");
    let path = scratch("saved.graph");
    made.save(&path).unwrap();
    let opened = Graph::open(&path);
    std::fs::remove_file(path).unwrap();
    let opened = opened.unwrap();
    assert_eq!(made.vertices.records(), opened.vertices.records());
    assert_eq!(made.edges(), opened.edges());
    assert_eq!(made.summary(), opened.summary());
}
