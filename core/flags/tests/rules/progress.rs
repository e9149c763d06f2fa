// SPDX-License-Identifier: MIT
//! Loops that make progress: they have no flag, or a less likely one.

use iced_x86::Register;

use crate::found::{alone, live};
use crate::program::*;
use crate::Verdict;

/// What the loop does beside; cmp [WORD], 7; jne again
fn polls_and(does: Code) -> Program {
    program(&format!(
        "again: {does}; cmp dword ptr [{WORD}], 7; jne again"
    ))
}

/// The same with a system call that gets (3, HEAP).
fn polls_and_calls(number: i64, answer: i64) -> Program {
    polls_and(&format!("mov eax, {number}; syscall"))
        .answer(number, answer)
        .register(Register::RDI, 3)
        .register(Register::RSI, HEAP)
}

#[test]
fn a_loop_that_takes_over_data_in_every_round_waits_for_nothing() {
    let taken = "the loop takes over data in every iteration: it makes progress";
    alone(polls_and_calls(libc::SYS_read, 90))
        .no_flag()
        .reason(taken);
    alone(polls_and_calls(libc::SYS_read, 0))
        .polls(WORD)
        .reason_not(taken);
}

#[test]
fn a_loop_that_others_wake_in_every_round_is_served() {
    let served = "other threads wake it in every iteration: it is served";
    let timed_out = -(libc::ETIMEDOUT as i64);
    let sleeps = |answer| {
        let futex = polls_and_calls(libc::SYS_futex, answer);
        futex
            .register(Register::RDI, OTHER)
            .register(Register::RSI, 0x80)
    };
    alone(sleeps(0)).no_flag().reason(served);
    alone(sleeps(timed_out)).polls(WORD).reason_not(served);
}

/// As `pthread_mutex_timedlock`: the waiter itself writes what it sleeps at.
#[test]
fn the_word_at_which_each_round_sleeps_until_its_time_is_over_is_a_lock() {
    let asks = |expected: u64, answer: i32| {
        let program = program(&format!(
            "again: mov eax, 2
            xchg dword ptr [{OTHER}], eax
            mov eax, {}
            syscall
            test eax, eax
            jne again",
            libc::SYS_futex
        ));
        let program = program
            .word(OTHER, expected)
            .answer(libc::SYS_futex, answer.into());
        let arguments = [
            (Register::RDI, OTHER),
            (Register::RSI, 0x189),
            (Register::RDX, expected),
        ];
        let set = |program: Program, (register, value)| program.register(register, value);
        alone(arguments.into_iter().fold(program, set))
    };
    let sleeps = "the thread sleeps at it in every iteration, and the time limit runs out";
    asks(2, -libc::ETIMEDOUT).polls(OTHER).says(OTHER, sleeps);
    asks(0, -libc::ETIMEDOUT).no_flag();
    asks(2, -libc::EINTR).no_flag();
}

#[test]
fn a_loop_that_waits_for_a_lock_in_every_round_may_still_poll_what_it_guards() {
    let served = "other threads wake it in every iteration: it is served";
    const CONTENDED: u64 = 2;
    let sleeps_at = |expected| {
        let futex = polls_and_calls(libc::SYS_futex, 0);
        let futex = futex
            .register(Register::RDI, OTHER)
            .register(Register::RSI, 0x80);
        futex.register(Register::RDX, expected)
    };
    alone(sleeps_at(CONTENDED)).polls(WORD).reason_not(served);
    alone(sleeps_at(0)).no_flag().reason(served);
}

#[test]
fn a_loop_that_takes_what_it_wrote_itself_wakes_itself() {
    let taken = "the loop takes over data in every iteration: it makes progress";
    // write(3, ..), and a read of 8 bytes.
    let reads_from = |descriptor: i32| {
        let both = format!(
            "mov eax, {}; mov edi, 3; syscall
            mov eax, {}; mov edi, {descriptor}; syscall",
            libc::SYS_write,
            libc::SYS_read,
        );
        let both = polls_and(&both).register(Register::RSI, HEAP);
        both.answer(libc::SYS_write, 8).answer(libc::SYS_read, 8)
    };
    alone(reads_from(3)).polls(WORD).reason_not(taken);
    alone(reads_from(4)).no_flag().reason(taken);
}

#[test]
fn a_loop_that_does_something_else_in_every_round_waits_for_nothing() {
    let else_each_time = "no two iterations of the loop go the same way";
    const ROUTINES: u64 = 13;
    let goes_through = |routines: u64| {
        let start = program(&format!(
            "cmp dword ptr [{WORD}], 7
            je {OUT}
            jmp qword ptr [rip + code + {OTHER} - {MAIN}]"
        ));
        let routine = format!(".fill 20, 1, 0x90; jmp {MAIN}"); // twenty times `nop`
        let one = |program: Program, number: u64| {
            program.function("routine", CALLED + 0x100 * number, &routine)
        };
        let all = (0..ROUTINES).fold(start, one);
        all.changing(OTHER, move |round| CALLED + 0x100 * (round % routines))
    };
    live(goes_through(ROUTINES))
        .no_flag()
        .reason(else_each_time);
    live(goes_through(2)).polls(WORD).reason_not(else_each_time);
}

#[test]
fn a_loop_that_writes_new_data_each_time_does_work() {
    let work = "the loop also writes new data: it does work";
    let writes = |step: i32| {
        let write = format!("mov dword ptr [rdi], 1; add rdi, {step}");
        polls_and(&write).register(Register::RDI, HEAP)
    };
    alone(writes(64)).says(WORD, work);
    alone(writes(0)).polls(WORD).says_not(WORD, work);
}

#[test]
fn few_rounds_of_a_loop_that_does_work_say_little() {
    let few = "only few iterations were seen";
    let writes = |rounds| {
        let write: Code = "mov dword ptr [rdi], 1; mov dword ptr [rdi + 8], 1; add rdi, 64";
        polls_and(write)
            .register(Register::RDI, HEAP)
            .rounds(rounds)
    };
    live(writes(3)).says(WORD, few);
    live(writes(5)).says_not(WORD, few);
    live(polls_and("nop").rounds(3))
        .polls(WORD)
        .says_not(WORD, few);
}

#[test]
fn a_word_that_the_thread_writes_itself_is_left_out() {
    let writes = |address: u64| {
        polls_and(&format!("inc dword ptr [{address}]"))
            .word(WORD, 8)
            .word(OTHER, 8)
    };
    alone(writes(WORD)).no_flag().leaves_out(WORD);
    alone(writes(OTHER)).polls(WORD);
}

#[test]
fn what_repeats_nothing_is_no_loop() {
    let nothing = "repeats nothing within";
    alone(polls_and("nop").rounds(1)).no_flag().reason(nothing);
    alone(polls_and("nop").rounds(4))
        .polls(WORD)
        .reason_not(nothing);
}

#[test]
fn a_word_that_an_atomic_tries_to_take_is_a_lock() {
    let asks =
        |with: &str| program(&format!("again: xor eax, eax; {with}; jne again")).word(WORD, 1);
    let takes = format!("lock cmpxchg dword ptr [{WORD}], ecx");
    let compares = format!("cmp dword ptr [{WORD}], eax");
    alone(asks(&takes)).verdict(Verdict::Lock).first(WORD);
    alone(asks(&compares)).polls(WORD);
}
