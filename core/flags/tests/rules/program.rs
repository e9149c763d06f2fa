// SPDX-License-Identifier: MIT
//! A small program that is run by the evaluator, instruction by instruction, until its loop has
//! gone round often enough: what a recording of it would hold, without one.
//!
//! Memory is zero and so are the registers, unless the test says otherwise. Nothing lies at random:
//! each kind of memory has its place below.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::PathBuf;

use flagfinder_code::{Names, NamesInput, StackFrame, ThreadInput};
use flagfinder_linux::syscalls::outputs;
use flagfinder_machine::decoded::{is_syscall, Decoded};
use flagfinder_machine::evaluator::{Evaluator, Recorded};
use flagfinder_machine::value::Value;
use flagfinder_machine::{Syscall, Window};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use iced_x86::{InstructionInfoFactory, Register};

use super::assembler::assemble;
use super::module;

/// Where the loop begins, in the program's own code.
pub const MAIN: u64 = 0x10_0000;
/// A function of the program's that the loop may call.
pub const CALLED: u64 = 0x10_1000;
/// Outside all functions: where a branch goes that ends the loop.
pub const OUT: u64 = 0x10_8000;
/// Code of some library, and of the C library.
pub const LIBRARY: u64 = 0x20_0000;
pub const LIBC: u64 = 0x30_0000;
pub const LIBC_WORD: u64 = 0x38_0000;
/// The program's constants and its variables.
pub const CONSTANT: u64 = 0x40_0000;
pub const WORD: u64 = 0x50_0000;
pub const OTHER: u64 = 0x50_0100;
pub const HEAP: u64 = 0x60_0000;
/// Memory that may be written and executed, in no module: a JIT compiler's.
pub const MADE: u64 = 0x80_0000;
/// Stack pointer of the loop, and that of another thread.
pub const STACK: u64 = 0x7000_8000;
pub const OTHER_STACK: u64 = 0x7100_8000;
/// The thread blocks of the two.
pub const BLOCK: u64 = 0x7200_0000;
pub const OTHER_BLOCK: u64 = 0x7300_0000;

const MAPS: &str = "\
00100000-00110000 r-xp 00000000 00:01 1 /bin/program
00200000-00210000 r-xp 00000000 00:01 2 /lib/libother.so
00300000-00310000 r-xp 00000000 00:01 3 /lib/libc.so.6
00380000-00390000 rw-p 00000000 00:01 3 /lib/libc.so.6
00400000-00410000 r--p 00000000 00:01 1 /bin/program
00500000-00510000 rw-p 00000000 00:01 1 /bin/program
00600000-00680000 rw-p 00000000 00:00 0 [heap]
00800000-00810000 rwxp 00000000 00:00 0 
70000000-70009000 rw-p 00000000 00:00 0 [stack]
71000000-71009000 rw-p 00000000 00:00 0 
72000000-72001000 rw-p 00000000 00:00 0 
73000000-73001000 rw-p 00000000 00:00 0 
";

pub const TID: u32 = 1;
pub const OTHER_TID: u32 = 2;

/// What the loop does, in the assembler's words.
pub type Code<'c> = &'c str;

/// What somebody else puts there, or the kernel answers, by the number of the round.
type ByRound = Box<dyn Fn(u64) -> u64>;

pub struct Program {
    start: u64,
    code: BTreeMap<u64, (Instruction, Vec<u8>)>,
    /// Functions and variables by name: address and size.
    symbols: Vec<(String, u64, u64)>,
    words: Vec<(u64, ByRound)>,
    answers: HashMap<u64, ByRound>,
    registers: [u64; 16],
    rounds: u64,
    /// By address: the value that a word has in the program's file.
    pub in_file: HashMap<u64, u64>,
    /// Descriptors by which the process's threads wake each other.
    pub own_wakeups: Vec<i32>,
    pub is_alone: bool,
    /// What memory holds at the end.
    pub memory: HashMap<u64, u8>,
}

/// A loop at `MAIN`.
pub fn program(code: Code) -> Program {
    begins_at(MAIN, code)
}

