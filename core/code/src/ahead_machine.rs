// SPDX-License-Identifier: MIT
//! What is known of a thread's registers and memory while its code is followed, not executed.

use flagfinder_linux::life;
use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use rustc_hash::FxHashMap;

use crate::address_space::AddressSpace;
use crate::frames::{Registers, KEPT_BY_CALLS};
use crate::register::RSP;

const STACK: usize = RSP as usize;

/// A store that a thread may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// Run-time address of the instruction that stores.
    pub pc: u64,
    /// `None`: not known yet.
    pub address: Option<u64>,
    /// What is added to a base register; `None`: it has no base, or an index as well, or its base
    /// is the stack.
    pub displacement: Option<u64>,
    /// How many bytes it stores.
    pub bytes: usize,
    /// The value, where it is known.
    pub value: Option<u64>,
    /// Calls that have to be made first.
    pub depth: u32,
    /// The places of those calls, the outermost first.
    pub calls: Calls,
}

/// Most calls within calls; further ones are not kept.
pub type Calls = [Option<u64>; 4];

/// Values stored on the way, by address; `None`: not known.
pub(crate) type Stored = FxHashMap<u64, Option<u64>>;
/// Most stores on one way that are kept; a function at -O0 keeps its variables in memory.
const KEPT: usize = 256;

/// Registers as far as they are known, and memory as it is now but for what was stored since.
pub(crate) struct Machine<'a> {
    pub registers: Registers,
    /// What was added to each unknown register since it got its value.
    pub added: [u64; 16],
    pub stored: Stored,
    pub thread_pointer: Option<u64>,
    pub memory: &'a dyn AddressSpace,
}

