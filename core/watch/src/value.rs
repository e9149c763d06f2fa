// SPDX-License-Identifier: MIT
//! Which value an access read or wrote, from the instruction and the registers after it. Nothing
//! here reads memory.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::access::{address_after, failed_exchange, number_of, Access, Effect, Registers};

const CARRY_FREE_EQUAL: u64 = 1 << 6; // the zero flag

/// What the registers prove. Values are those of the watched word, cut to its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proven {
    pub old: Option<u64>,
    pub new: Option<u64>,
}

pub(crate) fn mask(size: u32) -> u64 {
    if size >= 8 {
        u64::MAX
    } else {
        (1 << (size * 8)) - 1
    }
}

/// A general register's value, as wide as it is named.
fn register_value(register: Register, registers: &Registers) -> Option<u64> {
    let value = registers[number_of(register)?];
    let high = matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    );
    Some(if high { value >> 8 } else { value } & mask(register.size() as u32))
}

/// A source operand that the instruction leaves as it is.
pub(crate) fn source(
    instruction: &Instruction,
    operand: u32,
    registers: &Registers,
) -> Option<u64> {
    match instruction.op_kind(operand) {
        OpKind::Register => register_value(instruction.op_register(operand), registers),
        OpKind::Memory => None,
        _ => instruction.try_immediate(operand).ok(),
    }
}

/// What an access proves about the word (address, size). `previous` is the value before it as far
/// as known.
pub(crate) fn proven(
    access: &Access,
    registers: &Registers,
    rflags: u64,
    word: (u64, u32),
    previous: Option<u64>,
) -> Proven {
    let instruction = &access.instruction;
    let width = access.memory.memory_size().size() as u32;
    // Where the access's bytes lie in the word; unknown addresses are taken to be the word's.
    let start = address_after(instruction, &access.memory, registers).unwrap_or(word.0);
    if start > word.0
        || start.wrapping_add(u64::from(width)) < word.0 + u64::from(word.1)
        || width > 8
    {
        return Proven::default(); // a part of the word, or a vector
    }
    let shift = (word.0 - start) * 8;
    let cut = |value: u64| (value >> shift) & mask(word.1);
    let whole = start == word.0 && width == word.1;
    let first = || source(instruction, 0, registers);
    let second = || source(instruction, 1, registers);
    let (old, new) = match (instruction.mnemonic(), access.effect) {
        (
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd | Mnemonic::Movbe,
            Effect::Read,
        ) => {
            let swapped = instruction.mnemonic() == Mnemonic::Movbe;
            (first().filter(|_| !swapped), None)
        }
        (Mnemonic::Pop, Effect::Read) => (first(), None),
        (Mnemonic::Cmp, Effect::Read) if rflags & CARRY_FREE_EQUAL != 0 => {
            (first().or_else(second), None)
        }
        (Mnemonic::Mov, Effect::Write) => (None, second()),
        (Mnemonic::Push, Effect::Write) => (None, first()),
        (Mnemonic::Xchg, _) => (first().or_else(second), None),
        (Mnemonic::Xadd, _) => (second(), None),
        (Mnemonic::Cmpxchg, _) => {
            let found = register_value(Register::RAX, registers);
            let stored = if failed_exchange(instruction, rflags) {
                found
            } else {
                second()
            };
            (found, stored)
        }
        (_, Effect::Update) if whole => (None, updated(instruction, second(), previous)),
        _ => (None, None),
    };
    Proven {
        old: old.map(cut),
        new: new.map(cut),
    }
}

/// The result of a read-modify-write on a known value.
pub(crate) fn updated(
    instruction: &Instruction,
    operand: Option<u64>,
    previous: Option<u64>,
) -> Option<u64> {
    let old = previous?;
    Some(match instruction.mnemonic() {
        Mnemonic::Add => old.wrapping_add(operand?),
        Mnemonic::Sub => old.wrapping_sub(operand?),
        Mnemonic::And => old & operand?,
        Mnemonic::Or => old | operand?,
        Mnemonic::Xor => old ^ operand?,
        Mnemonic::Inc => old.wrapping_add(1),
        Mnemonic::Dec => old.wrapping_sub(1),
        Mnemonic::Not => !old,
        Mnemonic::Neg => old.wrapping_neg(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{decode, memory_uses};
    use crate::protocol::REGISTERS;

    const WORD: (u64, u32) = (0x5010, 4);

    fn of(
        code: &[u8],
        change: impl Fn(&mut Registers),
        rflags: u64,
        previous: Option<u64>,
    ) -> Proven {
        let mut registers = [0; REGISTERS];
        registers[3] = 0x5000; // rbx
        change(&mut registers);
        let instruction = decode(code, 0x1000).expect("an instruction");
        let (memory, effect) = memory_uses(&instruction)[0];
        let access = Access {
            instruction,
            memory,
            effect,
        };
        proven(&access, &registers, rflags, WORD, previous)
    }

    fn both(old: Option<u64>, new: Option<u64>) -> Proven {
        Proven { old, new }
    }

    #[test]
    fn loads_leave_the_value_in_their_register() {
        let rax = |value: u64| move |r: &mut Registers| r[0] = value;
        // mov eax, [rbx+0x10]; movzx eax, word [rbx+0x10] reads a part only
        assert_eq!(
            of(&[0x8b, 0x43, 0x10], rax(7), 0, None),
            both(Some(7), None)
        );
        assert_eq!(
            of(&[0x0f, 0xb7, 0x43, 0x10], rax(7), 0, None),
            both(None, None)
        );
        // mov rax, [rbx+0xc] covers the word in its upper half
        let code = [0x48, 0x8b, 0x43, 0x0c];
        assert_eq!(of(&code, rax(9 << 32 | 5), 0, None), both(Some(9), None));
    }

    #[test]
    fn compares_prove_equality_only() {
        let code = [0x83, 0x7b, 0x10, 0x03]; // cmp dword [rbx+0x10], 3
        assert_eq!(of(&code, |_| (), 1 << 6, None), both(Some(3), None));
        assert_eq!(of(&code, |_| (), 0, None), both(None, None));
    }

    #[test]
    fn stores_and_updates() {
        let code = [0xc7, 0x43, 0x10, 0xff, 0xff, 0xff, 0xff]; // mov dword [rbx+0x10], -1
        assert_eq!(of(&code, |_| (), 0, None), both(None, Some(0xffff_ffff)));
        let code = [0xf0, 0xff, 0x43, 0x10]; // lock inc dword [rbx+0x10]
        assert_eq!(of(&code, |_| (), 0, Some(0xffff_ffff)), both(None, Some(0)));
        assert_eq!(of(&code, |_| (), 0, None), both(None, None));
        let code = [0x87, 0x43, 0x10]; // xchg [rbx+0x10], eax
        assert_eq!(of(&code, |r| r[0] = 4, 0, None), both(Some(4), None));
    }

    #[test]
    fn an_exchange_that_failed_wrote_what_it_found() {
        let code = [0xf0, 0x0f, 0xb1, 0x4b, 0x10]; // lock cmpxchg [rbx+0x10], ecx
        let registers = |r: &mut Registers| {
            r[0] = 2;
            r[1] = 8;
        };
        assert_eq!(of(&code, registers, 0, None), both(Some(2), Some(2)));
        assert_eq!(of(&code, registers, 1 << 6, None), both(Some(2), Some(8)));
    }
}
