// SPDX-License-Identifier: MIT
//! One decoded block: its instructions, how it ends, and what may come next.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};

/// How a block hands control on. Targets are run-time addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The tracer cut the block: control runs into the next instruction.
    Fallthrough,
    /// The target or the next instruction (`jcc`, `loop`, `jrcxz`, `xbegin`).
    Conditional {
        /// Run-time address where it goes when it is taken.
        target: u64,
    },
    /// A direct `jmp`.
    Jump {
        /// Run-time address.
        target: u64,
    },
    /// A jump by way of a register or memory.
    IndirectJump,
    /// A direct `call`; what it calls returns behind it.
    Call {
        /// Run-time address.
        target: u64,
    },
    /// A call by way of a register or memory.
    IndirectCall,
    /// A `ret`: control goes back behind the call.
    Return,
    /// Control comes back behind it, unless the call was a sigreturn or a clone.
    Syscall,
    /// `int3`, `ud2`, `hlt`, .. : only an event tells what follows.
    Trap,
    /// The bytes are no instruction.
    Undecodable,
}

/// May a block be followed by what was seen to follow it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Succession {
    /// The code names this successor.
    Named,
    /// The code leaves the successor open (return, indirect, trap).
    Open,
    /// The code cannot go there; without an event in between something is wrong.
    Impossible,
}

/// A decoded block. Instructions carry run-time addresses (`Instruction::ip`).
#[derive(Clone, Debug)]
pub struct CodeBlock {
    /// In order of address; all of the block up to bytes that are no instruction.
    pub instructions: Box<[Instruction]>,
    /// What its last instruction does.
    pub ending: Ending,
    /// Run-time address behind the last whole instruction.
    pub end: u64,
}

impl CodeBlock {
    /// Decodes 64-bit code that stands at `pc`. Never fails: bytes that are no
    /// instruction end the block as `Undecodable`.
    pub fn decode(pc: u64, code: &[u8]) -> Self {
        let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
        let mut instructions = Vec::with_capacity(code.len() / 4 + 1);
        let mut whole = true;
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                whole = false;
                break;
            }
            instructions.push(instruction);
        }
        let ending = match instructions.last() {
            Some(last) if whole => ending(last),
            _ => Ending::Undecodable,
        };
        let end = instructions.last().map_or(pc, Instruction::next_ip);
        CodeBlock {
            instructions: instructions.into(),
            ending,
            end,
        }
    }

    /// Address of the first instruction; `None` when not even one decodes.
    pub fn pc(&self) -> Option<u64> {
        self.instructions.first().map(Instruction::ip)
    }

    /// Address of the last instruction, the branch if there is one.
    pub fn branch_pc(&self) -> Option<u64> {
        self.instructions.last().map(Instruction::ip)
    }

    /// The direct target, of a branch, jump or call.
    pub fn target(&self) -> Option<u64> {
        match self.ending {
            Ending::Conditional { target } | Ending::Jump { target } | Ending::Call { target } => {
                Some(target)
            }
            _ => None,
        }
    }

    /// Whether `next_pc` can follow with no event in between.
    pub fn succession(&self, next_pc: u64) -> Succession {
        let possible = match self.ending {
            Ending::Fallthrough | Ending::Syscall => next_pc == self.end,
            Ending::Conditional { target } => next_pc == target || next_pc == self.end,
            Ending::Jump { target } | Ending::Call { target } => next_pc == target,
            Ending::IndirectJump
            | Ending::IndirectCall
            | Ending::Return
            | Ending::Trap
            | Ending::Undecodable => return Succession::Open,
        };
        if possible {
            Succession::Named
        } else {
            Succession::Impossible
        }
    }
}

fn ending(last: &Instruction) -> Ending {
    let target = last.near_branch_target();
    match last.flow_control() {
        FlowControl::Next => Ending::Fallthrough,
        FlowControl::ConditionalBranch => Ending::Conditional { target },
        FlowControl::UnconditionalBranch => Ending::Jump { target },
        FlowControl::IndirectBranch => Ending::IndirectJump,
        FlowControl::Return => Ending::Return,
        FlowControl::IndirectCall => Ending::IndirectCall,
        FlowControl::XbeginXabortXend if last.code() == Code::Xbegin_rel32 => {
            Ending::Conditional { target }
        }
        FlowControl::XbeginXabortXend => Ending::Fallthrough,
        FlowControl::Call if last.code() == Code::Syscall || last.code() == Code::Sysenter => {
            Ending::Syscall
        }
        // Far and virtual-machine calls do not name a near target.
        FlowControl::Call if last.code() == Code::Call_rel32_64 => Ending::Call { target },
        FlowControl::Call => Ending::IndirectCall,
        FlowControl::Interrupt if last.code() == Code::Int_imm8 && last.immediate8() == 0x80 => {
            Ending::Syscall
        }
        FlowControl::Interrupt | FlowControl::Exception => Ending::Trap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending_of(code: &[u8]) -> Ending {
        CodeBlock::decode(0x1000, code).ending
    }

    #[test]
    fn endings_follow_the_last_instruction() {
        assert_eq!(ending_of(&[0x90]), Ending::Fallthrough);
        let back = Ending::Conditional { target: 0x1000 };
        assert_eq!(ending_of(&[0x90, 0x74, 0xfd]), back);
        assert_eq!(ending_of(&[0xe2, 0xfe]), back, "loop");
        assert_eq!(ending_of(&[0xeb, 0xfe]), Ending::Jump { target: 0x1000 });
        assert_eq!(ending_of(&[0xff, 0xe0]), Ending::IndirectJump);
        assert_eq!(
            ending_of(&[0xe8, 0, 0, 0, 0]),
            Ending::Call { target: 0x1005 }
        );
        assert_eq!(ending_of(&[0xff, 0xd0]), Ending::IndirectCall);
        assert_eq!(ending_of(&[0xc3]), Ending::Return);
        assert_eq!(ending_of(&[0x0f, 0x05]), Ending::Syscall);
        assert_eq!(ending_of(&[0xcd, 0x80]), Ending::Syscall);
        assert_eq!(ending_of(&[0x0f, 0x0b]), Ending::Trap);
        assert_eq!(ending_of(&[0xcc]), Ending::Trap);
        let abort = Ending::Conditional { target: 0x1007 };
        assert_eq!(ending_of(&[0xc7, 0xf8, 1, 0, 0, 0]), abort, "xbegin");
        assert_eq!(ending_of(&[0x90, 0x06]), Ending::Undecodable);
        assert_eq!(ending_of(&[]), Ending::Undecodable);
        assert_eq!(ending_of(&[0xe8, 0, 0]), Ending::Undecodable, "cut short");
    }

    #[test]
    fn a_cut_block_keeps_its_whole_instructions() {
        let block = CodeBlock::decode(0x1000, &[0x90, 0xe8, 0]);
        assert_eq!((block.instructions.len(), block.end), (1, 0x1001));
    }

    #[test]
    fn a_branch_allows_its_two_successors_only() {
        let block = CodeBlock::decode(0x1000, &[0x74, 0x10]);
        assert_eq!(block.succession(0x1012), Succession::Named);
        assert_eq!(block.succession(0x1002), Succession::Named);
        assert_eq!(block.succession(0x1003), Succession::Impossible);
        let ret = CodeBlock::decode(0x1000, &[0xc3]);
        assert_eq!(ret.succession(0x1), Succession::Open);
    }
}
