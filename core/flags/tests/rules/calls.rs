// SPDX-License-Identifier: MIT
//! System calls: when one is what repeats the loop, and what speaks against it.

use iced_x86::Register;

use crate::found::{alone, live};
use crate::program::*;

const NOT_YET: i64 = -(libc::EAGAIN as i64);
const MISSING: i64 = -(libc::ENOENT as i64);

/// The call, with the arguments (3, HEAP, 512); then what the loop does with the answer.
fn calls(number: i64, then: Code) -> Program {
    program(&format!("mov eax, {number}; syscall; {then}; jmp {MAIN}"))
        .register(Register::RDI, 3)
        .register(Register::RSI, HEAP)
        .register(Register::RDX, 512)
}

fn leaves_when_positive() -> String {
    format!("test eax, eax; jg {OUT}")
}

fn leaves_when_it_fails() -> String {
    format!("test eax, eax; js {OUT}")
}

#[test]
fn a_call_whose_answer_decides_is_what_repeats_the_loop() {
    let decides = "its result decides 1 branches that could leave the loop";
    let read = |then: Code| calls(libc::SYS_read, then).answer(libc::SYS_read, NOT_YET);
    alone(read(&leaves_when_positive()))
        .calls("read")
        .says_of_call(decides);
    alone(read("nop")).says_not_of_call(decides);
}

/// Two calls, one behind the other; each decides whether the loop goes on.
fn two(first: (i64, i64), second: (i64, i64)) -> Program {
    let calls = [first, second].map(|(number, answer)| {
        format!("mov eax, {number}; mov rdi, 3; syscall; cmp eax, {answer}; jne {OUT}\n")
    });
    program(&format!("{} jmp {MAIN}", calls.concat()))
        .register(Register::RDX, (libc::O_CREAT | libc::O_EXCL) as u64)
        .answer(first.0, first.1)
        .answer(second.0, second.1)
}

#[test]
fn a_lock_that_another_has_comes_before_other_questions() {
    const TAKEN: i64 = -(libc::EEXIST as i64);
    let stat = (libc::SYS_newfstatat, 0);
    for asks in [libc::SYS_link, libc::SYS_symlink, libc::SYS_openat] {
        let lock = (asks, TAKEN);
        let name = flagfinder_linux::syscalls::name(asks as u32);
        alone(two(stat, lock)).calls(&name);
        alone(two(lock, stat)).calls(&name);
    }
    alone(two(stat, (libc::SYS_readlink, 5))).calls("newfstatat");
}

#[test]
fn that_a_descriptor_could_be_made_is_no_reason_to_ask_again() {
    let answer = (libc::SYS_recvfrom, -i64::from(libc::ECONNREFUSED));
    let made = |result| (libc::SYS_socket, result);
    alone(two(made(4), answer)).calls("recvfrom");
    alone(calls(libc::SYS_socket, &leaves_when_it_fails()).answer(libc::SYS_socket, 4)).no_flag();
    let refused = -i64::from(libc::EMFILE);
    let none = calls(libc::SYS_socket, &leaves_when_positive());
    alone(none.answer(libc::SYS_socket, refused)).calls("socket");
}

#[test]
fn a_question_that_always_fails_repeats_the_loop_though_no_branch_tells() {
    let vain = "nothing else that is asked of the system gives another answer";
    let stat = |answer| calls(libc::SYS_newfstatat, "nop").answer(libc::SYS_newfstatat, answer);
    alone(stat(MISSING)).calls("newfstatat").says_of_call(vain);
    alone(stat(0))
        .no_flag()
        .reason("no exit of the loop depends on memory");
}

#[test]
fn a_poll_that_finds_what_nobody_takes_repeats_the_loop() {
    let never = "what it finds ready is never taken, so it does not wait";
    let poll = |then: Code| {
        calls(libc::SYS_poll, then)
            .register(Register::RDI, HEAP)
            .register(Register::RSI, 1)
            .answer(libc::SYS_poll, 1)
            .answer(libc::SYS_read, 90)
    };
    alone(poll("nop")).calls("poll").says_of_call(never);
    let takes = format!("mov eax, {}; syscall", libc::SYS_read);
    alone(poll(&takes))
        .no_flag()
        .reason("the loop takes over data in every iteration");
}

#[test]
fn a_call_whose_answer_changes_is_doubted() {
    let changes = "its answer changes while the loop goes on";
    let fails_otherwise_each = |rounds: u64| {
        calls(libc::SYS_read, &leaves_when_positive()).answers(libc::SYS_read, move |round| {
            if round % rounds == 0 {
                MISSING
            } else {
                NOT_YET
            }
        })
    };
    alone(fails_otherwise_each(2))
        .no_flag()
        .says_of_call(changes);
    alone(fails_otherwise_each(1))
        .calls("read")
        .says_not_of_call(changes);
}

