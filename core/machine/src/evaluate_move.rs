// SPDX-License-Identifier: MIT
//! Moves, extensions, exchanges and the stack.

use iced_x86::{FlowControl, Mnemonic as M, OpKind};

use crate::decoded::{sign_extend, Decoded, Operand, RSP};
use crate::evaluator::Evaluator;
use crate::value::{mask, Value, AF, CF, DF, OF, PF, SF, STATUS, ZF};

impl Evaluator {
    /// `false`: none of this group.
    pub(crate) fn moves(&mut self, code: &Decoded) -> bool {
        match code.mnemonic {
            M::Mov | M::Movzx | M::Movnti => {
                if !integer(code, 0) || !integer(code, 1) {
                    return false;
                }
                let bits = code.bits(1);
                let value = self.read(code, 1);
                self.write(
                    code,
                    0,
                    if bits == 0 {
                        value
                    } else {
                        value.truncate(bits)
                    },
                );
            }
            M::Movsx | M::Movsxd => {
                let bits = code.bits(1);
                let value = self.known(code, 1, bits);
                self.write(code, 0, value.map(|v| sign_extend(v, bits) as u64).into());
            }
            M::Movbe => {
                let bits = code.bits(0).max(code.bits(1));
                let value = self.known(code, 1, bits);
                self.write(code, 0, value.map(|v| swap(v, bits)).into());
            }
            M::Bswap => {
                let bits = code.bits(0);
                let value = self.known(code, 0, bits);
                self.write(code, 0, value.map(|v| swap(v, bits)).into());
            }
            M::Lea => {
                let address = code.memory.first().and_then(|m| m.address(&self.machine));
                self.write(code, 0, address.into());
            }
            M::Xchg => {
                let (a, b) = (self.read(code, 0), self.read(code, 1));
                self.write(code, 0, b);
                self.write(code, 1, a);
            }
            M::Push | M::Pushfq => return self.pushes(code),
            M::Pop | M::Popfq | M::Leave => return self.pops(code),
            M::Enter => {
                if code.instruction.immediate8_2nd() != 0 {
                    return false;
                }
                let rbp = self.machine.registers[5];
                self.push(8, rbp);
                self.machine.registers[5] = self.machine.registers[RSP as usize];
                self.add_rsp(-i64::from(code.instruction.immediate16()));
            }
            M::Cbw => self.widen_rax(8, 16),
            M::Cwde => self.widen_rax(16, 32),
            M::Cdqe => self.widen_rax(32, 64),
            M::Cwd => self.sign_into_rdx(16),
            M::Cdq => self.sign_into_rdx(32),
            M::Cqo => self.sign_into_rdx(64),
            M::Lahf => {
                let value = Value {
                    bits: self.machine.flags.bits | 2,
                    known: self.machine.flags.known & (CF | PF | AF | ZF | SF) | 0x2a,
                };
                self.write_part(0, 8, 8, value);
            }
            M::Sahf => {
                let ah = self.machine.registers[0].shift_right(8);
                for flag in [CF, PF, AF, ZF, SF] {
                    let on = (ah.known & flag != 0).then_some(ah.bits & flag != 0);
                    self.machine.set_flag(flag, on);
                }
            }
            M::Rdfsbase => self.write(code, 0, self.machine.fs_base.into()),
            M::Rdgsbase => self.write(code, 0, self.machine.gs_base.into()),
            M::Wrfsbase => self.machine.fs_base = self.known(code, 0, 64),
            M::Wrgsbase => self.machine.gs_base = self.known(code, 0, 64),
            _ => return self.conditional_moves(code),
        }
        true
    }

    fn conditional_moves(&mut self, code: &Decoded) -> bool {
        let instruction = &code.instruction;
        let condition = instruction.condition_code();
        if iced_x86::ConditionCode::None == condition || !integer(code, 0) {
            return false;
        }
        if instruction.op_count() == 1 && instruction.flow_control() == FlowControl::Next {
            let on = self.condition(condition);
            let value = on.map_or(Value { bits: 0, known: !1 }, |on| Value::of(u64::from(on)));
            self.write(code, 0, value);
        } else if instruction.op_count() == 2 {
            let (old, new) = (self.read(code, 0), self.read(code, 1));
            let value = match self.condition(condition) {
                Some(true) => new,
                Some(false) => old,
                None if old == new => old,
                None => Value::UNKNOWN,
            };
            self.write(code, 0, value);
        } else {
            return false;
        }
        true
    }

    fn pushes(&mut self, code: &Decoded) -> bool {
        let bytes = -i64::from(code.instruction.stack_pointer_increment());
        let value = if code.mnemonic == M::Pushfq {
            // Reserved and system flags: bit 1 and IF are always on in user space.
            Value {
                bits: self.machine.flags.bits | 0x202,
                known: self.machine.flags.known & (STATUS | DF) | 0x202,
            }
        } else if code.instruction.op0_kind() == OpKind::Memory {
            self.loaded(0)
        } else {
            match code.operands[0] {
                Operand::Other | Operand::None => Value::UNKNOWN,
                _ => self.read(code, 0),
            }
        };
        self.push(bytes, value);
        true
    }

    fn pops(&mut self, code: &Decoded) -> bool {
        let value = self.loaded(0);
        match code.mnemonic {
            M::Leave => {
                let rbp = self.machine.registers[5];
                self.machine.registers[RSP as usize] = rbp;
                self.add_rsp(8);
                self.machine.registers[5] = value;
            }
            M::Popfq => {
                self.add_rsp(8);
                for flag in [CF, PF, AF, ZF, SF, OF, DF] {
                    let on = (value.known & flag != 0).then_some(value.bits & flag != 0);
                    self.machine.set_flag(flag, on);
                }
            }
            _ => {
                self.add_rsp(i64::from(code.instruction.stack_pointer_increment()));
                self.write(code, 0, value);
            }
        }
        true
    }

    fn widen_rax(&mut self, from: u32, to: u32) {
        let value = self.machine.registers[0].get(from);
        let wide = value.map(|v| sign_extend(v, from) as u64 & mask(to));
        self.write_part(0, 0, to, wide.into());
    }

    fn sign_into_rdx(&mut self, bits: u32) {
        let sign = self.machine.registers[0]
            .shift_right(bits - 1)
            .get(1)
            .map(|sign| if sign == 1 { mask(bits) } else { 0 });
        self.write_part(2, 0, bits, sign.into());
    }
}

/// Is the operand one this group can read or write?
fn integer(code: &Decoded, index: usize) -> bool {
    match code.operands[index] {
        Operand::Register { .. } | Operand::Immediate(_) => true,
        Operand::Memory { bits, .. } => bits <= 64,
        Operand::None | Operand::Other => false,
    }
}

fn swap(value: u64, bits: u32) -> u64 {
    match bits {
        16 => u64::from((value as u16).swap_bytes()),
        32 => u64::from((value as u32).swap_bytes()),
        _ => value.swap_bytes(),
    }
}
