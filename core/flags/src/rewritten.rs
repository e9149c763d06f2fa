// SPDX-License-Identifier: MIT
//! What a loop writes again and again.
//!
//! In: a window and its analysis. Out: words with the values that they get in several rounds, by
//! which a later stage sees that the thread gives back, again and again, what another one polls.
//! Blind spot: values that are new each time.

use std::ops::Range;

use flagfinder_analysis::Analysis;
use flagfinder_machine::Window;
use rustc_hash::FxHashMap;

/// In so many rounds at least.
const ROUNDS: u32 = 3;
/// Most words that are told.
const MOST: usize = 256;
/// A word this near to the stack pointer is the thread's own.
const FRAMES: u64 = 1 << 16;

/// Run-time addresses and values.
pub(crate) fn words(window: &Window, analysis: &Analysis) -> Vec<(u64, u64)> {
    let spin = &analysis.spin;
    let steps = spin.first_step()..spin.end.min(window.len());
    in_rounds(window, steps, |step| spin.round_of(step))
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
            if word.0.wrapping_sub(stack) < FRAMES || stack.wrapping_sub(word.0) < FRAMES {
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

    #[test]
    fn a_word_is_told_with_the_values_that_come_back_in_other_rounds() {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        // Each round takes a lock, gives it back, counts, and writes to its stack.
        const STEPS: u32 = 4;
        for round in 0..3 {
            for (address, value) in [(0x1000, 1), (0x1000, 0), (0x2000, round), (0x7000_0008, 5)] {
                let mut decoder = Decoder::with_ip(64, &[0x90], 0x400, DecoderOptions::NONE);
                let code = window.intern(&decoder.decode(), 0, &mut factory);
                window.push(code, Value::of(0x7000_0000));
                window.push_access(Access {
                    address: Some(address),
                    bytes: 4,
                    write: true,
                    value: Value::of(value),
                });
            }
        }
        let all = 0..window.len();
        let words = in_rounds(&window, all.clone(), |step| (step / STEPS) as usize);
        assert_eq!(words, [(0x1000, 0), (0x1000, 1)]);
        assert_eq!(in_rounds(&window, all, |_| 0), [], "in one round");
    }
}
