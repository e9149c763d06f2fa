// SPDX-License-Identifier: MIT
//! What counts as polling, and how long it lasts.

use flagfinder_graph::{Class, Diagnosis, Request};

use crate::made_up::{explained, Recording, MS, READ, SLEEP};

/// What is said of thread 1, which sleeps for so many ms in each round after it has computed for so
/// many. `wake`: whether the wake of a round was recorded.
fn rounds(rounds: &[(u64, u64)], wake: impl Fn(usize) -> bool) -> Diagnosis {
    let mut all = Recording::of(&[1, 2]);
    for (round, &(looks, sleeps)) in rounds.iter().enumerate() {
        all.passes(looks * MS / 10);
        all.waits(SLEEP, 0, 0);
        all.passes(sleeps * MS / 10);
        if wake(round) {
            all.times_out(1);
        }
        all.preempted(1);
    }
    all.waits(READ, 3, 0);
    all.ends_after(MS / 2); // too short for a hang
    let request = Request {
        thread: Some(1),
        ..Request::default()
    };
    explained(&all.graph(), &request)
}

/// Tenths of a ms: a look, and a sleep.
const POLL: (u64, u64) = (1, 10);

#[test]
fn polling_goes_on_where_a_wake_is_missing() {
    let found = rounds(&[POLL; 40], |round| round % 10 != 9);
    assert_eq!(found.class, Class::RepeatedYield);
    assert!(found.dur > 42 * MS, "{}", found.dur);
}

#[test]
fn a_wait_that_nobody_is_known_to_have_ended_is_no_polling_alone() {
    let found = rounds(&[POLL; 40], |_| false);
    assert_ne!(found.class, Class::RepeatedYield);
}

#[test]
fn an_unlike_wait_of_unknown_end_parts_polling() {
    let mut all = [POLL; 40];
    all[9].1 = 20_000;
    let found = rounds(&all, |round| round != 9);
    assert_eq!(found.class, Class::LongWait);
    assert!(found.dur < 2001 * MS);
}

#[test]
fn a_thread_that_computes_as_long_as_it_sleeps_does_not_poll() {
    let found = rounds(&[(90, 100); 30], |_| true);
    assert_ne!(found.class, Class::RepeatedYield);
    // A look that takes longer than a very short pause is still a look.
    let found = rounds(&[(1, 1); 300], |_| true);
    assert_eq!(found.class, Class::RepeatedYield);
}
