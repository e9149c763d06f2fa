// SPDX-License-Identifier: MIT
//! Which stretch is the hang, and why it is unusual.

use flagfinder_events::{Kind, Mark};
use flagfinder_graph::{hangs, Hang, Request, Why};

use crate::made_up::{explained, Recording, FUTEX, MS, POLL, READ, SLEEP, WRITE};

const MAIN: u32 = 1;
const OTHER: u32 = 2;

fn listed(all: &Recording) -> Vec<Hang> {
    hangs(&all.graph(), &Request::default())
}

fn runs(all: &mut Recording, thread: u32) {
    all.running = 0;
    all.preempted(thread);
}

/// Main draws frames by a clock, and one of its short waits for a lock takes long.
fn frames() -> Recording {
    let mut all = Recording::of(&[MAIN, OTHER]);
    for frame in 0..90 {
        all.passes(2 * MS);
        if frame % 30 == 29 {
            all.waits(FUTEX, 0x1000, OTHER);
            all.passes(if frame == 59 { 300 * MS } else { MS });
            all.wakes(MAIN, FUTEX);
            all.waits(READ, 7, MAIN);
        }
        all.waits(SLEEP, 0, 0);
        all.passes(14 * MS);
        all.times_out(MAIN);
        runs(&mut all, MAIN);
    }
    all.waits(READ, 7, 0);
    all.ends_after(MS / 2);
    all.info.pids = vec![MAIN];
    all
}

#[test]
fn a_late_lock_is_more_unusual_than_frames_that_follow_a_clock() {
    let all = frames();
    let found = listed(&all);
    assert_eq!((found[0].why, found[0].unusual), (Why::Longer, true));
    assert!(
        (300 * MS..301 * MS).contains(&found[0].dur),
        "{:?}",
        found[0]
    );
    assert_eq!(found[0].beside, 2);
    assert!(found[0].typical.is_some_and(|typical| typical < 2 * MS));
    assert!(found
        .iter()
        .any(|one| one.why == Why::Paced && !one.unusual));
    let said = explained(&all.graph(), &Request::default());
    assert_eq!((said.start, said.hang.why), (found[0].start, Why::Longer));
}

#[test]
fn others_are_told_if_they_are_unusual_and_nearly_as_long() {
    let mut all = Recording::of(&[MAIN, OTHER]);
    all.running = OTHER;
    all.waits(READ, 7, MAIN);
    for ms in [2, 400, 2, 2, 300, 2, 10, 2] {
        all.passes(MS);
        all.wakes(OTHER, WRITE);
        all.waits(FUTEX, 0x1000, OTHER);
        all.passes(ms * MS);
        all.wakes(MAIN, FUTEX);
        all.waits(READ, 7, MAIN);
    }
    all.waits(READ, 7, 0);
    all.ends_after(MS / 2);
    all.info.pids = vec![MAIN];
    let said = explained(&all.graph(), &Request::default());
    let others: Vec<u64> = said.others.iter().map(|one| one.dur / MS).collect();
    assert_eq!((said.dur / MS, others), (400, vec![300]));
}

#[test]
fn waits_that_are_often_as_long_are_common() {
    for (often, why) in [(9, Why::Common), (2, Why::Longer)] {
        let mut all = Recording::of(&[MAIN, OTHER]);
        all.running = OTHER;
        all.waits(READ, 7, MAIN);
        for round in 0..30 {
            all.passes(MS);
            all.wakes(OTHER, WRITE);
            all.waits(FUTEX, 0x1000, OTHER);
            all.passes(if round % 3 == 0 && round / 3 < often {
                500 * MS
            } else {
                2 * MS
            });
            all.wakes(MAIN, FUTEX);
            all.waits(READ, 7, MAIN);
        }
        all.waits(READ, 7, 0);
        all.ends_after(MS / 2);
        all.info.pids = vec![MAIN];
        let found = listed(&all);
        let long = found.iter().find(|one| one.dur > 400 * MS).unwrap();
        assert_eq!(long.why, why);
    }
}

#[test]
fn a_sleep_and_an_event_loop_that_waits_for_others_are_usual() {
    let mut all = Recording::of(&[MAIN]);
    all.waits(SLEEP, 0, 0);
    all.passes(900 * MS);
    all.times_out(MAIN);
    runs(&mut all, MAIN);
    all.waits(POLL, 9, 9);
    all.passes(900 * MS);
    all.wakes(MAIN, WRITE);
    all.preempted(MAIN);
    all.passes(100 * MS);
    all.waits(READ, 7, 0);
    all.ends_after(MS / 2);
    all.info.pids = vec![MAIN];
    let whys: Vec<Why> = listed(&all).iter().map(|one| one.why).collect();
    // It computed once, and nothing else took nearly as long.
    assert_eq!(whys[..2], [Why::Longer, Why::Sleeps]);
    assert!(whys.contains(&Why::Idle), "{whys:?}");
}

#[test]
fn the_thread_that_the_recorder_found_hanging_is_meant() {
    let mut all = frames();
    all.marks.push(Mark {
        ts: all.now,
        text: String::new(),
        tid: Some(OTHER),
        host: None,
    });
    let found = listed(&all);
    assert!(!found.is_empty());
    assert!(found.iter().all(|one| one.tid == OTHER));
}

/// The first thread starts others and waits; one of them waits for long. `ends`: as it ends in the
/// end, else it ends the process.
fn launched(others: u32, ends: bool) -> Vec<Hang> {
    let mut all = Recording::of(&[MAIN]);
    all.info.pids = vec![MAIN];
    all.info.command = vec!["app".into()];
    for other in 0..others {
        let pids = u64::from(MAIN) << 32 | u64::from(MAIN);
        all.event(Kind::Fork, 0, OTHER + other, pids);
    }
    all.waits(FUTEX, 0x1000, OTHER);
    for ms in [1, 1, 1, 300, 1] {
        all.passes(MS);
        all.waits(READ, 7, 9);
        all.passes(ms * MS);
        all.wakes(OTHER, WRITE);
        all.preempted(OTHER);
    }
    if ends {
        all.event(Kind::Exit, 0, 0, 1);
        all.wakes(MAIN, libc::SYS_exit as u16);
        runs(&mut all, MAIN);
    } else {
        all.wakes(MAIN, libc::SYS_exit_group as u16);
        runs(&mut all, MAIN);
        all.event(Kind::Exit, 0, 0, 0);
    }
    all.ends_after(MS / 2);
    listed(&all)
}

#[test]
fn a_first_thread_that_only_starts_the_program_does_not_hang() {
    for found in [launched(1, true), launched(2, true), launched(1, false)] {
        assert_eq!((found[0].tid, found[0].dur / MS), (OTHER, 300));
    }
    assert_eq!(launched(2, false)[0].tid, MAIN, "either may be meant");
}
