// SPDX-License-Identifier: MIT
//! Code that a program made for itself as it runs (a JIT compiler's, an emulator's): it lies in no
//! module.
//!
//! Such code keeps a pointer to the state of its thread in one register for good, and finds there
//! what its virtual machine wants of it: a stop, an exception, the end of the stack. The machine's
//! own code asks there, too. These words are the thread's own, as its thread-local ones are. Blind
//! spots: machines that keep no such register, and state that does not lie together.

use flagfinder_code::Names;
use flagfinder_machine::decoded::{Decoded, Segment};
use flagfinder_machine::Window;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::spin_loop::SpinLoop;

/// A register by which fewer different words are reached may hold any object.
const WORDS: usize = 5;
/// Largest distance of state from the place that the register points to.
const NEAR: u64 = 4096;

const RSP: u8 = 4;

/// What of a window's code is generated, and where such code keeps its thread's state.
pub struct Generated {
    /// By static instruction.
    is_generated: Vec<bool>,
    /// The loop is generated code; code of modules serves it.
    pub holds_loop: bool,
    /// Addresses at which generated code keeps the thread's state.
    contexts: Vec<u64>,
}

impl Generated {
    /// Of all code of the window.
    pub fn of(window: &Window, spin: &SpinLoop, names: &Names) -> Generated {
        let is_generated: Vec<bool> = (0..window.code_count() as u32)
            .map(|index| names.module_place(window.code_at(index).pc()).is_none())
            .collect();
        Generated {
            holds_loop: is_generated[spin.marker as usize],
            contexts: contexts(window, spin, &is_generated),
            is_generated,
        }
    }

    /// Does the step execute generated code?
    pub fn is_at(&self, window: &Window, step: u32) -> bool {
        self.is_generated[window.code_index(step) as usize]
    }

    /// Was any seen at all?
    pub fn any(&self) -> bool {
        self.is_generated.contains(&true)
    }

    /// Is it part of the thread's state, to which generated code has a pointer?
    pub fn is_context(&self, address: u64) -> bool {
        let mut contexts = self.contexts.iter();
        contexts.any(|context| context.abs_diff(address) < NEAR)
    }
}

/// Values of the registers that generated code never changes in the loop, and by which it reaches
/// many words.
fn contexts(window: &Window, spin: &SpinLoop, is_generated: &[bool]) -> Vec<u64> {
    let mut reached: FxHashMap<u8, (FxHashSet<u64>, FxHashSet<u64>)> = FxHashMap::default();
    for step in spin.first_step()..spin.end {
        if !is_generated[window.code_index(step) as usize] {
            continue;
        }
        let code = window.code(step);
        let Some((base, memory)) = only_operand(code) else {
            continue;
        };
        let address = window.accesses(step).first().and_then(|a| a.address);
        if let Some(address) = address {
            let (values, words) = reached.entry(base).or_default();
            values.insert(address.wrapping_sub(memory));
            words.insert(memory);
        }
    }
    let near_stack = |value: u64| window.rsp(spin.first_step()).abs_diff(value) < 1 << 20;
    let kept = reached.into_values().filter_map(|(values, words)| {
        let value = values.iter().next().copied();
        value.filter(|&value| values.len() == 1 && words.len() >= WORDS && !near_stack(value))
    });
    kept.collect()
}

/// Base register and displacement of an instruction with one memory operand that has nothing else.
fn only_operand(code: &Decoded) -> Option<(u8, u64)> {
    let memory = code.memory.first()?;
    let base = memory.base.filter(|&base| base != RSP)?;
    let plain = memory.index.is_none() && memory.segment == Segment::Flat;
    let only = code.memory.iter().all(|other| {
        (other.base, other.index, other.displacement) == (memory.base, None, memory.displacement)
    });
    (plain && only).then_some((base, memory.displacement))
}

#[cfg(test)]
mod tests {
    use flagfinder_code::NamesInput;
    use flagfinder_machine::evaluator::Access;
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    const STATE: u64 = 0x50_0000;

    /// Four rounds of `mov eax, [r15+d]`, for these d, with r15 going on by `moves` each time.
    fn generated(displacements: &[u8], moves: u64) -> Generated {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        let mut starts = Vec::new();
        for round in 0..4 {
            starts.push(window.len());
            for (at, &displacement) in displacements.iter().enumerate() {
                let code = [0x41, 0x8b, 0x47, displacement];
                let pc = 0x1000 + 4 * at as u64;
                let mut decoder = Decoder::with_ip(64, &code, pc, DecoderOptions::NONE);
                let index = window.intern(&decoder.decode(), 0, &mut factory);
                window.push(index, Value::of(0x7f00_0000));
                window.push_access(Access {
                    address: Some(STATE + moves * round + u64::from(displacement)),
                    bytes: 4,
                    write: false,
                    value: Value::of(0),
                });
            }
        }
        let spin = SpinLoop {
            marker: 0,
            iterations: 3,
            end: window.len(),
            starts,
        };
        Generated::of(&window, &spin, &Names::new(NamesInput::default()))
    }

    #[test]
    fn a_register_that_reaches_many_words_points_to_thread_state() {
        let found = generated(&[0, 8, 16, 24, 32], 0);
        assert!(found.holds_loop);
        assert!(found.is_context(STATE + 0x40) && !found.is_context(STATE + 0x4_0000));
    }

    #[test]
    fn an_object_is_not() {
        assert!(!generated(&[0, 8], 0).is_context(STATE), "two fields");
        assert!(
            !generated(&[0, 8, 16, 24, 32], 64).is_context(STATE),
            "a list"
        );
    }
}
