//! The loop that holds the tail of a window.
//!
//! A loop shows as a recurring (instruction, stack pointer): of those with the highest
//! stack pointer (the outermost frame that repeats) the rarest, which then happens once
//! an iteration. Calls and returns are not counted: JITs and signals unbalance them.

use rustc_hash::FxHashMap;

use crate::window::Window;

/// Fewer recurrences are no loop.
const LEAST: usize = 3;
/// Iterations that are looked at.
const ITERATIONS: usize = 96;
/// A gap so many times the middle one is no iteration.
const FAR: u32 = 24;

/// See the module.
#[derive(Clone, Debug)]
pub struct SpinLoop {
    /// Static instruction that begins an iteration.
    pub marker: u32,
    /// First steps of the iterations looked at, oldest first; the last may be unfinished.
    pub starts: Vec<u32>,
    /// Whole iterations in the window.
    pub iterations: u64,
    /// Steps behind the last iteration looked at.
    pub end: u32,
}

impl SpinLoop {
    pub fn first_step(&self) -> u32 {
        self.starts[0]
    }

    /// Number of the iteration that holds the step.
    pub fn round_of(&self, step: u32) -> usize {
        self.starts
            .partition_point(|&start| start <= step)
            .saturating_sub(1)
    }
}

/// The loop at the window's end; `None`: nothing repeats. `preferred` are pcs of a loop
/// that is known from elsewhere (the diff): where one of them recurs, it is the marker.
pub fn find(window: &Window, preferred: &[u64]) -> Option<SpinLoop> {
    let by_preference = preferred.iter().find_map(|&pc| {
        let steps: Vec<u32> = (0..window.len()).filter(|&s| window.pc(s) == pc).collect();
        let last = *steps.last()?;
        let rsp = window.rsp(last);
        let same: Vec<u32> = steps
            .iter()
            .copied()
            .filter(|&s| window.rsp(s) == rsp)
            .collect();
        (same.len() >= LEAST).then(|| build(window, window.code_index(last), same))
    });
    by_preference
        .or_else(|| by_marker(window, true))
        .or_else(|| by_marker(window, false))
}

fn by_marker(window: &Window, with_stack: bool) -> Option<SpinLoop> {
    let mut seen: FxHashMap<(u32, u64), Vec<u32>> = FxHashMap::default();
    for step in 0..window.len() {
        let rsp = if with_stack { window.rsp(step) } else { 0 };
        if rsp != 0 || !with_stack {
            seen.entry((window.code_index(step), rsp))
                .or_default()
                .push(step);
        }
    }
    let mut candidates: Vec<_> = seen
        .into_iter()
        .filter(|(_, steps)| steps.len() >= LEAST)
        .collect();
    // Highest frame first, rarest in it first, then the last in the iteration.
    candidates.sort_by_key(|((code, rsp), steps)| {
        (
            std::cmp::Reverse(*rsp),
            steps.len(),
            std::cmp::Reverse(steps.last().copied()),
            *code,
        )
    });
    candidates.into_iter().find_map(|((code, _), steps)| {
        let tail = steady_tail(window, steps)?;
        Some(build(window, code, tail))
    })
}

/// The recurrences at the end of the window that are not far apart, if they reach its
/// very end.
fn steady_tail(window: &Window, steps: Vec<u32>) -> Option<Vec<u32>> {
    let mut gaps: Vec<u32> = steps.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    let far = gaps.get(gaps.len() / 2)?.saturating_mul(FAR).max(64);
    let last = *steps.last()?;
    if window.len() - last > far {
        return None;
    }
    let mut first = steps.len() - 1;
    while first > 0 && steps[first] - steps[first - 1] <= far {
        first -= 1;
    }
    let tail = steps[first..].to_vec();
    (tail.len() >= LEAST).then_some(tail)
}

fn build(window: &Window, marker: u32, mut starts: Vec<u32>) -> SpinLoop {
    let iterations = starts.len() as u64 - 1;
    let skip = starts.len().saturating_sub(ITERATIONS + 1);
    starts.drain(..skip);
    SpinLoop {
        marker,
        starts,
        iterations,
        end: window.len(),
    }
}
