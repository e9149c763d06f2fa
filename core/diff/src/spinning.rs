// SPDX-License-Identifier: MIT
//! The loop that holds a thread: the innermost one whose present stay is out of proportion.
//!
//! A thread that spins sits, at a random moment, in some inner loop of some callee. Those loops
//! ended before, many times, and after about as long. So from the innermost loop outward, the first
//! one whose present stay is much longer than each of its earlier stays is the loop that is not
//! left. Stays are compared in blocks and in time: on a busy machine a spin of seconds may be few
//! blocks, and a thread that sleeps between two looks executes few anyway.
//!
//! Blind spot: a wait that has not yet lasted longer than an ordinary one. An inner loop in which
//! the thread has been for long, but not out of proportion, is handed on as a second guess.

use crate::call_stack::Frame;
use crate::nest::LoopNest;
use crate::profile::{EdgeKey, Profiles};
use crate::stays::{LoopStays, Stays};
use crate::targets::Class;
use rustc_hash::FxHashSet;

/// A stay with fewer iterations is no spinning.
const LEAST_ITERATIONS: u64 = 3;
/// A stay is out of proportion when it is so many times the longest earlier one.
const OUT_OF_PROPORTION: u64 = 4;
/// In a shorter time (ns) the thread may have waited for a processor.
const LONG: u64 = 200_000_000;

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
    /// Time since, in ns; 0: not known.
    pub lasted: u64,
    /// Earlier stays that ended.
    pub earlier: u64,
    /// The longest of them.
    pub longest_earlier: u64,
    pub longest_earlier_ns: u64,
    pub mean_earlier_ns: u64,
}

impl Held {
    /// `classes` are the calls whose stays are earlier ones.
    fn new(
        (frame, target, number): (usize, u32, u32),
        stays: &Stays,
        (total, end_ts): (u64, u64),
        classes: &[Class],
    ) -> Option<Held> {
        let stay = stays.get(&(target, Class::Final, number))?.current?;
        let mut earlier = LoopStays::default();
        for &class in classes {
            if let Some(stays) = stays.get(&(target, class, number)) {
                earlier.ended += stays.ended;
                earlier.longest = earlier.longest.max(stays.longest);
                earlier.longest_ns = earlier.longest_ns.max(stays.longest_ns);
                earlier.total_ns += stays.total_ns;
            }
        }
        Some(Held {
            frame,
            target,
            number,
            entered: stay.began,
            iterations: stay.iterations,
            length: total.saturating_sub(stay.began),
            lasted: match stay.began_ts {
                0 => 0,
                began => end_ts.saturating_sub(began),
            },
            earlier: earlier.ended,
            longest_earlier: earlier.longest,
            longest_earlier_ns: earlier.longest_ns,
            mean_earlier_ns: earlier.total_ns / earlier.ended.max(1),
        })
    }

    /// How many times as long as the longest earlier stay.
    fn proportion(&self) -> f64 {
        self.length as f64 / self.longest_earlier.max(1) as f64
    }

    fn is_out_of_proportion(&self) -> bool {
        let times = |earlier: u64| earlier.saturating_mul(OUT_OF_PROPORTION);
        // A single long wait among many short ones (for the first request, for example) is no
        // measure of them.
        let rarely_so_long = self.lasted / 5 * 4 >= self.longest_earlier_ns
            && self.lasted >= times(self.mean_earlier_ns);
        self.length >= times(self.longest_earlier)
            || self.lasted >= LONG
                && (self.lasted >= times(self.longest_earlier_ns) || rarely_so_long)
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

/// The loop that holds the thread, first, and an inner one that may; empty if it does not loop.
/// `end` is the thread's number of blocks and when its recording ended.
pub fn held(
    open: &[Frame],
    chain: &[Option<u32>],
    nests: &[LoopNest],
    stays: &Stays,
    end: (u64, u64),
) -> Vec<Held> {
    let held = |classes: &[Class]| held_among(classes, open, chain, nests, stays, end);
    let found = held(&[Class::Final, Class::Full, Class::Caller, Class::Function]);
    if found.is_empty() {
        // Other calls of the function (an interpreter's loop) may serve another purpose.
        held(&[Class::Final, Class::Full])
    } else {
        found
    }
}

fn held_among(
    classes: &[Class],
    open: &[Frame],
    chain: &[Option<u32>],
    nests: &[LoopNest],
    stays: &Stays,
    end: (u64, u64),
) -> Vec<Held> {
    let mut inner: Vec<Held> = Vec::new();
    let mut holding = None;
    'frames: for (frame, (open, target)) in open.iter().zip(chain).enumerate().rev() {
        let Some(target) = *target else { break };
        for number in nests[target as usize].around(open.node) {
            let loop_ = Held::new((frame, target, number), stays, end, classes)
                .filter(|held| held.iterations >= LEAST_ITERATIONS);
            match loop_ {
                Some(held) if held.is_out_of_proportion() => {
                    holding = Some(held);
                    break 'frames;
                }
                other => inner.extend(other),
            }
        }
    }
    let guess = inner
        .iter()
        .find(|held| held.lasted >= LONG.max(held.longest_earlier_ns));
    let longest = inner
        .iter()
        .filter(|held| held.length > held.longest_earlier)
        .max_by(|a, b| a.proportion().total_cmp(&b.proportion()));
    let mut found: Vec<Held> = holding.or(longest.copied()).into_iter().collect();
    found.extend(guess.filter(|guess| !found.contains(guess)));
    found
}
