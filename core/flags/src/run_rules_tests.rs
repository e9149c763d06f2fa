// SPDX-License-Identifier: MIT
//! The rules about other runs, one by one, on the programs of `tests/rules`: what a normal run
//! would have told is written down by hand.

use flagfinder_analysis as analysis;
use iced_x86::Register;

use crate::evidence::{Counterpart, Outside, Store};
use crate::{finder, naming};

#[path = "../tests/rules/assembler.rs"]
mod assembler;
// These tests need only some of them.
#[allow(dead_code)]
#[path = "../tests/rules/found.rs"]
mod found;
#[path = "../tests/rules/module.rs"]
mod module;
#[allow(dead_code)]
#[path = "../tests/rules/program.rs"]
mod program;

use found::Found;
use program::*;

/// What is found when the other runs say this; they are told the branch that ends the loop.
fn judged(mut program: Program, say: impl Fn(&mut Outside, u64)) -> Found {
    let window = program.window();
    let names = program.names();
    let analysis = analysis::analyse(&window, &names, &[], false).expect("a loop");
    let mut outside = Outside {
        reader: Some(TID),
        normal_searched: true,
        ..Outside::default()
    };
    say(&mut outside, window.pc(analysis.exits[0].step));
    let naming = naming::Naming {
        spin: &names,
        normal: None,
    };
    let report = finder::report(&window, &analysis, &naming, found::thread(), &outside);
    Found { report }
}

/// What the loop does beside; cmp [WORD], 7; jne again
fn polls_and(does: Code) -> Program {
    program(&format!(
        "again: {does}; cmp dword ptr [{WORD}], 7; jne again"
    ))
}

fn polls() -> Program {
    polls_and("nop")
}

/// Somebody wrote the word once, in the normal run or in the spin run.
fn written(outside: &mut Outside, normal: bool, tid: u32, value: u64) {
    let store = Store {
        normal,
        run: 0,
        tid,
        pos: 0,
        address: WORD,
        pc: CALLED,
        value: Some(value),
        count: 1,
        varies: false,
        foreign: true,
        stack: Vec::new(),
        in_vain: false,
    };
    outside.stores.entry(WORD).or_default().push(store);
}

/// All that can speak for a word is true.
fn left_with(outside: &mut Outside, value: Option<u64>) -> &mut Counterpart {
    let counterpart = outside.counterparts.entry(WORD).or_default();
    counterpart.seen = true;
    counterpart.exit_value = value;
    counterpart
}

/// All that can speak for a word does.
fn set_by_another(outside: &mut Outside, branch: u64) {
    outside.parting = Some(branch);
    written(outside, true, OTHER_TID, 7);
    left_with(outside, Some(7));
}

#[test]
fn the_branch_at_which_the_normal_run_leaves_speaks_for_its_words() {
    let leaves = "the normal run leaves the loop by this very branch";
    let parts_at = |behind: u64| judged(polls(), |o, branch| o.parting = Some(branch + behind));
    parts_at(0).polls(WORD).says(WORD, leaves);
    parts_at(2).polls(WORD).says_not(WORD, leaves);
}

#[test]
fn a_branch_at_which_the_normal_run_goes_another_way_speaks_for_its_words() {
    let goes = "the normal run goes the other way at this branch";
    let parts_at =
        |behind: u64| judged(polls(), |o, branch| o.also_parting = vec![branch + behind]);
    parts_at(0).says(WORD, goes);
    parts_at(2).says_not(WORD, goes);
}

#[test]
fn a_branch_that_the_normal_run_took_the_other_way_speaks_for_its_words() {
    let took = "the normal run took the other way here";
    let takes = |count| judged(polls(), |o, branch| o.other_way.extend([(branch, count)]));
    takes(2).says(WORD, took);
    takes(0).says_not(WORD, took);
}

