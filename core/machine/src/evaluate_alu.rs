// SPDX-License-Identifier: MIT
//! Addition, subtraction, logic, comparison, multiplication and division.

use iced_x86::Mnemonic as M;

use crate::decoded::{sign_extend, Decoded, Operand};
use crate::evaluator::Evaluator;
use crate::value::{mask, Value, AF, CF, DF, OF, PF, SF, STATUS, ZF};

impl Evaluator {
    /// `false`: none of this group.
    pub(crate) fn arithmetic(&mut self, code: &Decoded) -> bool {
        match code.mnemonic {
            M::Add | M::Adc | M::Sub | M::Sbb | M::Cmp => self.add_sub(code),
            M::Inc | M::Dec => self.step_by_one(code),
            M::Neg => self.negate(code),
            M::Not => {
                let value = self.read(code, 0);
                let flipped = Value {
                    bits: !value.bits & value.known,
                    known: value.known,
                };
                self.write(code, 0, flipped);
            }
            M::And | M::Or | M::Xor | M::Test => self.logic(code),
            M::Mul | M::Imul | M::Mulx => return self.multiply(code),
            M::Div | M::Idiv => self.divide(code),
            M::Xadd => {
                let (old, by) = (self.read(code, 0), self.read(code, 1));
                let sum = self.sum(old, by, Some(false), code.bits(0));
                self.write(code, 1, old);
                self.write(code, 0, sum);
            }
            M::Cmpxchg => self.compare_exchange(code),
            M::Cmpxchg8b | M::Cmpxchg16b => self.compare_exchange_wide(code),
            M::Adcx | M::Adox => {
                let flag = if code.mnemonic == M::Adcx { CF } else { OF };
                let bits = code.bits(0);
                let operands = self.known(code, 0, bits).zip(self.known(code, 1, bits));
                let sum = operands.zip(self.machine.flag(flag)).map(|((a, b), c)| {
                    let wide = u128::from(a) + u128::from(b) + u128::from(c);
                    (wide as u64 & mask(bits), wide >> bits & 1 == 1)
                });
                self.machine.set_flag(flag, sum.map(|(_, carry)| carry));
                self.write(code, 0, sum.map(|(value, _)| value).into());
            }
            M::Clc => self.machine.set_flag(CF, Some(false)),
            M::Stc => self.machine.set_flag(CF, Some(true)),
            M::Cmc => {
                let carry = self.machine.flag(CF).map(|carry| !carry);
                self.machine.set_flag(CF, carry);
            }
            M::Cld => self.machine.set_flag(DF, Some(false)),
            M::Std => self.machine.set_flag(DF, Some(true)),
            _ => return false,
        }
        true
    }

    pub(crate) fn sum(&mut self, a: Value, b: Value, carry: Option<bool>, bits: u32) -> Value {
        let (Some(a), Some(b), Some(carry)) = (a.get(bits), b.get(bits), carry) else {
            self.forget_status();
            return Value::UNKNOWN;
        };
        let (sum, over) = a.overflowing_add(b);
        let (sum, over_by_carry) = sum.overflowing_add(u64::from(carry));
        let result = sum & mask(bits);
        let carry = over | over_by_carry | (sum != result);
        self.set_status(result, carry, (a ^ result) & (b ^ result), a ^ b, bits);
        Value::of(result)
    }

    pub(crate) fn difference(
        &mut self,
        a: Value,
        b: Value,
        borrow: Option<bool>,
        bits: u32,
    ) -> Value {
        let (Some(a), Some(b), Some(borrow)) = (a.get(bits), b.get(bits), borrow) else {
            self.forget_status();
            return Value::UNKNOWN;
        };
        let result = a.wrapping_sub(b).wrapping_sub(u64::from(borrow)) & mask(bits);
        let carry = a < b || borrow && a == b;
        self.set_status(result, carry, (a ^ b) & (a ^ result), a ^ b, bits);
        Value::of(result)
    }

    /// All status flags; the overflow is the sign of `overflow`, and `operands` differ as it says.
    fn set_status(&mut self, result: u64, carry: bool, overflow: u64, operands: u64, bits: u32) {
        let sign = |value: u64| value >> (bits - 1) & 1 == 1;
        let flags = [
            (CF, carry),
            (PF, (result as u8).count_ones() % 2 == 0),
            (AF, (operands ^ result) & 0x10 != 0),
            (ZF, result == 0),
            (SF, sign(result)),
            (OF, sign(overflow)),
        ];
        let set = |all, (flag, on)| all | if on { flag } else { 0 };
        self.machine
            .set_flags(STATUS, flags.into_iter().fold(0, set));
    }

