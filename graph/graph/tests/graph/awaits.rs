// SPDX-License-Identifier: MIT
//! Waits that never end have culprits: those whom the threads were seen to wait for.

use flagfinder_events::container::BlockKind;
use flagfinder_events::{Holder, How, Looked};
use flagfinder_graph::{build, Class, Diagnosis, Graph, Request};

use crate::made_up::{culprits, explained, Recording, FUTEX, MS, READ, SLEEP};

const WAIT4: u16 = libc::SYS_wait4 as u16;

fn looked(all: &Recording, tid: u32, call: u16, how: Option<How>, by: &[u32]) -> Looked {
    let holder = |&tid: &u32| Holder {
        pid: tid,
        tid: (how == Some(How::Lock)).then_some(tid),
    };
    Looked {
        ts: all.now,
        tid,
        pid: tid,
        name: format!("seen-{tid}"),
        state: 'S',
        call: Some(call.into()),
        first: 0x1000,
        how,
        by: by.iter().map(holder).collect(),
        descriptors: Vec::new(),
    }
}

fn graph(all: &Recording, looks: &[Looked]) -> Graph {
    let file = all.file(|writer| writer.fact(BlockKind::Waits, &looks).unwrap());
    build(&file, &[])
}

fn explain(graph: &Graph, thread: u32) -> Diagnosis {
    let request = Request {
        thread: Some(thread),
        ..Request::default()
    };
    explained(graph, &request)
}

fn circle(found: &Diagnosis) -> Vec<u32> {
    found.circle.iter().map(|member| member.tid).collect()
}

/// Thread 1 waits for the end of 2; 2 and 3 wait for each other's lock.
fn deadlock() -> (Recording, Vec<Looked>) {
    let mut all = Recording::of(&[1, 2, 3]);
    all.passes(MS);
    all.waits(FUTEX, 0x1000, 2);
    all.waits(FUTEX, 0x1000, 3);
    all.waits(FUTEX, 0x1000, 0);
    all.passes(2000 * MS);
    let lock = Some(How::Lock);
    let looks = [(1, 2), (2, 3), (3, 2)].map(|(tid, by)| looked(&all, tid, FUTEX, lock, &[by]));
    all.ends_after(MS);
    (all, looks.to_vec())
}

#[test]
fn a_deadlock_is_named_as_a_circle() {
    let (all, looks) = deadlock();
    let graph = graph(&all, &looks);
    let found = explain(&graph, 1);
    assert_eq!(culprits(&found), [3, 2]);
    assert!(found.circular);
    assert_eq!(circle(&found), [2, 3]);
    assert_eq!(circle(&explain(&graph, 3)), [3, 2]);
    assert!(graph.summary().contains("\"holds\":3"));
}

#[test]
fn what_was_seen_survives_the_file() {
    let (all, looks) = deadlock();
    let path = crate::made_up::scratch("awaits");
    graph(&all, &looks).save(&path).unwrap();
    let opened = Graph::open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!(circle(&explain(&opened, 1)), [2, 3]);
}

#[test]
fn a_thread_that_waits_for_its_own_lock_is_a_circle_of_one() {
    let mut all = Recording::of(&[1]);
    all.waits(FUTEX, 0x1000, 0);
    all.passes(2000 * MS);
    let looks = [looked(&all, 1, FUTEX, Some(How::Lock), &[1])];
    all.ends_after(MS);
    let found = explain(&graph(&all, &looks), 1);
    assert_eq!((culprits(&found), circle(&found)), (vec![1], vec![1]));
}

#[test]
fn processes_that_hung_before_the_recording_began_are_known_all_the_same() {
    let mut all = Recording::of(&[1, 2]);
    all.info.started = 5 * MS;
    all.now = 6 * MS;
    let looks = [
        looked(&all, 1, WAIT4, Some(How::Child), &[2]),
        looked(&all, 2, SLEEP, None, &[]),
    ];
    all.ends_after(3000 * MS);
    let found = explain(&graph(&all, &looks), 1);
    assert_eq!((found.class, found.start), (Class::LongWait, 5 * MS));
    assert!(found.dur >= 3000 * MS && found.unfinished);
    assert_eq!(culprits(&found), [2]);
    assert_eq!(found.culprits[0].doing, "clock_nanosleep");
}

#[test]
fn a_server_outside_the_recording_that_never_answers_is_named() {
    let mut all = Recording::of(&[1]);
    all.waits(READ, 0x1000, 0);
    all.passes(2000 * MS);
    let looks = [
        looked(&all, 1, READ, Some(How::Peer), &[7]),
        looked(&all, 7, SLEEP, None, &[]),
    ];
    all.ends_after(MS);
    let found = explain(&graph(&all, &looks), 1);
    let server = &found.culprits[0];
    assert_eq!(
        (server.tid, &server.thread[..], server.class),
        (7, "seen-7", Class::Unknown)
    );
    assert_eq!(
        server.doing,
        "blocked in clock_nanosleep when it was looked at, not recorded"
    );
}

#[test]
fn a_wait_that_is_over_when_its_thread_is_looked_at_again_is_not_meant() {
    let mut all = Recording::of(&[1, 2]);
    all.waits(FUTEX, 0x1000, 2);
    all.passes(10 * MS);
    let looks = [looked(&all, 1, READ, Some(How::Peer), &[2])];
    all.ends_after(MS);
    let graph = graph(&all, &looks);
    assert!(!graph.summary().contains("peer"));
}

#[test]
fn of_several_peers_none_is_blamed_nor_the_one_who_waits() {
    let mut all = Recording::of(&[1]);
    all.waits(READ, 0x1000, 0);
    all.passes(2000 * MS);
    let looks = [
        looked(&all, 1, READ, Some(How::Peer), &[7, 8]),
        looked(&all, 7, SLEEP, None, &[]),
        looked(&all, 8, SLEEP, None, &[]),
    ];
    all.ends_after(MS);
    assert!(culprits(&explain(&graph(&all, &looks), 1)).is_empty());
}
