// SPDX-License-Identifier: MIT
//! Who is left: of those that end waits at a lock, of those that answer, of those in a deadlock.

use flagfinder_events::container::BlockKind;
use flagfinder_events::{DescriptorFact, Holder, How, Looked};
use flagfinder_graph::{build, Diagnosis, Request};

use crate::made_up::{culprits, explained, Recording, FUTEX, MS, READ, SLEEP, WRITE};

const MAIN: u32 = 1;
const HOLDER: u32 = 2;
const OTHER: u32 = 3;
const LOCK: u64 = 0x1000;

fn of_main() -> Request {
    Request {
        thread: Some(MAIN),
        ..Request::default()
    }
}

fn told(all: &Recording) -> Diagnosis {
    explained(&all.graph(), &of_main())
}

fn one_process(threads: &[u32]) -> Recording {
    let mut all = Recording::of(threads);
    all.threads = threads.iter().map(|&tid| (tid, MAIN)).collect();
    all
}

/// Three threads hand a lock on, which they wait for in pieces of 5 ms; then one keeps it and
/// computes. `ends`: until it hands it to another, which hands it to main.
fn lock_in_pieces(ends: bool) -> Diagnosis {
    let mut all = one_process(&[MAIN, HOLDER, OTHER]);
    for _ in 0..4 {
        all.waits(FUTEX, LOCK, HOLDER);
        all.wakes(MAIN, FUTEX);
        all.waits(FUTEX, LOCK, OTHER);
        all.wakes(HOLDER, FUTEX);
        all.waits(FUTEX, LOCK + 4, MAIN);
    }
    all.waits(FUTEX, LOCK, HOLDER);
    for _ in 0..60 {
        all.passes(5 * MS);
        for thread in [MAIN, OTHER] {
            all.times_out(thread);
            all.preempted(thread);
            all.waits(FUTEX, LOCK, HOLDER);
        }
    }
    if ends {
        all.wakes(OTHER, FUTEX);
        all.waits(READ, 7, OTHER);
        all.wakes(MAIN, FUTEX);
        all.waits(READ, 7, MAIN);
        all.waits(READ, 7, 0);
    }
    all.ends_after(MS / 10);
    told(&all)
}

#[test]
fn a_lock_that_is_waited_for_in_pieces_is_owed_by_who_had_it_and_not_by_who_waited_too() {
    for ends in [true, false] {
        assert_eq!(culprits(&lock_in_pieces(ends)), [HOLDER], "{ends}");
    }
}

#[test]
fn who_ended_all_waits_of_a_thread_is_likely_where_each_is_at_a_new_word() {
    for shared in [false, true] {
        let mut all = one_process(&[MAIN, HOLDER, OTHER]);
        for round in 0..5 {
            all.passes(MS);
            all.waits(FUTEX, 0x1000 + round * 0x100, HOLDER);
            all.wakes(MAIN, FUTEX);
            all.waits(READ, 7, if shared { OTHER } else { MAIN });
            if shared {
                all.waits(FUTEX, 0x1000 + round * 0x100, MAIN);
            }
        }
        all.waits(FUTEX, 0x9000, HOLDER);
        all.passes(900 * MS);
        all.waits(READ, 7, 0);
        all.ends_after(MS);
        let blamed = culprits(&told(&all));
        assert_eq!(blamed, if shared { vec![] } else { vec![HOLDER] });
    }
}

fn looked(all: &Recording, tid: u32, call: u16, how: Option<How>, by: &[Holder]) -> Looked {
    Looked {
        ts: all.now,
        tid,
        pid: all.threads.iter().find(|one| one.0 == tid).unwrap().1,
        name: format!("seen-{tid}"),
        state: 'S',
        call: Some(call.into()),
        first: 3,
        how,
        by: by.to_vec(),
        descriptors: Vec::new(),
    }
}

/// Main waits at a futex to the end, beside two threads that wait for each other and one that waits
/// in a call. `asked`: one of the two ended a wait of main before.
fn beside_a_deadlock(call: u16, asked: bool) -> Diagnosis {
    const FOURTH: u32 = 4;
    let mut all = one_process(&[MAIN, HOLDER, OTHER, FOURTH]);
    if asked {
        all.waits(FUTEX, 0x9000, HOLDER);
        all.passes(MS);
        all.wakes(MAIN, FUTEX);
        all.preempted(MAIN);
    }
    all.waits(FUTEX, 0x9000, HOLDER);
    all.waits(FUTEX, 0x1000, OTHER);
    all.waits(FUTEX, 0x2000, FOURTH);
    all.waits(call, 7, 0);
    all.passes(2000 * MS);
    let by = |tid| {
        [Holder {
            pid: MAIN,
            tid: Some(tid),
        }]
    };
    let lock = Some(How::Lock);
    let looks = [
        looked(&all, HOLDER, FUTEX, lock, &by(OTHER)),
        looked(&all, OTHER, FUTEX, lock, &by(HOLDER)),
    ];
    all.ends_after(MS);
    let file = all.file(|writer| writer.fact(BlockKind::Waits, &&looks[..]).unwrap());
    explained(&build(&file, &[]), &of_main())
}

#[test]
fn a_deadlock_of_the_process_is_likely_where_nobody_else_is_known() {
    for (call, asked) in [(FUTEX, false), (READ, true)] {
        let found = beside_a_deadlock(call, asked);
        assert!(found.circular);
        let mut blamed = culprits(&found);
        blamed.sort_unstable();
        assert_eq!(blamed, [HOLDER, OTHER]);
    }
}