/// A loop of code elsewhere.
pub fn begins_at(start: u64, code: Code) -> Program {
    let empty = Program {
        start,
        code: BTreeMap::new(),
        symbols: Vec::new(),
        words: Vec::new(),
        answers: HashMap::new(),
        registers: [0; 16],
        rounds: 12,
        in_file: HashMap::new(),
        own_wakeups: Vec::new(),
        is_alone: false,
        memory: HashMap::new(),
    };
    empty.function("main_loop", start, code)
}

impl Program {
    /// More code.
    pub fn function(mut self, name: &str, start: u64, code: Code) -> Program {
        let bytes = assemble(start, code);
        let mut decoder = Decoder::with_ip(64, &bytes, start, DecoderOptions::NONE);
        while decoder.can_decode() {
            let at = decoder.position();
            let instruction = decoder.decode();
            let own = bytes[at..decoder.position()].to_vec();
            self.code.insert(instruction.ip(), (instruction, own));
        }
        self.symbols.push((name.into(), start, bytes.len() as u64));
        self
    }

    /// A variable's name; it has eight bytes.
    pub fn named(mut self, address: u64, name: &str) -> Program {
        self.symbols.push((name.into(), address, 8));
        self
    }

    /// Eight bytes that have this value from the beginning.
    pub fn word(self, address: u64, value: u64) -> Program {
        self.changing(address, move |_| value)
    }

    /// Eight bytes to which others write.
    pub fn changing(mut self, address: u64, value: impl Fn(u64) -> u64 + 'static) -> Program {
        self.words.push((address, Box::new(value)));
        self
    }

    /// What the kernel answers to a call.
    pub fn answer(self, number: i64, result: i64) -> Program {
        self.answers(number, move |_| result)
    }

    pub fn answers(mut self, number: i64, result: impl Fn(u64) -> i64 + 'static) -> Program {
        let result = move |round| result(round) as u64;
        self.answers.insert(number as u64, Box::new(result));
        self
    }

    pub fn register(mut self, register: Register, value: u64) -> Program {
        self.registers[register.number()] = value;
        self
    }

    pub fn rounds(mut self, rounds: u64) -> Program {
        self.rounds = rounds;
        self
    }

    pub fn in_file(mut self, address: u64, value: u64) -> Program {
        self.in_file.insert(address, value);
        self
    }

    /// It has one thread, and shares no memory.
    pub fn of_one_thread(mut self) -> Program {
        self.is_alone = true;
        self
    }

    pub fn own_wakeup(mut self, descriptor: i32) -> Program {
        self.own_wakeups.push(descriptor);
        self
    }

    /// Its code or, elsewhere, its memory.
    pub fn byte(&self, address: u64) -> u8 {
        let before = self.code.range(..=address).next_back();
        let code = before.and_then(|(start, (_, bytes))| bytes.get((address - start) as usize));
        let memory = || self.memory.get(&address).copied().unwrap_or(0);
        code.copied().unwrap_or_else(memory)
    }

    /// What names its addresses.
    pub fn names(&self) -> Names {
        let frame = StackFrame {
            pc: CALLED,
            sp: OTHER_STACK,
            cfa: OTHER_STACK + 0x80,
        };
        let thread = |tid, top, block| ThreadInput {
            // Of the loop's thread nobody knows the open calls.
            frames: (tid == OTHER_TID).then_some(frame).into_iter().collect(),
            tid,
            own_id: tid,
            fs_base: Some(block),
            stack_pointer: Some(top),
            ..ThreadInput::default()
        };
        let maps = NamesInput::from_code_maps(MAPS, 0).maps;
        let modules = module::all(&self.symbols);
        let files: Vec<PathBuf> = modules.iter().map(|module| module.file.clone()).collect();
        let names = Names::new(NamesInput {
            modules,
            maps,
            threads: vec![
                thread(TID, STACK + 0x100, BLOCK),
                thread(OTHER_TID, OTHER_STACK + 0x100, OTHER_BLOCK),
            ],
            ..NamesInput::default()
        });
        // Reads the files.
        names.warm(|| true);
        for file in files {
            fs::remove_file(file).expect("a file of ours");
        }
        names
    }

