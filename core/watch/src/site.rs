// SPDX-License-Identifier: MIT
//! Hooked instructions, for flags that live in many objects: the operand's address, and so the
//! object, comes from the registers.

use std::path::PathBuf;

use flagfinder_code::{Code, Names, ProcessMemory};
use iced_x86::{Mnemonic, Register};

use crate::access::{decode, memory_uses, number_of, operand, Access, Effect, Registers};
use crate::naming::code;
use crate::place::module_index;
use crate::protocol::{self, NO_REGISTER};
use crate::request::SiteRequest;
use crate::value::{mask, source, updated};
use crate::{Failure, Result};

const LONGEST: usize = 15;

#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub ip: u64,
    pub file: PathBuf,
    pub file_offset: u64,
    pub access: Access,
    pub code: Code,
    pub follow: bool,
}

impl Site {
    /// # Errors
    /// In four parts: when there is no such instruction, or it accesses no memory.
    pub fn find(request: &SiteRequest, names: &Names, memory: &ProcessMemory) -> Result<Site> {
        let index = module_index(names, &request.module)?;
        let module = &names.input().modules[index];
        let ip = module.base.wrapping_add(request.offset);
        let failed = |found: String| {
            Failure::usage(
                format!("{}+{:#x} can't be hooked", request.module, request.offset),
                found,
                "Name the offset (ELF virtual address) of an instruction that reads or writes the \
                 flag: `code` of an event, `readers` and `writers` of `flagfinder diff --json`.",
                "Watching an address (--address) needs no instruction.",
            )
        };
        let mut segments = module.segments.iter();
        let segment = segments.find(|s| s.prot & 4 != 0 && (s.start..s.end).contains(&ip));
        let segment = segment.ok_or_else(|| failed("it is not in executable memory".into()))?;
        let instruction = decode(&code(names, memory, ip, LONGEST), ip);
        let instruction =
            instruction.ok_or_else(|| failed("there is no valid instruction".into()))?;
        let stack = |register: Register| register.full_register() == Register::RSP;
        let mut uses = memory_uses(&instruction);
        // A push or call of the word is about the word, not about the stack slot.
        uses.sort_by_key(|(memory, _)| stack(memory.base()));
        let Some(&(memory, effect)) = uses.first() else {
            return Err(failed(format!(
                "the instruction there accesses no memory: {instruction}"
            )));
        };
        Ok(Site {
            ip,
            file: module.file.clone(),
            file_offset: ip - segment.start + segment.file_offset,
            access: Access {
                instruction,
                memory,
                effect,
            },
            code: names.code(ip),
            follow: request.follow,
        })
    }

    /// What BPF must know of it.
    pub fn config(&self) -> protocol::Site {
        let mut site = protocol::Site {
            ip: self.ip,
            base: NO_REGISTER,
            index: NO_REGISTER,
            thin: u8::from(self.access.effect == Effect::Read),
            ..protocol::Site::default()
        };
        if let Some((displacement, base, index, scale, size)) = operand(&self.access.memory) {
            site.displacement = displacement;
            (site.base, site.index) = (base, index);
            (site.scale, site.size) = (scale, size);
            site.known = u8::from(size <= 8);
        }
        site
    }

    /// Bytes of the operand.
    pub fn size(&self) -> u32 {
        self.access.memory.memory_size().size() as u32
    }

    /// The object that the operand is a part of: what its base register points to.
    pub fn object(&self, registers: &Registers) -> Option<u64> {
        let number = number_of(self.access.memory.base())?;
        Some(registers[number])
    }

    /// What the instruction is about to store, from the registers and the word's value before it.
    pub fn stored(&self, registers: &Registers, old: Option<u64>) -> Option<u64> {
        let instruction = &self.access.instruction;
        let operand = source(instruction, 1, registers);
        let new = match instruction.mnemonic() {
            Mnemonic::Mov | Mnemonic::Xchg => operand,
            Mnemonic::Xadd => Some(old?.wrapping_add(operand?)),
            Mnemonic::Cmpxchg if self.exchange_fails(registers, old) => old,
            Mnemonic::Cmpxchg => operand,
            _ => updated(instruction, operand, old),
        };
        new.map(|value| value & mask(self.size()))
    }

    /// A compare-and-exchange that will find another value than it expects.
    pub fn exchange_fails(&self, registers: &Registers, old: Option<u64>) -> bool {
        let expected = registers[0] & mask(self.size());
        self.access.instruction.mnemonic() == Mnemonic::Cmpxchg
            && old.is_some_and(|old| old != expected)
    }
}
