// SPDX-License-Identifier: MIT
//! The open calls of a thread that stands still, with the registers that each will find when it
//! goes on.
//!
//! In: its registers and its memory. Out: [`Frame`]s by the rules in `.eh_frame`, which stripping
//! leaves in place. Blind spots: code without such rules ends the walk (Go, JIT, hand-written
//! assembly without annotations).

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

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

    /// Bytes from the stack pointer, where the code at `pc` has it between calls, to the end of the
    /// frame: what the function's first instructions push and reserve, up to the first branch or
    /// call, and its return address. `None`: it keeps no frame pointer there, or moves the stack
    /// pointer otherwise.
    pub fn frame_size(&self, pc: u64, memory: &dyn AddressSpace) -> Option<u64> {
        let (start, end) = self.function(pc)?;
        let mut code = [0; MOST_OF_BEGINNING];
        let size = end.min(pc).checked_sub(start)?.min(code.len() as u64) as usize;
        let got = memory.read(start, &mut code[..size]);
        size_by_beginning(&code[..got], start)
    }
}

/// Bytes of a function that are read for what it does to the stack pointer.
const MOST_OF_BEGINNING: usize = 256;

fn size_by_beginning(code: &[u8], start: u64) -> Option<u64> {
    let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut infos = InstructionInfoFactory::new();
    let mut size = 8;
    let mut has_frame_pointer = false;
    for instruction in decoder {
        if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next {
            break;
        }
        let used = infos.info(&instruction).used_registers();
        let mut used = used.iter();
        let moves = used.any(|u| u.register() == Register::RSP && is_written(u.access()));
        match instruction.mnemonic() {
            _ if !moves => has_frame_pointer |= is_frame_pointer(&instruction),
            Mnemonic::Push => size += 8,
            Mnemonic::Sub if instruction.op1_kind() != OpKind::Register => {
                size += u64::try_from(instruction.immediate(1) as i64).ok()?;
            }
            _ => return None,
        }
    }
    has_frame_pointer.then_some(size)
}

/// `mov rbp, rsp`
fn is_frame_pointer(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_register() == Register::RBP
        && instruction.op1_register() == Register::RSP
}

fn is_written(access: OpAccess) -> bool {
    !matches!(
        access,
        OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_large_as_its_beginning_makes_it() {
        // push rbp; mov rbp,rsp; push r15; push rbx; sub rsp,0x18; call +0
        let fixed = [
            0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x53, 0x48, 0x83, 0xec, 0x18, 0xe8, 0, 0, 0, 0,
        ];
        assert_eq!(size_by_beginning(&fixed, 0x1000), Some(8 + 3 * 8 + 0x18));
        // The frame begins only behind a branch: push rbx; test edi,edi; je +2; push rbp; ..
        let later = [0x53, 0x85, 0xff, 0x74, 0x02, 0x55, 0x48, 0x89, 0xe5];
        assert_eq!(size_by_beginning(&later, 0x1000), None);
        // push rbp; mov rbp,rsp; and rsp,-32
        let aligned = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xe0];
        assert_eq!(size_by_beginning(&aligned, 0x1000), None);
        // push rbp; mov rbp,rsp; sub rsp,rax
        let by_register = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x29, 0xc4];
        assert_eq!(size_by_beginning(&by_register, 0x1000), None);
    }
}