    fn same_register(code: &Decoded) -> bool {
        matches!(code.operands[0], Operand::Register { .. }) && code.operands[0] == code.operands[1]
    }

    fn add_sub(&mut self, code: &Decoded) {
        let bits = code.bits(0);
        let (mut a, mut b) = (self.read(code, 0), self.read(code, 1));
        if Self::same_register(code) && matches!(code.mnemonic, M::Sub | M::Sbb | M::Cmp) {
            (a, b) = (Value::of(0), Value::of(0));
        }
        let carry = match code.mnemonic {
            M::Adc | M::Sbb => self.machine.flag(CF),
            _ => Some(false),
        };
        let result = match code.mnemonic {
            M::Add | M::Adc => self.sum(a, b, carry, bits),
            _ => self.difference(a, b, carry, bits),
        };
        if code.mnemonic != M::Cmp {
            self.write(code, 0, result);
        }
    }

    pub(crate) fn compare(&mut self, a: Value, b: Value, bits: u32) {
        self.difference(a, b, Some(false), bits);
    }

    fn step_by_one(&mut self, code: &Decoded) {
        let carry = self.machine.flag(CF);
        let value = self.read(code, 0);
        let bits = code.bits(0);
        let result = if code.mnemonic == M::Inc {
            self.sum(value, Value::of(1), Some(false), bits)
        } else {
            self.difference(value, Value::of(1), Some(false), bits)
        };
        self.machine.set_flag(CF, carry);
        self.write(code, 0, result);
    }

    fn negate(&mut self, code: &Decoded) {
        let value = self.read(code, 0);
        let result = self.difference(Value::of(0), value, Some(false), code.bits(0));
        self.write(code, 0, result);
    }

    fn logic(&mut self, code: &Decoded) {
        let (a, b) = (self.read(code, 0), self.read(code, 1));
        let result = match code.mnemonic {
            M::Xor if Self::same_register(code) => Value::of(0),
            M::Xor => a.xor(b),
            M::Or => a.or(b),
            _ => a.and(b),
        };
        self.flags_of_logic(result, code.bits(0));
        if code.mnemonic != M::Test {
            self.write(code, 0, result);
        }
    }

    pub(crate) fn flags_of_logic(&mut self, result: Value, bits: u32) {
        match result.get(bits) {
            Some(value) => self.set_result_flags(value, bits),
            None => {
                self.machine.forget_flags(STATUS);
                let some_bit = result.bits & result.known & mask(bits) != 0;
                if some_bit {
                    self.machine.set_flag(ZF, Some(false));
                }
                let sign = result.shift_right(bits - 1).get(1).map(|bit| bit == 1);
                self.machine.set_flag(SF, sign);
                let parity = result.get(8).map(|low| low.count_ones() % 2 == 0);
                self.machine.set_flag(PF, parity);
            }
        }
        self.set_carry_overflow(false, false);
        self.machine.forget_flags(AF);
    }

    fn compare_exchange(&mut self, code: &Decoded) {
        let bits = code.bits(0);
        let old = self.read(code, 0);
        let new = self.read(code, 1);
        let expected = self.machine.registers[0].truncate(bits);
        self.difference(expected, old, Some(false), bits);
        match self.machine.flag(ZF) {
            Some(true) => self.write(code, 0, new),
            Some(false) => {
                self.write(code, 0, old);
                self.write_part(0, 0, bits, old);
            }
            None => {
                self.write(code, 0, Value::UNKNOWN);
                // In either case rax ends up with what memory held.
                if old.get(bits).is_some() {
                    self.write_part(0, 0, bits, old);
                } else {
                    self.machine.registers[0] = Value::UNKNOWN;
                }
            }
        }
    }

    /// The compared memory is wider than a recorded value: only what is certainly unchanged stays
    /// known.
    fn compare_exchange_wide(&mut self, code: &Decoded) {
        let bits = if code.mnemonic == M::Cmpxchg8b {
            32
        } else {
            64
        };
        let low = self.loaded(0);
        let whole = if bits == 32 {
            Some((low.get(32), low.shift_right(32).get(32)))
        } else {
            None
        };
        self.machine.set_flag(ZF, None);
        for number in [0, 2] {
            self.machine.registers[number] = Value::UNKNOWN;
        }
        if let Some((Some(eax), Some(edx))) = whole {
            self.write_part(0, 0, 32, Value::of(eax));
            self.write_part(2, 0, 32, Value::of(edx));
        }
    }

