// SPDX-License-Identifier: MIT
//! A loop that counts in a register towards a bound in memory, however its iterations are cut.

use flagfinder_machine::evaluator::Access;
use flagfinder_machine::value::Value;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

use super::*;

const BOUND: u64 = 0x5000;
const RAX: u8 = 0;

/// jge out; add rax, 1 (or a nop as long); cmp rax, [rbx]; and back.
const JGE: (u64, &[u8]) = (0x1000, &[0x7d, 0x20]);
const ADD: (u64, &[u8]) = (0x1002, &[0x48, 0x83, 0xc0, 0x01]);
const NOP: (u64, &[u8]) = (0x1002, &[0x0f, 0x1f, 0x40, 0x00]);
const CMP: (u64, &[u8]) = (0x1006, &[0x48, 0x3b, 0x03]);

/// The loop that begins anew at each of `starts`.
fn rounds(window: &Window, starts: Vec<u32>) -> SpinLoop {
    SpinLoop {
        marker: window.code_index(0),
        iterations: starts.len() as u64 - 1,
        end: window.len(),
        starts,
    }
}

/// The exits of rounds of these instructions.
fn exits(round: [(u64, &[u8]); 3]) -> Vec<Exit> {
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    let mut starts = Vec::new();
    for number in 0..8 {
        starts.push(window.len());
        for (pc, bytes) in round {
            let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(0x7000));
            match pc {
                0x1002 if bytes == ADD.1 => window.push_result(RAX, Value::of(number)),
                0x1006 => window.push_access(Access {
                    address: Some(BOUND),
                    bytes: 8,
                    write: false,
                    value: Value::of(1000),
                }),
                _ => {}
            }
        }
    }
    let spin = rounds(&window, starts);
    let dependence = Dependence::new(&window);
    Slicer::new(&window, &dependence, &spin).exits(false, &|_, _| false)
}

#[test]
fn a_counter_is_the_threads_own_doing() {
    for round in [[JGE, ADD, CMP], [ADD, CMP, JGE], [CMP, JGE, ADD]] {
        let exits = exits(round);
        assert_eq!(exits.len(), 1);
        assert!(
            exits[0].induction,
            "a round that begins at {:#x}",
            round[0].0
        );
        assert!(
            matches!(exits[0].sources[..], [Source::Load { .. }]),
            "{:?}",
            exits[0].sources
        );
    }
}

#[test]
fn a_value_that_stays_is_no_count() {
    for round in [[JGE, NOP, CMP], [NOP, CMP, JGE], [CMP, JGE, NOP]] {
        let exits = exits(round);
        assert_eq!(exits.len(), 1);
        assert!(
            !exits[0].induction,
            "a round that begins at {:#x}",
            round[0].0
        );
    }
}

const SLOTS: u64 = 0x5000;
const RBX: u8 = 3;
/// xor ebx, ebx; then for each slot one of the two compares; je out; add rbx, 64; jmp back; out:
/// nop.
const BEGIN: (u64, &[u8]) = (0x0ffe, &[0x31, 0xdb]);
const CMP_SLOT: (u64, &[u8]) = (0x1000, &[0x48, 0x83, 0x3b, 0x05]);
const CMP_RBX: (u64, &[u8]) = (0x1000, &[0x48, 0x83, 0xfb, 0x00]);
const JE: (u64, &[u8]) = (0x1004, &[0x74, 0x20]);
const NEXT: (u64, &[u8]) = (0x1006, &[0x48, 0x83, 0xc3, 0x40]);
const AGAIN: (u64, &[u8]) = (0x100a, &[0xeb, 0xf4]);
const OUT: (u64, &[u8]) = (0x1026, &[0x90]);

/// The exits of rounds that look at three slots and end at the third.
fn exits_of_scan(compare: (u64, &'static [u8]), scans: bool) -> Vec<(Exit, Option<u64>)> {
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    let mut starts = Vec::new();
    for _ in 0..8 {
        starts.push(window.len());
        let mut round = vec![BEGIN];
        for _ in 0..2 {
            round.extend([compare, JE, NEXT, AGAIN]);
        }
        round.extend([compare, JE, OUT]);
        let mut slot = SLOTS;
        for (pc, bytes) in round {
            let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(0x7000));
            if bytes == NEXT.1 {
                slot += 64;
                window.push_result(RBX, Value::of(slot));
            } else if bytes == CMP_SLOT.1 {
                window.push_access(Access {
                    address: Some(slot),
                    bytes: 8,
                    write: false,
                    value: Value::of(0),
                });
            }
        }
    }
    let spin = rounds(&window, starts);
    let dependence = Dependence::new(&window);
    let exits = Slicer::new(&window, &dependence, &spin).exits(scans, &|_, _| false);
    let address = |exit: &Exit| match exit.sources[..] {
        [Source::Load { step, access, .. }] => window.accesses(step)[usize::from(access)].address,
        _ => None,
    };
    exits
        .into_iter()
        .map(|e| (e.clone(), address(&e)))
        .collect()
}

