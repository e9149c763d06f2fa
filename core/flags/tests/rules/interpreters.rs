// SPDX-License-Identifier: MIT
//! Interpreters' loops and generated code: which words are the machine's own.

use iced_x86::Register;

use crate::found::{alone, live};
use crate::program::*;
use crate::{Flag, Verdict};

const FIRST: u64 = CALLED;
const SECOND: u64 = CALLED + 0x100;

/// Tests words, and goes through two routines by jumps whose targets it has in registers; without
/// the second jump it is a loop as any other.
fn interpreter(jumps: bool, test: Code) -> Program {
    let (first, second) = match jumps {
        true => ("jmp r9".into(), "jmp r10".into()),
        false => (format!("jmp {SECOND}"), format!("jmp {MAIN}")),
    };
    program(&format!("{test}; jmp r8"))
        .function("first_routine", FIRST, &first)
        .function("second_routine", SECOND, &second)
        .register(Register::R8, FIRST)
        .register(Register::R9, SECOND)
        .register(Register::R10, MAIN)
}

fn polling() -> String {
    format!("cmp qword ptr [{WORD}], 7; je {OUT}")
}

#[test]
fn a_word_that_an_interpreter_reads_may_be_any_of_its_own() {
    let note = "the loop is an interpreter's";
    let found = alone(interpreter(true, &polling())).polls(WORD).notes(note);
    assert_eq!(found.confidence(WORD), crate::INTERPRETER);
    let found = alone(interpreter(false, &polling()))
        .polls(WORD)
        .notes_not(note);
    assert!(found.confidence(WORD) > crate::INTERPRETER);
}

#[test]
fn a_type_whose_routines_are_the_interpreters_is_less_likely() {
    let code = "it leads to the interpreter's own code";
    alone(interpreter(true, &polling()).word(WORD, SECOND)).says(WORD, code);
    alone(interpreter(true, &polling()).word(WORD, HEAP)).says_not(WORD, code);
    alone(interpreter(false, &polling()).word(WORD, SECOND)).says_not(WORD, code);
}

#[test]
fn of_many_words_that_are_as_likely_in_a_machines_loop_none_is_the_flag() {
    let alike = "a virtual machine's loop, and 3 other words are as likely";
    let tests = |words: u64| {
        let tests =
            (0..words).map(|word| format!("cmp dword ptr [{WORD} + 64 * {word}], 7; je {OUT}\n"));
        interpreter(true, &tests.collect::<String>())
    };
    live(tests(4)).no_flag().says(WORD, alike);
    live(tests(3)).polls(WORD).says_not(WORD, alike);
}

#[test]
fn a_word_for_which_an_interpreter_goes_on_is_told_beside_the_flags() {
    // The C library compares the word as well, in a test that says little for it; most it says in
    // the interpreter's jump.
    let state = BLOCK - 0x40;
    let compares = |address: u64| {
        program(&format!(
            "cmp dword ptr [{WORD}], 7
            je {OUT}
            call {LIBC}
            jmp qword ptr [{state}]"
        ))
        .function(
            "compare",
            LIBC,
            &format!("cmp qword ptr [{address}], 7; je {OUT}; ret"),
        )
        .function("state_true", FIRST, "jmp r9")
        .function("second_routine", SECOND, "jmp r10")
        .word(state, FIRST)
        .word(CONSTANT, FIRST)
        .register(Register::R9, SECOND)
        .register(Register::R10, MAIN)
    };
    let symbol = |flag: &Flag| flag.value.spin_symbol.clone();
    let found = alone(compares(state)).polls(WORD).considers(state);
    let told = found.report.considered.iter().find_map(symbol);
    assert_eq!(told.as_deref(), Some("state_true"));
    alone(compares(CONSTANT)).polls(WORD).leaves_out(state);
}