#[test]
fn a_word_that_another_thread_wrote_is_more_likely_than_one_of_the_readers_own() {
    let (other, own) = (
        "thread 2 wrote it in the normal run",
        "in the normal run only thread 1 wrote it, which reads it there itself",
    );
    let by = |tid| {
        judged(polls(), |o, _| {
            written(o, true, tid, 7);
            left_with(o, None);
        })
    };
    by(OTHER_TID)
        .polls(WORD)
        .says(WORD, other)
        .says_not(WORD, own);
    by(TID).says(WORD, own).says_not(WORD, other);
}

#[test]
fn a_write_made_in_both_runs_ends_no_wait() {
    let both = "other threads made the same writes in both runs";
    let also = |value| {
        judged(polls(), |o, _| {
            written(o, true, OTHER_TID, 7);
            written(o, false, OTHER_TID, value);
            left_with(o, None);
        })
    };
    also(7).says(WORD, both);
    also(6).polls(WORD).says_not(WORD, both);
}

#[test]
fn a_word_that_nobody_wrote_is_less_likely_unless_it_changed_all_the_same() {
    let (nobody, unseen) = (
        "nobody wrote it in the recorded part of the normal run",
        "it changed in the normal run, by a write that was not recorded",
    );
    let changes = |varies| judged(polls(), |o, _| left_with(o, None).varies = varies);
    changes(false).says(WORD, nobody).says_not(WORD, unseen);
    changes(true)
        .polls(WORD)
        .says(WORD, unseen)
        .says_not(WORD, nobody);
}

#[test]
fn a_word_that_others_wrote_in_the_spin_run_is_more_likely() {
    let wrote = "thread 2 wrote it in the spin run";
    judged(polls(), |o, _| written(o, false, OTHER_TID, 6)).says(WORD, wrote);
    judged(polls(), |o, _| written(o, true, OTHER_TID, 6)).says_not(WORD, wrote);
}

#[test]
fn a_word_with_which_the_normal_run_left_is_more_likely() {
    let (left, same) = (
        "the normal run left with 0x7 there",
        "the normal run read the same value and left",
    );
    let with = |value| judged(polls(), |o, _| drop(left_with(o, Some(value)).clone()));
    with(7).says(WORD, left).says_not(WORD, same);
    with(0).says(WORD, same).says_not(WORD, left);
    // A pointer to what the spin run's word points to, which lies elsewhere in the normal run.
    let points = |here| {
        judged(polls(), |o, _| {
            left_with(o, Some(7)).exit_value_here = Some(here)
        })
    };
    points(6).says(WORD, left).says_not(WORD, same);
    points(0).says(WORD, same).says_not(WORD, left);
}

#[test]
fn a_value_that_did_not_end_the_normal_runs_wait_tells_nothing() {
    let no_reason = "the value with which the normal run left did not end its wait";
    let in_vain = |is| judged(polls(), |o, _| left_with(o, Some(6)).in_vain = is);
    in_vain(true).says(WORD, no_reason);
    in_vain(false).says_not(WORD, no_reason);
}

#[test]
fn the_value_that_another_wrote_and_the_normal_run_left_with_is_what_is_missing() {
    let that = "that is what the other thread wrote";
    let writes = |value| {
        judged(polls(), |o, _| {
            written(o, true, OTHER_TID, value);
            left_with(o, Some(7));
        })
    };
    writes(7).polls(WORD).says(WORD, that);
    writes(6).says_not(WORD, that);
}

#[test]
fn a_value_that_a_virtual_machine_itself_changed_tells_nothing() {
    let own = "the normal run left with 0x7 there, written by itself";
    let machine = |is| {
        judged(polls(), |o, _| {
            o.of_machine = is;
            written(o, true, TID, 7);
            left_with(o, Some(7));
        })
    };
    machine(true).no_flag().says(WORD, own);
    machine(false).says_not(WORD, own);
}

