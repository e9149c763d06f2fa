// SPDX-License-Identifier: MIT
//! Blocks in a compact form, for replays that look at few instructions.
//!
//! In: a block's decoded instructions and slots. Out: operations that leave the machine as
//! [`Evaluator::step`](crate::evaluator::Evaluator::step) does, in a fraction of its time. What
//! changes only vector registers is left out, and flags that the block itself overwrites unread
//! are not computed. Instructions without a short form go through the evaluator.

use flagfinder_trace::{Slot, SlotKind};
use iced_x86::{ConditionCode, FlowControl, Mnemonic as M};

use crate::decoded::{is_syscall, reads_segment_unsafely, Decoded, MemoryReference, Operand};
use crate::value::{CF, STATUS};

/// Stands for a register's number: the value that was loaded, or goes to memory.
pub(crate) const MEMORY: u8 = 16;
/// The operation's constant.
pub(crate) const CONSTANT: u8 = 17;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The evaluator does it.
    Long,
    /// Stores something that is not known.
    Spill,
    Move,
    MoveSigned,
    Address,
    Zero,
    Add,
    Subtract,
    Compare,
    And,
    Or,
    Xor,
    Test,
    Increment,
    Decrement,
    Negate,
    Not,
    Shift(M),
    Multiply,
    /// A product of the source and the constant.
    Scale,
    MoveIf(ConditionCode),
    SetIf(ConditionCode),
    Push,
    Pop,
    Call,
    Return,
    Jump,
    Branch(ConditionCode),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Nothing,
    /// Recorded, so far behind the beginning of the block's values.
    Slot(u32),
    /// This thread stored it there.
    Shadow,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub kind: Kind,
    /// A later instruction may read the flags that it sets.
    pub flags: bool,
    pub load: Load,
    /// It stores; its reference says where.
    pub store: bool,
    /// It is a call or a return.
    pub calls: bool,
    /// Bits of the destination, and of the source.
    pub bits: (u8, u8),
    /// Number of the register that is written, or [`MEMORY`].
    pub to: u8,
    /// Number of the register that is read, or one of the above.
    pub from: u8,
    pub memory: MemoryReference,
    pub constant: u64,
    /// Which instruction of the block it is.
    pub index: u32,
    /// Its slots within the block's, and how far behind the beginning of the values theirs are.
    pub slots: (u32, u32),
    pub offset: u32,
}

/// Turns a block's instructions into operations.
pub(crate) fn compile(instructions: &[Decoded], slots: &[Slot]) -> Box<[Operation]> {
    let mut operations: Vec<Operation> = Vec::new();
    let (mut first, mut offset) = (0, 0);
    for (index, code) in instructions.iter().enumerate() {
        let of_it = |slot: &&Slot| usize::from(slot.instruction) == index;
        let own = slots[first..].iter().take_while(of_it).count();
        let mine = &slots[first..first + own];
        let is_last = index + 1 == instructions.len();
        let found = shorten(code, mine, offset, is_last);
        let place = Operation {
            index: index as u32,
            slots: (first as u32, own as u32),
            offset,
            calls: matches!(
                code.instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall | FlowControl::Return
            ),
            ..found.unwrap_or(plain(Kind::Long))
        };
        if found.is_some() || !is_idle(code, mine) {
            operations.push(place);
        }
        first += own;
        offset += mine.iter().map(|slot| u32::from(slot.size)).sum::<u32>();
    }
    drop_unread_flags(&mut operations);
    operations.into()
}

fn plain(kind: Kind) -> Operation {
    let nowhere = MemoryReference {
        base: None,
        index: None,
        scale: 1,
        displacement: 0,
        segment: crate::decoded::Segment::Flat,
        short: false,
        gather: false,
        bytes: 0,
        read: false,
        write: false,
    };
    Operation {
        kind,
        flags: true,
        load: Load::Nothing,
        store: false,
        calls: false,
        bits: (64, 64),
        to: 0,
        from: 0,
        memory: nowhere,
        constant: 0,
        index: 0,
        slots: (0, 0),
        offset: 0,
    }
}

