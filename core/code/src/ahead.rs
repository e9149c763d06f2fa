// SPDX-License-Identifier: MIT
//! What a thread may still store: the code ahead of it, followed by its branches and its calls.
//!
//! In: the open calls of a thread ([`Frame`]s), and its memory. Out: the [`Store`]s on the way,
//! with their addresses as far as registers and memory tell them now. Each branch is taken both
//! ways, each call is followed as deep as [`Limits`] say. Blind spots: calls and jumps to an
//! address that is only known later; a pointer that will be another one by then; code that is
//! entered with other arguments than at first.

use std::collections::VecDeque;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::address_space::AddressSpace;
use crate::frames::{Frame, Registers, KEPT_BY_CALLS};
use crate::register::RSP;

/// Longest instruction.
const LONGEST: usize = 15;
const PAGE: u64 = 4096;
const STACK: usize = RSP as usize;

/// How much code is followed.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub instructions: usize,
    /// Calls within calls.
    pub depth: u32,
}

/// A store that a thread may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    pub pc: u64,
    /// `None`: not known yet.
    pub address: Option<u64>,
    /// What is added to a base register; `None`: it has no base, or an index as well, or its base
    /// is the stack.
    pub displacement: Option<u64>,
    pub bytes: usize,
    /// Where it is known.
    pub value: Option<u64>,
    /// Calls that have to be made first.
    pub depth: u32,
}

/// Code of a process, read page by page, once.
pub struct CodeReader<'a> {
    memory: &'a dyn AddressSpace,
    pages: FxHashMap<u64, Option<Box<[u8; PAGE as usize]>>>,
    factory: InstructionInfoFactory,
}

/// Where following goes on.
struct Place {
    pc: u64,
    registers: Registers,
    depth: u32,
    /// Of the call that led there; 0: an open one.
    context: u64,
}

impl<'a> CodeReader<'a> {
    pub fn new(memory: &'a dyn AddressSpace) -> Self {
        CodeReader {
            memory,
            pages: FxHashMap::default(),
            factory: InstructionInfoFactory::new(),
        }
    }

    fn bytes(&mut self, address: u64, buffer: &mut [u8; LONGEST]) -> usize {
        for (got, byte) in buffer.iter_mut().enumerate() {
            let at = address.wrapping_add(got as u64);
            let memory = self.memory;
            let page = self.pages.entry(at & !(PAGE - 1)).or_insert_with(|| {
                let mut page = Box::new([0; PAGE as usize]);
                let whole = memory.read(at & !(PAGE - 1), &mut page[..]) == page.len();
                whole.then_some(page)
            });
            match page {
                Some(page) => *byte = page[(at % PAGE) as usize],
                None => return got,
            }
        }
        LONGEST
    }

    /// The instruction at `pc`; `None` where there is none.
    pub fn decode(&mut self, pc: u64) -> Option<Instruction> {
        let mut buffer = [0; LONGEST];
        let got = self.bytes(pc, &mut buffer);
        let code = Decoder::with_ip(64, &buffer[..got], pc, DecoderOptions::NONE).decode();
        (!code.is_invalid()).then_some(code)
    }

    /// The instruction that ends at `end`, in a function that begins at `start`.
    pub fn before(&mut self, start: u64, end: u64) -> Option<Instruction> {
        let mut pc = start;
        while pc < end {
            let code = self.decode(pc)?;
            pc = code.next_ip();
            if pc == end {
                return Some(code);
            }
        }
        None
    }

    /// The stores of one instruction.
    fn stores(&mut self, code: &Instruction, machine: &Machine, depth: u32) -> Vec<Store> {
        let by_stack = matches!(
            code.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        ) || code.is_stack_instruction();
        if by_stack {
            return Vec::new();
        }
        let info = self.factory.info(code);
        let writes = |access| {
            matches!(
                access,
                OpAccess::Write
                    | OpAccess::ReadWrite
                    | OpAccess::CondWrite
                    | OpAccess::ReadCondWrite
            )
        };
        let memory = info.used_memory().iter().filter(|m| writes(m.access()));
        memory
            .map(|memory| {
                let base = memory.base().full_register();
                let has_base = !matches!(
                    base,
                    Register::None | Register::RIP | Register::RSP | Register::EIP
                );
                let plain = has_base
                    && memory.index() == Register::None
                    && !matches!(memory.segment(), Register::FS | Register::GS);
                Store {
                    pc: code.ip(),
                    address: memory.virtual_address(0, |register, _, _| machine.get(register)),
                    displacement: plain.then_some(memory.displacement()),
                    bytes: memory.memory_size().size(),
                    value: machine.stored(code, memory.memory_size().size()),
                    depth,
                }
            })
            .collect()
    }

