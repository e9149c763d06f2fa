// SPDX-License-Identifier: MIT
//! Blocks executed in their compact form.

use flagfinder_trace::Slot;

use crate::compact::{Kind, Load, Operation, CONSTANT, MEMORY};
use crate::decoded::{sign_extend, Decoded};
use crate::decoded_blocks::Codes;
use crate::evaluator::{Access, Evaluator, Recorded};
use crate::replayer::{SlotReader, Visitor};
use crate::value::{mask, Value, CF};

impl Evaluator {
    /// Executes a block all of whose slots' values are known. Gives where control goes next, if it
    /// knows. `STORES`: the visitor is shown calls, returns and stores; `CHOSEN`: what it chooses;
    /// else nothing.
    pub(crate) fn run<const STORES: bool, const CHOSEN: bool, V: Visitor>(
        &mut self,
        codes: &Codes,
        slots: &[Slot],
        values: &[u8],
        visitor: &mut V,
    ) -> Option<u64> {
        let mut next = None;
        for operation in &codes.compact {
            let code = &codes.instructions[operation.index as usize];
            if STORES && operation.calls {
                visitor.before(code, &self.machine);
            }
            let chosen = CHOSEN && visitor.chooses(code);
            if chosen || operation.kind == Kind::Long {
                let (first, count) = operation.slots;
                let mut reader = SlotReader {
                    slots: &slots[first as usize..(first + count) as usize],
                    values: values.get(operation.offset as usize..).unwrap_or(&[]),
                    known: true,
                };
                let recorded = match count {
                    0 => Recorded::default(),
                    _ => reader.recorded(code, operation.index as usize),
                };
                self.step(code, &recorded);
                if chosen {
                    visitor.after(code, self);
                }
                if STORES {
                    for access in self.accesses().iter().filter(|access| access.write) {
                        visitor.stored(code, &self.machine, access);
                    }
                }
                if operation.index as usize + 1 == codes.instructions.len() {
                    next = self.next(code);
                }
                continue;
            }
            let address = match operation.store || operation.load == Load::Shadow {
                true => operation.memory.address(&self.machine),
                false => None,
            };
            let bits = u32::from(operation.memory.bytes) * 8;
            let loaded = match operation.load {
                Load::Nothing => Value::UNKNOWN,
                Load::Slot(offset) => slot(values, offset as usize, bits),
                Load::Shadow => match address {
                    Some(at) => self.machine.shadow.load(at, bits),
                    None => Value::UNKNOWN,
                },
            };
            let result = match operation.kind {
                Kind::Spill => Value::UNKNOWN,
                _ => self.compute(code, operation, loaded, &mut next),
            };
            if operation.store {
                let store = Access {
                    address,
                    bytes: bits / 8,
                    write: true,
                    value: result,
                };
                self.store(&store);
                if STORES {
                    visitor.stored(code, &self.machine, &store);
                }
            }
        }
        next
    }

