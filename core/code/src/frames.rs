// SPDX-License-Identifier: MIT
//! The open calls of a thread that stands still, with the registers that each will find when it
//! goes on.
//!
//! In: its registers and its memory. Out: [`Frame`]s by the rules in `.eh_frame`, which stripping
//! leaves in place. Blind spots: code without such rules ends the walk (Go, JIT, hand-written
//! assembly without annotations).

use crate::address_space::AddressSpace;
use crate::names::Names;
use crate::register::{RBP, RSP};
use crate::unwind::{Rules, Saved};

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

/// Why no call is told around another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCaller {
    /// Nobody called it: the stack begins there.
    Nobody,
    /// Its rules are missing, or need a register that is not known.
    Unknown,
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
            let Ok(outer) = self.outer(probe, &inner.registers, None, memory) else {
                break;
            };
            frames.push(outer);
        }
        frames
    }

    /// The call around the one whose code stands at `pc`, by that code's rules. `top`: where its
    /// frame ends, if that is known otherwise than by its registers.
    ///
    /// # Errors
    /// There is none, or the rules do not tell.
    pub fn outer(
        &self,
        pc: u64,
        registers: &Registers,
        top: Option<u64>,
        memory: &dyn AddressSpace,
    ) -> Result<Frame, NoCaller> {
        let rules = self.rules_at(pc).ok_or(NoCaller::Unknown)?;
        let return_address = rules.return_address.ok_or(NoCaller::Nobody)?;
        let (base, add) = rules.frame;
        let by_register = || Some(registers[usize::from(base)]?.wrapping_add_signed(add));
        // Stacks grow down: each caller's frame lies above.
        let is_above = |top: &u64| registers[usize::from(RSP)].is_none_or(|sp| *top > sp);
        let top = top.or_else(by_register).filter(is_above);
        let top = top.ok_or(NoCaller::Unknown)?;
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
        let registers = outer;
        let pc = at(return_address).filter(|pc| *pc != 0);
        let pc = pc.ok_or(NoCaller::Unknown)?;
        Ok(Frame { pc, registers })
    }

    fn rules_at(&self, pc: u64) -> Option<Rules> {
        let (module, offset) = self.locate(pc)?;
        self.image(module).unwind()?.rules(offset)
    }

    /// Does the frame of the code at `pc` hold its caller's rbp right below the return address?
    pub fn keeps_frame_pointer(&self, pc: u64) -> bool {
        let kept = self.rules_at(pc).map(|rules| rules.saved[usize::from(RBP)]);
        kept == Some(Saved::At(-16))
    }
}
