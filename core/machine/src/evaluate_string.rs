// SPDX-License-Identifier: MIT
//! String instructions, single and repeated.

use iced_x86::Mnemonic as M;

use crate::decoded::Decoded;
use crate::evaluator::{Access, Evaluator};
use crate::value::{Value, DF, STATUS};

const RSI: usize = 6;
const RDI: usize = 7;
const RCX: usize = 1;

impl Evaluator {
    pub(crate) fn accesses_mut(&mut self) -> impl Iterator<Item = &mut Access> {
        self.accesses_list().iter_mut()
    }

    /// `false`: none of this group.
    pub(crate) fn strings(&mut self, code: &Decoded) -> bool {
        let (bytes, source, destination, compares) = match code.mnemonic {
            M::Movsb | M::Movsw | M::Movsd | M::Movsq => (size(code), true, true, false),
            M::Stosb | M::Stosw | M::Stosd | M::Stosq => (size(code), false, true, false),
            M::Lodsb | M::Lodsw | M::Lodsd | M::Lodsq => (size(code), true, false, false),
            M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq => (size(code), true, true, true),
            M::Scasb | M::Scasw | M::Scasd | M::Scasq => (size(code), false, true, true),
            _ => return false,
        };
        if !code.instruction.is_string_instruction() {
            return false; // movsd and cmpsd of vector registers
        }
        let down = self.machine.flag(DF);
        if code.repeated {
            self.repeated(bytes, source, destination, compares, down);
            return true;
        }
        let step = down.map(|down| if down { -(bytes as i64) } else { bytes as i64 });
        let bits = bytes as u32 * 8;
        match code.mnemonic {
            M::Movsb | M::Movsw | M::Movsd | M::Movsq => {
                let value = self.loaded(0);
                self.set_store(value);
            }
            M::Stosb | M::Stosw | M::Stosd | M::Stosq => {
                let value = self.machine.registers[0].truncate(bits);
                self.set_store(value);
            }
            M::Lodsb | M::Lodsw | M::Lodsd | M::Lodsq => {
                let value = self.loaded(0);
                self.write_part(0, 0, bits, value);
            }
            _ => {
                let (a, b) = if source {
                    (self.loaded(0), self.loaded(1))
                } else {
                    (self.machine.registers[0].truncate(bits), self.loaded(0))
                };
                self.compare(a, b, bits);
            }
        }
        self.advance(RSI, source, step);
        self.advance(RDI, destination, step);
        true
    }

    fn advance(&mut self, register: usize, used: bool, by: Option<i64>) {
        if used {
            let at = self.machine.registers[register].get(64).zip(by);
            self.machine.registers[register] = at.map(|(at, by)| at.wrapping_add(by as u64)).into();
        }
    }

    fn repeated(
        &mut self,
        bytes: u64,
        source: bool,
        destination: bool,
        compares: bool,
        down: Option<bool>,
    ) {
        let count = self.machine.registers[RCX].get(64);
        let length = count.and_then(|count| count.checked_mul(bytes));
        let length = length.filter(|&length| length <= u64::from(u32::MAX));
        for access in self.accesses_mut() {
            access.value = Value::UNKNOWN;
            access.bytes = length.unwrap_or(0) as u32;
            if down != Some(false) {
                access.address = None;
            }
            if compares && length != Some(0) {
                access.bytes = bytes as u32;
            }
        }
        if length.is_none() && destination && !compares {
            self.machine.shadow.clear();
        }
        let by = if compares {
            None
        } else {
            length.zip(down).map(|(length, down)| {
                if down {
                    -(length as i64)
                } else {
                    length as i64
                }
            })
        };
        self.advance(RSI, source, by);
        self.advance(RDI, destination, by);
        if source && !destination {
            self.machine.registers[0] = Value::UNKNOWN;
        }
        self.machine.registers[RCX] = if compares {
            Value::UNKNOWN
        } else {
            Value::of(0)
        };
        if compares && count != Some(0) {
            self.machine.forget_flags(STATUS);
        }
    }
}

fn size(code: &Decoded) -> u64 {
    code.memory.first().map_or(1, |m| u64::from(m.bytes))
}