/// Does the instruction leave everything that the machine knows as it was?
fn is_idle(code: &Decoded, slots: &[Slot]) -> bool {
    touches_vectors_only(code)
        && !code.memory.iter().any(|memory| memory.write)
        && slots.iter().all(|slot| slot.kind == SlotKind::Load)
}

/// No general register and no flag takes part, but for addresses; it may load and store.
fn touches_vectors_only(code: &Decoded) -> bool {
    let is_general = |operand: &Operand| matches!(operand, Operand::Register { .. });
    code.registers_written == 0
        && code.flags_written == 0
        && code.flags_undefined == 0
        && code.instruction.flow_control() == FlowControl::Next
        && !is_syscall(&code.instruction)
        && !code.operands.iter().any(is_general)
}

/// The short form, if there is one.
fn shorten(code: &Decoded, slots: &[Slot], offset: u32, is_last: bool) -> Option<Operation> {
    let memory = match &*code.memory {
        [] => None,
        [one] if !one.gather => Some(*one),
        _ => return None,
    };
    if touches_vectors_only(code) && code.operands.contains(&Operand::Other) {
        let plain_loads = slots.iter().all(|slot| slot.kind == SlotKind::Load);
        let store = memory.filter(|memory| memory.write && plain_loads)?;
        return Some(Operation {
            store: true,
            memory: store,
            ..plain(Kind::Spill)
        });
    }
    let load = match (memory.filter(|memory| memory.read), slots) {
        (None, []) => Load::Nothing,
        (Some(memory), _) if !matches!(memory.bytes, 1 | 2 | 4 | 8) => return None,
        (Some(_), []) => Load::Shadow,
        (Some(memory), [one]) => {
            let fits = (one.kind, one.detail) == (SlotKind::Load, 0)
                && u16::from(one.size) == memory.bytes;
            match fits {
                true if reads_segment_unsafely(code) => Load::Shadow,
                true => Load::Slot(offset),
                false => return None,
            }
        }
        _ => return None,
    };
    let operation = Operation {
        load,
        store: memory.is_some_and(|memory| memory.write),
        memory: memory.unwrap_or(plain(Kind::Long).memory),
        ..plain(Kind::Long)
    };
    match code.instruction.flow_control() {
        FlowControl::Next => straight(code, operation),
        _ if is_last => leaving(code, operation),
        _ => None,
    }
}

/// A whole register, its low part, or memory of an integer's size: its number and bits.
fn integer(operand: Operand) -> Option<(u8, u8)> {
    match operand {
        Operand::Register {
            number,
            shift: 0,
            bits,
        } => Some((number, bits)),
        Operand::Memory { bits, .. } if matches!(bits, 8 | 16 | 32 | 64) => {
            Some((MEMORY, bits as u8))
        }
        _ => None,
    }
}

