// SPDX-License-Identifier: MIT
//! The compact form against the evaluator, on blocks of random code.

use flagfinder_code::CodeBlock;
use flagfinder_trace::{Slot, SlotKind};
use iced_x86::{FlowControl, InstructionInfoFactory};

use crate::compact::{compile, Kind};
use crate::decoded::{Decoded, Operand};
use crate::decoded_blocks::Codes;
use crate::evaluator::{Access, Evaluator};
use crate::replayer::{SlotReader, Visitor};
use crate::value::{mask, Machine, Value, STATUS};

/// First bytes of the opcodes that programs consist of; what follows is random.
const COMMON: &[&[u8]] = &[
    &[0x01],
    &[0x03],
    &[0x29],
    &[0x2b],
    &[0x31],
    &[0x33],
    &[0x39],
    &[0x3b],
    &[0x21],
    &[0x23],
    &[0x09],
    &[0x0b],
    &[0x80],
    &[0x81],
    &[0x83],
    &[0x84],
    &[0x85],
    &[0x88],
    &[0x89],
    &[0x8a],
    &[0x8b],
    &[0x8d],
    &[0xc1],
    &[0xd1],
    &[0xd3],
    &[0xc0],
    &[0xc6],
    &[0xc7],
    &[0xf6],
    &[0xf7],
    &[0xfe],
    &[0xff],
    &[0x69],
    &[0x6b],
    &[0x63],
    &[0x50],
    &[0x55],
    &[0x58],
    &[0x5d],
    &[0x68],
    &[0x98],
    &[0x99],
    &[0xb8],
    &[0x11],
    &[0x19],
    &[0x28],
    &[0x38],
    &[0x0f, 0xb6],
    &[0x0f, 0xb7],
    &[0x0f, 0xbe],
    &[0x0f, 0xbf],
    &[0x0f, 0xaf],
    &[0x0f, 0x44],
    &[0x0f, 0x4c],
    &[0x0f, 0x92],
    &[0x0f, 0x9e],
    &[0x0f, 0xa3],
    &[0x0f, 0xbc],
    &[0x0f, 0xb1],
    &[0x0f, 0xc1],
    &[0x0f, 0x28],
    &[0x0f, 0x29],
    &[0x0f, 0x6e],
    &[0x0f, 0x7e],
    &[0x0f, 0x10],
    &[0x0f, 0x11],
    &[0x0f, 0x58],
    &[0x0f, 0x2f],
    &[0x0f, 0x50],
    &[0x0f, 0x2d],
    &[0x0f, 0xd6],
];
const ENDS: &[&[u8]] = &[
    &[0x74, 0x10],
    &[0x7f, 0xf0],
    &[0x76, 0x05],
    &[0x7a, 0x02],
    &[0x79, 0x02],
    &[0xe3, 0x02],
    &[0xc3],
    &[0xc2, 8, 0],
    &[0xe8, 1, 2, 0, 0],
    &[0xeb, 0x20],
    &[0xff, 0xe0],
    &[0xff, 0x20],
    &[0xff, 0xd3],
    &[0xe2, 0x05],
    &[0x90],
    &[0x0f, 0x05],
];
const PREFIXES: &[u8] = &[0x66, 0xf2, 0xf3, 0x64, 0xf0];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn instruction(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.below(8) == 0 {
            bytes.push(self.one_of(PREFIXES));
        }
        if self.below(2) == 0 {
            bytes.push(0x40 | self.below(16) as u8);
        }
        match self.below(12) {
            0 => bytes.push(self.next() as u8),
            _ => bytes.extend(self.one_of(COMMON)),
        }
        bytes.extend((0..12).map(|_| self.next() as u8));
        let code = CodeBlock::decode(0x1000, &bytes).instructions;
        let first = code
            .first()
            .filter(|one| one.flow_control() == FlowControl::Next);
        bytes.truncate(first.map_or(0, |one| one.len()));
        bytes
    }

    fn block(&mut self) -> CodeBlock {
        let mut bytes: Vec<u8> = (0..self.below(12))
            .flat_map(|_| self.instruction())
            .collect();
        bytes.extend(self.one_of(ENDS));
        CodeBlock::decode(0x40_1000, &bytes)
    }

    /// Small numbers and addresses in one small area, some of them only known in part.
    fn value(&mut self) -> Value {
        let bits = match self.below(4) {
            0 => self.next() % 5,
            1 => self.next(),
            _ => 0x7000 + self.next() % 64 * 4,
        };
        let known = match self.below(6) {
            0 => 0,
            1 => mask(32),
            2 => self.next(),
            _ => u64::MAX,
        };
        Value {
            bits: bits & known,
            known,
        }
    }

    fn machine(&mut self) -> Machine {
        let mut machine = Machine::default();
        for register in &mut machine.registers {
            *register = self.value();
        }
        machine.set_flags(self.next() & STATUS, self.next());
        machine.fs_base = Some(0x7000);
        for _ in 0..24 {
            let (at, bits) = (0x7000 + self.next() % 256, self.one_of(&[8, 16, 32, 64]));
            let value = self.value();
            machine.shadow.store(at, bits, value);
        }
        machine
    }

    /// What a tracer might record of the block, now and then in an unusual way.
    fn slots(&mut self, codes: &[Decoded]) -> Vec<Slot> {
        let mut slots = Vec::new();
        for (index, code) in codes.iter().enumerate() {
            let mut add = |kind, size: u16, detail| {
                if matches!(size, 1 | 2 | 4 | 8) {
                    let (instruction, size) = (index as u8, size as u8);
                    slots.push(Slot {
                        instruction,
                        kind,
                        size,
                        detail,
                    });
                }
            };
            if let Some(memory) = code.memory.iter().find(|memory| memory.read) {
                match self.below(8) {
                    0 => {}
                    1 => add(SlotKind::Load, 8, 0),
                    2 => add(SlotKind::Address, 8, 0),
                    _ => add(SlotKind::Load, memory.bytes, 0),
                }
            }
            if self.below(24) == 0 {
                add(SlotKind::Register, 8, self.below(16) as u8);
            }
        }
        slots
    }
}

