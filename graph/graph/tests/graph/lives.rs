// SPDX-License-Identifier: MIT
//! Waits last to the end of a recording, threads to their exit; of threads that were not recorded
//! nothing is said.

use flagfinder_events::{Kind, Mark};
use flagfinder_graph::{profile, query, Class, Request};

use crate::made_up::{culprits, explained, Recording, FUTEX, MS, POLL, READ, SLEEP, WRITE};

fn of(thread: u32) -> Request {
    Request {
        thread: Some(thread),
        ..Request::default()
    }
}

/// Each of two threads waits for the other's lock, and nothing happens any more.
fn deadlock() -> Recording {
    let mut all = Recording::of(&[1, 2]);
    all.passes(MS);
    all.waits(FUTEX, 0x1000, 2);
    all.waits(FUTEX, 0x2000, 0);
    all
}

#[test]
fn a_hang_that_never_ends_lasts_to_the_end_of_the_recording() {
    let mut all = deadlock();
    all.ends_after(5000 * MS);
    for thread in [1, 2] {
        let found = explained(&all.graph(), &of(thread));
        assert_eq!((found.class, found.unfinished), (Class::LongWait, true));
        assert_eq!(found.start + found.dur, all.now);
        assert!(found.dur >= 5000 * MS);
    }
}

#[test]
fn a_mark_in_it_finds_the_hang_even_where_the_recorder_was_killed() {
    let mut all = deadlock();
    all.passes(3000 * MS);
    all.marks.push(Mark {
        ts: all.now,
        text: "here".into(),
        tid: None,
        host: None,
    });
    let found = explained(&all.graph(), &of(2));
    assert_eq!(found.class, Class::LongWait);
    assert_eq!(found.start + found.dur, all.now);
}

#[test]
fn a_thread_does_nothing_after_its_exit() {
    let mut all = Recording::of(&[1, 2]);
    all.passes(20 * MS);
    all.preempted(2);
    all.passes(30 * MS);
    all.event(Kind::Exit, 0, 0, 2);
    let exit = all.now;
    // It still tells its parent; the switch away from it is not recorded.
    all.wakes(1, 0);
    all.running = 1;
    all.waits(READ, 0, 0);
    all.ends_after(3000 * MS);
    let graph = all.graph();
    let last = *graph.of(graph.thread_of(2).unwrap()).last().unwrap();
    assert_eq!(graph.vertex(last).end, exit);
    let found = explained(&graph, &of(2));
    assert!((30 * MS..31 * MS).contains(&found.dur), "{}", found.dur);
    assert_eq!(found.class, Class::LongRunning);
}

#[test]
fn a_thread_that_is_killed_while_it_waits_waits_no_longer() {
    let mut all = Recording::of(&[1, 2]);
    all.running = 2;
    all.waits(READ, 0, 1);
    all.passes(40 * MS);
    all.running = 2;
    all.event(Kind::Exit, 0, 0, 2);
    all.ends_after(3000 * MS);
    let found = explained(&all.graph(), &of(2));
    assert!((40 * MS..41 * MS).contains(&found.dur), "{}", found.dur);
}

/// A server answers a client five times, and then not. Its own switches are not all recorded.
fn unanswered(threads: &[u32]) -> Recording {
    let mut all = Recording::of(threads);
    for round in 0..6 {
        all.running = 1;
        all.passes(MS);
        all.wakes(2, WRITE);
        all.waits(POLL, 3, 2);
        all.passes(MS);
        if round < 5 {
            all.running = 2;
            all.wakes(1, WRITE);
            all.running = 9;
            all.preempted(1);
        }
    }
    all.ends_after(2000 * MS);
    all
}

#[test]
fn of_a_thread_that_was_not_recorded_nothing_is_said() {
    // One that is no target, and one whose name was not wanted.
    let mut named = unanswered(&[1, 2]);
    named.info.thread_names = vec!["thread-1".into()];
    for all in [unanswered(&[1]), named] {
        let found = explained(&all.graph(), &of(1));
        assert_eq!(culprits(&found), [2]);
        let server = &found.culprits[0];
        assert_eq!(
            (server.class, &server.doing[..]),
            (Class::Unknown, "not recorded")
        );
    }
}

/// A thread that only reads, and a foreign one that waits in futex whenever it does.
#[test]
fn calls_of_threads_outside_the_target_are_not_counted() {
    let mut all = Recording::of(&[1]);
    for _ in 0..3 {
        all.running = 1;
        all.waits(READ, 0, 9);
        all.wakes(1, WRITE);
        all.waits(FUTEX, 0x1000, 1);
        all.wakes(9, WRITE);
    }
    let of_target = all.file(|_| ());
    all.info.everything = true;
    all.info.pids = vec![1];
    all.threads.push((9, 9));
    for file in [of_target, all.file(|_| ())] {
        let rows = profile(&file).rows;
        let counted: Vec<_> = rows.iter().map(|row| (&row.call[..], row.count)).collect();
        assert_eq!(counted, [("read", 3)]);
    }
}

