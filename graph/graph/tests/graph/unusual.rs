// SPDX-License-Identifier: MIT
//! What is usual blames nobody; several long waits in a row, and polling at another pace, are not.

use flagfinder_graph::{hangs, Hang, Request, Why};

use crate::made_up::{culprits, explained, Recording, FUTEX, MS, READ, SLEEP};

const MAIN: u32 = 1;
const OTHER: u32 = 2;

fn listed(all: &Recording) -> Vec<Hang> {
    hangs(&all.graph(), &Request::default())
}

fn runs(all: &mut Recording, thread: u32) {
    all.running = 0;
    all.preempted(thread);
}

fn naps(all: &mut Recording, count: usize, work: u64, nap: u64) {
    for _ in 0..count {
        all.passes(work);
        all.waits(SLEEP, 0, 0);
        all.passes(nap);
        all.times_out(MAIN);
        runs(all, MAIN);
    }
}

/// Main waits until the other thread wakes it.
fn asks(all: &mut Recording, number: u16, ns: u64) {
    all.waits(number, 0x1000, OTHER);
    all.passes(ns);
    all.wakes(MAIN, FUTEX);
    all.waits(READ, 7, MAIN);
}

fn begun() -> Recording {
    let mut all = Recording::of(&[MAIN, OTHER]);
    all.info.pids = vec![MAIN];
    all.info.command = vec!["app".into()];
    all.running = OTHER;
    all.waits(READ, 7, MAIN);
    all
}

fn ended(mut all: Recording) -> Recording {
    all.waits(READ, 8, 0);
    all.ends_after(MS / 2);
    all
}

#[test]
fn nobody_is_blamed_for_what_the_thread_does_all_the_time_unless_it_is_asked_for() {
    let mut all = begun();
    (0..30).for_each(|_| asks(&mut all, READ, 20 * MS));
    let graph = ended(all).graph();
    let found = explained(&graph, &Request::default());
    assert_eq!((found.hang.why, culprits(&found)), (Why::Common, vec![]));
    let chosen = Request {
        thread: Some(MAIN),
        ..Request::default()
    };
    assert_eq!(culprits(&explained(&graph, &chosen)), [OTHER]);
}

#[test]
fn a_program_that_starts_is_usual_if_it_lives_on() {
    for (rounds, why) in [(30, Why::Starts), (3, Why::Longer)] {
        let mut all = begun();
        all.passes(200 * MS);
        for _ in 0..rounds {
            asks(&mut all, READ, 20 * MS);
            all.passes(MS);
        }
        let all = ended(all);
        let start = listed(&all).into_iter().find(|one| one.dur > 150 * MS);
        assert_eq!(start.unwrap().why, why);
    }
}

#[test]
fn several_long_waits_in_a_row_are_unusual_after_a_time_without() {
    for (before, why) in [(30, Why::Cluster), (4, Why::Common)] {
        let mut all = begun();
        for round in 0..before {
            naps(&mut all, 1, MS, 10 * MS);
            if round % 4 == 3 {
                asks(&mut all, READ, MS);
            }
        }
        for _ in 0..6 {
            asks(&mut all, FUTEX, 150 * MS);
            naps(&mut all, 1, MS, 10 * MS);
        }
        let found = listed(&ended(all));
        let long = found.iter().find(|one| one.dur >= 150 * MS).unwrap();
        assert_eq!(long.why, why, "{before}");
        assert_eq!(found[0].why == Why::Cluster, why == Why::Cluster);
    }
}

#[test]
fn a_loop_that_retries_at_another_pace_than_the_work_is_polling() {
    for (nap, why) in [(60, Why::Polls), (12, Why::Paced)] {
        let mut all = begun();
        naps(&mut all, 15, MS / 10, nap * MS);
        for _ in 0..3 {
            asks(&mut all, READ, MS);
            naps(&mut all, 12, MS / 10, 10 * MS);
        }
        let found = listed(&ended(all));
        let first = found.iter().min_by_key(|one| one.start).unwrap();
        assert_eq!(first.why, why);
    }
}

#[test]
fn a_loop_that_keeps_its_pace_between_other_waits_is_paced() {
    for (often, why) in [(20, Why::Paced), (3, Why::Polls)] {
        let mut all = begun();
        naps(&mut all, 30, MS / 10, 10 * MS);
        for _ in 0..often {
            asks(&mut all, READ, 5 * MS);
            naps(&mut all, 1, MS / 10, 10 * MS);
        }
        let found = listed(&ended(all));
        let first = found.iter().min_by_key(|one| one.start).unwrap();
        assert_eq!(first.why, why);
    }
}

#[test]
fn a_loop_whose_rounds_wake_others_does_not_poll() {
    // What the thread did before it polled: long enough that it does not always poll.
    for (wakes, before, why) in [
        (false, 100, Why::Polls),
        (false, 0, Why::Always),
        (true, 100, Why::Paced),
    ] {
        let mut all = begun();
        asks(&mut all, READ, before * MS);
        for _ in 0..20 {
            if wakes {
                all.wakes(OTHER, FUTEX);
            }
            all.waits(SLEEP, 0, OTHER);
            all.waits(READ, 7, 0);
            all.passes(10 * MS);
            all.times_out(MAIN);
            runs(&mut all, MAIN);
        }
        let all = ended(all);
        let found = listed(&all);
        let last = found.iter().max_by_key(|one| one.start).unwrap();
        assert_eq!(last.why, why);
        // A thread that only polls may be as healthy as can be.
        if before == 0 {
            let said = explained(&all.graph(), &Request::default());
            assert!(culprits(&said).is_empty());
        }
    }
}

#[test]
fn a_time_without_a_cpu_counts_nothing_where_all_threads_have_such() {
    for (often, why) in [(6, Why::Common), (0, Why::Longer)] {
        let mut all = begun();
        for round in 0..20 {
            all.passes(2 * MS);
            if round == 10 || round % 3 == 0 && round / 3 < often {
                all.preempted(9);
                all.passes(200 * MS);
                all.preempted(MAIN);
            }
            asks(&mut all, READ, MS);
        }
        let found = listed(&ended(all));
        let starved = found.iter().filter(|one| one.dur > 200 * MS);
        let starved = starved.max_by_key(|one| one.start).unwrap();
        assert_eq!(starved.why, why, "{often}");
    }
}
