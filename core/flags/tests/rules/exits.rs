// SPDX-License-Identifier: MIT
//! What the branch tests that would end the loop, and where it stands.

use iced_x86::code_asm::*;

use crate::found::alone;
use crate::program::*;

#[test]
fn a_word_that_the_branch_compares_is_more_likely() {
    let compared = "the exit branch compares it directly";
    let tests = |counts_bits: bool| {
        program(&|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            match counts_bits {
                true => a.popcnt(eax, dword_ptr(WORD))?,
                false => a.mov(eax, dword_ptr(WORD))?,
            }
            a.test(eax, eax)?;
            a.je(again)
        })
    };
    alone(tests(false)).polls(WORD).says(WORD, compared);
    alone(tests(true)).says_not(WORD, compared);
}

/// mov eax, [WORD]; `joins` eax, [OTHER]; jne again
fn joined(joins: Code) -> Program {
    program(&|a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.mov(eax, dword_ptr(WORD))?;
        joins(a)?;
        a.jne(again)
    })
    .word(OTHER, 1)
}

#[test]
fn a_word_that_alone_cannot_end_the_loop_is_not_first() {
    let held = "the others keep the branch as it is, whatever this one holds";
    alone(joined(&|a| a.or(eax, dword_ptr(OTHER))))
        .polls(OTHER)
        .says(WORD, held)
        .says_not(OTHER, held);
    alone(joined(&|a| a.add(eax, dword_ptr(OTHER)))).says_not(WORD, held);
}

#[test]
fn a_count_that_is_zero_already_owes_nothing() {
    let owed = "zero already, it would have to become negative";
    alone(joined(&|a| a.add(eax, dword_ptr(OTHER))))
        .polls(OTHER)
        .says(WORD, owed)
        .says_not(OTHER, owed);
    alone(joined(&|a| a.sub(eax, dword_ptr(OTHER)))).says_not(WORD, owed);
}

#[test]
fn a_word_compared_with_the_value_it_has_is_a_check() {
    let check = "it is compared with the value it has: more likely a check";
    let goes_on_with = |value: i32| {
        program(&|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.cmp(dword_ptr(WORD), value)?;
            a.je(again)
        })
        .word(WORD, value as u64)
    };
    alone(goes_on_with(3)).says(WORD, check);
    alone(goes_on_with(0)).says_not(WORD, check);
}

#[test]
fn a_word_on_both_sides_of_a_comparison_is_a_mask() {
    let mask = "it stands on both sides of the comparison: a mask or a bound";
    let bits_of = |compared: u64| {
        program(&|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.mov(eax, dword_ptr(WORD))?;
            a.and(eax, dword_ptr(OTHER))?;
            a.cmp(eax, dword_ptr(compared))?;
            a.jne(again)
        })
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
    let progress = "is changed by the loop's own thread in every iteration: it makes progress";
    let counts = |by: i32| {
        program(&|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.add(rcx, by)?;
            a.cmp(rcx, qword_ptr(WORD))?;
            a.jb(again)
        })
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
    program(&|a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.call(function)?;
        a.mov(edx, eax)?;
        a.jmp(again)
    })
    .function("asks", function, &|a| {
        a.cmp(dword_ptr(WORD), 0)?;
        a.jne(OUT)?;
        a.ret()
    })
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
    let waits = |pauses: bool| {
        begins_at(LIBC, &|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            match pauses {
                true => a.pause()?,
                false => a.nop()?,
            }
            a.cmp(dword_ptr(WORD), 0)?;
            a.jne(again)
        })
        .word(WORD, 1)
    };
    alone(waits(true)).polls(WORD).says_not(WORD, library);
    alone(waits(false)).says(WORD, library);
}

#[test]
fn one_of_many_words_that_generated_code_tests_is_a_guard() {
    let guard = "generated code tests types and bounds like this, and several words here";
    let tests = |start: u64, words: u64| {
        begins_at(start, &|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            for word in 0..words {
                a.cmp(dword_ptr(HEAP + 0x2000 * word), 0)?;
                a.jne(OUT)?;
            }
            a.jmp(again)
        })
    };
    alone(tests(MADE, 4)).says(HEAP, guard);
    alone(tests(MADE, 3)).polls(HEAP).says_not(HEAP, guard);
    alone(tests(MAIN, 4)).polls(HEAP).says_not(HEAP, guard);
}