    /// Runs it.
    pub fn window(&mut self) -> Window {
        const MOST: u32 = 20_000;
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        let mut evaluator = Evaluator::default();
        evaluator.machine.registers = self.registers.map(Value::of);
        evaluator.machine.registers[4] = Value::of(STACK);
        evaluator.machine.fs_base = Some(BLOCK);
        window.registers = evaluator.machine.registers;
        let (mut pc, mut round) = (self.start, 0);
        loop {
            if pc == self.start {
                if round > self.rounds {
                    return window;
                }
                self.begin(round);
                round += 1;
            }
            assert!(window.len() < MOST, "the loop does not come round");
            let (instruction, _) = self.code.get(&pc).unwrap_or_else(|| panic!("at {pc:#x}"));
            let index = window.intern(instruction, 0, &mut factory);
            let code = window.code_at(index).clone();
            window.push(index, evaluator.machine.registers[4]);
            let recorded = self.loads(&code, &evaluator);
            if is_syscall(&code.instruction) {
                let call = self.call(&evaluator, window.len() - 1, round - 1);
                let result = call.result.unwrap_or(0) as u64;
                window.syscalls.push(call);
                evaluator.step(&code, &recorded);
                evaluator.machine.registers[0] = Value::of(result);
                pc = code.instruction.next_ip();
            } else {
                evaluator.step(&code, &recorded);
                pc = next(&code.instruction, &evaluator);
            }
            for access in evaluator.accesses() {
                window.push_access(*access);
                if access.write {
                    let value = access.value.get(access.bytes * 8);
                    let value = value.expect("a stored value").to_le_bytes();
                    self.store(access.address.expect("its address"), access.bytes, value);
                }
            }
            for number in (0..16u8).filter(|n| code.registers_written >> n & 1 == 1) {
                window.push_result(number, evaluator.machine.registers[usize::from(number)]);
            }
        }
    }

    /// What others do before a round.
    fn begin(&mut self, round: u64) {
        let changed = |(_, value): &&(u64, ByRound)| round == 0 || value(round) != value(round - 1);
        let now: Vec<(u64, u64)> = self
            .words
            .iter()
            .filter(changed)
            .map(|(at, v)| (*at, v(round)))
            .collect();
        for (address, value) in now {
            self.store(address, 8, value.to_le_bytes());
        }
    }

    fn store(&mut self, address: u64, bytes: u32, value: [u8; 8]) {
        let bytes = (0..u64::from(bytes)).zip(value);
        self.memory
            .extend(bytes.map(|(at, byte)| (address + at, byte)));
    }

    fn loads(&self, code: &Decoded, evaluator: &Evaluator) -> Recorded {
        let mut recorded = Recorded::default();
        let reads = code.memory.iter().filter(|memory| memory.read);
        for (slot, memory) in recorded.loads.iter_mut().zip(reads) {
            let address = memory.address(&evaluator.machine).expect("an address");
            let mut value = [0; 8];
            for (at, byte) in (address..address + u64::from(memory.bytes)).zip(&mut value) {
                *byte = self.byte(at);
            }
            *slot = Some(u64::from_le_bytes(value));
        }
        recorded
    }

    fn call(&self, evaluator: &Evaluator, step: u32, round: u64) -> Syscall {
        let register = |number: usize| evaluator.machine.registers[number].bits;
        let number = register(0);
        let args = [7, 6, 2, 10, 8, 9].map(register);
        let answer = self.answers.get(&number).expect("an answer to the call");
        let result = answer(round) as i64;
        Syscall {
            step,
            number: number as u32,
            args,
            result: Some(result),
            written: outputs(number as u32, &args, result),
        }
    }
}

fn next(instruction: &Instruction, evaluator: &Evaluator) -> u64 {
    match instruction.flow_control() {
        FlowControl::Next => instruction.next_ip(),
        FlowControl::ConditionalBranch => match evaluator.taken().expect("known flags") {
            true => instruction.near_branch_target(),
            false => instruction.next_ip(),
        },
        _ => evaluator.target().expect("a known target"),
    }
}