/// An instruction that the next one follows.
fn straight(code: &Decoded, operation: Operation) -> Option<Operation> {
    let same = matches!(code.operands[0], Operand::Register { .. })
        && code.operands[0] == code.operands[1];
    let condition = code.instruction.condition_code();
    let count = code.instruction.op_count();
    let kind = match code.mnemonic {
        M::Mov | M::Movzx | M::Movnti => Kind::Move,
        M::Movsx | M::Movsxd => Kind::MoveSigned,
        M::Lea => Kind::Address,
        M::Add => Kind::Add,
        M::Xor if same => Kind::Zero,
        M::Sub if !same => Kind::Subtract,
        M::Cmp if !same => Kind::Compare,
        M::And => Kind::And,
        M::Or => Kind::Or,
        M::Xor => Kind::Xor,
        M::Test => Kind::Test,
        M::Inc => Kind::Increment,
        M::Dec => Kind::Decrement,
        M::Neg => Kind::Negate,
        M::Not => Kind::Not,
        M::Shl | M::Sal | M::Shr | M::Sar => Kind::Shift(code.mnemonic),
        M::Imul if count == 2 => Kind::Multiply,
        M::Imul if count == 3 => Kind::Scale,
        M::Push => Kind::Push,
        M::Pop => Kind::Pop,
        _ if condition == ConditionCode::None => return None,
        _ if count == 1 => Kind::SetIf(condition),
        _ if count == 2 => Kind::MoveIf(condition),
        _ => return None,
    };
    // A push or pop of memory has a second reference, so what is left has the stack's alone.
    let of_stack = matches!(kind, Kind::Push | Kind::Pop);
    if of_stack && operation.memory.bytes != 8 {
        return None;
    }
    let (to, bits) = match kind {
        Kind::Push => (MEMORY, 64),
        _ => integer(code.operands[0])?,
    };
    let source = usize::from(kind != Kind::Push);
    let (from, from_bits, constant) = match code.operands[source] {
        _ if kind == Kind::Address => (to, bits, 0),
        Operand::None => (to, bits, 0),
        Operand::Immediate(value) => (CONSTANT, 64, value),
        other => {
            let (number, bits) = integer(other)?;
            (number, bits, 0)
        }
    };
    if of_stack && (bits, from_bits) != (64, 64) {
        return None;
    }
    let constant = match (kind, code.operands[2]) {
        (Kind::Scale, Operand::Immediate(factor)) if from != CONSTANT => factor,
        (Kind::Scale, _) => return None,
        (Kind::Shift(_), _) => {
            // Other counts leave flags undefined in other ways.
            let moved = constant & if bits == 64 { 63 } else { 31 };
            if from != CONSTANT || moved == 0 || moved >= u64::from(bits) {
                return None;
            }
            moved
        }
        _ => constant,
    };
    Some(Operation {
        kind,
        to,
        bits: (bits, from_bits),
        from,
        constant,
        ..operation
    })
}

/// An instruction that may go elsewhere, at the end of its block.
fn leaving(code: &Decoded, operation: Operation) -> Option<Operation> {
    let (from, constant) = match code.operands[0] {
        Operand::Immediate(target) => (CONSTANT, target),
        Operand::None => (0, 0),
        other => {
            let (number, bits) = integer(other)?;
            (Some(number).filter(|_| bits == 64)?, 0)
        }
    };
    let kind = match (code.mnemonic, from) {
        (M::Call, CONSTANT) => Kind::Call,
        (M::Ret, _) => Kind::Return,
        (M::Jmp, _) => Kind::Jump,
        _ if code.instruction.flow_control() == FlowControl::ConditionalBranch => {
            match code.instruction.condition_code() {
                ConditionCode::None => return None,
                condition if code.instruction.is_jcc_short_or_near() => Kind::Branch(condition),
                _ => return None,
            }
        }
        _ => return None,
    };
    if kind == Kind::Return && code.instruction.op_count() > 0 {
        return None;
    }
    Some(Operation {
        kind,
        from,
        constant,
        ..operation
    })
}

/// Notes which flags nobody reads before they are set again; the code behind the block may read
/// all.
fn drop_unread_flags(operations: &mut [Operation]) {
    let mut read = STATUS;
    for operation in operations.iter_mut().rev() {
        match operation.kind {
            Kind::Add
            | Kind::Subtract
            | Kind::Compare
            | Kind::And
            | Kind::Or
            | Kind::Xor
            | Kind::Test
            | Kind::Zero
            | Kind::Negate
            | Kind::Multiply
            | Kind::Scale
            | Kind::Shift(_) => {
                operation.flags = read != 0;
                read = 0;
            }
            Kind::Increment | Kind::Decrement => {
                operation.flags = read & !CF != 0;
                read &= CF;
            }
            Kind::Long | Kind::MoveIf(_) | Kind::SetIf(_) | Kind::Branch(_) => read = STATUS,
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "compact_tests.rs"]
mod tests;
