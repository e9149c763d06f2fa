//! The loop that holds a thread: the innermost one whose present stay is out of proportion.
//!
//! A thread that spins sits, at a random moment, in some inner loop of some callee. Those loops ended
//! before, many times, and after about as long. So from the innermost loop outward, the first one whose
//! present stay is much longer than each of its earlier stays is the loop that is not left.

use crate::call_stack::Frame;
use crate::nest::LoopNest;
use crate::profile::{EdgeKey, Profiles};
use crate::stays::Stays;
use crate::targets::Class;
use rustc_hash::FxHashSet;

/// Fewer iterations are no spinning.
const LEAST_ITERATIONS: u64 = 3;
/// A stay is out of proportion when it is so many times the longest earlier one.
const OUT_OF_PROPORTION: u64 = 4;

/// A loop the thread is in at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// Index of the frame in the open stack.
    pub frame: usize,
    /// The frame's target.
    pub target: u32,
    /// Number of the loop in the target's nest.
    pub number: u32,
    /// Index of the stay's first block.
    pub entered: u64,
    /// Iterations of the present stay.
    pub iterations: u64,
    /// Blocks since.
    pub length: u64,
    /// Earlier stays that ended.
    pub earlier: u64,
    /// The longest of them.
    pub longest_earlier: u64,
}

impl Held {
    /// How many times as long as the longest earlier stay.
    pub fn proportion(&self) -> f64 {
        self.length as f64 / self.longest_earlier.max(1) as f64
    }

    /// Edges of the loop that were still taken in the second half of the stay.
    pub fn repeated(&self, profiles: &Profiles, nests: &[LoopNest]) -> FxHashSet<EdgeKey> {
        let middle = self.entered + self.length / 2;
        let nodes = &nests[self.target as usize].loops[self.number as usize].nodes;
        profiles
            .get(&(self.target, Class::Final))
            .map_or_else(FxHashSet::default, |profile| {
                let late = profile
                    .edges
                    .iter()
                    .filter(|((from, _), edge)| nodes.contains(from) && edge.last >= middle);
                late.map(|(key, _)| *key).collect()
            })
    }
}

/// The loop that holds the thread, `None` if it does not loop. `total` is the thread's blocks.
pub fn held(
    open: &[Frame],
    chain: &[Option<u32>],
    nests: &[LoopNest],
    stays: &Stays,
    total: u64,
) -> Option<Held> {
    let mut best: Option<Held> = None;
    for (frame, (open, target)) in open.iter().zip(chain).enumerate().rev() {
        let Some(target) = *target else { break };
        for number in nests[target as usize].around(open.node) {
            let Some((entered, iterations)) = stays
                .get(&(target, Class::Final, number))
                .and_then(|stays| stays.current)
            else {
                continue;
            };
            let classes = [Class::Final, Class::Full, Class::Caller, Class::Function];
            let ended = classes
                .iter()
                .filter_map(|&class| stays.get(&(target, class, number)));
            let (earlier, longest_earlier) = ended.fold((0, 0), |(count, longest), stays| {
                (count + stays.ended, longest.max(stays.longest))
            });
            let length = total.saturating_sub(entered);
            let loop_ = Held {
                frame,
                target,
                number,
                entered,
                iterations,
                length,
                earlier,
                longest_earlier,
            };
            if iterations < LEAST_ITERATIONS {
                continue;
            }
            if length >= longest_earlier.saturating_mul(OUT_OF_PROPORTION) {
                return Some(loop_);
            }
            if length > longest_earlier
                && best
                    .as_ref()
                    .is_none_or(|best| loop_.proportion() > best.proportion())
            {
                best = Some(loop_);
            }
        }
    }
    best
}
