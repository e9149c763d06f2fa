// SPDX-License-Identifier: MIT
//! Loops that a jump or a call by data would leave: toy state machines, and objects that are
//! swapped.

use flagfinder_machine::evaluator::Access;
use flagfinder_machine::value::Value;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

use super::*;
use crate::slice::Slicer;

const STATE: u64 = 0x5000;
const TABLE: u64 = 0x9000;
const RAX: u8 = 0;
const ROUNDS: u64 = 8;

/// An instruction, what it reads (address, bytes, value) and what it leaves in rax.
type Step = (u64, &'static [u8], Option<(u64, u32, u64)>, Option<u64>);

/// mov eax, [rbx]; movsxd rax, [rdx+rax*4]; add rax, rdx; jmp rax; and, there, a nop that jumps
/// back.
const MACHINE: [Step; 6] = [
    (0x1000, &[0x8b, 0x03], Some((STATE, 4, 3)), Some(3)),
    (
        0x1002,
        &[0x48, 0x63, 0x04, 0x82],
        Some((TABLE + 12, 4, 0x8100)),
        Some(0x8100),
    ),
    (0x1006, &[0x48, 0x01, 0xd0], None, Some(0x1100)),
    (0x1009, &[0xff, 0xe0], None, None),
    (0x1100, &[0x90], None, None),
    (0x1101, &[0xe9, 0xfa, 0xfe, 0xff, 0xff], None, None),
];

/// mov rax, [rbx]; mov rax, [rax]; call [rax+16]; (there) xor eax, eax; ret; (back) test al, al; je
/// to the begin.
const OBJECT: u64 = 0x6000;
const POLLED: [Step; 7] = [
    (
        0x1000,
        &[0x48, 0x8b, 0x03],
        Some((STATE, 8, OBJECT)),
        Some(OBJECT),
    ),
    (
        0x1003,
        &[0x48, 0x8b, 0x00],
        Some((OBJECT, 8, TABLE)),
        Some(TABLE),
    ),
    (
        0x1006,
        &[0xff, 0x50, 0x10],
        Some((TABLE + 16, 8, 0x2000)),
        None,
    ),
    (0x2000, &[0x31, 0xc0], None, Some(0)),
    (0x2002, &[0xc3], None, None),
    (0x1009, &[0x84, 0xc0], None, None),
    (0x100b, &[0x74, 0xf3], None, None),
];

/// The same loop without a test of what is returned.
const SERVED: [Step; 6] = [
    POLLED[0],
    POLLED[1],
    POLLED[2],
    POLLED[3],
    POLLED[4],
    (0x1009, &[0xeb, 0xf5], None, None),
];

/// jmp [rip+0x100]: through the linkage table to a function that jumps back.
const LINKAGE: [Step; 2] = [
    (
        0x1000,
        &[0xff, 0x25, 0x00, 0x01, 0x00, 0x00],
        Some((TABLE, 8, 0x2000)),
        None,
    ),
    (0x2000, &[0xe9, 0xfb, 0xef, 0xff, 0xff], None, None),
];

fn window(round: &[Step]) -> (Window, SpinLoop) {
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    let mut starts = Vec::new();
    for _ in 0..ROUNDS {
        starts.push(window.len());
        for &(pc, bytes, read, rax) in round {
            let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(if pc < 0x2000 { 0x7000 } else { 0x6ff8 }));
            if let Some((address, bytes, value)) = read {
                window.push_access(Access {
                    address: Some(address),
                    bytes,
                    write: false,
                    value: Value::of(value),
                });
            }
            if let Some(value) = rax {
                window.push_result(RAX, Value::of(value));
            }
        }
    }
    let spin = SpinLoop {
        marker: window.code_index(0),
        iterations: starts.len() as u64 - 1,
        end: window.len(),
        starts,
    };
    (window, spin)
}

/// The exits of these rounds: how, and the words outside the table that decide each as values.
fn exits(round: &[Step]) -> Vec<(Transfer, Vec<u64>)> {
    let (window, spin) = window(round);
    let dependence = Dependence::new(&window);
    let is_fixed = |_, address| (TABLE..TABLE + 0x100).contains(&address);
    let exits = Slicer::new(&window, &dependence, &spin).exits(false, &is_fixed);
    let word = |source: &Source| match *source {
        Source::Load {
            step,
            access,
            address_only: false,
        } => window.accesses(step)[usize::from(access)].address,
        _ => None,
    };
    let decided = exits.iter().map(|exit| {
        let words = exit.sources.iter().filter_map(word);
        let mut words: Vec<u64> = words.filter(|at| !is_fixed(0, *at)).collect();
        words.sort_unstable();
        words.dedup();
        (exit.transfer, words)
    });
    decided.collect()
}

#[test]
fn a_jump_by_a_table_is_left_by_the_number_of_its_case() {
    assert_eq!(exits(&MACHINE), [(Transfer::Jump, vec![STATE])]);
}

#[test]
fn a_jump_that_goes_to_several_places_is_no_exit() {
    let mut rounds = MACHINE.to_vec();
    rounds.extend(MACHINE);
    rounds[10].0 = 0x1200;
    rounds[11].0 = 0x1201;
    assert_eq!(exits(&rounds), []);
}

#[test]
fn the_choice_of_a_called_object_decides_its_answer() {
    assert_eq!(exits(&POLLED), [(Transfer::Branch, vec![STATE, OBJECT])]);
}

#[test]
fn without_any_test_the_call_is_the_way_out() {
    assert_eq!(exits(&SERVED), [(Transfer::Call, vec![STATE, OBJECT])]);
}

#[test]
fn linkage_is_no_way_out() {
    assert_eq!(exits(&LINKAGE), []);
}
