// SPDX-License-Identifier: MIT
//! What a stepper has to read around one instruction, so that the engine can follow it.
//!
//! The rules are those of the DynamoRIO client (`pintools/client/ff_slots.c`): loads of 1, 2, 4 or
//! 8 bytes before the instruction, and behind it the registers that an evaluator of integer code
//! can't compute.

use flagfinder_machine::decoded::{self, is_syscall, Decoded, Segment};
use flagfinder_trace::computed::is_computed;
use iced_x86::{FlowControl, Mnemonic as M};

/// What an instruction does to the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// None of the others; a conditional branch belongs here.
    Plain = 0,
    /// Enters the kernel.
    Syscall = 1,
    /// Puts the flags on the stack: the trap flag, too, when it is stepped.
    PushesFlags = 2,
    /// Takes the flags from the stack, and must not be stepped (see `popped.rs` of core/step).
    PopsFlags = 3,
    /// Direct or through a register or memory.
    Call = 4,
    /// Near or far, but for `iret`.
    Return = 5,
    /// Direct or through a register or memory, but not conditional.
    Jump = 6,
    /// A repeated string instruction: a step is one round.
    Repeated = 7,
}

/// A memory operand to read: base + index * scale + displacement, + fs_base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// x86 numbers.
    pub base: Option<u8>,
    /// An x86 number.
    pub index: Option<u8>,
    /// 1, 2, 4 or 8.
    pub scale: u8,
    /// Two's complement; of operands relative to rip it is the address itself.
    pub displacement: u64,
    /// Whether fs_base is added.
    pub in_thread_block: bool,
    /// 1, 2, 4 or 8; 0: it can't be read, but has its place among the operands.
    pub bytes: u8,
}

/// What to read around one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What it does to the flow.
    pub kind: Kind,
    /// At most two, to be read before it runs.
    pub reads: Vec<Operand>,
    /// General registers (x86 numbers) to read afterwards.
    pub after: Vec<u8>,
    /// Where control may be then; empty: anywhere.
    pub targets: Vec<u64>,
}

impl Plan {
    pub(crate) fn new(decoded: &Decoded) -> Plan {
        let kind = kind(decoded);
        let reads = decoded.memory.iter().filter(|memory| memory.read);
        let reads = reads.map(|memory| {
            let fits = matches!(memory.bytes, 1 | 2 | 4 | 8);
            let plain = !memory.gather && !memory.short && memory.segment != Segment::Gs;
            Operand {
                base: memory.base,
                index: memory.index,
                scale: memory.scale,
                displacement: memory.displacement,
                in_thread_block: memory.segment == Segment::Fs,
                bytes: if fits && plain { memory.bytes as u8 } else { 0 },
            }
        });
        // The flow itself tells where return addresses lie on the stack.
        let silent = matches!(kind, Kind::Repeated | Kind::Return);
        let all = decoded.registers_written;
        let written = (0..16).filter(|number| all >> number & 1 == 1);
        // The evaluator does not compute what a segment register holds.
        let from_segment = decoded.operands[1] == decoded::Operand::Other;
        let computed = kind != Kind::Repeated
            && is_computed(&format!("{:?}", decoded.mnemonic))
            && !(decoded.mnemonic == M::Mov && from_segment);
        Plan {
            kind,
            reads: if silent {
                Vec::new()
            } else {
                reads.take(2).collect()
            },
            after: match kind {
                Kind::Syscall => vec![0],
                _ if computed => Vec::new(),
                _ => written.collect(),
            },
            targets: targets(decoded, kind),
        }
    }
}

fn kind(decoded: &Decoded) -> Kind {
    if is_syscall(&decoded.instruction) {
        return Kind::Syscall;
    }
    if decoded.repeated && decoded.instruction.is_string_instruction() {
        return Kind::Repeated;
    }
    match decoded.mnemonic {
        M::Pushf | M::Pushfq => return Kind::PushesFlags,
        M::Popf | M::Popfd | M::Popfq | M::Iret | M::Iretd | M::Iretq => return Kind::PopsFlags,
        _ => {}
    }
    match decoded.instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall => Kind::Call,
        FlowControl::Return => Kind::Return,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => Kind::Jump,
        _ => Kind::Plain,
    }
}

