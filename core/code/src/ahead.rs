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
    Register,
};
use rustc_hash::FxHashSet;

use crate::address_space::{AddressSpace, ByPages};
use crate::ahead_machine::{Calls, Machine, Store, Stored};
use crate::frames::{Frame, Registers};

const LONGEST: usize = 15;

/// How much code is followed.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most instructions that are followed in one search, over all its ways.
    pub instructions: usize,
    /// Deepest calls within calls.
    pub depth: u32,
}

/// Code of a process, read page by page, once.
pub struct CodeReader<'a> {
    memory: &'a dyn AddressSpace,
    code: ByPages<'a>,
    factory: InstructionInfoFactory,
    followed: usize,
}

/// Where following goes on.
struct Place {
    pc: u64,
    registers: Registers,
    stored: Stored,
    depth: u32,
    calls: Calls,
    /// Number of the call that led there; 0: a call that was open at the start.
    context: u64,
}

/// What an instruction adds to a base register, where it has a plain one; and how many bytes it is
/// about.
pub(crate) fn field_of(code: &Instruction) -> Option<(u64, usize)> {
    let is_plain = !matches!(
        code.memory_base(),
        Register::None | Register::RIP | Register::RSP
    ) && code.memory_index() == Register::None;
    let bytes = code.memory_size().size();
    (is_plain && bytes > 0).then(|| (code.memory_displacement64(), bytes))
}

impl<'a> CodeReader<'a> {
    /// Keeps each page of code as `memory` had it when it was first read.
    pub fn new(memory: &'a dyn AddressSpace) -> Self {
        CodeReader {
            memory,
            code: ByPages::new(|address, buffer| memory.read(address, buffer)),
            factory: InstructionInfoFactory::new(),
            followed: 0,
        }
    }

    /// Instructions that were followed for stores so far.
    pub fn followed(&self) -> usize {
        self.followed
    }

