// SPDX-License-Identifier: MIT
//! Running instructions forward over a partly known state.
//!
//! In: decoded instructions and the values that were recorded for them. Out: the
//! machine after each, and its memory accesses. What cannot be computed becomes
//! unknown, never wrong. The groups stand in `evaluate_*.rs`.
//! Blind spots: vector and x87 contents; memory that others changed is only seen
//! where a load's value was recorded.

use iced_x86::Mnemonic as M;
use iced_x86::{ConditionCode, FlowControl};
use serde::{Deserialize, Serialize};

use crate::decoded::{is_syscall, Decoded, Operand, RSP};
use crate::value::{mask, Machine, Value, CF, OF, PF, SF, STATUS, ZF};

/// One memory access of one executed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Its address; `None`: not known.
    pub address: Option<u64>,
    /// Bytes; 0 when unknown.
    pub bytes: u32,
    /// A store, not a load.
    pub write: bool,
    /// The low 64 bits of what was read or stored.
    pub value: Value,
}

/// What was recorded about one execution of an instruction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorded {
    /// By memory operand read (0 = first).
    pub loads: [Option<u64>; 2],
    /// Effective addresses by memory operand.
    pub addresses: [Option<u64>; 2],
    /// (register number, bytes, value) after the instruction.
    pub registers: [Option<(u8, u8, u64)>; 4],
    /// The loads of its block were not recorded: only the own stack may still be as this thread
    /// left it.
    pub missing: bool,
}

/// One thread's state, and what its last instruction did.
#[derive(Clone, Default)]
pub struct Evaluator {
    /// The state after the last instruction; callers may put in what they know.
    pub machine: Machine,
    accesses: Vec<Access>,
    /// Whether the last instruction, if a conditional branch, was taken.
    taken: Option<bool>,
    /// Where the last instruction went, if that follows from the state.
    target: Option<u64>,
}

impl Evaluator {
    /// Memory accesses of the instruction evaluated last.
    pub fn accesses(&self) -> &[Access] {
        &self.accesses
    }

    pub(crate) fn accesses_list(&mut self) -> &mut [Access] {
        &mut self.accesses
    }

    /// The branch's direction, if the last instruction was a conditional branch and
    /// its flags were known.
    pub fn taken(&self) -> Option<bool> {
        self.taken
    }

    /// The target of the last return or indirect branch, if known.
    pub fn target(&self) -> Option<u64> {
        self.target
    }

    /// Executes one instruction. `false`: it is not known; what it may write is not either, then.
    pub fn step(&mut self, code: &Decoded, recorded: &Recorded) -> bool {
        self.accesses.clear();
        self.taken = None;
        self.target = None;
        let mut reads = 0;
        for (i, memory) in code.memory.iter().enumerate() {
            if !memory.read && !memory.write {
                continue;
            }
            let given = recorded.addresses.get(i).copied().flatten();
            let address = given.or_else(|| memory.address(&self.machine));
            let bits = u32::from(memory.bytes) * 8;
            let mut value = Value::UNKNOWN;
            if memory.read {
                let slot = recorded.loads.get(reads).copied().flatten();
                reads += 1;
                value = match (slot, address) {
                    (Some(slot), _) => Value {
                        bits: slot & mask(bits),
                        known: mask(bits),
                    },
                    (None, Some(at))
                        if (8..=64).contains(&bits)
                            && (!recorded.missing || memory.base == Some(RSP)) =>
                    {
                        self.machine.shadow.load(at, bits)
                    }
                    _ => Value::UNKNOWN,
                };
            }
            let bytes = u32::from(memory.bytes);
            if memory.read {
                self.accesses.push(Access {
                    address,
                    bytes,
                    write: false,
                    value,
                });
            }
            if memory.write {
                self.accesses.push(Access {
                    address,
                    bytes,
                    write: true,
                    value: Value::UNKNOWN,
                });
            }
        }
        self.exchange_from_register(code, recorded);
        let executed = self.execute(code);
        if !executed {
            self.clobber(code);
        }
        self.machine.forget_flags(code.flags_undefined);
        for (number, bytes, value) in recorded.registers.iter().flatten() {
            let register = &mut self.machine.registers[*number as usize & 15];
            let part = Value::of(*value);
            *register = match bytes {
                8 => part,
                4 => part.truncate(32),
                narrow => register.insert(part, 0, u32::from(*narrow) * 8),
            };
        }
        self.store_all();
        executed
    }

