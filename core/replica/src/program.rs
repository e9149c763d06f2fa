// SPDX-License-Identifier: MIT
//! Where an interpreter is in the program that it runs.
//!
//! In: the instructions by which it reads what the program does next. Out: for each of these the
//! place that it reads, and whether that is in the program's loop. What the interpreter does at
//! such a place says little: it makes the same few steps in whatever it runs.

use flagfinder_machine::Reader;
use flagfinder_step::registers::general;
use rustc_hash::{FxHashMap, FxHashSet};

/// After so many places in a row outside of the loop, the program is behind it.
const BEHIND: u64 = 64;
/// When a loop ends, the program goes on with the code around it. When a check fails, it goes on
/// elsewhere: in a handler, or in nothing that is interpreted.
const AROUND: u64 = 4096;

/// The loop of an interpreted program.
#[derive(Default)]
pub(crate) struct Program {
    readers: FxHashMap<u64, Reader>,
    places: FxHashSet<u64>,
}

impl Program {
    pub fn new(readers: &[Reader]) -> Program {
        Program {
            readers: readers.iter().map(|reader| (reader.pc, *reader)).collect(),
            places: FxHashSet::default(),
        }
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
}

impl Way {
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
    use super::*;

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
