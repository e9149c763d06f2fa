// SPDX-License-Identifier: MIT
//! What workers wait for in the end, and how much of their time goes by meanwhile.

use flagfinder_graph::{bottleneck, Bottleneck, BottleneckRequest, Row, Thing};

use crate::made_up::{Recording, FUTEX, MS, READ, SLEEP, WRITE};

const MAIN: u32 = 1;
const FRONT: u32 = 2;
const STORE: u32 = 3;

/// What each thing would bring, in percent of the workers' time, by kind and first name.
fn gains(found: &Bottleneck) -> Vec<(Thing, &str, u64)> {
    let rows = found.rows.iter();
    let rows = rows.map(|row| (row.kind, &row.names[0][..], row.gain * 100 / found.whole));
    rows.filter(|(.., percent)| *percent > 0).collect()
}

fn of(all: &Recording, tids: &[u32]) -> Bottleneck {
    let request = BottleneckRequest {
        tids: Some(tids.to_vec()),
        ..BottleneckRequest::default()
    };
    bottleneck(&all.graph(), &request).unwrap()
}

/// Main asks one thread, which asks another; that one sleeps and computes.
fn asked() -> Recording {
    let mut all = Recording::of(&[MAIN, FRONT, STORE]);
    for _ in 0..10 {
        all.running = MAIN;
        all.passes(2 * MS);
        all.wakes(FRONT, WRITE);
        all.waits(READ, 3, FRONT);
        all.passes(MS);
        all.wakes(STORE, WRITE);
        all.waits(READ, 4, STORE);
        all.passes(2 * MS);
        all.waits(SLEEP, 0, 0);
        all.passes(5 * MS);
        all.times_out(STORE);
        all.running = 0;
        all.preempted(STORE);
        all.wakes(FRONT, WRITE);
        all.waits(READ, 5, FRONT);
        all.wakes(MAIN, WRITE);
        all.waits(READ, 6, MAIN);
    }
    all.ends_after(0);
    all
}

#[test]
fn what_is_waited_for_through_others_counts_for_who_does_it() {
    let all = asked();
    let found = of(&all, &[MAIN]);
    let told = [
        (Thing::Timer, "thread-3", 51),
        (Thing::Thread, "thread-3", 20),
        (Thing::Thread, "thread-1", 18),
        (Thing::Thread, "thread-2", 10),
    ];
    assert_eq!(gains(&found), told);
    let waits: Vec<u64> = found.rows.iter().map(|row| row.waits).collect();
    assert_eq!(waits[..1], [10]);
    // A part of the time: the last of ten rounds.
    let last = BottleneckRequest {
        tids: Some(vec![MAIN]),
        from: Some(all.now - 5 * MS),
        to: Some(all.now),
    };
    let last = bottleneck(&all.graph(), &last).unwrap();
    assert_eq!(gains(&last)[0], (Thing::Timer, "thread-3", 99));
}

#[test]
fn what_nobody_of_the_workers_waits_for_brings_nothing() {
    // Main waits for the sleep of another thread, which waits for nobody else.
    let mut all = Recording::of(&[MAIN, FRONT, STORE]);
    all.waits(READ, 3, FRONT);
    all.passes(MS);
    all.waits(SLEEP, 0, STORE);
    all.passes(8 * MS);
    all.times_out(FRONT);
    all.waits(SLEEP, 0, FRONT);
    all.wakes(MAIN, WRITE);
    all.waits(READ, 7, MAIN);
    all.ends_after(0);
    let found = of(&all, &[MAIN]);
    let told = [
        (Thing::Timer, "thread-2", 88),
        (Thing::Thread, "thread-2", 11),
    ];
    assert_eq!(gains(&found), told);
}

/// Three threads take a lock in turn, ten times each, for 4 ms; without it each computes for 1 ms.
fn convoy() -> Recording {
    let mut all = Recording::of(&[MAIN, FRONT, STORE]);
    all.threads = [MAIN, FRONT, STORE].map(|tid| (tid, MAIN)).to_vec();
    all.running = FRONT;
    all.waits(FUTEX, 0x1000, STORE);
    all.waits(FUTEX, 0x1000, MAIN);
    for turn in 0..30u32 {
        let next = [FRONT, STORE, MAIN][turn as usize % 3];
        all.passes(4 * MS);
        all.wakes(next, FUTEX);
        all.passes(MS);
        all.waits(FUTEX, 0x1000, next);
    }
    all.ends_after(0);
    all
}

#[test]
fn a_lock_of_a_convoy_is_what_its_threads_share_and_a_knot() {
    let found = of(&convoy(), &[MAIN, FRONT, STORE]);
    let percent = |gain: u64| gain * 100 / found.whole;
    let shared = found.rows.iter().filter(|row| row.kind == Thing::Shared);
    let [lock] = shared.collect::<Vec<_>>()[..] else {
        panic!("{:?}", found.rows)
    };
    assert_eq!((lock.on.word, lock.threads), (Some(0x1000), 3));
    assert_eq!(lock.waits, 31); // the last begins when the recording ends
    assert!((58..62).contains(&percent(lock.gain)), "{lock:?}");
    // Two more wait for what each computes with the lock.
    let held = |row: &&Row| row.kind == Thing::Thread && row.held.as_ref() == Some(&lock.on);
    let computes = found.rows.iter().filter(held).map(|row| row.gain).sum();
    assert!((74..80).contains(&percent(computes)), "{:?}", found.rows);
    assert_eq!(found.knots.len(), 1);
    assert_eq!(found.knots[0], ["thread-1", "thread-2", "thread-3"]);
}

#[test]
fn a_condition_that_one_thread_signals_is_not_shared_and_no_knot() {
    let mut all = Recording::of(&[MAIN, FRONT]);
    all.threads = [MAIN, FRONT].map(|tid| (tid, MAIN)).to_vec();
    for _ in 0..10 {
        all.waits(FUTEX, 0x1000, FRONT);
        all.passes(4 * MS);
        all.wakes(MAIN, FUTEX);
        all.waits(SLEEP, 0, MAIN);
        all.passes(MS);
        all.times_out(FRONT);
        all.waits(FUTEX, 0x1000, FRONT);
        all.wakes(MAIN, FUTEX);
        all.preempted(MAIN);
    }
    all.ends_after(0);
    let found = of(&all, &[MAIN]);
    assert_eq!(found.knots, Vec::<Vec<String>>::new());
    assert!(found.rows.iter().all(|row| row.kind != Thing::Shared));
    assert_eq!(gains(&found)[0], (Thing::Thread, "thread-2", 79));
}

/// Waits for pools, and how many are in each. The first thread asks two of three others.
fn pools(parent: u32) -> Vec<(u64, usize)> {
    let mut all = Recording::of(&[MAIN, FRONT, STORE, 14]);
    all.parent = parent;
    all.running = FRONT;
    all.waits(READ, 3, STORE);
    all.waits(READ, 3, MAIN);
    for worker in [FRONT, STORE, FRONT] {
        all.wakes(worker, WRITE);
        all.waits(READ, 4, worker);
        all.passes(8 * MS);
        all.wakes(MAIN, WRITE);
        all.waits(READ, 3, MAIN);
        all.passes(2 * MS);
    }
    all.ends_after(0);
    let found = of(&all, &[MAIN]);
    let pools = found.rows.iter().filter(|row| row.kind == Thing::Pool);
    pools.map(|row| (row.waits, row.threads)).collect()
}

#[test]
fn processes_of_one_name_that_one_process_started_are_a_pool() {
    assert_eq!(pools(MAIN), [(3, 3)]);
    assert_eq!(pools(0), []);
}