    /// The instruction at `pc`; `None` where there is none.
    pub fn decode(&mut self, pc: u64) -> Option<Instruction> {
        let mut buffer = [0; LONGEST];
        let got = self.code.read(pc, &mut buffer);
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

    /// The stores of one instruction, with addresses that it holds itself.
    pub(crate) fn stores_of(&mut self, code: &Instruction) -> Vec<Store> {
        let machine = Machine {
            registers: [None; 16],
            added: [0; 16],
            stored: Stored::default(),
            thread_pointer: None,
            memory: self.memory,
        };
        self.stores(code, &machine, 0, [None; 4])
    }

    /// The field that the instruction at `pc` accesses.
    pub fn field(&mut self, pc: u64) -> Option<(u64, usize)> {
        field_of(&self.decode(pc)?)
    }

    fn stores(
        &mut self,
        code: &Instruction,
        machine: &Machine,
        depth: u32,
        calls: Calls,
    ) -> Vec<Store> {
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
                    displacement: plain
                        .then(|| memory.displacement().wrapping_add(machine.added_to(base))),
                    bytes: memory.memory_size().size(),
                    value: machine.stored(code, memory.memory_size().size()),
                    depth,
                    calls,
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
        // If there is too much, what is near comes first.
        let mut places: VecDeque<Place> = VecDeque::new();
        let mut calls: VecDeque<Place> = frames
            .iter()
            .map(|frame| Place {
                pc: frame.pc,
                registers: frame.registers,
                stored: Stored::default(),
                depth: 0,
                calls: [None; 4],
                context: 0,
            })
            .collect();
        while let Some(place) = places.pop_front().or_else(|| calls.pop_front()) {
            let (depth, calls_before, context) = (place.depth, place.calls, place.context);
            let mut machine = Machine {
                registers: place.registers,
                added: [0; 16],
                stored: place.stored,
                thread_pointer,
                memory: self.memory,
            };
            let mut pc = place.pc;
            while visited.insert((context, pc)) {
                left = match left.checked_sub(1) {
                    Some(left) => left,
                    None => return stores,
                };
                self.followed += 1;
                let Some(code) = self.decode(pc) else {
                    break;
                };
                let of_code = self.stores(&code, &machine, depth, calls_before);
                of_code.iter().for_each(|store| machine.keep(store));
                stores.extend(of_code);
                let target = machine.target(&code);
                let mut later = |pc: u64, machine: &Machine| {
                    places.push_back(Place {
                        pc,
                        registers: machine.registers,
                        stored: machine.stored.clone(),
                        depth,
                        calls: calls_before,
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
                        if is_system_call && machine.exits() {
                            break;
                        }
                        if let (Some(target), false) = (target, is_system_call) {
                            if depth < limits.depth {
                                let mut made = calls_before;
                                if let Some(place) = made.get_mut(depth as usize) {
                                    *place = Some(pc);
                                }
                                calls.push_back(Place {
                                    pc: target,
                                    registers: machine.entering(),
                                    stored: machine.stored.clone(),
                                    depth: depth + 1,
                                    calls: made,
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

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: u64 = 0x1000;
    const DATA: u64 = 0x3000;

    /// Code at 0x1000, words at 0x3000.
    struct Memory(Vec<u8>, Vec<u64>);

    impl AddressSpace for Memory {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let byte = |address: u64| match address {
                CODE..DATA => Some(self.0.get((address - CODE) as usize).map_or(0xcc, |b| *b)),
                DATA..0x4000 => {
                    let word = self.1.get(((address - DATA) / 8) as usize).unwrap_or(&0);
                    Some(word.to_le_bytes()[(address % 8) as usize])
                }
                _ => None,
            };
            for (number, place) in buffer.iter_mut().enumerate() {
                match byte(address + number as u64) {
                    Some(byte) => *place = byte,
                    None => return number,
                }
            }
            buffer.len()
        }
    }

    fn ahead(code: &[u8], words: &[u64], registers: &[(usize, u64)]) -> Vec<(u64, Option<u64>)> {
        let memory = Memory(code.to_vec(), words.to_vec());
        let mut known = [None; 16];
        for (number, value) in registers {
            known[*number] = Some(*value);
        }
        let frame = Frame {
            pc: CODE,
            registers: known,
        };
        let limits = Limits {
            instructions: 1000,
            depth: 2,
        };
        let mut reader = CodeReader::new(&memory);
        let stores = reader.stores_ahead(&[frame], Some(0x7000), limits);
        let places = stores.iter().filter_map(|s| Some((s.address?, s.value)));
        places.collect()
    }

    /// What lies ahead of a frame of which no register is known.
    fn stores_of(code: &[u8], depth: u32) -> Vec<Store> {
        let memory = Memory(code.to_vec(), Vec::new());
        let frame = Frame {
            pc: CODE,
            registers: [None; 16],
        };
        let limits = Limits {
            instructions: 10,
            depth,
        };
        let mut reader = CodeReader::new(&memory);
        reader.stores_ahead(&[frame], None, limits)
    }

    #[test]
    fn what_is_added_to_an_unknown_pointer_is_a_field_s_distance() {
        // mov rax, [rbp-8]; add rax, 8; lea rdx, [rax+8]; mov dword [rdx], 0; call +0; mov dword
        // [rdx+4], 0
        let code = [
            0x48, 0x8b, 0x45, 0xf8, 0x48, 0x83, 0xc0, 0x08, 0x48, 0x8d, 0x50, 0x08, 0xc7, 0x02, 0,
            0, 0, 0, 0xe8, 0, 0, 0, 0, 0xc7, 0x42, 0x04, 0, 0, 0, 0,
        ];
        let stores = stores_of(&code, 0);
        let distances: Vec<_> = stores.iter().map(|store| store.displacement).collect();
        assert_eq!(distances, [Some(16), Some(4)], "a call may change rdx");
    }

    #[test]
    fn both_ways_of_a_branch_are_followed_and_a_loop_ends() {
        // test eax, eax; je +8; mov byte [rbx], 1; jmp -9 (to the start); ..; mov dword [rbx+4], 2;
        // ret
        let code = [
            0x85, 0xc0, 0x74, 0x05, 0xc6, 0x03, 0x01, 0xeb, 0xf7, 0xc7, 0x43, 0x04, 2, 0, 0, 0,
            0xc3,
        ];
        let found = ahead(&code, &[], &[(3, 0x5000)]);
        assert_eq!(found, [(0x5000, Some(1)), (0x5004, Some(2))]);
        // Behind its return nothing is ahead.
        assert_eq!(ahead(&[0xc3, 0xc6, 0x03, 0x01], &[], &[(3, 0x5000)]), []);
    }

    #[test]
    fn what_was_followed_is_counted_and_no_more() {
        // nop; jmp -3 (to the nop)
        let memory = Memory(vec![0x90, 0xeb, 0xfd], Vec::new());
        let frame = Frame {
            pc: CODE,
            registers: [None; 16],
        };
        let mut reader = CodeReader::new(&memory);
        let mut follow = |instructions| {
            let before = reader.followed();
            let limits = Limits {
                instructions,
                depth: 2,
            };
            reader.stores_ahead(std::slice::from_ref(&frame), None, limits);
            reader.followed() - before
        };
        assert_eq!(follow(1000), 2, "a loop is followed once");
        assert_eq!(follow(1), 1, "no more than the limit");
    }

    #[test]
    fn calls_are_followed_with_their_arguments() {
        // lea rdi, [rbx+8]; call +1; ret; mov [rdi], rsi; ret
        let code = [
            0x48, 0x8d, 0x7b, 0x08, 0xe8, 0x01, 0, 0, 0, 0xc3, 0x48, 0x89, 0x37, 0xc3,
        ];
        let found = ahead(&code, &[], &[(3, 0x5000), (6, 9)]);
        assert_eq!(found, [(0x5008, Some(9))]);
        let stores = stores_of(&code, 1);
        assert_eq!(stores[0].calls, [Some(CODE + 4), None, None, None]);
    }

    #[test]
    fn what_was_stored_on_the_way_is_loaded_again() {
        // mov [rsp-8], rdi; mov rax, [rsp-8]; mov byte [rax], 1; ret
        let code = [
            0x48, 0x89, 0x7c, 0x24, 0xf8, 0x48, 0x8b, 0x44, 0x24, 0xf8, 0xc6, 0x00, 0x01, 0xc3,
        ];
        let found = ahead(&code, &[], &[(4, 0x3100), (7, 0x5000)]);
        assert_eq!(found, [(0x30f8, Some(0x5000)), (0x5000, Some(1))]);
    }

    #[test]
    fn behind_the_end_of_the_thread_nothing_is_ahead() {
        // mov eax, NUMBER; syscall; mov byte [rbx], 1; ret
        let code = |number| [0xb8, number, 0, 0, 0, 0x0f, 0x05, 0xc6, 0x03, 0x01, 0xc3];
        let found = |number| ahead(&code(number), &[], &[(3, 0x5000)]);
        assert_eq!(found(libc::SYS_exit as u8), []);
        assert_eq!(found(libc::SYS_read as u8), [(0x5000, Some(1))]);
    }

    #[test]
    fn what_a_call_may_change_is_not_known_behind_it() {
        // call +6; mov [rax], ecx; mov [rbx], ecx; ret; ret
        let code = [0xe8, 0x05, 0, 0, 0, 0x89, 0x08, 0x89, 0x0b, 0xc3, 0xc3];
        let found = ahead(&code, &[], &[(0, 0x5000), (1, 1), (3, 0x6000)]);
        assert_eq!(found, [(0x6000, None)]);
    }

    #[test]
    fn pointers_come_from_memory_and_from_the_thread() {
        // mov rax, [rip+0x1ff9] (0x3000); mov dword [rax+0x10], 3; mov byte fs:[-8], 1; ret
        let mut code = vec![0x48, 0x8b, 0x05, 0xf9, 0x1f, 0, 0];
        code.extend([0xc7, 0x40, 0x10, 3, 0, 0, 0]);
        code.extend([0x64, 0xc6, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff, 1, 0xc3]);
        let found = ahead(&code, &[0x5000], &[]);
        assert_eq!(found, [(0x5010, Some(3)), (0x6ff8, Some(1))]);
    }

    #[test]
    fn a_reader_names_its_field() {
        let memory = Memory(vec![0x8b, 0x43, 0x18, 0x8b, 0x05, 0, 0, 0, 0], Vec::new());
        let mut reader = CodeReader::new(&memory);
        // mov eax, [rbx+0x18]; mov eax, [rip]
        assert_eq!(reader.field(CODE), Some((0x18, 4)));
        assert_eq!(reader.field(CODE + 3), None);
    }
}
