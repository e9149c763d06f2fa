// SPDX-License-Identifier: MIT
//! Where an interpreter is in the program that it runs.
//!
//! In: the instructions by which it reads what the program does next. Out: for each of these the
//! place that it reads, and whether that is in the program's loop. What the interpreter does at
//! such a place says little: it makes the same few steps in whatever it runs.

use flagfinder_machine::decoded::Decoded;
use flagfinder_machine::Reader;
use flagfinder_step::registers::general;
use iced_x86::FlowControl;
use rustc_hash::{FxHashMap, FxHashSet};

/// After so many places in a row outside of the loop, the program is behind it.
const BEHIND: u64 = 64;
/// When a loop ends, the program goes on with the code around it. When a check fails, it goes on
/// elsewhere: in a handler, or in nothing that is interpreted.
const AROUND: u64 = 4096;
/// Most instructions from the one that reads what the program does next to the jump there.
const BETWEEN: u32 = 8;

/// The loop of an interpreted program.
#[derive(Default)]
pub(crate) struct Program {
    readers: FxHashMap<u64, Reader>,
    places: FxHashSet<u64>,
    /// Instructions that the interpreter executes in the loop.
    code: FxHashSet<u64>,
}

impl Program {
    pub fn new(readers: &[Reader]) -> Program {
        Program {
            readers: readers.iter().map(|reader| (reader.pc, *reader)).collect(),
            ..Program::default()
        }
    }

    /// The interpreter executes this instruction in the loop.
    pub fn executes(&mut self, pc: u64) {
        self.code.insert(pc);
    }

    /// Is the instruction new to the loop, so that it may be one by which the interpreter reads
    /// what comes behind the loop?
    pub fn is_new(&self, pc: u64) -> bool {
        !self.code.contains(&pc)
    }

    /// The place beside the loop's that the instruction reads as those read that are known.
    fn read_alike(&self, code: &Decoded, registers: &libc::user_regs_struct) -> Option<u64> {
        let reader = Reader::of(code)?;
        let is_alike = self.readers.values().any(|known| known.is_like(&reader));
        let place = is_alike.then(|| reader.address(&general(registers)))?;
        (!self.places.contains(&place) && self.is_around(place)).then_some(place)
    }

    /// The place that the next instruction reads, if it reads the program.
    pub fn place(&self, registers: &libc::user_regs_struct) -> Option<u64> {
        let reader = self.readers.get(&registers.rip)?;
        Some(reader.address(&general(registers)))
    }

    /// Is the place new to the loop?
    pub fn learn(&mut self, place: u64) -> bool {
        self.places.insert(place)
    }

    /// Does the place stand in the function that holds the loop?
    fn is_around(&self, place: u64) -> bool {
        let mut places = self.places.iter();
        places.any(|known| known.abs_diff(place) < AROUND)
    }

    /// Was any place seen?
    pub fn is_known(&self) -> bool {
        !self.places.is_empty()
    }
}

/// The path of a changed copy through the program, compared with the loop.
#[derive(Default)]
pub(crate) struct Way {
    /// Places since the last one of the loop.
    behind: u64,
    /// The first of them.
    first: Option<u64>,
    /// The loop's places that it came to since [`Way::forget`].
    again: FxHashSet<u64>,
    /// What an instruction that is new to the loop read, the stack pointer then, and how many
    /// instructions ago: a place, if a jump follows.
    read: Option<(u64, u64, u32)>,
}

impl Way {
    /// The copy comes to an instruction that is new to the loop. Each piece of an interpreter may
    /// have instructions of its own that lead to the next piece.
    pub fn look(&mut self, program: &Program, code: &Decoded, registers: &libc::user_regs_struct) {
        let read = self
            .read
            .take()
            .map(|(place, stack, ago)| (place, stack, ago + 1));
        let read = read.filter(|read| read.1 == registers.rsp && read.2 < BETWEEN);
        let place = program.read_alike(code, registers);
        self.read = place.map(|place| (place, registers.rsp, 0)).or(read);
        if code.instruction.flow_control() == FlowControl::IndirectBranch {
            if let Some((place, ..)) = self.read.take() {
                self.go(program, place);
            }
        }
    }

