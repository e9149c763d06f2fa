// SPDX-License-Identifier: MIT
//! Bit tests, scans, counts and the bit manipulation extensions.

use iced_x86::Mnemonic as M;

use crate::decoded::{Decoded, Operand};
use crate::evaluator::Evaluator;
use crate::value::{mask, Value, CF, OF, SF, STATUS, ZF};

impl Evaluator {
    /// `false`: none of this group.
    pub(crate) fn bits(&mut self, code: &Decoded) -> bool {
        match code.mnemonic {
            M::Bt | M::Bts | M::Btr | M::Btc => self.bit_test(code),
            M::Bsf | M::Bsr | M::Tzcnt | M::Lzcnt | M::Popcnt => self.scan(code),
            M::Andn | M::Bextr | M::Bzhi => self.three_operand(code),
            M::Blsi | M::Blsr | M::Blsmsk => self.lowest_bit(code),
            M::Pdep | M::Pext => {
                let bits = code.bits(0);
                let operands = self.known(code, 1, bits).zip(self.known(code, 2, bits));
                let deposit = code.mnemonic == M::Pdep;
                let result = operands.map(|(value, mask)| {
                    if deposit {
                        deposit_bits(value, mask)
                    } else {
                        extract_bits(value, mask)
                    }
                });
                self.write(code, 0, result.into());
            }
            _ => return false,
        }
        true
    }

    fn bit_test(&mut self, code: &Decoded) {
        let bits = code.bits(0);
        let number = self.read(code, 1).get(bits.clamp(8, 64));
        let in_memory = matches!(code.operands[0], Operand::Memory { .. });
        let by_register = matches!(code.operands[1], Operand::Register { .. });
        if in_memory && by_register {
            // The bit string may reach far beyond the named operand.
            self.bit_string(code, bits);
            return;
        }
        let value = self.read(code, 0);
        let Some(number) = number.map(|n| n as u32 % bits) else {
            self.machine.forget_flags(CF);
            self.write(code, 0, Value::UNKNOWN);
            return;
        };
        let bit = value.shift_right(number).get(1).map(|bit| bit == 1);
        let new = match code.mnemonic {
            M::Bts => Some(true),
            M::Btr => Some(false),
            _ => bit.map(|bit| !bit),
        };
        self.machine.set_flag(CF, bit);
        if code.mnemonic != M::Bt {
            let part = new.map(u64::from).into();
            self.write(code, 0, value.insert(part, number, 1));
        }
    }

    fn bit_string(&mut self, code: &Decoded, bits: u32) {
        let index = self.read(code, 1).get(bits);
        let index = index.map(|i| crate::decoded::sign_extend(i, bits));
        let recorded = self.loaded(0);
        let mut exact = false;
        for access in self.accesses_mut() {
            let at = access.address.zip(index);
            let step = i64::from(bits / 8);
            access.address = at.map(|(base, index)| {
                exact = index.div_euclid(i64::from(bits)) == 0;
                base.wrapping_add((index.div_euclid(i64::from(bits)) * step) as u64)
            });
        }
        let number = index.map(|i| i.rem_euclid(i64::from(bits)) as u32);
        let bit = number
            .filter(|_| exact)
            .and_then(|n| recorded.shift_right(n).get(1));
        self.machine.set_flag(CF, bit.map(|bit| bit == 1));
    }

    fn scan(&mut self, code: &Decoded) {
        let bits = code.bits(0);
        let value = self.known(code, 1, bits);
        let zero_is_defined = !matches!(code.mnemonic, M::Bsf | M::Bsr);
        let result = value.filter(|&v| v != 0 || zero_is_defined).map(|v| {
            let leading = |v: u64| (v << (64 - bits)).leading_zeros().min(bits);
            u64::from(match code.mnemonic {
                M::Bsf | M::Tzcnt => v.trailing_zeros().min(bits),
                M::Bsr => 63 - v.leading_zeros(),
                M::Lzcnt => leading(v),
                _ => v.count_ones(),
            })
        });
        self.machine.forget_flags(STATUS);
        match code.mnemonic {
            M::Bsf | M::Bsr => self.machine.set_flag(ZF, value.map(|v| v == 0)),
            M::Popcnt => {
                self.machine.set_flags(STATUS, 0);
                self.machine.set_flag(ZF, value.map(|v| v == 0));
            }
            _ => {
                self.machine.set_flag(ZF, result.map(|r| r == 0));
                self.machine.set_flag(CF, value.map(|v| v == 0));
            }
        }
        self.write(code, 0, result.into());
    }

    fn three_operand(&mut self, code: &Decoded) {
        let bits = code.bits(0);
        let operands = self.known(code, 1, bits).zip(self.known(code, 2, bits));
        let mut carry = Some(false);
        let result = operands.map(|(a, b)| match code.mnemonic {
            M::Andn => !a & b & mask(bits),
            M::Bextr => {
                let (start, length) = (b & 0xff, b >> 8 & 0xff);
                if start >= u64::from(bits) {
                    0
                } else {
                    a >> start & mask(length.min(64) as u32)
                }
            }
            _ => {
                let keep = b & 0xff;
                carry = Some(keep >= u64::from(bits));
                a & mask(keep.min(64) as u32)
            }
        });
        self.flags_of(result, bits, carry);
        self.write(code, 0, result.into());
    }

    fn lowest_bit(&mut self, code: &Decoded) {
        let bits = code.bits(0);
        let value = self.known(code, 1, bits);
        let result = value.map(|v| {
            mask(bits)
                & match code.mnemonic {
                    M::Blsi => v & v.wrapping_neg(),
                    M::Blsr => v & v.wrapping_sub(1),
                    _ => v ^ v.wrapping_sub(1),
                }
        });
        let carry = value.map(|v| {
            if code.mnemonic == M::Blsi {
                v != 0
            } else {
                v == 0
            }
        });
        self.flags_of(result, bits, carry);
        self.write(code, 0, result.into());
    }

    fn flags_of(&mut self, result: Option<u64>, bits: u32, carry: Option<bool>) {
        self.machine.forget_flags(STATUS);
        if let Some(result) = result {
            self.machine.set_flag(ZF, Some(result == 0));
            self.machine
                .set_flag(SF, Some(result >> (bits - 1) & 1 == 1));
            self.machine.set_flag(CF, carry);
            self.machine.set_flag(OF, Some(false));
        }
    }
}

fn deposit_bits(mut value: u64, mut mask: u64) -> u64 {
    let mut result = 0;
    while mask != 0 {
        let lowest = mask & mask.wrapping_neg();
        if value & 1 == 1 {
            result |= lowest;
        }
        value >>= 1;
        mask ^= lowest;
    }
    result
}

fn extract_bits(value: u64, mut mask: u64) -> u64 {
    let (mut result, mut place) = (0, 0);
    while mask != 0 {
        let lowest = mask & mask.wrapping_neg();
        if value & lowest != 0 {
            result |= 1 << place;
        }
        place += 1;
        mask ^= lowest;
    }
    result
}
