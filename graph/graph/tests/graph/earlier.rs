// SPDX-License-Identifier: MIT
//! Sums of a recording whose threads waited already when it began.

use flagfinder_events::{tally, Earlier, Question, Tally};

use crate::made_up::{Recording, MS, READ};

/// Thread 1 wakes 2, which is seen for the first time then, and has the CPU a little later; thread
/// 3 does nothing.
fn counted(question: &Question) -> Tally {
    let mut all = Recording::of(&[1, 2, 3]);
    all.now = 7 * MS;
    all.event(flagfinder_events::Kind::Rename, 0, 1, 0);
    all.passes(4 * MS);
    all.wakes(2, READ);
    all.passes(MS);
    all.waits(READ, 3, 2);
    all.passes(MS);
    all.waits(READ, 3, 0);
    all.ends_after(MS);
    tally(&all.file(|_| ()), question).unwrap()
}

fn told(tally: &Tally) -> Vec<(u32, bool)> {
    let all = tally.earlier.iter();
    all.map(|one: &Earlier| (one.tid, one.unfinished)).collect()
}

#[test]
fn waits_that_began_before_are_no_waits_of_known_length() {
    let found = counted(&Question::default());
    assert_eq!(told(&found), [(2, false), (3, true)]);
    assert!((4 * MS..5 * MS).contains(&found.earlier[0].ns));
    assert_eq!(found.earlier[1].ns, found.span);
    assert!(
        found.delays.contains_key(&2),
        "it was ready, and had no CPU"
    );
    let waits: Vec<u32> = found.waits.keys().map(|key| key.tid).collect();
    assert!(!waits.contains(&3));
}

#[test]
fn only_threads_that_are_asked_for_are_told() {
    let question = Question {
        tid: Some(3),
        ..Question::default()
    };
    let found = counted(&question);
    assert_eq!(told(&found), [(3, true)]);
    assert!(found.delays.is_empty() && found.waits.is_empty());
}
