// SPDX-License-Identifier: MIT
//! What the branch tests that would end the loop, and where it stands.

use crate::found::alone;
use crate::program::*;

#[test]
fn a_word_that_the_branch_compares_is_more_likely() {
    let compared = "the exit branch compares it directly";
    let tests = |loads: &str| {
        program(&format!(
            "again: {loads} eax, dword ptr [{WORD}]; test eax, eax; je again"
        ))
    };
    alone(tests("mov")).polls(WORD).says(WORD, compared);
    alone(tests("popcnt")).says_not(WORD, compared);
}

/// mov eax, [WORD]; `joins` eax, [OTHER]; jne again
fn joined(joins: Code) -> Program {
    program(&format!(
        "again: mov eax, dword ptr [{WORD}]; {joins}; jne again"
    ))
    .word(OTHER, 1)
}

#[test]
fn a_word_that_alone_cannot_end_the_loop_is_not_first() {
    let held = "the others keep the branch as it is, whatever this one holds";
    alone(joined(&format!("or eax, dword ptr [{OTHER}]")))
        .polls(OTHER)
        .says(WORD, held)
        .says_not(OTHER, held);
    alone(joined(&format!("add eax, dword ptr [{OTHER}]"))).says_not(WORD, held);
}

#[test]
fn a_count_that_is_zero_already_owes_nothing() {
    let owed = "zero already, it would have to become negative";
    alone(joined(&format!("add eax, dword ptr [{OTHER}]")))
        .polls(OTHER)
        .says(WORD, owed)
        .says_not(OTHER, owed);
    alone(joined(&format!("sub eax, dword ptr [{OTHER}]"))).says_not(WORD, owed);
}

#[test]
fn a_word_compared_with_the_value_it_has_is_a_check() {
    let check = "it is compared with the value it has: more likely a check";
    let goes_on_with = |value: i32| {
        program(&format!("again: cmp dword ptr [{WORD}], {value}; je again"))
            .word(WORD, value as u64)
    };
    alone(goes_on_with(3)).says(WORD, check);
    alone(goes_on_with(0)).says_not(WORD, check);
}

#[test]
fn a_word_on_both_sides_of_a_comparison_is_a_mask() {
    let mask = "it stands on both sides of the comparison: a mask or a bound";
    let bits_of = |compared: u64| {
        program(&format!(
            "again: mov eax, dword ptr [{WORD}]
            and eax, dword ptr [{OTHER}]
            cmp eax, dword ptr [{compared}]
            jne again"
        ))
        .word(WORD, 1)
        .word(OTHER, 3)
        .word(WORD + 64, 3)
    };
    alone(bits_of(OTHER))
        .polls(WORD)
        .says(OTHER, mask)
        .says_not(WORD, mask);
    alone(bits_of(WORD + 64)).says_not(OTHER, mask);
}

#[test]
fn a_word_that_the_loop_counts_towards_is_a_bound_and_no_flag() {
    let counter = "it is compared with something the loop itself changes";
    let progress = "is changed by the loop's own thread in every iteration; whether";
    let counts = |by: i32| {
        program(&format!(
            "again: add rcx, {by}; cmp rcx, qword ptr [{WORD}]; jb again"
        ))
        .word(WORD, 100)
    };
    alone(counts(1))
        .no_flag()
        .reason(progress)
        .says(WORD, counter);
    alone(counts(0))
        .polls(WORD)
        .reason_not(progress)
        .says_not(WORD, counter);
}

/// Tests the word in a function there, which the loop calls.
fn tested_at(function: u64) -> Program {
    program(&format!("again: call {function}; mov edx, eax; jmp again")).function(
        "asks",
        function,
        &format!("cmp dword ptr [{WORD}], 0; jne {OUT}; ret"),
    )
}

#[test]
fn a_test_within_the_c_library_is_its_own() {
    let library = "the exit lies in the C library or language runtime";
    alone(tested_at(LIBC)).says(WORD, library);
    alone(tested_at(LIBRARY))
        .polls(WORD)
        .says_not(WORD, library);
}

#[test]
fn a_lock_that_the_c_library_itself_waits_for_is_the_programs() {
    let library = "the exit lies in the C library or language runtime";
    let waits = |pauses: &str| {
        begins_at(
            LIBC,
            &format!("again: {pauses}; cmp dword ptr [{WORD}], 0; jne again"),
        )
        .word(WORD, 1)
    };
    alone(waits("pause")).polls(WORD).says_not(WORD, library);
    alone(waits("nop")).says(WORD, library);
}

#[test]
fn one_of_many_words_that_generated_code_tests_is_a_guard() {
    let guard = "generated code tests types and bounds like this, and several words here";
    let tests = |start: u64, words: u64| {
        let tests = (0..words)
            .map(|word| format!("cmp dword ptr [{HEAP} + 0x2000 * {word}], 0; jne {OUT}\n"));
        let tests: String = tests.collect();
        begins_at(start, &format!("again: {tests} jmp again"))
    };
    alone(tests(MADE, 4)).says(HEAP, guard);
    alone(tests(MADE, 3)).polls(HEAP).says_not(HEAP, guard);
    alone(tests(MAIN, 4)).polls(HEAP).says_not(HEAP, guard);
}
