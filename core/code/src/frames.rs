// SPDX-License-Identifier: MIT
//! The open calls of a thread that stands still, with the registers that each will find when it
//! goes on.
//!
//! In: its registers and its memory. Out: [`Frame`]s by the rules in `.eh_frame`, which stripping
//! leaves in place. Blind spots: code without such rules ends the walk (Go, JIT, hand-written
//! assembly without annotations).

use crate::address_space::AddressSpace;
use crate::names::Names;
use crate::register::RSP;
use crate::unwind::Saved;

/// General registers in x86 numbering, as far as they are known.
pub type Registers = [Option<u64>; 16];

/// One open call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where it goes on: behind the call, but for the innermost one.
    pub pc: u64,
    /// The registers that are known once the calls within it have returned.
    pub registers: Registers,
}

/// Registers that a called function leaves as they are (System V ABI, AMD64 supplement, 3.2.1):
/// rbx rsp rbp r12-r15.
pub(crate) const KEPT_BY_CALLS: [usize; 7] = [3, 4, 5, 12, 13, 14, 15];

impl Names {
    /// The calls that are open at `pc`, innermost first, at most `most`.
    pub fn frames(
        &self,
        pc: u64,
        registers: Registers,
        memory: &dyn AddressSpace,
        most: usize,
    ) -> Vec<Frame> {
        let mut frames = vec![Frame { pc, registers }];
        while frames.len() < most {
            let inner = &frames[frames.len() - 1];
            // A return address may lie behind its function's end.
            let probe = match frames.len() {
                1 => inner.pc,
                _ => inner.pc.wrapping_sub(1),
            };
            let Some(outer) = self.caller_of(probe, &inner.registers, memory) else {
                break;
            };
            frames.push(outer);
        }
        frames
    }

    fn caller_of(
        &self,
        pc: u64,
        registers: &Registers,
        memory: &dyn AddressSpace,
    ) -> Option<Frame> {
        let (module, offset) = self.locate(pc)?;
        let rules = self.image(module).unwind()?.rules(offset)?;
        let (base, add) = rules.frame;
        let top = registers[usize::from(base)]?.wrapping_add_signed(add);
        // Stacks grow down: each caller's frame lies above.
        if registers[usize::from(RSP)].is_some_and(|sp| top <= sp) {
            return None;
        }
        let at = |offset: i64| memory.word(top.wrapping_add_signed(offset));
        let mut outer = [None; 16];
        for number in KEPT_BY_CALLS {
            outer[number] = match rules.saved[number] {
                Saved::Kept => registers[number],
                Saved::At(offset) => at(offset),
                Saved::Lost => None,
            };
        }
        outer[usize::from(RSP)] = Some(top);
        let pc = at(rules.return_address?).filter(|pc| *pc != 0)?;
        let registers = outer;
        Some(Frame { pc, registers })
    }
}