    /// For xchg, xadd and cmpxchg a tracer takes the register afterwards: it holds
    /// what memory held.
    fn exchange_from_register(&mut self, code: &Decoded, recorded: &Recorded) {
        let source = match (code.mnemonic, code.operands[0], code.operands[1]) {
            (M::Cmpxchg, Operand::Memory { .. }, _) => 0,
            (M::Xchg | M::Xadd, Operand::Memory { .. }, Operand::Register { number, .. })
            | (M::Xchg, Operand::Register { number, .. }, Operand::Memory { .. }) => number,
            _ => return,
        };
        let Some(load) = self.accesses.iter_mut().find(|a| !a.write) else {
            return;
        };
        let bits = load.bytes * 8;
        if recorded.loads[0].is_none() {
            let after = recorded.registers.iter().flatten();
            if let Some((.., value)) = after.rev().find(|r| r.0 == source) {
                load.value = Value::of(value & mask(bits));
            }
        }
    }

    /// Puts this instruction's stores into the shadow.
    fn store_all(&mut self) {
        for at in 0..self.accesses.len() {
            let access = self.accesses[at];
            if access.write {
                self.store(&access);
            }
        }
    }

    #[inline]
    pub(crate) fn store(&mut self, access: &Access) {
        let shadow = &mut self.machine.shadow;
        match access.address {
            None if access.bytes == 0 => {}
            // The address is not known: it may lie on this thread's stack.
            None => shadow.clear(),
            Some(at) if access.bytes <= 8 => shadow.store(at, access.bytes * 8, access.value),
            Some(at) => shadow.forget(at, u64::from(access.bytes)),
        }
    }

    /// Where control goes after the last instruction, if that follows from the state.
    pub(crate) fn next(&self, code: &Decoded) -> Option<u64> {
        match self.taken {
            Some(true) => Some(code.instruction.near_branch_target()),
            Some(false) => Some(code.instruction.next_ip()),
            None => self.target,
        }
    }

    /// What the instruction may write is unknown now.
    fn clobber(&mut self, code: &Decoded) {
        for number in 0..16 {
            if code.registers_written >> number & 1 == 1 && number != usize::from(RSP) {
                self.machine.registers[number] = Value::UNKNOWN;
            }
        }
        self.machine.forget_flags(code.flags_written);
    }

    pub(crate) fn loaded(&self, index: usize) -> Value {
        let mut loads = self.accesses.iter().filter(|a| !a.write);
        loads.nth(index).map_or(Value::UNKNOWN, |a| a.value)
    }

    pub(crate) fn read(&self, code: &Decoded, index: usize) -> Value {
        match code.operands[index] {
            Operand::Register {
                number,
                shift,
                bits,
            } => {
                let value = self.machine.registers[number as usize];
                value
                    .shift_right(u32::from(shift))
                    .truncate(u32::from(bits))
            }
            Operand::Memory { .. } => self.loaded(0),
            Operand::Immediate(value) => Value::of(value),
            Operand::None | Operand::Other => Value::UNKNOWN,
        }
    }

    pub(crate) fn known(&self, code: &Decoded, index: usize, bits: u32) -> Option<u64> {
        self.read(code, index).get(bits)
    }

    pub(crate) fn write(&mut self, code: &Decoded, index: usize, value: Value) {
        match code.operands[index] {
            Operand::Register {
                number,
                shift,
                bits,
            } => self.write_part(number, shift, u32::from(bits), value),
            Operand::Memory { bits, .. } => {
                let value = value.truncate(u32::from(bits));
                if let Some(store) = self.accesses.iter_mut().find(|a| a.write) {
                    store.value = value;
                }
            }
            _ => {}
        }
    }

    pub(crate) fn write_part(&mut self, number: u8, shift: u8, bits: u32, value: Value) {
        let register = &mut self.machine.registers[number as usize];
        *register = match bits {
            64 => value,
            32 => value.truncate(32),
            _ => register.insert(value, u32::from(shift), bits),
        };
    }

    pub(crate) fn set_store(&mut self, value: Value) {
        if let Some(store) = self.accesses.iter_mut().rev().find(|a| a.write) {
            store.value = value;
        }
    }