#[test]
fn errors_are_counted_by_their_number() {
    let mut all = Recording::of(&[1]);
    for error in [0, -2i64, -2, -11] {
        all.enter(READ, 0);
        all.returns(READ, error as u64);
    }
    let rows = profile(&all.file(|_| ())).rows;
    assert_eq!(rows[0].count, 4);
    let errors: Vec<_> = rows[0].errors.iter().map(|(&e, &n)| (e, n)).collect();
    assert_eq!(errors, [(2, 2), (11, 1)]);
}

/// So many sleeps of the thread 1, each of which its timer ends; some wakes may be missing.
fn sleeps(all: &mut Recording, count: usize, ns: u64, is_seen: impl Fn(usize) -> bool) {
    for round in 0..count {
        all.running = 1;
        all.enter(SLEEP, 0);
        all.waits(SLEEP, 0, 0);
        all.passes(ns);
        if is_seen(round) {
            all.times_out(1);
        }
        all.running = 0;
        all.preempted(1);
        all.returns(SLEEP, 0);
    }
}

#[test]
fn a_long_sleep_is_no_part_of_the_polling_after_it() {
    let mut all = Recording::of(&[1]);
    sleeps(&mut all, 1, 6000 * MS, |_| true);
    sleeps(&mut all, 2000, MS, |_| true);
    let found = explained(&all.graph(), &of(1));
    assert_eq!(found.class, Class::RepeatedYield);
    assert!(
        found.start >= 6000 * MS && found.dur >= 1990 * MS,
        "{found:?}"
    );
}

#[test]
fn a_result_that_tells_of_a_timeout_stands_for_a_wake_that_is_missing() {
    let mut all = Recording::of(&[1]);
    sleeps(&mut all, 100, 10 * MS, |round| round % 30 != 29);
    let found = explained(&all.graph(), &of(1));
    assert_eq!(found.class, Class::RepeatedYield);
    assert!(found.dur >= 980 * MS, "{}", found.dur);
}

#[test]
fn what_was_computed_is_told_with_who_asked_for_it() {
    let mut all = Recording::of(&[1, 2]);
    all.running = 2;
    all.waits(READ, 3, 1);
    all.wakes(2, WRITE);
    all.waits(POLL, 3, 2);
    all.passes(400 * MS);
    all.wakes(1, WRITE);
    all.waits(READ, 3, 1);
    all.ends_after(MS);
    let found = explained(&all.graph(), &of(1));
    let server = &found.culprits[0];
    assert_eq!((server.tid, server.class), (2, Class::LongRunning));
    let set_off = server.set_off.as_ref().unwrap();
    assert_eq!((set_off.tid, set_off.edge), (1, "ipc"));
}

/// A thread looks every ms, and another has the CPU for long before each of its looks.
#[test]
fn polling_is_seen_on_a_busy_machine() {
    let mut all = Recording::of(&[1, 2]);
    for _ in 0..30 {
        all.passes(MS / 100);
        all.waits(SLEEP, 0, 2);
        all.passes(MS);
        all.times_out(1);
        all.passes(20 * MS);
        all.preempted(1);
    }
    let found = explained(&all.graph(), &of(1));
    assert_eq!(found.class, Class::RepeatedYield);
    assert!(found.dur > 500 * MS, "{}", found.dur);
}

#[test]
fn a_thread_whose_switches_are_not_recorded_is_not_the_longest() {
    const OUTSIDER: u32 = 9;
    let mut all = Recording::of(&[1]);
    all.waits(READ, 3, 0);
    all.passes(5 * MS);
    all.running = OUTSIDER;
    all.wakes(1, WRITE);
    all.running = 0;
    all.preempted(1);
    all.passes(MS);
    all.waits(READ, 3, 0);
    all.ends_after(MS);
    for (sort, tids, is_shown) in [
        ("start", "null", true),
        ("dur", "null", false),
        ("dur", "[9]", true),
    ] {
        let request = format!(
            r#"{{"tids": {tids}, "start": 0, "end": {}, "sort": "{sort}", "limit": 99}}"#,
            u64::MAX
        );
        let found = query(&all.graph(), &serde_json::from_str(&request).unwrap());
        let found: Vec<serde_json::Value> = serde_json::from_str(&found).unwrap();
        let tids = found.iter().map(|vertex| &vertex["tid"]);
        assert_eq!(tids.into_iter().any(|tid| *tid == OUTSIDER), is_shown);
    }
}