#[test]
fn a_bound_that_another_thread_sets_may_be_the_flag_all_the_same() {
    let counts = || {
        program(&format!(
            "again: inc rcx; cmp rcx, qword ptr [{WORD}]; jb again"
        ))
        .word(WORD, 100)
    };
    judged(counts(), set_by_another).polls(WORD);
    judged(counts(), |o, branch| o.parting = Some(branch)).no_flag();
}

#[test]
fn a_word_that_others_change_is_data_if_the_loop_reads_elsewhere_in_most_rounds() {
    let looks_there_each = |rounds: u64| {
        program(&format!(
            "again: mov rdi, qword ptr [{OTHER}]; cmp dword ptr [rdi], 7; jne again"
        ))
        .changing(OTHER, move |round| {
            WORD + 64 * u64::from(round % rounds != rounds - 1)
        })
        .changing(WORD, |round| 100 + round)
    };
    judged(looks_there_each(3), set_by_another).no_flag();
    judged(looks_there_each(1), set_by_another).polls(WORD);
}

#[test]
fn a_word_that_others_change_is_data_if_the_loop_writes_new_data() {
    let changes = "its value changes while the loop goes on";
    let writes = |step: i32, word: fn(u64) -> u64| {
        polls_and(&format!("mov dword ptr [rdi], 1; add rdi, {step}"))
            .register(Register::RDI, HEAP)
            .changing(WORD, word)
    };
    let (varies, stays) = (|round| 100 + round, |_| 100);
    judged(writes(64, varies), set_by_another)
        .no_flag()
        .says(WORD, changes);
    judged(writes(0, varies), set_by_another)
        .polls(WORD)
        .says(WORD, changes);
    judged(writes(64, stays), set_by_another)
        .polls(WORD)
        .says_not(WORD, changes);
}

/// In each round `WORD` ends the loop at 7, and then so does a word of the heap: the next one in
/// each, if `step` is 8.
fn takes_items_and_polls(step: i32) -> Program {
    let takes = program(&format!(
        "again: cmp dword ptr [{WORD}], 7
        je {OUT}
        cmp dword ptr [rdi], 7
        lea rdi, qword ptr [rdi + {step}]
        jne again"
    ));
    let items = (0..16).map(|number| (HEAP + 8 * number, 100 + number));
    let fill = |program: Program, (at, item)| program.word(at, item);
    items.fold(takes, fill).register(Register::RDI, HEAP)
}

#[test]
fn the_item_that_a_round_takes_is_no_flag() {
    let takes = |step| {
        judged(takes_items_and_polls(step), |o, branch| {
            o.parting = Some(branch)
        })
    };
    let other = "the loop asks another word, with another value, in most iterations";
    let items = takes(8).no_flag();
    let last = (0..16).map(|number| HEAP + 8 * number);
    let last: Vec<u64> = last.filter(|&item| items.confidence(item) > 0.0).collect();
    assert_eq!(last.len(), 1, "{last:x?}");
    items.says(last[0], other);
    takes(0).polls(HEAP).says_not(HEAP, other);
}

#[test]
fn other_words_end_nothing_if_the_thread_itself_moves_towards_the_end() {
    let nearer = "the normal run left by a word that the thread itself moves on, not by this";
    let takes = |step| judged(takes_items_and_polls(step), set_by_another);
    takes(8).no_flag().says(WORD, nearer);
    takes(0).polls(WORD).says_not(WORD, nearer);
    let counts = |by: i32| {
        program(&format!(
            "again: cmp dword ptr [{WORD}], 7
            je {OUT}
            add rcx, {by}
            cmp rcx, 100
            jne again"
        ))
    };
    judged(counts(1), set_by_another)
        .no_flag()
        .says(WORD, nearer);
    let elsewhere = |o: &mut Outside, branch| {
        set_by_another(o, branch);
        o.parting = None;
    };
    judged(counts(1), elsewhere).polls(WORD);
}
