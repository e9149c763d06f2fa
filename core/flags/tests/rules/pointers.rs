// SPDX-License-Identifier: MIT
//! Words that hold addresses: mostly they lead to the tested word, sometimes they are tested.

use iced_x86::code_asm::*;

use crate::found::alone;
use crate::program::*;

const POINTER: &str = "its value is a pointer";

#[test]
fn a_word_that_holds_an_address_is_less_likely() {
    let not_null = |value: u64| {
        program(&|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.cmp(qword_ptr(WORD), 0)?;
            a.jne(again)
        })
        .word(WORD, value)
    };
    alone(not_null(HEAP)).says(WORD, POINTER);
    alone(not_null(1)).polls(WORD).says_not(WORD, POINTER);
}

#[test]
fn a_pointer_that_is_compared_with_another_is_nearly_as_likely_as_a_number() {
    let compared = |with: u64| {
        program(&|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.mov(rax, qword_ptr(WORD))?;
            a.mov(rcx, qword_ptr(with))?;
            a.cmp(rax, rcx)?;
            a.je(again)
        })
        .word(WORD, HEAP)
        .word(OTHER, HEAP)
    };
    let with_zero = program(&|a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.mov(rax, qword_ptr(WORD))?;
        a.test(rax, rax)?;
        a.jne(again)
    })
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
    let reads = |with_object: bool| {
        program(&|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.mov(rax, qword_ptr(WORD))?;
            a.test(rax, rax)?;
            a.je(OUT)?;
            match with_object {
                true => a.cmp(dword_ptr(rax), 7)?,
                false => a.cmp(dword_ptr(OTHER), 7)?,
            }
            a.jne(again)
        })
        .word(WORD, HEAP)
    };
    alone(reads(true)).polls(HEAP).says(WORD, null);
    alone(reads(false)).polls(OTHER).says_not(WORD, null);
}

#[test]
fn an_object_that_is_chosen_for_a_call_may_be_the_flag_but_hardly_its_type() {
    // mov rax, [WORD]; call [rax]: an object of one function, or one whose type has it.
    let calls = |by_type: bool| {
        program(&|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.mov(rax, qword_ptr(WORD))?;
            if by_type {
                a.mov(rax, qword_ptr(rax))?;
            }
            a.call(qword_ptr(rax))?;
            a.jmp(again)
        })
        .function("method", CALLED, &|a| a.ret())
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