fn targets(decoded: &Decoded, kind: Kind) -> Vec<u64> {
    let instruction = &decoded.instruction;
    match instruction.flow_control() {
        _ if kind == Kind::Syscall => vec![instruction.next_ip()],
        FlowControl::Next => vec![instruction.next_ip()],
        FlowControl::ConditionalBranch => {
            vec![instruction.next_ip(), instruction.near_branch_target()]
        }
        FlowControl::UnconditionalBranch | FlowControl::Call
            if instruction.near_branch_target() != 0 =>
        {
            vec![instruction.near_branch_target()]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    fn plan(code: &[u8]) -> Plan {
        let instruction = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode();
        Plan::new(&Decoded::new(
            &instruction,
            &mut InstructionInfoFactory::new(),
        ))
    }

    #[test]
    fn a_load_is_read_and_its_register_computed() {
        // mov eax, [rbx+rcx*4+8]
        let plan = plan(&[0x8b, 0x44, 0x8b, 0x08]);
        assert_eq!(plan.kind, Kind::Plain);
        let read = plan.reads[0];
        let address = (read.base, read.index, read.scale, read.displacement);
        assert_eq!(address, (Some(3), Some(1), 4, 8));
        assert_eq!((read.bytes, read.in_thread_block), (4, false));
        assert!(plan.after.is_empty());
        assert_eq!(plan.targets, [0x1004]);
    }

    #[test]
    fn thread_local_words_are_relative_to_the_thread() {
        // mov rax, fs:[0]
        let plan = plan(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0]);
        assert!(plan.reads[0].in_thread_block && plan.reads[0].base.is_none());
    }

    #[test]
    fn what_can_not_be_computed_is_read_afterwards() {
        assert_eq!(plan(&[0x0f, 0x31]).after, [0, 2]); // rdtsc
        assert_eq!(plan(&[0x66, 0x0f, 0x7e, 0xc3]).after, [3]); // movd ebx, xmm0
        assert_eq!(plan(&[0x8c, 0xc3]).after, [3]); // mov ebx, es
        assert!(plan(&[0x0f, 0xaf, 0xd8]).after.is_empty()); // imul ebx, eax
        let call = plan(&[0x0f, 0x05]); // syscall
        assert_eq!((call.kind, call.after), (Kind::Syscall, vec![0]));
        let copy = plan(&[0xf3, 0xa4]); // rep movsb
        assert_eq!((copy.kind, copy.after), (Kind::Repeated, vec![1, 6, 7]));
        assert!(copy.reads.is_empty());
    }

    #[test]
    fn flags_on_the_stack_are_told() {
        assert_eq!(plan(&[0x9c]).kind, Kind::PushesFlags);
        let popped = plan(&[0x9d]);
        assert_eq!(
            (popped.kind, popped.targets),
            (Kind::PopsFlags, vec![0x1001])
        );
        let back = plan(&[0x48, 0xcf]); // iretq
        assert_eq!((back.kind, back.targets), (Kind::PopsFlags, Vec::new()));
    }

    #[test]
    fn branches_tell_where_they_may_go() {
        assert_eq!(plan(&[0x75, 0x10]).targets, [0x1002, 0x1012]); // jne
        assert_eq!(plan(&[0xeb, 0x10]).targets, [0x1012]); // jmp
        assert_eq!(plan(&[0xff, 0xe0]).targets, Vec::<u64>::new()); // jmp rax
        assert_eq!(plan(&[0xe8, 0, 1, 0, 0]).targets, [0x1105]); // call
        let back = plan(&[0xc3]);
        assert_eq!((back.kind, back.reads.len()), (Kind::Return, 0));
    }
}
