// SPDX-License-Identifier: MIT
//! An instruction that reads memory, and where it does.

use serde::{Deserialize, Serialize};

use crate::decoded::{Decoded, Segment};

/// See the module. Registers in x86 numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct Reader {
    /// Run-time address of the instruction.
    pub pc: u64,
    base: Option<u8>,
    index: Option<u8>,
    scale: u8,
    displacement: u64,
}

impl Reader {
    /// Of an instruction that reads one word, whose place depends on registers alone.
    pub fn of(code: &Decoded) -> Option<Reader> {
        let mut read = code.memory.iter().filter(|memory| memory.read);
        let memory = read.next()?;
        let is_plain = memory.segment == Segment::Flat && !memory.short && !memory.gather;
        let moves = memory.base.is_some() || memory.index.is_some();
        (is_plain && moves && read.next().is_none()).then_some(Reader {
            pc: code.pc(),
            base: memory.base,
            index: memory.index,
            scale: memory.scale,
            displacement: memory.displacement,
        })
    }

    /// Does the other one find its place by the same registers, at whatever distance?
    pub fn is_like(&self, other: &Reader) -> bool {
        let parts = |reader: &Reader| (reader.base, reader.index, reader.scale);
        parts(self) == parts(other)
    }

    /// Where it reads with these registers.
    pub fn address(&self, registers: &[u64; 16]) -> u64 {
        let value = |register: Option<u8>| register.map_or(0, |r| registers[usize::from(r & 15)]);
        let index = value(self.index).wrapping_mul(self.scale.into());
        let address = self.displacement.wrapping_add(value(self.base));
        address.wrapping_add(index)
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;
    use crate::Window;

    fn reader(code: &[u8]) -> Option<Reader> {
        let mut window = Window::default();
        let decoded = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode();
        let index = window.intern(&decoded, 0, &mut InstructionInfoFactory::new());
        Reader::of(window.code_at(index))
    }

    #[test]
    fn it_reads_where_its_registers_say() {
        let mut registers = [0; 16];
        registers[0] = 0x1000;
        registers[1] = 3;
        // mov rdx, [rax+rcx*8+16]
        let read = reader(&[0x48, 0x8b, 0x54, 0xc8, 16]).expect("it reads");
        assert_eq!((read.pc, read.address(&registers)), (0x1000, 0x1028));
    }

    #[test]
    fn a_fixed_place_and_a_store_are_none() {
        // mov eax, [rip+16]; mov [rax], ecx
        assert_eq!(reader(&[0x8b, 0x05, 16, 0, 0, 0]), None);
        assert_eq!(reader(&[0x89, 0x08]), None);
    }
}