    /// What goes to memory, if anything does.
    #[inline(always)]
    fn compute(
        &mut self,
        code: &Decoded,
        operation: &Operation,
        loaded: Value,
        next: &mut Option<u64>,
    ) -> Value {
        let (bits, from_bits) = (u32::from(operation.bits.0), u32::from(operation.bits.1));
        let constant = operation.constant;
        let flags = operation.flags;
        let from = |of: &Evaluator| match operation.from {
            MEMORY => loaded,
            CONSTANT => Value::of(constant),
            number => of.machine.registers[usize::from(number)].truncate(from_bits),
        };
        let to = |of: &Evaluator| match operation.to {
            MEMORY => loaded,
            number => of.machine.registers[usize::from(number)].truncate(bits),
        };
        let result = match operation.kind {
            Kind::Move if operation.from == CONSTANT => Value::of(constant),
            Kind::Move => from(self).truncate(from_bits),
            Kind::MoveSigned => {
                let value = from(self).get(from_bits);
                value
                    .map(|value| sign_extend(value, from_bits) as u64)
                    .into()
            }
            Kind::Address => operation.memory.address(&self.machine).into(),
            Kind::Zero => {
                if flags {
                    self.flags_of_logic(Value::of(0), bits);
                }
                Value::of(0)
            }
            Kind::Add if flags => self.sum(to(self), from(self), Some(false), bits),
            Kind::Add => {
                let operands = to(self).get(bits).zip(from(self).get(bits));
                operands.map(|(a, b)| a.wrapping_add(b)).into()
            }
            Kind::Subtract if flags => self.difference(to(self), from(self), Some(false), bits),
            Kind::Subtract => {
                let operands = to(self).get(bits).zip(from(self).get(bits));
                operands.map(|(a, b)| a.wrapping_sub(b)).into()
            }
            Kind::Compare => {
                if flags {
                    self.difference(to(self), from(self), Some(false), bits);
                }
                return Value::UNKNOWN;
            }
            Kind::And => self.logical(to(self).and(from(self)), operation),
            Kind::Or => self.logical(to(self).or(from(self)), operation),
            Kind::Xor => self.logical(to(self).xor(from(self)), operation),
            Kind::Test => {
                self.logical(to(self).and(from(self)), operation);
                return Value::UNKNOWN;
            }
            Kind::Increment | Kind::Decrement => {
                let (value, carry) = (to(self), self.machine.flag(CF));
                let result = match operation.kind {
                    Kind::Increment => self.sum(value, Value::of(1), Some(false), bits),
                    _ => self.difference(value, Value::of(1), Some(false), bits),
                };
                self.machine.set_flag(CF, carry);
                result
            }
            Kind::Negate => self.difference(Value::of(0), to(self), Some(false), bits),
            Kind::Not => {
                let value = to(self);
                Value {
                    bits: !value.bits & value.known,
                    known: value.known,
                }
            }
            Kind::Shift(mnemonic) => self.shifted(mnemonic, to(self), Some(constant as u32), bits),
            Kind::Multiply => self.product(to(self), from(self), bits),
            Kind::Scale => self.product(from(self), Value::of(constant), bits),
            Kind::MoveIf(condition) => {
                let (old, new) = (to(self), from(self));
                match self.condition(condition) {
                    Some(true) => new,
                    Some(false) => old,
                    None if old == new => old,
                    None => Value::UNKNOWN,
                }
            }
            Kind::SetIf(condition) => self
                .condition(condition)
                .map_or(Value { bits: 0, known: !1 }, |on| Value::of(u64::from(on))),
            Kind::Push => {
                let value = from(self);
                self.add_rsp(-8);
                return value;
            }
            Kind::Pop => {
                self.add_rsp(8);
                loaded
            }
            Kind::Call => {
                self.add_rsp(-8);
                *next = Some(constant);
                return Value::of(code.instruction.next_ip());
            }
            Kind::Return => {
                *next = loaded.get(64);
                self.add_rsp(8);
                return Value::UNKNOWN;
            }
            Kind::Jump => {
                *next = from(self).get(64);
                return Value::UNKNOWN;
            }
            Kind::Branch(condition) => {
                *next = self.condition(condition).map(|taken| match taken {
                    true => constant,
                    false => code.instruction.next_ip(),
                });
                return Value::UNKNOWN;
            }
            Kind::Spill | Kind::Long => return Value::UNKNOWN,
        };
        match operation.to {
            MEMORY => result.truncate(bits),
            number => {
                self.write_part(number, 0, bits, result);
                Value::UNKNOWN
            }
        }
    }

    #[inline]
    fn logical(&mut self, result: Value, operation: &Operation) -> Value {
        if operation.flags {
            self.flags_of_logic(result, u32::from(operation.bits.0));
        }
        result
    }
}

/// The recorded value of so many bits.
#[inline]
fn slot(values: &[u8], offset: usize, bits: u32) -> Value {
    let value = match bits {
        64 => word(values, offset).map(u64::from_le_bytes),
        32 => word(values, offset).map(|bytes| u64::from(u32::from_le_bytes(bytes))),
        16 => word(values, offset).map(|bytes| u64::from(u16::from_le_bytes(bytes))),
        _ => word(values, offset).map(|[byte]| u64::from(byte)),
    };
    value.map_or(Value::UNKNOWN, |value| Value {
        bits: value,
        known: mask(bits),
    })
}

#[inline]
fn word<const BYTES: usize>(values: &[u8], offset: usize) -> Option<[u8; BYTES]> {
    values.get(offset..)?.first_chunk().copied()
}