    /// The stores ahead of a thread, in no order. `thread_pointer` is its fs_base.
    pub fn stores_ahead(
        &mut self,
        frames: &[Frame],
        thread_pointer: Option<u64>,
        limits: Limits,
    ) -> Vec<Store> {
        let mut stores = Vec::new();
        let mut visited = FxHashSet::default();
        let mut left = limits.instructions;
        // What is near comes first, if there is too much.
        let mut places: VecDeque<Place> = VecDeque::new();
        let mut calls: VecDeque<Place> = frames
            .iter()
            .map(|frame| Place {
                pc: frame.pc,
                registers: frame.registers,
                depth: 0,
                context: 0,
            })
            .collect();
        while let Some(place) = places.pop_front().or_else(|| calls.pop_front()) {
            let (depth, context) = (place.depth, place.context);
            let mut machine = Machine {
                registers: place.registers,
                thread_pointer,
                memory: self.memory,
            };
            let mut pc = place.pc;
            while visited.insert((context, pc)) {
                left = match left.checked_sub(1) {
                    Some(left) => left,
                    None => return stores,
                };
                let Some(code) = self.decode(pc) else {
                    break;
                };
                stores.extend(self.stores(&code, &machine, depth));
                let target = machine.target(&code);
                let mut later = |pc: u64, machine: &Machine| {
                    places.push_back(Place {
                        pc,
                        registers: machine.registers,
                        depth,
                        context,
                    });
                };
                match code.flow_control() {
                    FlowControl::Next | FlowControl::XbeginXabortXend => {
                        machine.execute(&code, &mut self.factory);
                    }
                    FlowControl::ConditionalBranch => {
                        if let Some(target) = target {
                            later(target, &machine);
                        }
                    }
                    FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => {
                        match target {
                            Some(target) => later(target, &machine),
                            None => break,
                        }
                        break;
                    }
                    FlowControl::Call | FlowControl::IndirectCall => {
                        let is_system_call = code.mnemonic() == Mnemonic::Syscall;
                        if let (Some(target), false) = (target, is_system_call) {
                            if depth < limits.depth {
                                calls.push_back(Place {
                                    pc: target,
                                    registers: machine.entering(),
                                    depth: depth + 1,
                                    context: machine.context(target),
                                });
                            }
                        }
                        machine.called(is_system_call);
                    }
                    _ => break,
                }
                pc = code.next_ip();
            }
        }
        stores
    }
}

/// Registers as far as they are known, and memory as it is now.
struct Machine<'a> {
    registers: Registers,
    thread_pointer: Option<u64>,
    memory: &'a dyn AddressSpace,
}

impl Machine<'_> {
    fn get(&self, register: Register) -> Option<u64> {
        match register {
            Register::FS => self.thread_pointer,
            Register::GS => None,
            Register::ES | Register::CS | Register::SS | Register::DS => Some(0),
            register if register.is_gpr64() => self.registers[register.number()],
            register if register.is_gpr32() => {
                Some(self.registers[register.number()]? & 0xffff_ffff)
            }
            _ => None,
        }
    }

    /// The address of an instruction's memory operand.
    fn address(&self, code: &Instruction) -> Option<u64> {
        let operand = (0..code.op_count()).find(|n| code.op_kind(*n) == OpKind::Memory)?;
        code.virtual_address(operand, 0, |register, _, _| self.get(register))
    }

    /// Where control goes, if not on.
    fn target(&self, code: &Instruction) -> Option<u64> {
        match code.flow_control() {
            FlowControl::Call
            | FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch => {
                Some(code.near_branch_target()).filter(|t| *t != 0)
            }
            FlowControl::IndirectCall | FlowControl::IndirectBranch => match code.op0_kind() {
                OpKind::Memory => self.memory.word(self.address(code)?),
                OpKind::Register => self.get(code.op0_register()),
                _ => None,
            },
            _ => None,
        }
    }

    /// The value of a plain store.
    fn stored(&self, code: &Instruction, bytes: usize) -> Option<u64> {
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

    /// What an instruction that goes on to the next one does to registers.
    fn execute(&mut self, code: &Instruction, factory: &mut InstructionInfoFactory) {
        let written = code.op0_kind() == OpKind::Register;
        let wide = written
            .then(|| code.op0_register())
            .filter(|r| r.is_gpr64() || r.is_gpr32());
        let value = wide.and_then(|wide| self.result(code, wide));
        let stack = self.registers[STACK]
            .filter(|_| code.is_stack_instruction())
            .map(|sp| sp.wrapping_add_signed(code.stack_pointer_increment().into()));
        let popped = (code.mnemonic() == Mnemonic::Pop)
            .then(|| self.memory.word(self.registers[STACK]?))
            .flatten();
        for used in factory.info(code).used_registers() {
            let register = used.register().full_register();
            let kept = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            if register.is_gpr64() && !kept {
                self.registers[register.number()] = None;
            }
        }
        if let Some(wide) = wide {
            self.registers[wide.number()] = value.or(popped);
        }
        if stack.is_some() {
            self.registers[STACK] = stack;
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
                self.memory.number(self.address(code)?, bytes)
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

    /// The registers at the first instruction of what is called.
    fn entering(&self) -> Registers {
        let mut registers = self.registers;
        registers[STACK] = registers[STACK].map(|sp| sp.wrapping_sub(8));
        registers
    }

    /// What is left when it returns.
    fn called(&mut self, is_system_call: bool) {
        if is_system_call {
            for number in [0, 1, 11] {
                self.registers[number] = None;
            }
            return;
        }
        let before = self.registers;
        self.registers = [None; 16];
        for number in KEPT_BY_CALLS {
            self.registers[number] = before[number];
        }
    }

    /// Tells calls with other arguments apart: rdi, rsi.
    fn context(&self, target: u64) -> u64 {
        use std::hash::{BuildHasher, BuildHasherDefault};
        let arguments = (target, self.registers[7], self.registers[6]);
        let hash = BuildHasherDefault::<rustc_hash::FxHasher>::default().hash_one(arguments);
        hash | 1
    }
}