#[test]
fn a_deadlock_of_others_is_no_reason_where_input_or_a_sleeper_may_end_the_wait() {
    for call in [READ, SLEEP] {
        let found = beside_a_deadlock(call, false);
        assert!(culprits(&found).is_empty() && !found.circular);
    }
}

#[test]
fn of_several_peers_the_one_that_read_there_before_is_meant() {
    let mut all = Recording::of(&[MAIN, HOLDER, OTHER]);
    all.running = HOLDER;
    all.waits(READ, 3, MAIN);
    all.wakes(HOLDER, WRITE);
    all.waits(WRITE, 3, HOLDER);
    all.waits(SLEEP, 0, OTHER);
    all.waits(READ, 9, 0);
    all.passes(2000 * MS);
    let by = [HOLDER, OTHER].map(|pid| Holder { pid, tid: None });
    let looks = [looked(&all, MAIN, WRITE, Some(How::Peer), &by)];
    all.ends_after(MS);
    let pipes = [MAIN, HOLDER].map(|pid| DescriptorFact {
        pid,
        fd: 3,
        target: "pipe:[5]".into(),
        ..DescriptorFact::default()
    });
    for (known, blamed) in [(2, vec![HOLDER]), (1, vec![])] {
        let file = all.file(|writer| {
            let facts: Vec<&DescriptorFact> = pipes[..known].iter().collect();
            writer.fact(BlockKind::Descriptors, &facts).unwrap();
            writer.fact(BlockKind::Waits, &&looks[..]).unwrap();
        });
        let found = explained(&build(&file, &[]), &of_main());
        assert_eq!(culprits(&found), blamed);
    }
}

#[test]
fn a_circle_that_a_thread_ended_is_none() {
    // The holder asks main in the end, which it never hears: both waits are ended by threads.
    let mut all = Recording::of(&[MAIN, HOLDER, OTHER]);
    all.waits(READ, 3, HOLDER);
    all.waits(READ, 4, OTHER);
    all.passes(300 * MS);
    all.wakes(HOLDER, WRITE);
    all.waits(READ, 5, HOLDER);
    all.wakes(MAIN, WRITE);
    all.waits(READ, 4, MAIN);
    all.waits(READ, 3, 0);
    all.ends_after(MS);
    let found = told(&all);
    assert!(!found.circular);
    assert_eq!(culprits(&found), [OTHER, HOLDER]);
}

#[test]
fn a_thread_that_this_and_that_one_wakes_only_hands_on() {
    for (wakers, blamed) in [(1, HOLDER), (3, OTHER)] {
        let mut all = Recording::of(&[MAIN, HOLDER, OTHER, 4, 5, 6]);
        all.waits(READ, 3, HOLDER);
        all.waits(FUTEX, LOCK, OTHER);
        for round in 0..30 {
            all.passes(10 * MS);
            all.running = 4 + round % wakers;
            all.wakes(HOLDER, FUTEX);
            all.running = HOLDER;
            all.passes(MS / 10);
            all.waits(FUTEX, LOCK + 0x100 * u64::from(round % 2), OTHER);
        }
        all.wakes(HOLDER, FUTEX);
        all.waits(READ, 5, HOLDER);
        all.wakes(MAIN, FUTEX);
        all.waits(READ, 4, MAIN);
        all.waits(READ, 3, 0);
        all.ends_after(MS);
        assert_eq!(culprits(&told(&all))[0], blamed, "{wakers}");
    }
}

#[test]
fn who_answered_before_and_computes_in_pieces_is_likely() {
    let mut all = Recording::of(&[MAIN, HOLDER]);
    for _ in 0..3 {
        all.waits(READ, 3, HOLDER);
        all.passes(MS);
        all.wakes(MAIN, WRITE);
        all.waits(READ, 5, MAIN);
        all.wakes(HOLDER, WRITE);
    }
    all.waits(READ, 3, HOLDER);
    for _ in 0..60 {
        all.passes(5 * MS);
        all.waits(SLEEP, 0, 0);
        all.passes(2 * MS);
        all.times_out(HOLDER);
        all.running = 0;
        all.preempted(HOLDER);
    }
    all.ends_after(MS);
    assert_eq!(culprits(&told(&all)), [HOLDER]);
}

/// Main waits for a thread that asks another again and again: it is answered in time at first, and
/// then each time after so long.
fn asks_again(slow: u64) -> Vec<u32> {
    let mut all = Recording::of(&[MAIN, HOLDER, OTHER]);
    let asks = |all: &mut Recording, ns: u64| {
        all.wakes(OTHER, WRITE);
        all.waits(READ, 7, OTHER);
        all.waits(SLEEP, 0, 0);
        all.passes(ns);
        all.times_out(OTHER);
        all.running = 0;
        all.preempted(OTHER);
        all.wakes(HOLDER, WRITE);
        all.waits(READ, 8, HOLDER);
    };
    all.running = HOLDER;
    (0..10).for_each(|_| asks(&mut all, MS));
    all.preempted(MAIN);
    all.waits(FUTEX, LOCK, HOLDER);
    (0..30).for_each(|_| asks(&mut all, slow));
    all.wakes(MAIN, FUTEX);
    all.waits(READ, 9, MAIN);
    all.ends_after(MS);
    culprits(&told(&all))
}

#[test]
fn slow_answers_are_owed_by_who_gives_them_and_many_by_who_asks() {
    assert_eq!(asks_again(20 * MS), [OTHER]);
    assert_eq!(asks_again(MS), [HOLDER]);
}