#[derive(Default)]
struct Shown(Vec<Access>);

impl Visitor for Shown {
    fn after(&mut self, _: &Decoded, evaluator: &Evaluator) {
        self.0
            .extend(evaluator.accesses().iter().filter(|access| access.write));
    }

    fn stored(&mut self, _: &Decoded, _: &Machine, store: &Access) {
        self.0.push(*store);
    }
}

/// The accesses of some of the instructions.
#[derive(Default)]
struct Chosen(Vec<Access>);

impl Visitor for Chosen {
    fn chooses(&self, code: &Decoded) -> bool {
        code.pc() % 3 == 0
    }

    fn after(&mut self, code: &Decoded, evaluator: &Evaluator) {
        assert!(self.chooses(code));
        self.0.extend(evaluator.accesses());
    }
}

/// Registers, flags and the area that stores go to.
fn state(machine: &mut Machine) -> impl PartialEq + std::fmt::Debug {
    let memory: Vec<Value> = (0x6f00..0x7300)
        .step_by(8)
        .map(|at| machine.shadow.load(at, 64))
        .collect();
    let bases = (machine.fs_base, machine.gs_base);
    (machine.registers, machine.flags, bases, memory)
}

#[test]
fn a_block_does_the_same_in_either_form() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut short, mut all) = (0, 0);
    for round in 0..60_000 {
        let block = random.block();
        let mut factory = InstructionInfoFactory::new();
        let decode = |one| Decoded::new(one, &mut factory);
        let instructions: Box<[Decoded]> = block.instructions.iter().map(decode).collect();
        let slots = random.slots(&instructions);
        let bytes = slots.iter().map(|slot| usize::from(slot.size)).sum();
        let values: Vec<u8> = (0..bytes)
            .map(|_| random.one_of(&[0, 1, 0x70, 0xff]))
            .collect();
        let mut at_length = Evaluator::default();
        at_length.machine = random.machine();
        let mut compact = at_length.clone();
        let mut choosing = at_length.clone();
        let codes = Codes::new(instructions, &slots);

        let (mut expected, mut chosen) = (Shown::default(), Chosen::default());
        let mut reader = SlotReader {
            slots: &slots,
            values: &values,
            known: true,
        };
        for (index, code) in codes.instructions.iter().enumerate() {
            let recorded = reader.recorded(code, index);
            at_length.step(code, &recorded);
            expected.after(code, &at_length);
            if chosen.chooses(code) && !codes.left_out.contains(&(index as u32)) {
                chosen.after(code, &at_length);
            }
        }
        let next = codes
            .instructions
            .last()
            .and_then(|code| at_length.next(code));

        let mut shown = Shown::default();
        let next_too = compact.run::<true, false, _>(&codes, &slots, &values, &mut shown);
        let mut some = Chosen::default();
        choosing.run::<false, true, _>(&codes, &slots, &values, &mut some);
        let text = || {
            let code = block.instructions.iter().map(|one| one.to_string());
            format!("round {round}: {:?} {slots:?}", code.collect::<Vec<_>>())
        };
        assert_eq!(next, next_too, "{}", text());
        assert_eq!(expected.0, shown.0, "{}", text());
        let states = (state(&mut at_length.machine), state(&mut compact.machine));
        assert_eq!(states.0, states.1, "{}", text());
        assert_eq!(chosen.0, some.0, "{}", text());
        assert_eq!(state(&mut choosing.machine), states.0, "{}", text());
        short += codes
            .compact
            .iter()
            .filter(|one| one.kind != Kind::Long)
            .count();
        all += codes.compact.len();
    }
    assert!(short * 2 > all, "{short} of {all} have a short form");
}

#[test]
fn what_changes_only_vectors_is_left_out() {
    // vmovups ymm0, [rsi]; vfmadd231ps ymm1, ymm0, [rdi]; add rsi, 32; dec rcx; jne
    let code = [
        0xc5, 0xfc, 0x10, 0x06, 0xc4, 0xe2, 0x7d, 0xb8, 0x0f, 0x48, 0x83, 0xc6, 0x20, 0x48, 0xff,
        0xc9, 0x75, 0xee,
    ];
    let mut factory = InstructionInfoFactory::new();
    let block = CodeBlock::decode(0x1000, &code);
    let decode = |one| Decoded::new(one, &mut factory);
    let instructions: Vec<Decoded> = block.instructions.iter().map(decode).collect();
    assert_eq!(instructions[0].operands[0], Operand::Other);
    let compact = compile(&instructions, &[]);
    let kinds: Vec<Kind> = compact.iter().map(|one| one.kind).collect();
    assert_eq!(kinds[..2], [Kind::Add, Kind::Decrement]);
    assert!(matches!(kinds[2..], [Kind::Branch(_)]));
    assert!(compact[0].flags, "dec leaves the carry to whoever reads it");
}
