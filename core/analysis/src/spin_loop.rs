// SPDX-License-Identifier: MIT
//! The loop that a window ends in, by its iterations.

use flagfinder_machine::Window;
use rustc_hash::FxHashMap;

/// An iteration so many iterations before the window's end is an early one.
const EARLY: usize = 12;

/// A loop: where each of its iterations begins.
#[derive(Clone, Debug)]
pub struct SpinLoop {
    /// Index of the static instruction that each iteration begins with.
    pub marker: u32,
    /// First steps of the iterations looked at, oldest first; the last may be unfinished.
    pub starts: Vec<u32>,
    /// Whole iterations of the window; `starts` has the last of them.
    pub iterations: u64,
    /// Steps behind the last iteration looked at.
    pub end: u32,
}

impl SpinLoop {
    /// Where the first iteration that is looked at begins.
    pub fn first_step(&self) -> u32 {
        self.starts[0]
    }

    /// Without the first iterations, if an atomic changed something in one of them only: a thread
    /// that begins to wait for a lock marks the lock once. Then it waits for another thread to
    /// change the word, though its own store was the last.
    pub fn without_first_marks(mut self, window: &Window) -> SpinLoop {
        let mut made: FxHashMap<u32, (u32, u32)> = FxHashMap::default();
        for step in self.first_step()..self.end {
            if window.code(step).is_atomic() && !window.is_silent(step) {
                made.entry(window.code_index(step)).or_insert((step, 0)).1 += 1;
            }
        }
        let once = made.into_values().filter(|(_, count)| *count == 1);
        let rounds = once.map(|(step, _)| self.round_of(step));
        let early = rounds.filter(|round| round + 1 + EARLY < self.starts.len());
        if let Some(round) = early.max() {
            self.starts.drain(..=round);
        }
        self
    }

    /// Number of the iteration that holds the step.
    pub fn round_of(&self, step: u32) -> usize {
        self.starts
            .partition_point(|&start| start <= step)
            .saturating_sub(1)
    }
}