    fn multiply(&mut self, code: &Decoded) -> bool {
        if code.mnemonic == M::Mulx {
            let bits = code.bits(0);
            let a = self.machine.registers[2].get(bits);
            let product = a.zip(self.known(code, 2, bits));
            let product = product.map(|(a, b)| u128::from(a) * u128::from(b));
            self.write(code, 1, product.map(|p| p as u64 & mask(bits)).into());
            self.write(code, 0, product.map(|p| (p >> bits) as u64).into());
            return true;
        }
        let signed = code.mnemonic == M::Imul;
        let operands = code.instruction.op_count();
        let bits = code.bits(0);
        if operands == 1 {
            let a = self.machine.registers[0].get(bits);
            let b = self.known(code, 0, bits);
            let product = a.zip(b).map(|(a, b)| {
                if signed {
                    (i128::from(sign_extend(a, bits)) * i128::from(sign_extend(b, bits))) as u128
                } else {
                    u128::from(a) * u128::from(b)
                }
            });
            let low = product.map(|p| p as u64 & mask(bits));
            let high = product.map(|p| (p >> bits) as u64 & mask(bits));
            if bits == 8 {
                let ax = low.zip(high).map(|(l, h)| l | h << 8);
                self.write_part(0, 0, 16, ax.into());
            } else {
                self.write_part(0, 0, bits, low.into());
                self.write_part(2, 0, bits, high.into());
            }
            let carry = low.zip(high).map(|(l, h)| {
                if signed {
                    h != if sign_extend(l, bits) < 0 {
                        mask(bits)
                    } else {
                        0
                    }
                } else {
                    h != 0
                }
            });
            self.forget_status();
            self.machine.set_flag(CF, carry);
            self.machine.set_flag(OF, carry);
            return true;
        }
        let (first, second) = if operands == 2 { (0, 1) } else { (1, 2) };
        let (a, b) = (self.read(code, first), self.read(code, second));
        let product = self.product(a, b, bits);
        self.write(code, 0, product);
        true
    }

    /// The low part of a signed product, with its flags.
    pub(crate) fn product(&mut self, a: Value, b: Value, bits: u32) -> Value {
        let factors = a.get(bits).zip(b.get(bits));
        let product = factors
            .map(|(a, b)| i128::from(sign_extend(a, bits)) * i128::from(sign_extend(b, bits)));
        let carry = product.map(|p| p != i128::from(sign_extend(p as u64 & mask(bits), bits)));
        self.forget_status();
        self.machine.set_flag(CF, carry);
        self.machine.set_flag(OF, carry);
        product.map(|p| p as u64 & mask(bits)).into()
    }

    fn divide(&mut self, code: &Decoded) {
        let bits = code.bits(0);
        let (low, high) = if bits == 8 {
            let ax = self.machine.registers[0];
            (ax.get(8), ax.shift_right(8).get(8))
        } else {
            (
                self.machine.registers[0].get(bits),
                self.machine.registers[2].get(bits),
            )
        };
        let divisor = self.known(code, 0, bits);
        let result = match (low, high, divisor) {
            (Some(low), Some(high), Some(divisor)) if divisor != 0 => {
                let dividend = u128::from(high) << bits | u128::from(low);
                if code.mnemonic == M::Div {
                    let divisor = u128::from(divisor);
                    Some(((dividend / divisor) as u64, (dividend % divisor) as u64))
                } else {
                    let unused = 128 - 2 * bits;
                    let dividend = (dividend << unused) as i128 >> unused;
                    let divisor = i128::from(sign_extend(divisor, bits));
                    let quotient = dividend.wrapping_div(divisor);
                    let rest = dividend.wrapping_rem(divisor);
                    Some((quotient as u64 & mask(bits), rest as u64 & mask(bits)))
                }
            }
            _ => None,
        };
        let (quotient, rest) = (result.map(|r| r.0), result.map(|r| r.1));
        if bits == 8 {
            self.write_part(0, 0, 8, quotient.into());
            self.write_part(0, 8, 8, rest.into());
        } else {
            self.write_part(0, 0, bits, quotient.into());
            self.write_part(2, 0, bits, rest.into());
        }
        self.forget_status();
    }
}
