// SPDX-License-Identifier: MIT
//! What a loop writes again and again, and what it reads of others.
//!
//! In: a window and its analysis. Out: words with the values that they get in several rounds, by
//! which a later stage sees that the thread gives back, again and again, what another one polls;
//! and words that the loop only reads, by which it sees that others change them. Blind spots:
//! values that are new each time; what a loop reads that goes through much memory.

use std::cmp::Ordering;
use std::ops::Range;

use flagfinder_analysis::Analysis;
use flagfinder_machine::Window;
use rustc_hash::{FxHashMap, FxHashSet};

/// In so many rounds at least.
const ROUNDS: u32 = 3;
/// A count was seen to change so often.
const COUNTED: u32 = 4;
/// Most words that are told.
const MOST: usize = 256;
/// A loop that reads more words goes through memory.
const MOST_READ: usize = 32;
/// A word this near to the stack pointer is the thread's own.
const FRAMES: u64 = 1 << 16;

/// Run-time addresses and values that it writes.
pub(crate) fn rewritten(window: &Window, analysis: &Analysis) -> Vec<(u64, u64)> {
    let spin = &analysis.spin;
    let steps = spin.first_step()..spin.end.min(window.len());
    in_rounds(window, steps, |step| spin.round_of(step))
}

/// Does it write one higher value after another to a word, or one lower one?
pub(crate) fn counts(window: &Window, analysis: &Analysis) -> bool {
    let spin = &analysis.spin;
    counts_in(window, spin.first_step()..spin.end.min(window.len()))
}

fn counts_in(window: &Window, steps: Range<u32>) -> bool {
    // The last value; how often it rose, fell and stayed.
    let mut words: FxHashMap<u64, (u64, [u32; 3])> = FxHashMap::default();
    for step in steps.filter(|step| !window.is_silent(*step)) {
        let stack = window.rsp(step);
        for access in window.accesses(step).iter().filter(|access| access.write) {
            let value = access.value.get((access.bytes * 8).min(64));
            let Some((address, value)) = access.address.zip(value) else {
                continue;
            };
            if is_own(address, stack) {
                continue;
            }
            let (last, ways) = words.entry(address).or_insert((value, [0; 3]));
            let way = match value.cmp(last) {
                Ordering::Greater => 0,
                Ordering::Less => 1,
                Ordering::Equal => 2,
            };
            ways[way] += 1;
            *last = value;
        }
    }
    // The first write is compared with itself.
    let mut ways = words.into_values().map(|(_, ways)| ways);
    ways.any(|[up, down, same]| same == 1 && up.min(down) == 0 && up.max(down) >= COUNTED)
}

/// Run-time addresses and sizes of what it only reads, but for the words that would end it.
pub(crate) fn read(window: &Window, analysis: &Analysis) -> Vec<(u64, u32)> {
    let spin = &analysis.spin;
    let mut words = only_read(window, spin.first_step()..spin.end.min(window.len()));
    let ends = |address: u64| {
        analysis
            .candidates
            .iter()
            .any(|word| word.address == address)
    };
    words.retain(|(address, _)| !ends(*address));
    words
}

fn only_read(window: &Window, steps: Range<u32>) -> Vec<(u64, u32)> {
    let (mut read, mut written) = (FxHashSet::default(), FxHashSet::default());
    for step in steps.filter(|step| !window.is_silent(*step)) {
        let stack = window.rsp(step);
        for access in window.accesses(step) {
            let Some(address) = access.address.filter(|at| !is_own(*at, stack)) else {
                continue;
            };
            match access.write {
                true => written.insert(address),
                false => access.bytes <= 8 && read.insert((address, access.bytes)),
            };
        }
    }
    read.retain(|(address, _)| !written.contains(address));
    match read.len() <= MOST_READ {
        true => read.into_iter().collect(),
        false => Vec::new(),
    }
}

fn is_own(address: u64, stack: u64) -> bool {
    address.wrapping_sub(stack) < FRAMES || stack.wrapping_sub(address) < FRAMES
}

fn in_rounds(
    window: &Window,
    steps: Range<u32>,
    round_of: impl Fn(u32) -> usize,
) -> Vec<(u64, u64)> {
    // How often, and in which round for the last time.
    let mut times: FxHashMap<(u64, u64), (u32, usize)> = FxHashMap::default();
    for step in steps {
        let stack = window.rsp(step);
        if window.is_silent(step) {
            continue;
        }
        for access in window.accesses(step).iter().filter(|access| access.write) {
            let value = access.value.get((access.bytes * 8).min(64));
            let Some(word) = access.address.zip(value) else {
                continue;
            };
            if is_own(word.0, stack) {
                continue;
            }
            let round = round_of(step);
            let (count, last) = times.entry(word).or_insert((0, usize::MAX));
            *count += u32::from(*last != round);
            *last = round;
        }
    }
    let often = times.into_iter().filter(|(_, (count, _))| *count >= ROUNDS);
    let mut words: Vec<(u64, u64)> = often.map(|(word, _)| word).collect();
    words.sort_unstable();
    words.truncate(MOST);
    words
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::evaluator::Access;
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    const STACK: u64 = 0x7000_0000;

    /// A step for each access: address, value, and whether it is written.
    fn window(accesses: impl IntoIterator<Item = (u64, u64, bool)>) -> Window {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for (address, value, write) in accesses {
            let mut decoder = Decoder::with_ip(64, &[0x90], 0x400, DecoderOptions::NONE);
            let code = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(code, Value::of(STACK));
            window.push_access(Access {
                address: Some(address),
                bytes: 4,
                write,
                value: Value::of(value),
            });
        }
        window
    }

    #[test]
    fn a_word_is_told_with_the_values_that_come_back_in_other_rounds() {
        // Each round takes a lock, gives it back, counts, and writes to its stack.
        let round = |count: u64| [(0x1000, 1), (0x1000, 0), (0x2000, count), (STACK + 8, 5)];
        let writes = (0..3).flat_map(round);
        let window = window(writes.map(|(address, value)| (address, value, true)));
        let all = 0..window.len();
        let words = in_rounds(&window, all.clone(), |step| (step / 4) as usize);
        assert_eq!(words, [(0x1000, 0), (0x1000, 1)]);
        assert_eq!(in_rounds(&window, all, |_| 0), [], "in one round");
    }

    #[test]
    fn a_loop_counts_where_each_value_of_a_word_is_higher_or_each_is_lower() {
        let counts = |values: &[u64]| {
            let writes = values.iter().map(|value| (0x1000, *value, true));
            let window = window(writes);
            counts_in(&window, 0..window.len())
        };
        assert!(counts(&[1, 2, 4, 5, 6]) && counts(&[9, 8, 7, 6, 5]));
        assert!(!counts(&[1, 2, 1, 2, 1, 2, 1, 2]), "taken and given back");
        assert!(!counts(&[1, 2, 3, 4, 4, 5, 6, 7]), "it stays");
        assert!(!counts(&[1, 2, 3]), "too few");
    }

    #[test]
    fn a_word_is_only_read_if_the_loop_does_not_write_it_and_others_may_have_it() {
        let (read, written) = ((0x1000, 1, false), (0x2000, 1, true));
        let window = window([read, written, (0x2000, 1, false), (STACK + 8, 1, false)]);
        assert_eq!(only_read(&window, 0..window.len()), [(0x1000, 4)]);
    }
}
