// SPDX-License-Identifier: MIT
//! Does a word lie in a frame of a virtual machine's own stack?
//!
//! In: a word that generated code tests, and other words that its loop reads. Out: whether one of
//! these lies with the ends of a frame that holds the word. A machine keeps the two ends, side by
//! side, in the state of its thread. What it keeps in a frame is a variable of the running function
//! alone, which no other thread reaches. Blind spots: a machine that keeps the ends elsewhere; one
//! whose other functions write such variables as well.

use flagfinder_code::AddressSpace;
use flagfinder_flags::Own;

use crate::candidate::Candidate;

/// Largest distance from a word of the thread's state, which the loop reads, to the ends of the
/// frame.
const STATE: u64 = 256;
/// Largest size of a frame.
const LARGEST: u64 = 1024;

/// `own`: the machine's words that the loop reads. `base`: what is in the register by which the
/// loop reads the word: one end of the frame.
pub(crate) fn is_local(
    memory: &dyn AddressSpace,
    own: &[(u64, Own)],
    flag: &Candidate,
    base: Option<u64>,
) -> bool {
    let Some((word, base)) = flag.address().zip(base) else {
        return false;
    };
    own.iter().any(|(state, _)| {
        let mut places = (state.saturating_sub(STATE)..state + STATE).step_by(8);
        places.any(|at| {
            let ends = memory.word(at).zip(memory.word(at + 8));
            ends.is_some_and(|(low, high)| {
                let holds = low <= word && word < high && high - low <= LARGEST;
                holds && (base == low || base == high) && !(low..high).contains(state)
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::tests;

    const STATE: u64 = 0x5000;

    /// The state of a thread whose frame reaches from 0x7000 to here.
    struct Machine(u64);

    impl AddressSpace for Machine {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let word = match address {
                0x4f88 => 0x7000,
                0x4f90 => self.0,
                _ => 0,
            };
            buffer.copy_from_slice(&word.to_le_bytes()[..buffer.len()]);
            buffer.len()
        }
    }

    fn is_in_frame(end: u64, word: u64, base: u64) -> bool {
        let mut flag = tests::word("word", 0.5, None);
        flag.flag.address.spin = Some(word);
        is_local(&Machine(end), &[(STATE, Own::Check)], &flag, Some(base))
    }

    #[test]
    fn a_frame_lies_between_two_ends_that_are_kept_side_by_side() {
        assert!(is_in_frame(0x7060, 0x7058, 0x7000) && is_in_frame(0x7060, 0x7058, 0x7060));
        assert!(!is_in_frame(0x7060, 0x7060, 0x7000), "behind it");
        assert!(
            !is_in_frame(0x9000, 0x7058, 0x7000),
            "too large for a frame"
        );
        assert!(!is_in_frame(0x7060, 0x7058, 0x7050), "an object there");
    }
}
