// SPDX-License-Identifier: MIT
//! Loops that compute, and ask a word beside whether to stop: that is no flag.

use crate::found::live;
use crate::program::*;

const COMPUTES: &str = "the loop computes: ";

/// What each round does; cmp [WORD], 0; je again
fn asks_and(does: Code) -> Program {
    program(&format!(
        "again: {does}; cmp dword ptr [{WORD}], 0; je again"
    ))
}

#[track_caller]
fn computes(does: Code) {
    let found = live(asks_and(does)).no_flag();
    assert!(found.report.reason.starts_with(COMPUTES), "{does}");
    assert!(found.report.facts.gets_on, "{does}");
}

#[test]
fn a_loop_that_hands_on_a_new_value_in_each_round_computes() {
    let hash = "xor rcx, 77; imul rcx, rcx, 1000003";
    computes(hash);
    computes(&format!("mov rcx, [{OTHER}]; {hash}; mov [{OTHER}], rcx"));
    computes("inc rdx; imul rdx, rdx; add rcx, rdx");
    // Counts, rings and back-offs come back or grow by as much.
    live(asks_and("add rcx, 24")).polls(WORD);
    live(asks_and("inc rcx; and rcx, 7")).polls(WORD);
    live(asks_and("inc rdx; mov rcx, rdx; imul rcx, rcx, 1000003")).polls(WORD);
    live(asks_and(
        "shl rcx, 1; or rcx, 1; cmp rcx, 63; jbe small; mov ecx, 63; small: nop",
    ))
    .polls(WORD);
}

#[test]
fn a_loop_that_pauses_or_yields_waits_whatever_it_computes() {
    let hash = "xor rcx, 77; imul rcx, rcx, 1000003";
    live(asks_and(&format!("{hash}; pause"))).polls(WORD);
    computes(hash);
}

#[test]
fn what_comes_from_outside_is_no_sign_of_computing() {
    let sums = || {
        asks_and(&format!(
            "mov rdx, [{OTHER}]; imul rdx, rdx, 1000003; add rcx, rdx"
        ))
    };
    live(sums().changing(OTHER, |round| round * round * 12345)).polls(WORD);
    computes("mov rdx, rcx; imul rdx, rdx, 1000003; add rcx, rdx; inc rcx");
}

#[test]
fn a_long_chain_of_results_is_work_though_it_begins_anew_in_each_round() {
    let chain = |length: usize| {
        let link = "imul rcx, rcx, 1000003; xor rcx, rdx;";
        format!("mov ecx, 5; mov edx, 9; {}", link.repeat(length))
    };
    computes(&chain(40));
    live(asks_and(&chain(4))).polls(WORD);
}

#[test]
fn a_loop_that_tests_one_mixed_number_after_the_other_searches() {
    let tests = |mixes: &str| format!("inc rdx; mov rcx, rdx; {mixes}; cmp rcx, 7; je {OUT}");
    let mix = "imul rcx, rcx, 1000003; mov rsi, rcx; shr rsi, 33; xor rcx, rsi;";
    computes(&tests(&mix.repeat(2)));
    live(asks_and(&tests("imul rcx, rcx, 1000003; ror rcx, 3"))).polls(WORD);
}

#[test]
fn what_only_a_signal_can_write_stops_a_loop_of_long_rounds() {
    let stop = "only a signal's handler can write it, and each round is long: more likely a word \
                to stop by";
    let rounds = |length: usize| asks_and(&"mov ecx, 5; mov edx, ecx;".repeat(length));
    live(rounds(60).of_one_thread()).no_flag().says(WORD, stop);
    live(rounds(4).of_one_thread())
        .polls(WORD)
        .says_not(WORD, stop);
    live(rounds(60)).polls(WORD).says_not(WORD, stop);
}
