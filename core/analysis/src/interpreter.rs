// SPDX-License-Identifier: MIT
//! Is the loop an interpreter's (or a virtual machine's)? Then the words it reads are the
//! interpreter's: objects, caches, its own state; which of them is the program's variable, the
//! machine code does not say.
//!
//! Such a loop goes from one piece of a program to the next by jumps to addresses it loads, several
//! times an iteration and to different places, or calls their routines through one pointer in turn.
//! A jump through a linkage table always goes to one place and does not count.
//!
//! Blind spot: code that a JIT compiler made jumps like any other.

use flagfinder_machine::Window;
use iced_x86::{FlowControl, Register};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::spin_loop::SpinLoop;

/// Jumps to fewer different places an iteration are a `switch` or two.
const JUMPS: usize = 3;
/// Calls of fewer different routines by one instruction are callbacks.
const CALLS: usize = 6;

/// See the module.
pub fn interprets(window: &Window, spin: &SpinLoop) -> bool {
    let rounds = spin.starts.len() - 1;
    // Jumps by the frame they are made in; calls also by the instruction. (Several iterations of
    // the loop that was found may be one of the interpreted program's.)
    let mut ways: FxHashMap<(u64, u64), FxHashSet<u64>> = FxHashMap::default();
    let mut dispatches = 0;
    for step in spin.first_step()..spin.end {
        let instruction = &window.code(step).instruction;
        let site = match instruction.flow_control() {
            FlowControl::IndirectBranch => 0,
            FlowControl::IndirectCall => instruction.ip(),
            _ => continue,
        };
        let fixed = matches!(instruction.memory_base(), Register::RIP | Register::EIP);
        if let Some(target) = window.next_pc(step).filter(|_| !fixed) {
            let targets = ways.entry((window.rsp(step), site)).or_default();
            targets.insert(target);
            dispatches += 1;
        }
    }
    let mut ways = ways.iter();
    let several =
        ways.any(|((_, site), targets)| targets.len() >= if *site == 0 { JUMPS } else { CALLS });
    several && dispatches >= rounds
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    const NOP: &[u8] = &[0x90];
    /// jmp rax
    const DISPATCH: &[u8] = &[0xff, 0xe0];
    /// jmp [rip+0x100]
    const LINKAGE: &[u8] = &[0xff, 0x25, 0, 1, 0, 0];
    /// call [rax]
    const CALL: &[u8] = &[0xff, 0x10];

    /// Four iterations that begin with a nop and go through the code at these addresses.
    fn repeats(lap: &[(u64, &[u8])]) -> bool {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        let mut starts = Vec::new();
        for _ in 0..4 {
            starts.push(window.len());
            for &(address, code) in [(0x1000, NOP)].iter().chain(lap) {
                let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
                let index = window.intern(&decoder.decode(), 0, &mut factory);
                window.push(index, Value::of(0x7000));
            }
        }
        let end = window.len();
        let spin = SpinLoop {
            marker: 0,
            starts,
            iterations: 3,
            end,
        };
        interprets(&window, &spin)
    }

    #[test]
    fn threaded_code_is_an_interpreter() {
        let lap = [0x2000, 0x3000, 0x4000].map(|address| (address, DISPATCH));
        assert!(repeats(&lap));
        assert!(!repeats(&lap[..2]), "a switch or two");
    }

    #[test]
    fn routines_called_in_turn_are_too() {
        let routine = |number: u64| [(0x2000, CALL), (0x5000 + number * 0x100, NOP)];
        let lap: Vec<_> = (0..7).flat_map(routine).collect();
        assert!(repeats(&lap));
        assert!(!repeats(&lap[..8]), "callbacks");
    }

    #[test]
    fn linkage_is_not() {
        let lap = [0x2000, 0x3000, 0x4000, 0x5000].map(|address| (address, LINKAGE));
        assert!(!repeats(&lap));
    }
}