#[test]
fn a_scan_ends_at_what_keeps_the_loop_going() {
    let found = exits_of_scan(CMP_SLOT, true);
    assert_eq!(found.len(), 1);
    assert!(found[0].0.ends_scan && !found[0].0.induction);
    assert_eq!(found[0].1, Some(SLOTS + 128));
    assert!(exits_of_scan(CMP_SLOT, false).is_empty());
}

#[test]
fn a_scan_that_a_count_ends_came_to_its_end() {
    assert!(exits_of_scan(CMP_RBX, true).is_empty());
}

/// What counts come to their end in rounds of: an end is computed from a word, `add rax, 8` (or a
/// nop as long), `cmp rdi, rax`, jne back.
fn counted(advance: &[u8]) -> usize {
    let round: [(u64, &[u8]); 5] = [
        (0x1000, &[0x48, 0x8b, 0x3b]), // mov rdi, [rbx]
        (0x1003, advance),
        (0x1007, &[0x48, 0x39, 0xc7]), // cmp rdi, rax
        (0x100a, &[0x75, 0xf7]),       // jne 0x1003
        (0x100c, &[0xeb, 0xf2]),       // jmp 0x1000
    ];
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    let mut starts = Vec::new();
    for _ in 0..8 {
        starts.push(window.len());
        for (pc, bytes) in round {
            let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(0x7000));
        }
    }
    let spin = rounds(&window, starts);
    let dependence = Dependence::new(&window);
    Slicer::new(&window, &dependence, &spin).counted().len()
}

#[test]
fn a_count_that_ends_at_once_is_a_count() {
    assert_eq!(counted(&[0x48, 0x83, 0xc0, 0x08]), 1);
    assert_eq!(counted(&[0x0f, 0x1f, 0x40, 0x00]), 0, "nothing is counted");
}

#[test]
fn a_word_that_is_read_again_and_again_enters_once() {
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    let read = |address| Access {
        address: Some(address),
        bytes: 8,
        write: false,
        value: Value::of(1),
    };
    for address in [BOUND, BOUND, BOUND + 8] {
        let mut decoder = Decoder::with_ip(64, CMP.1, CMP.0, DecoderOptions::NONE);
        let index = window.intern(&decoder.decode(), 0, &mut factory);
        window.push(index, Value::of(0x7000));
        window.push_access(read(address));
    }
    let load = |step| Source::Load {
        step,
        access: 0,
        address_only: true,
    };
    let mut exit = Exit {
        step: 0,
        transfer: Transfer::Branch,
        taken: false,
        other: Some(0),
        sources: (0..3).map(load).collect(),
        words: 0,
        induction: false,
        ends_scan: false,
    };
    exit.count_words(&window);
    assert_eq!(exit.words, 2);
}

/// Do exits of rounds depend on [`BOUND`]? A function compares it with a register, `ja`, and
/// returns 1; the loop tests the answer.
fn depends_on_bound(compare: &[u8]) -> bool {
    // call 0x2000; test eax, eax; je out; jmp back
    const LOOP: [(u64, &[u8]); 4] = [
        (0x1000, &[0xe8, 0xfb, 0x0f, 0, 0]),
        (0x1005, &[0x85, 0xc0]),
        (0x1007, &[0x74, 0x20]),
        (0x1009, &[0xeb, 0xf5]),
    ];
    // (the compare); jbe to more stack; mov eax, 1; ret
    let callee: [(u64, &[u8]); 4] = [
        (0x2000, compare),
        (0x2003, &[0x76, 0x40]),
        (0x2005, &[0xb8, 1, 0, 0, 0]),
        (0x200a, &[0xc3]),
    ];
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    let mut starts = Vec::new();
    for _ in 0..8 {
        starts.push(window.len());
        let (call, rest) = LOOP.split_at(1);
        for &(pc, bytes) in call.iter().chain(&callee).chain(rest) {
            let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(if pc < 0x2000 { 0x7000 } else { 0x6ff8 }));
            if pc == 0x2000 {
                window.push_access(Access {
                    address: Some(BOUND),
                    bytes: 8,
                    write: false,
                    value: Value::of(0x1000),
                });
            }
        }
    }
    let spin = rounds(&window, starts);
    let dependence = Dependence::new(&window);
    let exits = Slicer::new(&window, &dependence, &spin).exits(false, &|_, _| false);
    let reads_bound = |source: &Source| match source {
        Source::Load { step, access, .. } => {
            window.accesses(*step)[usize::from(*access)].address == Some(BOUND)
        }
        Source::Syscall { .. } => false,
    };
    exits
        .iter()
        .any(|exit| exit.sources.iter().any(reads_bound))
}

#[test]
fn how_much_stack_is_left_decides_nothing() {
    const CMP_RSP: &[u8] = &[0x48, 0x3b, 0x23];
    const CMP_RCX: &[u8] = &[0x48, 0x3b, 0x0b];
    assert!(depends_on_bound(CMP_RCX));
    assert!(!depends_on_bound(CMP_RSP));
}
