// SPDX-License-Identifier: MIT
//! Shapes of finished calls: one hash for everything a call did, with loops folded.
//!
//! A call's shape is the hash of the set of its steps (edges of its own code, and for each call it
//! made the call site with the callee's shape). A set, so three or five equal iterations are the
//! same fact, and a sum of the members' hashes, so it is kept while streaming. A call of the own
//! function is a step without a shape of its own and its steps count as the caller's: recursion is
//! a loop too.

use crate::call_stack::{mix, Frame};
use crate::space::PlaceId;
use rustc_hash::FxHashSet;

/// Sets up to this size are searched in a row.
const SMALL: usize = 24;
/// No set grows beyond this; what comes later no longer changes the shape.
const LARGE: usize = 1 << 16;

/// The steps of the open calls, each at its frame's [`Frame::slot`].
#[derive(Debug, Default)]
pub struct Shapes {
    pool: Vec<Steps>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Steps {
    sum: u64,
    few: Vec<u64>,
    many: FxHashSet<u64>,
}

impl Steps {
    #[inline]
    fn add(&mut self, step: u64) {
        if self.few.last() == Some(&step) {
            return;
        }
        if self.few.len() < SMALL {
            if !self.few.contains(&step) {
                self.few.push(step);
                self.sum = self.sum.wrapping_add(step);
            }
        } else if !self.few.contains(&step) && self.many.len() < LARGE && self.many.insert(step) {
            self.sum = self.sum.wrapping_add(step);
        }
    }

    fn clear(&mut self) {
        self.sum = 0;
        self.few.clear();
        self.many.clear();
    }
}

impl Shapes {
    /// As [`crate::call_stack::Observer::enter`].
    #[inline]
    pub fn enter(&mut self, stack: &mut [Frame]) {
        let Some(top) = stack.last_mut() else { return };
        top.slot = self.free.pop().unwrap_or_else(|| {
            self.pool.push(Steps::default());
            (self.pool.len() - 1) as u32
        });
    }

    /// As [`crate::call_stack::Observer::leave`]; gives the closing call's shape.
    #[inline]
    pub fn leave(&mut self, stack: &[Frame]) -> u64 {
        let Some((top, callers)) = stack.split_last() else {
            return 0;
        };
        let shape = mix(self.pool[top.slot as usize].sum, u64::from(top.function));
        if let Some(parent) = callers.last() {
            let site = mix(u64::from(top.call_site), 0x5eed);
            if parent.function == top.function {
                self.pool[parent.slot as usize].add(site);
                self.pour(top.slot, parent.slot);
            } else {
                self.pool[parent.slot as usize].add(mix(site, shape));
            }
        }
        self.pool[top.slot as usize].clear();
        self.free.push(top.slot);
        shape
    }

    /// As [`crate::call_stack::Observer::step`].
    #[inline]
    pub fn step(&mut self, stack: &[Frame], from: PlaceId, to: PlaceId) {
        if let Some(top) = stack.last() {
            self.pool[top.slot as usize].add(mix(u64::from(from) << 32 | u64::from(to), 1));
        }
    }

    fn pour(&mut self, from: u32, into: u32) {
        let few = std::mem::take(&mut self.pool[from as usize].few);
        let many = std::mem::take(&mut self.pool[from as usize].many);
        for &step in few.iter().chain(&many) {
            self.pool[into as usize].add(step);
        }
        self.pool[from as usize].few = few;
        self.pool[from as usize].many = many;
    }
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