impl Machine<'_> {
    pub fn get(&self, register: Register) -> Option<u64> {
        match register {
            Register::FS => self.thread_pointer,
            Register::GS => None,
            // Of an address relative to rip, iced-x86 has computed the sum.
            Register::ES | Register::CS | Register::SS | Register::DS | Register::RIP => Some(0),
            register if register.is_gpr64() => self.registers[register.number()],
            register if register.is_gpr32() => {
                Some(self.registers[register.number()]? & 0xffff_ffff)
            }
            _ => None,
        }
    }

    /// What was added to an unknown register.
    pub fn added_to(&self, base: Register) -> u64 {
        match base.is_gpr64() && self.registers[base.number()].is_none() {
            true => self.added[base.number()],
            false => 0,
        }
    }

    /// Memory from now on holds what this stores.
    pub fn keep(&mut self, store: &Store) {
        let Some(address) = store.address else {
            return;
        };
        let whole = store.value.filter(|_| store.bytes == 8);
        if self.stored.len() < KEPT || self.stored.contains_key(&address) {
            self.stored.insert(address, whole);
        }
    }

    fn load(&self, address: u64, bytes: usize) -> Option<u64> {
        match self.stored.get(&address) {
            Some(value) => value.filter(|_| bytes == 8),
            None => self.memory.number(address, bytes),
        }
    }

    /// The address of an instruction's memory operand.
    fn address(&self, code: &Instruction) -> Option<u64> {
        let operand = (0..code.op_count()).find(|n| code.op_kind(*n) == OpKind::Memory)?;
        code.virtual_address(operand, 0, |register, _, _| self.get(register))
    }

    /// Where a jump or call goes; `None`: to the next instruction, or not known.
    pub fn target(&self, code: &Instruction) -> Option<u64> {
        match code.flow_control() {
            FlowControl::Call
            | FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch => {
                Some(code.near_branch_target()).filter(|t| *t != 0)
            }
            FlowControl::IndirectCall | FlowControl::IndirectBranch => match code.op0_kind() {
                OpKind::Memory => self.load(self.address(code)?, 8),
                OpKind::Register => self.get(code.op0_register()),
                _ => None,
            },
            _ => None,
        }
    }

    /// The value of a plain store.
    pub fn stored(&self, code: &Instruction, bytes: usize) -> Option<u64> {
        let plain = matches!(code.mnemonic(), Mnemonic::Mov | Mnemonic::Xchg);
        if !plain || code.op0_kind() != OpKind::Memory {
            return None;
        }
        let mask = u64::MAX >> (64 - 8 * bytes.clamp(1, 8));
        let value = match code.op1_kind() {
            OpKind::Register => {
                let register = code.op1_register();
                let high = matches!(
                    register,
                    Register::AH | Register::BH | Register::CH | Register::DH
                );
                let whole = (register.is_gpr() && !high).then(|| register.full_register())?;
                self.registers[whole.number()]?
            }
            OpKind::Memory => return None,
            _ => code.try_immediate(1).ok()?,
        };
        Some(value & mask)
    }

    /// What an instruction that falls through to the next one does to registers.
    pub fn execute(&mut self, code: &Instruction, factory: &mut InstructionInfoFactory) {
        let written = code.op0_kind() == OpKind::Register;
        let wide = written
            .then(|| code.op0_register())
            .filter(|r| r.is_gpr64() || r.is_gpr32());
        let value = wide.and_then(|wide| self.result(code, wide));
        let added = wide.and_then(|wide| self.sum(code, wide));
        let stack = self.registers[STACK]
            .filter(|_| code.is_stack_instruction())
            .map(|sp| sp.wrapping_add_signed(code.stack_pointer_increment().into()));
        let popped = (code.mnemonic() == Mnemonic::Pop)
            .then(|| self.load(self.registers[STACK]?, 8))
            .flatten();
        for used in factory.info(code).used_registers() {
            let register = used.register().full_register();
            let kept = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            if register.is_gpr64() && !kept {
                self.registers[register.number()] = None;
                self.added[register.number()] = 0;
            }
        }
        if let Some(wide) = wide {
            self.registers[wide.number()] = value.or(popped);
            self.added[wide.number()] = added.unwrap_or(0);
        }
        if stack.is_some() {
            self.registers[STACK] = stack;
        }
    }

    /// What was added to the pointer that the register holds after this instruction. Unoptimised
    /// code adds a field's distance in an instruction of its own.
    fn sum(&self, code: &Instruction, wide: Register) -> Option<u64> {
        let of = |register: Register| {
            let known = register.is_gpr64().then(|| self.added[register.number()]);
            known.filter(|_| wide.is_gpr64())
        };
        let constant = || code.try_immediate(1).ok();
        match code.mnemonic() {
            Mnemonic::Add => Some(of(wide)?.wrapping_add(constant()?)),
            Mnemonic::Sub => Some(of(wide)?.wrapping_sub(constant()?)),
            Mnemonic::Mov if code.op1_kind() == OpKind::Register => of(code.op1_register()),
            Mnemonic::Lea if code.memory_index() == Register::None => {
                Some(of(code.memory_base())?.wrapping_add(code.memory_displacement64()))
            }
            _ => None,
        }
    }

    fn result(&self, code: &Instruction, wide: Register) -> Option<u64> {
        let mask = if wide.is_gpr64() {
            u64::MAX
        } else {
            0xffff_ffff
        };
        let own = || self.get(wide);
        let second = || match code.op1_kind() {
            OpKind::Register => self.get(code.op1_register()),
            OpKind::Memory => {
                let bytes = code.memory_size().size();
                self.load(self.address(code)?, bytes)
            }
            _ => code.try_immediate(1).ok(),
        };
        let value = match code.mnemonic() {
            Mnemonic::Lea => self.address(code)?,
            Mnemonic::Mov | Mnemonic::Movzx => second()?,
            Mnemonic::Add => own()?.wrapping_add(second()?),
            Mnemonic::Sub => own()?.wrapping_sub(second()?),
            Mnemonic::And => own()? & second()?,
            Mnemonic::Xor if code.op1_kind() == OpKind::Register => {
                (code.op0_register() == code.op1_register()).then_some(0)?
            }
            _ => return None,
        };
        Some(value & mask)
    }

    /// Is the system call that comes next the thread's last?
    pub fn exits(&self) -> bool {
        self.registers[0].is_some_and(|number| life::exits(number as u32))
    }

    /// The registers at the first instruction of what is called.
    pub fn entering(&self) -> Registers {
        let mut registers = self.registers;
        registers[STACK] = registers[STACK].map(|sp| sp.wrapping_sub(8));
        registers
    }

    /// The registers when the called function returns.
    pub fn called(&mut self, is_system_call: bool) {
        if is_system_call {
            for number in [0, 1, 11] {
                (self.registers[number], self.added[number]) = (None, 0);
            }
            return;
        }
        let before = self.registers;
        self.registers = [None; 16];
        self.added = [0; 16];
        for number in KEPT_BY_CALLS {
            self.registers[number] = before[number];
        }
    }

    /// Tells calls with other arguments apart: rdi, rsi.
    pub fn context(&self, target: u64) -> u64 {
        use std::hash::{BuildHasher, BuildHasherDefault};
        let arguments = (target, self.registers[7], self.registers[6]);
        let hash = BuildHasherDefault::<rustc_hash::FxHasher>::default().hash_one(arguments);
        hash | 1
    }
}
