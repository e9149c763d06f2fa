// SPDX-License-Identifier: MIT
//! A wait that its own time limit ended is reported as such: what was waited for did not come.

use flagfinder_graph::Request;

use crate::made_up::{explained, Recording, FUTEX, MS, POLL, SLEEP};

const WAITER: u32 = 1;
const OTHER: u32 = 2;

/// What is said of a wait of a second, that its timeout or another thread ends.
fn told(number: u16, times_out: bool, result: Option<i64>) -> String {
    let mut all = Recording::of(&[WAITER, OTHER]);
    all.passes(MS);
    all.blocks(number, 0x1000, OTHER);
    all.passes(1000 * MS);
    if times_out {
        all.times_out(WAITER);
    } else {
        all.wakes(WAITER, FUTEX);
    }
    all.waits(SLEEP, 0, WAITER);
    if let Some(result) = result {
        all.returns(number, result as u64);
    }
    all.passes(MS);
    all.waits(SLEEP, 0, OTHER);
    let request = Request {
        thread: Some(WAITER),
        ..Request::default()
    };
    explained(&all.graph(), &request).doing
}

#[test]
fn the_end_of_a_futex_s_time_is_known_without_its_result() {
    assert_eq!(told(FUTEX, true, None), "futex until its timeout");
    assert_eq!(told(FUTEX, false, None), "futex");
    let timed_out = Some(-i64::from(libc::ETIMEDOUT));
    assert_eq!(told(FUTEX, true, timed_out), "futex until its timeout");
    // It was woken just before.
    assert_eq!(told(FUTEX, true, Some(0)), "futex");
}

#[test]
fn the_end_of_other_calls_is_known_by_their_result() {
    assert_eq!(told(POLL, true, Some(0)), "poll until its timeout");
    assert_eq!(told(POLL, true, Some(1)), "poll");
    assert_eq!(told(POLL, true, None), "poll");
}

#[test]
fn a_sleep_has_no_other_end() {
    assert_eq!(told(SLEEP, true, Some(0)), "clock_nanosleep");
}
