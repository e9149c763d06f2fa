// SPDX-License-Identifier: MIT
//! What a word is and how it is read: how often, with which value, in which memory.

use iced_x86::Register;

use crate::found::{alone, live};
use crate::program::*;

/// cmp [address], 7; jne again
fn polls(address: u64) -> Program {
    program(&format!("again: cmp dword ptr [{address}], 7; jne again"))
}

#[test]
fn a_word_that_some_rounds_do_not_read_is_less_likely() {
    let few = "read in only 8 of 12 iterations";
    let all = "read at the same address in 12 of 12 iterations";
    let looks_elsewhere = |each: u64| {
        program(&format!(
            "again: mov rdi, qword ptr [{OTHER}]; cmp dword ptr [rdi], 7; jne again"
        ))
        .changing(OTHER, move |round| WORD + 64 * u64::from(round % each == 1))
    };
    alone(looks_elsewhere(3))
        .says(WORD, few)
        .says_not(WORD, all);
    alone(looks_elsewhere(1))
        .polls(WORD)
        .says(WORD, all)
        .says_not(WORD, few);
}

#[test]
fn a_word_that_changes_all_the_time_is_doubted() {
    let changes = "its value changes while the loop goes on";
    alone(polls(WORD).changing(WORD, |round| round % 2))
        .no_flag()
        .says(WORD, changes);
    alone(polls(WORD)).polls(WORD).says_not(WORD, changes);
}

#[test]
fn a_constant_is_left_out() {
    let none = "no exit of the loop depends on memory";
    alone(polls(CONSTANT))
        .no_flag()
        .leaves_out(CONSTANT)
        .reason(none);
    alone(polls(WORD)).polls(WORD).reason_not(none);
}

#[test]
fn what_the_c_library_tells_programs_about_themselves_is_left_out() {
    alone(polls(WORD).named(WORD, "__libc_single_threaded"))
        .no_flag()
        .leaves_out(WORD);
    alone(polls(WORD).named(WORD, "single_threaded")).polls(WORD);
}

#[test]
fn the_threads_own_block_is_left_out_and_anothers_tells_that_it_has_ended() {
    alone(polls(BLOCK + 0x40))
        .no_flag()
        .leaves_out(BLOCK + 0x40);
    alone(polls(OTHER_BLOCK + 0x40)).polls(OTHER_BLOCK + 0x40);
}

#[test]
fn the_threads_own_thread_local_memory_is_less_likely_than_anothers() {
    let (own, others) = (
        "it is the thread's own thread-local memory",
        "it is another thread's thread-local memory",
    );
    alone(polls(BLOCK - 0x40))
        .says(BLOCK - 0x40, own)
        .says_not(BLOCK - 0x40, others);
    let other = OTHER_BLOCK - 0x40;
    alone(polls(other))
        .polls(other)
        .says(other, others)
        .says_not(other, own);
}

#[test]
fn the_threads_own_stack_is_less_likely_than_anothers() {
    let (own, others) = ("it is on a stack", "it is on another thread's stack");
    alone(polls(STACK + 0x40))
        .says(STACK + 0x40, own)
        .says_not(STACK + 0x40, others);
    let other = OTHER_STACK + 0x40;
    alone(polls(other))
        .polls(other)
        .says(other, others)
        .says_not(other, own);
    alone(polls(WORD))
        .says_not(WORD, own)
        .says_not(WORD, others);
}

#[test]
fn a_word_that_code_reads_beside_itself_is_a_constant_of_that_code() {
    let (constant, executable) = ("a constant of that code", "it lies in executable memory");
    let word = MADE + 0x100;
    let polls = |from: &str| {
        begins_at(
            MADE,
            &format!("again: cmp dword ptr [{from}], 7; jne again"),
        )
        .register(Register::RBX, word)
    };
    let beside = format!("rip + code + {word} - {MADE}");
    alone(polls(&beside))
        .no_flag()
        .says(word, constant)
        .says_not(word, executable);
    alone(polls("rbx"))
        .polls(word)
        .says(word, executable)
        .says_not(word, constant);
}

#[test]
fn the_head_of_an_objects_page_is_a_memory_managers_word() {
    let manager = "a memory manager's word";
    let polls = |mask: i32| {
        program(&format!(
            "again: mov rdi, rsi; and rdi, {mask}; cmp dword ptr [rdi], 7; jne again"
        ))
        .register(Register::RSI, HEAP + 0x1018)
    };
    alone(polls(-4096)).says(HEAP + 0x1000, manager);
    alone(polls(-16))
        .polls(HEAP + 0x1010)
        .says_not(HEAP + 0x1010, manager);
}

#[test]
fn a_word_that_bounds_a_count_is_less_likely() {
    let bounds = "it bounds a count elsewhere in the loop";
    let counts_to = |bound: u64| {
        program(&format!(
            "again: xor ecx, ecx
            count: inc ecx
            cmp ecx, dword ptr [{bound}]
            jb count
            cmp dword ptr [{WORD}], 7
            jne again"
        ))
        .word(WORD, 3)
        .word(CONSTANT, 3)
    };
    alone(counts_to(WORD)).says(WORD, bounds);
    alone(counts_to(CONSTANT))
        .polls(WORD)
        .says_not(WORD, bounds);
}

#[test]
fn a_word_that_is_as_the_programs_file_has_it_is_a_setting() {
    let setting = "it is as the program's file has it, and not zero";
    let file_has = |value| polls(WORD).word(WORD, 5).in_file(WORD, value);
    live(file_has(5)).says(WORD, setting);
    live(file_has(0)).polls(WORD).says_not(WORD, setting);
}

#[test]
fn a_word_of_the_c_library_is_its_own() {
    let library = "it belongs to the C library itself";
    live(polls(LIBC_WORD)).says(LIBC_WORD, library);
    live(polls(WORD)).polls(WORD).says_not(WORD, library);
}

#[test]
fn without_another_run_it_is_told_that_nothing_else_is_known() {
    let unknown = "there is no good run to compare with";
    live(polls(WORD)).polls(WORD).says(WORD, unknown);
    alone(polls(WORD)).polls(WORD).says_not(WORD, unknown);
}
