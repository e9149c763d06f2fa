// SPDX-License-Identifier: MIT
//! Which goroutines are to write a word that another one polls.
//!
//! In: the goroutines, and words. Out: those that wait and have a store to one of the words ahead,
//! whose address their stacks tell. Blind spots: goroutines that never began; a store through what
//! others may still change.

use flagfinder_code::{AddressSpace, CodeLimits, CodeReader, Frame, Registers};

use super::goroutine::Goroutine;
use super::runtime::State;

/// Most instructions that are followed of one goroutine, and the deepest calls.
const LIMITS: CodeLimits = CodeLimits {
    instructions: 20_000,
    depth: 4,
};
/// Most goroutines whose code is followed.
const MOST: usize = 64;
/// In x86 numbering.
const RSP: usize = 4;
const RBP: usize = 5;

/// A store that is ahead of a goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Index of the goroutine.
    pub goroutine: usize,
    /// Index of the word.
    pub word: usize,
    pub pc: u64,
}

/// `words`: address and bytes. The first word that any goroutine writes, and all that do.
pub fn writers(memory: &dyn AddressSpace, all: &[Goroutine], words: &[(u64, usize)]) -> Vec<Ahead> {
    let mut reader = CodeReader::new(memory);
    let waiting = all.iter().enumerate();
    let waiting = waiting.filter(|(_, one)| one.kept.state == State::Waits && one.may_owe());
    let mut found: Vec<Ahead> = Vec::new();
    for (goroutine, one) in waiting.take(MOST) {
        let stores = reader.stores_ahead(&frames(one), None, LIMITS);
        let hits = stores.iter().filter_map(|store| {
            let at = store.address?;
            let is_hit = |(word, bytes): &(u64, usize)| {
                at < word + *bytes as u64 && *word < at + store.bytes.max(1) as u64
            };
            let word = words.iter().position(is_hit)?;
            Some((word, store.depth, store.pc))
        });
        found.extend(hits.min().map(|(word, _, pc)| Ahead {
            goroutine,
            word,
            pc,
        }));
    }
    let first = found.iter().map(|ahead| ahead.word).min();
    found.retain(|ahead| Some(ahead.word) == first);
    found
}

/// Its open calls as they go on. Go keeps frame pointers: behind a call the stack begins where the
/// frame of the call ended.
fn frames(one: &Goroutine) -> Vec<Frame> {
    let begins = std::iter::once(one.kept.stack.start).chain(one.bounds.iter().copied());
    let calls = one.frames.iter().zip(one.bounds.iter().zip(begins));
    let frame = |(pc, (end, begin)): (&u64, (&u64, u64))| {
        let mut registers: Registers = [None; 16];
        registers[RSP] = Some(begin);
        registers[RBP] = Some(end.wrapping_sub(16));
        Frame { pc: *pc, registers }
    };
    calls.map(frame).collect()
}
