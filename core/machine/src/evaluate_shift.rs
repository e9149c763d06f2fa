// SPDX-License-Identifier: MIT
//! Shifts and rotates.

use iced_x86::Mnemonic as M;

use crate::decoded::{sign_extend, Decoded};
use crate::evaluator::Evaluator;
use crate::value::{mask, Value, AF, CF, OF};

impl Evaluator {
    /// `false`: none of this group.
    pub(crate) fn shifts(&mut self, code: &Decoded) -> bool {
        match code.mnemonic {
            M::Shl | M::Sal | M::Shr | M::Sar | M::Rol | M::Ror | M::Rcl | M::Rcr => {
                self.shift(code)
            }
            M::Shld | M::Shrd => self.shift_double(code),
            M::Shlx | M::Shrx | M::Sarx | M::Rorx => self.shift_without_flags(code),
            _ => return false,
        }
        true
    }

    fn count(&self, code: &Decoded, index: usize, bits: u32) -> Option<u32> {
        let limit = if bits == 64 { 63 } else { 31 };
        self.read(code, index).get(8).map(|c| c as u32 & limit)
    }

    fn shift(&mut self, code: &Decoded) {
        let bits = code.bits(0);
        let count = self.count(code, 1, bits);
        if count == Some(0) {
            // Nothing happens, but a 32-bit destination is still written.
            let value = self.read(code, 0);
            self.write(code, 0, value);
            return;
        }
        let value = self.read(code, 0);
        let result = self.shifted(code.mnemonic, value, count, bits);
        self.write(code, 0, result);
    }

    /// The value moved by a count that is not 0, with its flags.
    pub(crate) fn shifted(
        &mut self,
        mnemonic: M,
        value: Value,
        count: Option<u32>,
        bits: u32,
    ) -> Value {
        let rotates = matches!(mnemonic, M::Rol | M::Ror | M::Rcl | M::Rcr);
        let through = match mnemonic {
            M::Rcl | M::Rcr => self.machine.flag(CF).map(u64::from),
            _ => Some(0),
        };
        let (Some(value), Some(count), Some(carry)) = (value.get(bits), count, through) else {
            if rotates {
                self.machine.forget_flags(CF | OF);
            } else {
                self.forget_status();
            }
            return Value::UNKNOWN;
        };
        let m = mask(bits);
        let top = |v: u64| v >> (bits - 1) & 1 == 1;
        let (result, carry, overflow) = match mnemonic {
            M::Shl | M::Sal => {
                let wide = u128::from(value) << count;
                let result = wide as u64 & m;
                let carry = wide >> bits & 1 == 1;
                (result, carry, top(result) != carry)
            }
            M::Shr => {
                let carry = count <= 64 && value >> (count - 1) & 1 == 1;
                (value >> count, carry, top(value))
            }
            M::Sar => {
                let wide = sign_extend(value, bits);
                let carry = wide >> (count - 1) & 1 == 1;
                ((wide >> count) as u64 & m, carry, false)
            }
            M::Rol => {
                let result = rotate_left(value, count % bits, bits);
                let carry = result & 1 == 1;
                (result, carry, top(result) != carry)
            }
            M::Ror => {
                let result = rotate_left(value, (bits - count % bits) % bits, bits);
                let next = result >> (bits - 2) & 1 == 1;
                (result, top(result), top(result) != next)
            }
            _ => {
                // Rotation of bits + 1 places, carry on top.
                let wide = u128::from(carry) << bits | u128::from(value);
                let places = bits + 1;
                let turn = count % places;
                let left = if mnemonic == M::Rcl {
                    turn
                } else {
                    (places - turn) % places
                };
                let all = (1u128 << places) - 1;
                let turned = if left == 0 {
                    wide
                } else {
                    (wide << left | wide >> (places - left)) & all
                };
                let result = turned as u64 & m;
                let carry = turned >> bits & 1 == 1;
                let overflow = if mnemonic == M::Rcl {
                    top(result) != carry
                } else {
                    top(result) != (result >> (bits - 2) & 1 == 1)
                };
                (result, carry, overflow)
            }
        };
        if !rotates {
            self.set_result_flags(result, bits);
            self.machine.forget_flags(AF);
        }
        self.machine.set_flag(CF, Some(carry));
        // Defined for single steps only; and carry not beyond the operand's width.
        self.machine.set_flag(OF, (count == 1).then_some(overflow));
        if !rotates && mnemonic != M::Sar && count > bits {
            self.machine.forget_flags(CF);
        }
        Value::of(result)
    }

    fn shift_double(&mut self, code: &Decoded) {
        let bits = code.bits(0);
        let count = self.count(code, 2, bits);
        if count == Some(0) {
            let value = self.read(code, 0);
            self.write(code, 0, value);
            return;
        }
        let operands = self.known(code, 0, bits).zip(self.known(code, 1, bits));
        let (Some((value, filler)), Some(count)) = (operands, count.filter(|&c| c <= bits)) else {
            self.write(code, 0, Value::UNKNOWN);
            self.forget_status();
            return;
        };
        let (result, carry) = if code.mnemonic == M::Shld {
            let wide = u128::from(value) << bits | u128::from(filler);
            let shifted = wide << count;
            (
                (shifted >> bits) as u64 & mask(bits),
                value >> (bits - count) & 1 == 1,
            )
        } else {
            let wide = u128::from(filler) << bits | u128::from(value);
            (
                (wide >> count) as u64 & mask(bits),
                value >> (count - 1) & 1 == 1,
            )
        };
        self.set_result_flags(result, bits);
        self.machine.forget_flags(AF);
        self.machine.set_flag(CF, Some(carry));
        let overflow = (result ^ value) >> (bits - 1) & 1 == 1;
        self.machine.set_flag(OF, (count == 1).then_some(overflow));
        self.write(code, 0, Value::of(result));
    }

    fn shift_without_flags(&mut self, code: &Decoded) {
        let bits = code.bits(0);
        let count = self.count(code, 2, bits);
        let operands = self.known(code, 1, bits).zip(count);
        let result = operands.map(|(value, count)| match code.mnemonic {
            M::Shlx => value << count & mask(bits),
            M::Shrx => value >> count,
            M::Sarx => (sign_extend(value, bits) >> count) as u64 & mask(bits),
            _ => rotate_left(value, (bits - count % bits) % bits, bits),
        });
        self.write(code, 0, result.into());
    }
}

fn rotate_left(value: u64, count: u32, bits: u32) -> u64 {
    if count == 0 {
        value
    } else {
        (value << count | value >> (bits - count)) & mask(bits)
    }
}
