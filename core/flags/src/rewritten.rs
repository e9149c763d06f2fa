// SPDX-License-Identifier: MIT
//! What a loop writes again and again.
//!
//! In: a window and its analysis. Out: words with the values that they get in several rounds, by
//! which a later stage sees that the thread gives back, again and again, what another one polls.
//! Blind spot: values that are new each time.

use flagfinder_analysis::Analysis;
use flagfinder_machine::Window;
use rustc_hash::FxHashMap;

/// In so many rounds at least.
const ROUNDS: u32 = 3;
/// Most words that are told.
const MOST: usize = 256;
/// A word this near above the stack pointer is the thread's own.
const FRAMES: u64 = 1 << 16;

/// Run-time addresses and values.
pub(crate) fn words(window: &Window, analysis: &Analysis) -> Vec<(u64, u64)> {
    let spin = &analysis.spin;
    // How often, and in which round for the last time.
    let mut times: FxHashMap<(u64, u64), (u32, usize)> = FxHashMap::default();
    for step in spin.first_step()..spin.end.min(window.len()) {
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
            let round = spin.round_of(step);
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
