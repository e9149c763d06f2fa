// SPDX-License-Identifier: MIT
//! Words that hold addresses: mostly they lead to the tested word, sometimes they are tested.

use crate::found::alone;
use crate::program::*;

const POINTER: &str = "its value is a pointer";

#[test]
fn a_word_that_holds_an_address_is_less_likely() {
    let not_null = |value: u64| {
        program(&format!("again: cmp qword ptr [{WORD}], 0; jne again")).word(WORD, value)
    };
    alone(not_null(HEAP)).says(WORD, POINTER);
    alone(not_null(1)).polls(WORD).says_not(WORD, POINTER);
}

#[test]
fn a_pointer_that_is_compared_with_another_is_nearly_as_likely_as_a_number() {
    let compared = |with: u64| {
        program(&format!(
            "again: mov rax, qword ptr [{WORD}]
            mov rcx, qword ptr [{with}]
            cmp rax, rcx
            je again"
        ))
        .word(WORD, HEAP)
        .word(OTHER, HEAP)
    };
    let with_zero = program(&format!(
        "again: mov rax, qword ptr [{WORD}]; test rax, rax; jne again"
    ))
    .word(WORD, HEAP);
    let queue = alone(compared(OTHER))
        .polls(WORD)
        .says(WORD, POINTER)
        .confidence(WORD);
    let null = alone(with_zero).says(WORD, POINTER).confidence(WORD);
    assert!(queue > null, "{queue} {null}");
}

#[test]
fn a_word_whose_object_the_loop_reads_is_only_checked_for_null() {
    let null = "the loop reads what it points to: a check for null";
    let reads = |address: &str| {
        program(&format!(
            "again: mov rax, qword ptr [{WORD}]
            test rax, rax
            je {OUT}
            cmp dword ptr [{address}], 7
            jne again"
        ))
        .word(WORD, HEAP)
    };
    alone(reads("rax")).polls(HEAP).says(WORD, null);
    alone(reads(&OTHER.to_string()))
        .polls(OTHER)
        .says_not(WORD, null);
}

#[test]
fn an_object_that_is_chosen_for_a_call_may_be_the_flag_but_hardly_its_type() {
    // mov rax, [WORD]; call [rax]: an object of one function, or one whose type has it.
    let calls = |by_type: bool| {
        let to_type = if by_type {
            "mov rax, qword ptr [rax]"
        } else {
            ""
        };
        program(&format!(
            "again: mov rax, qword ptr [{WORD}]
            {to_type}
            call qword ptr [rax]
            jmp again"
        ))
        .function("method", CALLED, "ret")
        .word(WORD, HEAP)
        .word(HEAP, if by_type { CONSTANT } else { CALLED })
        .word(CONSTANT, CALLED)
    };
    alone(calls(false))
        .says_not(WORD, POINTER)
        .says_not(HEAP, POINTER);
    alone(calls(true))
        .polls(WORD)
        .says_not(WORD, POINTER)
        .says(HEAP, POINTER);
}