#[test]
fn a_call_whose_answer_changed_once_is_told_of_as_such() {
    let not_always = "its result is not always the same";
    let interrupted_in = |when: u64| {
        calls(libc::SYS_read, &leaves_when_positive()).answers(libc::SYS_read, move |round| {
            if round == when {
                MISSING
            } else {
                0
            }
        })
    };
    alone(interrupted_in(5))
        .calls("read")
        .says_of_call(not_always);
    alone(interrupted_in(100))
        .calls("read")
        .says_not_of_call(not_always);
}

/// A call in some of 24 rounds, within a function that the loop calls.
fn now_and_then(number: i64, answer: i64, each: u64) -> Program {
    let leaves = match answer < 0 {
        true => leaves_when_positive(),
        false => leaves_when_it_fails(),
    };
    program(&format!("call {CALLED}; jmp {MAIN}"))
        .function(
            "asks",
            CALLED,
            &format!(
                "cmp dword ptr [{OTHER}], 0
        jne back
        mov eax, {number}
        syscall
        {leaves}
        back: ret"
            ),
        )
        .changing(OTHER, move |round| round % each)
        .register(Register::RDI, 3)
        .answer(number, answer)
        .rounds(24)
}

#[test]
fn a_call_that_few_rounds_make_is_doubted() {
    let few = "it is made in few iterations only";
    let reads = |each| now_and_then(libc::SYS_flock, 0, each);
    alone(reads(5)).no_flag().says_of_call(few);
    alone(reads(2)).calls("flock").says_not_of_call(few);
}

#[test]
fn a_call_that_hands_data_over_is_doubted() {
    let hands = "it hands data over: the loop makes progress";
    let writes = |answer| now_and_then(libc::SYS_write, answer, 2);
    alone(writes(5)).no_flag().says_of_call(hands);
    alone(writes(0)).calls("write").says_not_of_call(hands);
}

#[test]
fn a_file_that_says_the_same_again_moves_no_data() {
    let taken = "the loop takes over data in every iteration";
    let looks = |says: fn(u64) -> u64| {
        calls(
            libc::SYS_pread64,
            &format!("test eax, eax; js {OUT}; cmp dword ptr [{HEAP}], 7; je {OUT}"),
        )
        .answer(libc::SYS_pread64, 9)
        .changing(HEAP, says)
    };
    alone(looks(|_| 3)).calls("pread64").reason_not(taken);
    alone(looks(|round| 100 + round)).no_flag().reason(taken);
}

/// A call, and a word that the loop polls: cmp [WORD], 0; jne OUT.
fn beside_a_word(number: i64, answer: i64) -> Program {
    let leaves = leaves_when_positive();
    calls(
        number,
        &format!("{leaves}; cmp dword ptr [{WORD}], 0; jne {OUT}"),
    )
    .answer(number, answer)
}

#[test]
fn a_call_that_decides_comes_before_a_word_but_not_a_poll_in_passing() {
    let comes_first = "the result of a system call decides as well, and comes first";
    alone(beside_a_word(libc::SYS_read, NOT_YET))
        .calls("read")
        .says(WORD, comes_first);
    alone(beside_a_word(libc::SYS_poll, 0))
        .polls(WORD)
        .says_not(WORD, comes_first);
}

#[test]
fn a_poll_comes_before_a_word_that_only_a_signal_s_handler_writes() {
    live(beside_a_word(libc::SYS_poll, 0)).polls(WORD);
    live(beside_a_word(libc::SYS_poll, 0).of_one_thread()).calls("poll");
}

#[test]
fn a_call_of_a_loop_that_takes_over_data_is_doubted() {
    let taken = "data is taken over in (nearly) every iteration: the loop makes progress";
    let read =
        |answer| calls(libc::SYS_read, &leaves_when_it_fails()).answer(libc::SYS_read, answer);
    alone(read(90)).no_flag().says_of_call(taken);
    alone(read(0)).calls("read").says_not_of_call(taken);
}

#[test]
fn a_call_of_a_loop_that_others_wake_is_doubted() {
    let woken = "other threads wake it in (nearly) every iteration: it is served";
    let leaves = leaves_when_positive();
    let sleeps = |answer| {
        let then = format!("{leaves}; mov eax, {}; syscall", libc::SYS_futex);
        calls(libc::SYS_flock, &then)
            .register(Register::RSI, 0x80)
            .register(Register::RDX, 0)
            .answer(libc::SYS_flock, NOT_YET)
            .answer(libc::SYS_futex, answer)
    };
    alone(sleeps(0)).no_flag().says_of_call(woken);
    alone(sleeps(NOT_YET))
        .calls("flock")
        .says_not_of_call(woken);
}
