// SPDX-License-Identifier: MIT
//! What an access shows of the value that it found, and which register shows it. Nothing here reads
//! memory.

use iced_x86::{Mnemonic, OpKind, Register};

use crate::access::{address_after, number_of, Access, Effect, Registers};
use crate::event::EventKind;
use crate::protocol::{ReadSite, SHOWS_NOTHING, SHOWS_ZERO_FLAG};
use crate::value::{mask, proven, source};

const ZERO_FLAG: u64 = 1 << 6;

/// The values that the word can have had: those whose bits under `mask` are `pattern`, or all but
/// those. The default allows all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    mask: u64,
    pattern: u64,
    differs: bool,
}

/// What a hit alone tells of its access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub kind: EventKind,
    /// What is known of the value that it found.
    pub seen: Seen,
    /// The value that it wrote, if its instruction proves it.
    pub left: Option<u64>,
}

impl Seen {
    /// The whole value of a word of `size` bytes.
    pub fn value(value: u64, size: u32) -> Seen {
        Seen {
            mask: mask(size),
            pattern: value,
            differs: false,
        }
    }

    pub fn allows(&self, value: u64) -> bool {
        (value & self.mask == self.pattern) != self.differs
    }

    /// What an access to the word (address, size) shows of it.
    pub fn of(access: &Access, registers: &Registers, rflags: u64, word: (u64, u32)) -> Seen {
        let all = mask(word.1);
        if let Some(pattern) = proven(access, registers, rflags, word, None).old {
            return Seen::value(pattern, word.1);
        }
        let instruction = &access.instruction;
        let start = address_after(instruction, &access.memory, registers).unwrap_or(word.0);
        let width = access.memory.memory_size().size() as u32;
        let operand = source(instruction, 0, registers).or(source(instruction, 1, registers));
        let Some(operand) = operand.filter(|_| (start, width) == word) else {
            return Seen::default();
        };
        let differs = rflags & ZERO_FLAG == 0;
        match instruction.mnemonic() {
            Mnemonic::Cmp => Seen {
                mask: all,
                pattern: operand & all,
                differs,
            },
            Mnemonic::Test => Seen {
                mask: operand & all,
                pattern: 0,
                differs,
            },
            _ => Seen::default(),
        }
    }
}

/// Whether the code only reads, and where that shows the value.
pub(crate) fn read_site(access: &Access) -> Option<ReadSite> {
    if access.effect != Effect::Read {
        return None;
    }
    let instruction = &access.instruction;
    let (shows, bytes) = match instruction.mnemonic() {
        Mnemonic::Cmp | Mnemonic::Test => (SHOWS_ZERO_FLAG, 0),
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd | Mnemonic::Pop
            if instruction.op0_kind() == OpKind::Register =>
        {
            let register = instruction.op0_register();
            let high = matches!(
                register,
                Register::AH | Register::BH | Register::CH | Register::DH
            );
            match number_of(register).filter(|_| !high) {
                Some(number) => (number as u8, register.size() as u8),
                None => (SHOWS_NOTHING, 0),
            }
        }
        _ => (SHOWS_NOTHING, 0),
    };
    Some(ReadSite {
        shows,
        bytes,
        reserved: [0; 2],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{decode, memory_uses};
    use crate::protocol::REGISTERS;

    fn access(code: &[u8]) -> Access {
        let instruction = decode(code, 0x1000).expect("an instruction");
        let (memory, effect) = memory_uses(&instruction)[0];
        Access {
            instruction,
            memory,
            effect,
        }
    }

    /// Of 0..4 those that a read of the word at rbx+0x10 allows.
    fn allowed(code: &[u8], rax: u64, rflags: u64) -> Vec<u64> {
        let mut registers = [0; REGISTERS];
        (registers[0], registers[3]) = (rax, 0x5000);
        let seen = Seen::of(&access(code), &registers, rflags, (0x5010, 4));
        (0..4).filter(|&value| seen.allows(value)).collect()
    }

    #[test]
    fn what_reads_show() {
        let load = [0x8b, 0x43, 0x10]; // mov eax, [rbx+0x10]
        assert_eq!(allowed(&load, 2, 0), [2]);
        let compare = [0x83, 0x7b, 0x10, 0x03]; // cmp dword [rbx+0x10], 3
        assert_eq!(allowed(&compare, 0, ZERO_FLAG), [3]);
        assert_eq!(allowed(&compare, 0, 0), [0, 1, 2]);
        let test = [0xf7, 0x43, 0x10, 1, 0, 0, 0]; // test dword [rbx+0x10], 1
        assert_eq!(allowed(&test, 0, ZERO_FLAG), [0, 2]);
        assert_eq!(allowed(&test, 0, 0), [1, 3]);
        let part = [0x80, 0x7b, 0x10, 0x03]; // cmp byte [rbx+0x10], 3
        assert_eq!(allowed(&part, 0, 0), [0, 1, 2, 3]);
    }

    #[test]
    fn where_reads_show_it() {
        let site = |code: &[u8]| read_site(&access(code)).map(|site| (site.shows, site.bytes));
        assert_eq!(site(&[0x8b, 0x43, 0x10]), Some((0, 4)));
        assert_eq!(site(&[0x83, 0x7b, 0x10, 0x03]), Some((SHOWS_ZERO_FLAG, 0)));
        assert_eq!(site(&[0x8a, 0x63, 0x10]), Some((SHOWS_NOTHING, 0))); // mov ah, [rbx+0x10]
        assert_eq!(site(&[0x89, 0x43, 0x10]), None); // a store
    }
}
