// SPDX-License-Identifier: MIT
//! Does a process make progress? It does if it comes to new code, or takes over data.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A process that has reached so many blocks for the first time, within the time asked, makes
/// progress.
const NEW_BLOCKS: u32 = 1000;
/// It also does if it has taken data so often; fewer times may be a timer's wake-ups.
const TAKEN: u32 = 64;

/// How far a process had come, and when; as far back as the time asked.
#[derive(Default)]
pub struct Growth(VecDeque<Reached>);

#[derive(Clone, Copy)]
struct Reached {
    at: Instant,
    /// Blocks that it has come to: ids are given in order.
    blocks: u32,
    /// Calls seen that took over data.
    taken: u32,
}

impl Growth {
    pub fn add(&mut self, newest: u32, taken: u32, now: Instant, wanted: Duration) {
        let before = self.0.back().copied();
        self.0.push_back(Reached {
            at: now,
            blocks: before.map_or(newest, |before| before.blocks.max(newest)),
            taken: before.map_or(0, |before| before.taken) + taken,
        });
        while self
            .0
            .get(1)
            .is_some_and(|second| now - second.at >= wanted)
        {
            self.0.pop_front();
        }
    }

    pub fn is_on_its_way(&self) -> bool {
        self.within(|reached| reached.blocks) >= NEW_BLOCKS
    }

    pub fn is_served(&self) -> bool {
        self.within(|reached| reached.taken) >= TAKEN
    }

    fn within(&self, count: impl Fn(&Reached) -> u32) -> u32 {
        let ends = self.0.front().zip(self.0.back());
        ends.map_or(0, |(first, last)| count(last) - count(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_comes_to_new_code_is_on_its_way() {
        let (begin, wanted) = (Instant::now(), Duration::from_secs(2));
        let at = |ms| begin + Duration::from_millis(ms);
        let mut growth = Growth::default();
        for look in 0..20 {
            growth.add(100 * look, 0, at(200 * u64::from(look)), wanted);
        }
        assert!(growth.is_on_its_way(), "100 a look");
        for look in 20..29 {
            growth.add(1900, 0, at(200 * look), wanted);
        }
        assert!(!growth.is_on_its_way(), "no longer");
        growth.add(7, 0, at(5900), wanted);
        assert!(!growth.is_on_its_way(), "a thread in old code");
    }

    #[test]
    fn a_process_that_takes_data_again_and_again_is_served() {
        let (begin, wanted) = (Instant::now(), Duration::from_secs(2));
        let at = |ms| begin + Duration::from_millis(ms);
        let mut growth = Growth::default();
        for look in 0..8 {
            growth.add(5, 2, at(250 * look), wanted);
        }
        assert!(!growth.is_served(), "a timer ticks as often");
        for look in 8..16 {
            growth.add(5, 20, at(250 * look), wanted);
        }
        assert!(growth.is_served());
        for look in 16..25 {
            growth.add(5, 0, at(250 * look), wanted);
        }
        assert!(!growth.is_served(), "no longer");
    }
}
