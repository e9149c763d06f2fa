// SPDX-License-Identifier: MIT
//! A [`Window`] from registers before and after each instruction, and from memory that can be read
//! in between.

use std::hash::Hasher;

use flagfinder_linux::syscalls::outputs;
use flagfinder_machine::evaluator::Access;
use flagfinder_machine::value::{mask, Machine, Value};
use flagfinder_machine::{Syscall, Window};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};
use rustc_hash::{FxHashMap, FxHasher};

use crate::registers;

/// Memory of the thread, as it is between two of its instructions.
pub trait ReadMemory {
    /// Returns how many bytes could be read, from `address` on.
    fn read(&mut self, address: u64, buffer: &mut [u8]) -> usize;
}

/// See the module. Each instruction is [decoded](Self::decode), [begun](Self::begin), executed by
/// the caller, and [finished](Self::finish).
pub struct WindowBuilder {
    /// What was seen so far: the instructions that were finished.
    pub window: Window,
    factory: InstructionInfoFactory,
    /// By pc: the bytes seen there, and the instruction.
    cache: FxHashMap<u64, ([u8; 15], Instruction)>,
    machine: Machine,
}

impl Default for WindowBuilder {
    fn default() -> Self {
        WindowBuilder {
            window: Window::default(),
            factory: InstructionInfoFactory::new(),
            cache: FxHashMap::default(),
            machine: Machine::default(),
        }
    }
}

impl WindowBuilder {
    /// The instruction at `pc` and its number in the window; `None` if there is no readable code.
    pub fn decode(&mut self, space: &mut dyn ReadMemory, pc: u64) -> Option<(Instruction, u32)> {
        let mut bytes = [0u8; 15];
        let got = space.read(pc, &mut bytes);
        if got == 0 {
            return None;
        }
        let known = self.cache.get(&pc).filter(|(old, _)| *old == bytes);
        let instruction = match known {
            Some((_, instruction)) => *instruction,
            None => {
                let code = &bytes[..got];
                let instruction = Decoder::with_ip(64, code, pc, DecoderOptions::NONE).decode();
                self.cache.insert(pc, (bytes, instruction));
                instruction
            }
        };
        let mut likeness = FxHasher::default();
        likeness.write(&bytes[..instruction.len().clamp(1, got)]);
        let code = self
            .window
            .intern(&instruction, likeness.finish(), &mut self.factory);
        Some((instruction, code))
    }

    /// Opens the step at `before.rip`.
    pub fn begin(
        &mut self,
        space: &mut dyn ReadMemory,
        before: &libc::user_regs_struct,
        code: u32,
    ) {
        self.window.push(code, Value::of(before.rsp));
        registers::load(&mut self.machine, before);
        self.window.registers = self.machine.registers;
        let decoded = self.window.code_at(code);
        let mut accesses = Vec::with_capacity(2);
        for memory in decoded.memory.iter().filter(|m| m.read) {
            let address = memory.address(&self.machine);
            let bits = u32::from(memory.bytes) * 8;
            let mut buffer = [0u8; 8];
            let wanted = usize::from(memory.bytes).min(8);
            let value = match address {
                Some(at) if space.read(at, &mut buffer[..wanted]) == wanted => Value {
                    bits: u64::from_le_bytes(buffer),
                    known: mask(bits),
                },
                _ => Value::UNKNOWN,
            };
            accesses.push(Access {
                address,
                bytes: u32::from(memory.bytes),
                write: false,
                value,
            });
        }
        for access in accesses {
            self.window.push_access(access);
        }
    }

    /// Closes the step with what it changed.
    pub fn finish(
        &mut self,
        space: &mut dyn ReadMemory,
        before: &libc::user_regs_struct,
        after: &libc::user_regs_struct,
        in_syscall: bool,
    ) {
        let step = self.window.len() - 1;
        let code = self.window.code(step);
        let written = code.registers_written;
        let stores: Vec<_> = code.memory.iter().filter(|m| m.write).copied().collect();
        let now = registers::general(after);
        for number in (0..16).filter(|n| written >> n & 1 == 1 || (*n == 0 && in_syscall)) {
            self.window
                .push_result(number, Value::of(now[number as usize]));
        }
        for memory in stores {
            let address = memory.address(&self.machine);
            let mut buffer = [0u8; 8];
            let wanted = usize::from(memory.bytes).min(8);
            let value = match address {
                Some(at) if space.read(at, &mut buffer[..wanted]) == wanted => Value {
                    bits: u64::from_le_bytes(buffer),
                    known: mask(wanted as u32 * 8),
                },
                _ => Value::UNKNOWN,
            };
            self.window.push_access(Access {
                address,
                bytes: u32::from(memory.bytes),
                write: true,
                value,
            });
        }
        if in_syscall {
            self.syscall(step, before, after);
        }
    }

    fn syscall(
        &mut self,
        step: u32,
        before: &libc::user_regs_struct,
        after: &libc::user_regs_struct,
    ) {
        let b = before;
        let args = [b.rdi, b.rsi, b.rdx, b.r10, b.r8, b.r9];
        let number = b.rax as u32;
        let result = after.rax as i64;
        let written = outputs(number, &args, result);
        self.window.syscalls.push(Syscall {
            step,
            number,
            args,
            result: Some(result),
            written,
        });
    }
}