    /// `None`: a flag it needs is unknown.
    pub fn condition(&self, condition: ConditionCode) -> Option<bool> {
        use ConditionCode as C;
        let f = |flag| self.machine.flag(flag);
        let either = |a: Option<bool>, b: Option<bool>| match (a, b) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        };
        let differ = || Some(f(SF)? != f(OF)?);
        let value = match condition {
            C::None => return None,
            C::o | C::no => f(OF),
            C::b | C::ae => f(CF),
            C::e | C::ne => f(ZF),
            C::be | C::a => either(f(CF), f(ZF)),
            C::s | C::ns => f(SF),
            C::p | C::np => f(PF),
            C::l | C::ge => differ(),
            C::le | C::g => either(f(ZF), differ()),
        }?;
        let inverted = matches!(
            condition,
            C::no | C::ae | C::ne | C::a | C::ns | C::np | C::ge | C::g
        );
        Some(value != inverted)
    }

    /// `false`: not an instruction of the integer ISA; nothing was changed.
    fn execute(&mut self, code: &Decoded) -> bool {
        // The frequent groups first.
        self.moves(code)
            || self.arithmetic(code)
            || self.control(code)
            || self.shifts(code)
            || self.bits(code)
            || self.strings(code)
    }

    fn control(&mut self, code: &Decoded) -> bool {
        let condition = code.instruction.condition_code();
        match code.mnemonic {
            M::Call => {
                self.push(8, Value::of(code.instruction.next_ip()));
                self.target = match code.operands[0] {
                    Operand::Immediate(target) => Some(target),
                    Operand::Memory { .. } => self.loaded(0).get(64),
                    _ => None,
                };
            }
            M::Ret => {
                self.target = self.loaded(0).get(64);
                let extra = if code.instruction.op_count() == 1 {
                    code.instruction.immediate(0)
                } else {
                    0
                };
                self.add_rsp(8 + extra as i64);
            }
            M::Jmp => self.target = self.known(code, 0, 64),
            M::Jrcxz => self.taken = self.machine.registers[1].get(64).map(|v| v == 0),
            M::Jecxz => self.taken = self.machine.registers[1].get(32).map(|v| v == 0),
            M::Loop | M::Loope | M::Loopne => {
                let count = self.machine.registers[1].get(64);
                let count = count.map(|v| v.wrapping_sub(1));
                self.machine.registers[1] = count.into();
                let zero = self.machine.flag(ZF);
                self.taken = match code.mnemonic {
                    M::Loop => count.map(|v| v != 0),
                    M::Loope => count.zip(zero).map(|(v, z)| v != 0 && z),
                    _ => count.zip(zero).map(|(v, z)| v != 0 && !z),
                };
            }
            M::Nop
            | M::Pause
            | M::Endbr64
            | M::Endbr32
            | M::Lfence
            | M::Mfence
            | M::Sfence
            | M::Prefetchnta
            | M::Prefetcht0
            | M::Prefetcht1
            | M::Prefetcht2
            | M::Prefetchw => {}
            _ if code.instruction.flow_control() == FlowControl::ConditionalBranch => {
                self.taken = self.condition(condition);
            }
            _ if is_syscall(&code.instruction) => {
                // rcx and r11 are the kernel's scratch; the result arrives as an event.
                self.machine.registers[0] = Value::UNKNOWN;
                self.machine.registers[1] = Value::of(code.instruction.next_ip());
                self.machine.registers[11] = Value::UNKNOWN;
            }
            _ => return false,
        }
        true
    }

    pub(crate) fn add_rsp(&mut self, by: i64) {
        let rsp = &mut self.machine.registers[RSP as usize];
        *rsp = rsp.get(64).map(|v| v.wrapping_add(by as u64)).into();
    }

    pub(crate) fn push(&mut self, bytes: i64, value: Value) {
        self.set_store(value);
        self.add_rsp(-bytes);
    }

    /// The caller sets the result flags of additions and subtractions; this sets the three that
    /// follow from the result.
    pub(crate) fn set_result_flags(&mut self, result: u64, bits: u32) {
        let result = result & mask(bits);
        let mut flags = 0;
        if result == 0 {
            flags |= ZF;
        }
        if result >> (bits - 1) & 1 == 1 {
            flags |= SF;
        }
        if (result as u8).count_ones() % 2 == 0 {
            flags |= PF;
        }
        self.machine.set_flags(ZF | SF | PF, flags);
    }

    pub(crate) fn set_carry_overflow(&mut self, carry: bool, overflow: bool) {
        let bits = if carry { CF } else { 0 } | if overflow { OF } else { 0 };
        self.machine.set_flags(CF | OF, bits);
    }

    pub(crate) fn forget_status(&mut self) {
        self.machine.forget_flags(STATUS);
    }
}
