// SPDX-License-Identifier: MIT
//! Loops that nothing can end, whoever writes what.

use iced_x86::Register;

use crate::found::alone;
use crate::program::*;

/// An entry of the list is a number, and the address of the next entry.
const NEXT: u64 = 8;
const SECOND: u64 = HEAP + 0x40;
const THIRD: u64 = HEAP + 0x80;

/// Looks for the entry with number 7, to the end of the list, or without one.
fn search(end: Option<i32>) -> Program {
    let ends = end.map(|end| format!("cmp rbx, {end}; je {OUT}"));
    program(&format!(
        "again: mov rbx, qword ptr [rbx + {NEXT}]
        {}
        cmp dword ptr [rbx], 7
        jne again",
        ends.unwrap_or_default()
    ))
    .register(Register::RBX, HEAP)
}

#[test]
fn a_search_in_a_list_that_leads_back_to_an_entry_has_no_end() {
    alone(search(Some(0)).word(HEAP + NEXT, HEAP))
        .no_flag()
        .reason("leads back to its own entry");
    let three = |program: Program| {
        program
            .word(HEAP + NEXT, SECOND)
            .word(SECOND + NEXT, THIRD)
            .word(THIRD + NEXT, HEAP)
    };
    alone(three(search(Some(0))))
        .no_flag()
        .reason("form a circle of 3 entries");
    let at_its_head = search(Some(THIRD as i32));
    alone(
        at_its_head
            .word(HEAP + NEXT, SECOND)
            .word(SECOND + NEXT, HEAP),
    )
    .no_flag()
    .reason("form a circle of 2 entries");
    alone(search(None).word(HEAP + NEXT, HEAP)).polls(HEAP);
}

#[test]
fn the_first_entry_of_a_list_that_the_loop_takes_again_and_again_is_no_circle() {
    // mov rbx, [WORD]; test; je OUT; cmp [rbx], 7
    let first = program(&format!(
        "again: mov rbx, qword ptr [{WORD}]
        test rbx, rbx
        je {OUT}
        cmp dword ptr [rbx], 7
        jne again"
    ));
    alone(first.word(WORD, HEAP)).polls(HEAP);
}

#[test]
fn a_list_whose_links_change_is_no_circle() {
    let other = |round: u64| [HEAP, SECOND][(round / 3 % 2) as usize];
    let changes = search(Some(0))
        .changing(HEAP + NEXT, other)
        .changing(SECOND + NEXT, other);
    let told = alone(changes).report.reason;
    assert!(!told.starts_with("nothing ends the loop"), "{told}");
}

#[test]
fn a_loop_without_a_test_has_no_end() {
    let jumps = |tests: &str| program(&format!("again: pause; {tests} jmp again"));
    alone(jumps("")).no_flag().reason("it has no branch");
    alone(jumps(&format!("cmp dword ptr [{WORD}], 0; jne {OUT};"))).polls(WORD);
}