    /// The copy comes to a place.
    pub fn go(&mut self, program: &Program, place: u64) {
        if program.places.contains(&place) {
            self.behind = 0;
            self.first = None;
            self.again.insert(place);
        } else {
            self.behind += 1;
            self.first.get_or_insert(place);
        }
    }

    pub fn forget(&mut self) {
        self.again.clear();
    }

    /// Has it left the loop, by an exit or by an error?
    pub fn is_behind(&self) -> bool {
        self.behind >= BEHIND
    }

    /// Did it come to none of the loop's places since [`Way::forget`]?
    pub fn stays_away(&self) -> bool {
        self.again.is_empty()
    }

    /// Did it go on behind the loop?
    pub fn goes_on(&self, program: &Program) -> bool {
        self.first.is_some_and(|place| program.is_around(place))
    }

    /// Does it come to most of the loop's places again?
    pub fn goes_round(&self, program: &Program) -> bool {
        self.again.len() * 4 >= program.places.len() * 3
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    fn decoded(code: &[u8]) -> Decoded {
        let instruction = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode();
        Decoded::new(&instruction, &mut InstructionInfoFactory::new())
    }

    /// Is it seen that these instructions, new to a loop that reads its places by `mov rax, [rbx]`,
    /// lead on behind the loop?
    fn leads_on(codes: &[&[u8]], rbx: u64) -> bool {
        let reader = Reader::of(&decoded(&[0x48, 0x8b, 0x03])).expect("it reads");
        let mut program = Program::new(&[reader]);
        assert!(program.learn(0x9000));
        // SAFETY: numbers only.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        registers.rbx = rbx;
        let mut way = Way::default();
        for code in codes {
            way.look(&program, &decoded(code), &registers);
        }
        way.goes_on(&program)
    }

    #[test]
    fn a_piece_that_is_new_to_the_loop_leads_on_by_instructions_of_its_own() {
        // mov rcx, [rbx+8]; add rbx, 8; jmp rcx
        let (read, add, jump): (&[u8], &[u8], &[u8]) = (
            &[0x48, 0x8b, 0x4b, 0x08],
            &[0x48, 0x83, 0xc3, 0x08],
            &[0xff, 0xe1],
        );
        assert!(leads_on(&[read, add, jump], 0x9000));
        assert!(leads_on(&[&[0xff, 0x63, 0x08]], 0x9000), "jmp [rbx+8]");
        assert!(!leads_on(&[read, add], 0x9000), "an operand");
        assert!(!leads_on(&[read, add, jump], 0x20000), "elsewhere");
        assert!(!leads_on(&[read, add, jump], 0x8ff8), "a place of the loop");
        assert!(
            !leads_on(&[&[0x48, 0x8b, 0x4a, 0x08], jump], 0x9000),
            "by rdx"
        );
    }

    fn program(places: std::ops::Range<u64>) -> Program {
        let mut program = Program::default();
        for place in places {
            assert!(program.learn(place));
        }
        program
    }

    #[test]
    fn a_copy_that_comes_only_to_other_places_is_behind_the_loop() {
        let program = program(0..4);
        let mut way = Way::default();
        (100..100 + BEHIND - 1).for_each(|place| way.go(&program, place));
        assert!(!way.is_behind());
        way.go(&program, 2);
        way.go(&program, 99);
        assert!(!way.is_behind(), "it was in the loop again");
        (100..100 + BEHIND).for_each(|place| way.go(&program, place));
        assert!(way.is_behind() && way.goes_on(&program));
        let mut way = Way::default();
        [2, 0x9000, 99]
            .into_iter()
            .for_each(|place| way.go(&program, place));
        assert!(!way.goes_on(&program), "a check failed");
    }

    #[test]
    fn a_copy_that_comes_to_most_places_again_repeats_the_loop() {
        let program = program(0..4);
        let mut way = Way::default();
        [0, 1, 50]
            .into_iter()
            .for_each(|place| way.go(&program, place));
        assert!(!way.goes_round(&program));
        way.go(&program, 3);
        assert!(way.goes_round(&program));
        way.forget();
        assert!(!way.goes_round(&program));
    }
}
