// SPDX-License-Identifier: MIT
//! How long the rounds of a thread's loop are.
//!
//! A copy that computes within a round repeats an inner loop for long, and shows nothing new
//! meanwhile. Only who knows how long a round is can tell that from the end of the baseline.

/// Least instructions of a baseline.
pub(crate) const LEAST: u64 = 300;
/// Instructions within which nearly every loop repeats.
const USUAL: u64 = 60_000;
/// A round is taken to be longer than the average by up to a fourth.
const LONGER: (u64, u64) = (5, 4);

/// What is known of the loop that an experiment is made with.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// Instructions of a round, on average; 0: not known.
    pub length: u64,
    /// Instructions within which its copy has to repeat.
    pub most: u64,
}

impl Default for Rounds {
    fn default() -> Rounds {
        Rounds {
            length: 0,
            most: USUAL,
        }
    }
}

impl Rounds {
    /// Of a copy that made so many instructions and so many iterations.
    pub fn of(instructions: u64, iterations: u64) -> Rounds {
        // Its first and its last iteration are parts.
        Rounds {
            length: instructions / (iterations + 1),
            most: USUAL.max(instructions * 2),
        }
    }

    /// Do several of them take longer than the usual baseline?
    pub fn are_long(self) -> bool {
        self.length > USUAL
    }

    /// Instructions after which each round's way has been seen, and then once more.
    pub(crate) fn two(self) -> u64 {
        self.one() + self.length
    }

    /// Instructions after which a round has come to its end.
    pub(crate) fn one(self) -> u64 {
        LEAST.max(self.length.saturating_mul(LONGER.0) / LONGER.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_of_long_rounds_is_given_time_for_them() {
        let long = Rounds::of(3_000_000, 2);
        assert_eq!((long.one(), long.most), (1_250_000, 6_000_000));
        assert!(long.are_long());
        let short = Rounds::of(4_000, 400);
        assert_eq!((short.one(), short.most), (LEAST, USUAL));
        assert!(!short.are_long());
        assert_eq!(Rounds::of(500, 0).length, 500);
        assert_eq!(Rounds::default().one(), LEAST);
    }
}