#[test]
fn what_lies_with_the_words_that_choose_a_piece_is_the_programs_code() {
    let code = "it lies with what tells the interpreter what to do next";
    // Threaded code: each routine jumps to what the next word holds.
    let compares = |word: u64| {
        program(&format!(
            "cmp dword ptr [{word}], 7; je {OUT}; jmp qword ptr [{HEAP}]"
        ))
        .function(
            "first_routine",
            FIRST,
            &format!("jmp qword ptr [{HEAP} + 8]"),
        )
        .function(
            "second_routine",
            SECOND,
            &format!("jmp qword ptr [{HEAP} + 16]"),
        )
        .word(HEAP, FIRST)
        .word(HEAP + 8, SECOND)
        .word(HEAP + 16, MAIN)
    };
    live(compares(HEAP + 24)).no_flag().says(HEAP + 24, code);
    live(compares(HEAP + 0x100)).says_not(HEAP + 0x100, code);
}

#[test]
fn bits_and_bounds_that_a_machine_asks_for_are_checks() {
    let check = "asks for bits of it, or for bounds";
    let asks_for_a_bit =
        |jumps| interpreter(jumps, &format!("test dword ptr [{WORD}], 0x20; jne {OUT}"));
    live(asks_for_a_bit(true)).says(WORD, check);
    live(asks_for_a_bit(false)).says_not(WORD, check);
    live(interpreter(true, &polling())).says_not(WORD, check);
}

#[test]
fn what_was_pushed_and_popped_is_the_word_that_was_read() {
    let pops = program(&format!(
        "mov eax, dword ptr [{WORD}]
        push rax
        mov eax, 7
        pop rdx
        cmp edx, eax
        jne {MAIN}"
    ));
    alone(pops)
        .polls(WORD)
        .says(WORD, "the exit branch compares it directly");
}

#[test]
fn thread_state_that_generated_code_points_to_is_the_threads_own() {
    let state = "it lies in the thread's state, to which generated code has a pointer";
    let reaches = |words: i32| {
        let others = (1..words).map(|word| format!("mov eax, dword ptr [r15 + 8 * {word}]\n"));
        let others: String = others.collect();
        begins_at(
            MADE,
            &format!("again: {others} cmp dword ptr [r15], 0; je again"),
        )
        .register(Register::R15, HEAP)
    };
    alone(reaches(5)).says(HEAP, state);
    alone(reaches(4)).polls(HEAP).says_not(HEAP, state);
}

#[test]
fn a_modules_word_that_generated_code_asks_is_the_machines() {
    let machines = "generated code asks a word of a module";
    let asks = |word: u64| begins_at(MADE, &format!("again: cmp dword ptr [{word}], 0; je again"));
    alone(asks(WORD)).says(WORD, machines);
    alone(asks(HEAP)).polls(HEAP).says_not(HEAP, machines);
}

/// poll(HEAP, 1), whose answer ends the loop when it is not zero.
fn asks(jumps: bool) -> Program {
    let polls = format!(
        "mov dword ptr [{HEAP}], 3
        mov eax, {}
        syscall
        test eax, eax
        jne {OUT}",
        libc::SYS_poll
    );
    interpreter(jumps, &polls)
        .register(Register::RDI, HEAP)
        .register(Register::RSI, 1)
        .answer(libc::SYS_poll, 0)
}

#[test]
fn a_call_that_an_interpreter_makes_may_be_for_its_own_work() {
    let own = "an interpreter makes it, maybe for its own work";
    live(asks(true)).calls("poll").says_of_call(own);
    live(asks(false)).calls("poll").says_not_of_call(own);
}

#[test]
fn a_machines_own_wake_up_lets_time_pass() {
    let wakes = "a virtual machine's threads wake each other this way to pause";
    live(asks(true).own_wakeup(3)).no_flag().says_of_call(wakes);
    live(asks(true).own_wakeup(4))
        .verdict(Verdict::SyscallLoop)
        .says_not_of_call(wakes);
}
