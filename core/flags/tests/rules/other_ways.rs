// SPDX-License-Identifier: MIT
//! Where the way leads that a branch never took, by the code of the running process.

use crate::found::{alone, live};
use crate::program::*;

/// cmp [WORD], 0; jne other; cmp [OTHER], 0; je again; ret; other: what the way does, which may go
/// back to behind the branch.
fn other_way(way: Code) -> Program {
    program(&format!(
        "again: cmp dword ptr [{WORD}], 0
        jne other
        back: cmp dword ptr [{OTHER}], 0
        je again
        ret
        other: {way}"
    ))
}

fn leaves() -> Program {
    other_way("ret")
}

#[test]
fn a_branch_that_only_skips_something_is_no_way_out() {
    let stays = "its other way stays in the loop: it skips something";
    let skips = other_way("nop; jmp back");
    live(skips)
        .polls(OTHER)
        .says(WORD, stays)
        .says_not(OTHER, stays);
    live(leaves()).polls(WORD).says_not(WORD, stays);
}

#[test]
fn a_branch_that_leads_to_another_test_is_less_likely() {
    let tests = "its other way leads to another test before it leaves";
    let asks = other_way(&format!("cmp dword ptr [{HEAP}], 0; je back; ret"));
    live(asks)
        .polls(OTHER)
        .says(WORD, tests)
        .says_not(OTHER, tests);
    live(leaves()).polls(WORD).says_not(WORD, tests);
}

#[test]
fn a_branch_whose_other_way_never_returns_is_a_check() {
    let dies = "its other way never returns: a check that failed";
    live(other_way("ud2"))
        .polls(OTHER)
        .says(WORD, dies)
        .says_not(OTHER, dies);
    live(leaves()).polls(WORD).says_not(WORD, dies);
}

#[test]
fn a_branch_whose_other_way_returns_an_error_is_less_likely() {
    let fails = "its other way returns an error";
    let returns = |result: i32| other_way(&format!("mov eax, {result}; ret"));
    live(returns(-22)).polls(OTHER).says(WORD, fails);
    live(returns(22)).polls(WORD).says_not(WORD, fails);
}

#[test]
fn a_word_that_the_thread_would_change_itself_comes_behind_what_lets_it() {
    let (word, branch) = (
        "the reader itself would change it, once another test of the loop lets it",
        "on its other way the thread itself would change what ends the loop",
    );
    let sets = |address: u64| other_way(&format!("mov dword ptr [{address}], 1; jmp back"));
    live(sets(OTHER))
        .polls(WORD)
        .says(OTHER, word)
        .says(WORD, branch);
    live(sets(HEAP))
        .polls(OTHER)
        .says_not(OTHER, word)
        .says_not(WORD, branch);
}

#[test]
fn a_position_that_its_reader_moves_on_is_not_what_it_waits_for() {
    let position = "its reader's function stores to it: the reader's own position";
    let stores_to = |address: u64| {
        program(&format!(
            "again: mov eax, dword ptr [{OTHER}]
            cmp eax, dword ptr [{WORD}]
            je again
            mov dword ptr [{address}], eax
            ret"
        ))
    };
    live(stores_to(WORD))
        .polls(OTHER)
        .says(WORD, position)
        .says_not(OTHER, position);
    live(stores_to(HEAP)).polls(WORD).says_not(WORD, position);
}

/// call CALLED; cmp [OTHER], 0; je again; and what the function does.
fn asks_within(function: Code) -> Program {
    program(&format!(
        "again: call {CALLED}; cmp dword ptr [{OTHER}], 0; je again; ret"
    ))
    .function("asks", CALLED, function)
    .word(WORD, 1)
}

#[test]
fn a_branch_within_a_call_that_goes_on_there_does_something_more() {
    let more = "its other way goes on in the same function, which the loop calls";
    let goes_on = |does: &str| {
        asks_within(&format!(
            "cmp dword ptr [{WORD}], 0
            je other
            back: mov ecx, dword ptr [{HEAP}]
            ret
            other: {does}
            jmp back"
        ))
    };
    let stores = format!("mov dword ptr [{HEAP}], 1");
    live(goes_on("nop")).polls(OTHER).says(WORD, more);
    live(goes_on(&stores)).says_not(WORD, more);
}

#[test]
fn a_branch_that_reports_what_must_not_be_is_a_check() {
    let reports = "its other way reports something and returns: a condition is violated";
    let tells = |text: u64| {
        asks_within(&format!(
            "cmp dword ptr [{WORD}], 0
            je other
            mov eax, 1
            ret
            other: lea rdi, [rip + code + {text} - {CALLED}]
            call {LIBRARY}
            xor eax, eax
            ret"
        ))
        .function("report", LIBRARY, "ret")
    };
    live(tells(CONSTANT)).says(WORD, reports);
    live(tells(HEAP)).says_not(WORD, reports);
}

/// call `function`, which asks for the word; what is done with the answer; cmp [OTHER], 0; je again
fn in_a_call(function: u64, takes: Code) -> Program {
    program(&format!(
        "again: call {function}; {takes}; cmp dword ptr [{OTHER}], 0; je again"
    ))
    .function(
        "asks",
        function,
        &format!("cmp dword ptr [{WORD}], 0; jne {OUT}; ret"),
    )
}

#[test]
fn a_test_within_a_call_whose_result_is_not_used_is_less_likely() {
    let idle = "it is tested within a call whose result the loop does not use";
    let forgets: Code = "xor eax, eax";
    let takes: Code = "mov edx, eax";
    live(in_a_call(CALLED, forgets))
        .polls(OTHER)
        .says(WORD, idle)
        .says_not(OTHER, idle);
    live(in_a_call(CALLED, takes)).says_not(WORD, idle);
    alone(in_a_call(CALLED, forgets)).says_not(WORD, idle);
}

#[test]
fn a_librarys_test_is_less_likely_where_the_program_tests_others() {
    let library = "the exit lies in a library, while the program itself tests other words";
    let takes: Code = "mov edx, eax";
    live(in_a_call(LIBRARY, takes))
        .polls(OTHER)
        .says(WORD, library)
        .says_not(OTHER, library);
    live(in_a_call(CALLED, takes)).says_not(WORD, library);
}

#[test]
fn what_ends_a_scan_in_every_round_is_looked_at_where_nothing_else_is_found() {
    let scan = "a scan ends at it in every iteration";
    let (first, last) = (WORD, WORD + 0x80);
    let scans = || {
        program(&format!(
            "again: xor ebx, ebx
            next: cmp qword ptr [rbx + {first}], 0
            je end
            add rbx, 64
            jmp next
            end: jmp again"
        ))
        .word(first, 1)
        .word(first + 0x40, 1)
    };
    live(scans()).polls(last).says(last, scan);
    alone(scans()).no_flag().leaves_out(last);
}
