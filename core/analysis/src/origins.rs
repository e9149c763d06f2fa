// SPDX-License-Identifier: MIT
//! What the values of one step were made from: the words that were read and the system calls that
//! answered, back to the beginning of the window.
//!
//! A constant was chosen by a branch (`return -1` after a failed call), so what that branch tested
//! is followed as well. What only forms an address is not. Blind spots: constants chosen by code
//! that jumped over others long before.

use flagfinder_machine::Window;
use iced_x86::FlowControl;
use rustc_hash::FxHashSet;

use crate::dependence::{Dependence, Input};

/// Most steps that are followed.
const LIMIT: usize = 20_000;
/// Most branches that may have chosen one constant, and how far back they are looked for.
const DECIDERS: usize = 3;
const REACH: u32 = 2000;

/// Something that the step was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Memory that this thread did not write within the window.
    Word {
        /// Of the instruction that read it.
        step: u32,
        /// Run-time address.
        address: u64,
        /// How many were read.
        bytes: u32,
        /// What was read; `None` when it is not known.
        value: Option<u64>,
    },
    /// What a system call returned, or wrote into memory.
    Call {
        /// Of the `syscall` instruction.
        step: u32,
    },
}

/// The origins of what `step` reads; the nearest comes first. `choices`: also the origins of the
/// tests that chose constants.
pub fn origins(window: &Window, step: u32, choices: bool) -> Vec<Origin> {
    let dependence = Dependence::new(window);
    let mut found: Vec<Origin> = Vec::new();
    let mut seen: FxHashSet<u32> = FxHashSet::default();
    let mut work = vec![step];
    // Choices come after the values that enter directly.
    let mut chosen = Vec::new();
    while let Some(at) = work.pop().or_else(|| chosen.pop()) {
        if !seen.insert(at) || seen.len() > LIMIT {
            continue;
        }
        if window.syscall_at(at).is_some() {
            add(&mut found, Origin::Call { step: at });
            continue;
        }
        let inputs = dependence.inputs(at);
        for (index, access) in window.accesses(at).iter().enumerate() {
            let Some(address) = access.address.filter(|_| !access.write) else {
                continue;
            };
            let own = inputs.iter().any(|e| e.input == Input::Memory(index as u8));
            if !own {
                let origin = Origin::Word {
                    step: at,
                    address,
                    bytes: access.bytes,
                    value: access.value.get((access.bytes * 8).min(64)),
                };
                add(&mut found, origin);
            }
        }
        let values = inputs.iter().filter(|edge| edge.input != Input::Address);
        work.extend(values.map(|edge| edge.from));
        let code = window.code(at);
        if choices && code.reads == 0 && !code.memory.iter().any(|memory| memory.read) {
            chosen.extend(deciders(window, at));
        }
    }
    found
}

fn add(found: &mut Vec<Origin>, origin: Origin) {
    if !found.contains(&origin) {
        found.push(origin);
    }
}

/// The last branches of its own function before the step.
fn deciders(window: &Window, step: u32) -> Vec<u32> {
    let frame = window.rsp(step);
    let mut found = Vec::new();
    for at in (step.saturating_sub(REACH)..step).rev() {
        let flow = window.code(at).instruction.flow_control();
        let depth = window.rsp(at);
        if flow == FlowControl::ConditionalBranch && depth == frame {
            found.push(at);
        }
        let enters = matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
        if found.len() == DECIDERS || enters && depth > frame && frame != 0 && !found.is_empty() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::evaluator::Access;
    use flagfinder_machine::value::Value;
    use flagfinder_machine::Syscall;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    const WORD: u64 = 0x5000;

    /// These instructions one after the other; one that reads memory reads 1 from [`WORD`].
    fn window(code: &[&[u8]]) -> Window {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for (number, bytes) in code.iter().enumerate() {
            let pc = 0x1000 + number as u64 * 16;
            let code = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
            let index = window.intern(&code, 0, &mut factory);
            window.push(index, Value::of(0x7000));
            if window.code(window.len() - 1).memory.iter().any(|m| m.read) {
                window.push_access(Access {
                    address: Some(WORD),
                    bytes: 4,
                    write: false,
                    value: Value::of(1),
                });
            }
            if *bytes == SYSCALL {
                window.syscalls.push(Syscall {
                    step: number as u32,
                    number: 0,
                    args: [0; 6],
                    result: Some(-2),
                    written: Vec::new(),
                });
            }
        }
        window
    }

    const LOAD: &[u8] = &[0x8b, 0x03]; // mov eax, [rbx]
    const SYSCALL: &[u8] = &[0x0f, 0x05];
    const TEST: &[u8] = &[0x85, 0xc0]; // test eax, eax
    const JNE: &[u8] = &[0x75, 0x10];
    const CONSTANT: &[u8] = &[0xb8, 1, 0, 0, 0]; // mov eax, 1

    fn word(step: u32) -> Origin {
        Origin::Word {
            step,
            address: WORD,
            bytes: 4,
            value: Some(1),
        }
    }

    #[test]
    fn a_branch_goes_back_to_what_was_read() {
        assert_eq!(origins(&window(&[LOAD, TEST, JNE]), 2, true), [word(0)]);
        let called = window(&[LOAD, SYSCALL, TEST, JNE]);
        assert_eq!(origins(&called, 3, true), [Origin::Call { step: 1 }]);
    }

    #[test]
    fn a_constant_was_chosen_by_a_branch() {
        let chosen = window(&[LOAD, TEST, JNE, CONSTANT, TEST, JNE]);
        assert_eq!(origins(&chosen, 5, true), [word(0)]);
        assert_eq!(origins(&chosen, 5, false), []);
    }
}
