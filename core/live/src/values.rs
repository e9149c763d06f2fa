// SPDX-License-Identifier: MIT
//! Which values are tried in the words of a loop, and in which order.
//!
//! In: candidates, what the tests of a virtual machine's loop ask of their words, and a way to try
//! values out. Out: the candidates' `proof`, the value that ends the loop, and what else was seen.
//! First each word gets the value that its own test asks for, then those that other tests ask for.
//! That has a limit of time: a machine tests one word in many ways.

use std::time::Duration;

use flagfinder_flags::Ask;
use flagfinder_replica::{Outcome, Word};

use crate::candidate::Candidate;
use crate::tried::Tried;

/// Time for the values that only other tests of a virtual machine's loop ask for.
const FURTHER: Duration = Duration::from_millis(600);

/// What was seen beside the outcomes. Addresses of words.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Words that end the loop by an exception only: such a word is a check that then fails.
    pub thrown: Vec<u64>,
    /// A copy in which the first was changed gave the second another value.
    pub moves: Vec<(u64, u64)>,
    /// There was no time to try all of them.
    pub is_cut: bool,
}

/// Tries at most `most` candidates, and so many further ones as long as none ends the loop. `clock`
/// gives the time since some moment.
pub(crate) fn try_out(
    flags: &mut [Candidate],
    asks: &[Ask],
    (most, further): (usize, usize),
    mut try_words: impl FnMut(&[Word]) -> Result<Tried, String>,
    clock: impl Fn() -> Duration,
) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let tried: Vec<(usize, Word)> = flags
        .iter()
        .enumerate()
        .filter_map(|(at, flag)| Some((at, first(flag, asks)?)))
        .take(most + further)
        .collect();
    let mut ends = false;
    let mut spent = Duration::ZERO;
    for (number, (at, first)) in tried.iter().enumerate() {
        if number >= most && ends {
            break;
        }
        let is_further = flags[*at].word().is_none();
        if is_further && spent > FURTHER {
            seen.is_cut = true;
            continue;
        }
        let begin = clock();
        let result = try_words(std::slice::from_ref(first))?;
        let outcome = result.outcome;
        ends |= outcome == Outcome::Leaves;
        seen.thrown
            .extend(result.is_thrown().then_some(first.address));
        seen.moves
            .extend(result.moves.iter().map(|moved| (first.address, *moved)));
        flags[*at].set_proof(result);
        if is_further {
            spent += clock() - begin;
        }
        let ask = asked(&flags[*at], asks).next();
        if let (true, Some((_, when)), Outcome::Leaves) = (is_further, ask, outcome) {
            ends_by(&mut flags[*at], first.value, when);
        }
    }
    let begin = clock();
    for (at, first) in &tried {
        let flag = &mut flags[*at];
        let others: Vec<(Word, &str)> = asked(flag, asks)
            .filter(|(word, _)| word.value != first.value || flag.flag.value.exit.is_none())
            .collect();
        for (word, when) in others {
            let is_known = flag.outcome() == Some(Outcome::Leaves);
            let is_late = spent + (clock() - begin) > FURTHER;
            seen.is_cut |= is_late && !is_known;
            if is_known || is_late {
                break;
            }
            let result = try_words(&[word])?;
            if result.outcome == Outcome::Leaves {
                ends = true;
                seen.thrown
                    .extend(result.is_thrown().then_some(word.address));
                flag.set_proof(result);
                ends_by(flag, word.value, when);
            }
        }
    }
    // The value that the test asks for may also mean something else: a barrier's generation shares
    // its word with flags. So further values are tried in the likeliest word.
    let now = |at: usize| flags[at].flag.value.spin;
    let likeliest = tried
        .first()
        .and_then(|(at, word)| Some((at, word, now(*at)?)));
    if let (Some((first, word, now)), false) = (likeliest, ends) {
        for other in other_values(word, now) {
            let result = try_words(&[other])?;
            if result.outcome == Outcome::Leaves {
                ends = true;
                flags[*first].set_proof(result);
                // What `poke` would write.
                flags[*first].flag.value.exit = Some(other.value);
                break;
            }
        }
    }
    if let ([(first, a), (second, b), ..], false) = (&tried[..], ends) {
        let both = try_words(&[*a, *b])?;
        if both.outcome == Outcome::Leaves {
            for at in [first, second] {
                flags[*at].set_proof(both.clone());
            }
        }
    }
    Ok(seen)
}

fn ends_by(flag: &mut Candidate, value: u64, when: &str) {
    flag.flag.value.exit = Some(value);
    when.clone_into(&mut flag.flag.exit_when);
}

/// The word with the first value to try in it, if any value is known.
pub(crate) fn first(flag: &Candidate, asks: &[Ask]) -> Option<Word> {
    flag.word().or_else(|| Some(asked(flag, asks).next()?.0))
}

/// The values that a virtual machine's loop asks of the flag's word, and in which tests.
fn asked<'a>(flag: &Candidate, asks: &'a [Ask]) -> impl Iterator<Item = (Word, &'a str)> + use<'a> {
    let address = flag.address();
    let of_it = asks.iter().filter(move |ask| Some(ask.address) == address);
    of_it.map(|ask| {
        let word = Word {
            address: ask.address,
            bytes: (ask.bytes as usize).min(8),
            value: ask.value,
        };
        (word, ask.when.as_str())
    })
}

/// The word counted up by 1 to 64, each power of two: flags that share a word with a count have its
/// low bits.
fn other_values(word: &Word, now: u64) -> impl Iterator<Item = Word> + '_ {
    (0..7)
        .map(move |bit| now.wrapping_add(1 << bit))
        .filter(|value| *value != word.value)
        .map(|value| Word { value, ..*word })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use flagfinder_flags::{Flag, FlagKind};
    use flagfinder_replica::Left;

    use super::*;

    /// The candidate number `at`, whose own test asks for `exit`.
    fn flag(at: u64, exit: Option<u64>) -> Candidate {
        let mut flag = Flag::new(FlagKind::Heap, "word");
        (flag.address.spin, flag.size) = (Some(at * 0x1000), 8);
        (flag.value.spin, flag.value.exit) = (Some(0), exit);
        Candidate::new(flag)
    }

    fn ask(at: u64, value: u64) -> Ask {
        Ask {
            address: at * 0x1000,
            bytes: 8,
            value,
            with_word: false,
            when: format!("it is {value}"),
        }
    }

    /// A value by which an exception comes.
    const THROWS: u64 = 0x99;

    /// What is tried where each try takes 0.25 s and only the value `ends` ends the loop.
    fn tried(flags: &mut [Candidate], asks: &[Ask], ends: Option<u64>) -> Vec<(u64, u64)> {
        let mut seen = Vec::new();
        try_all(flags, asks, (12, 0), ends, &mut seen);
        seen
    }

    fn try_all(
        flags: &mut [Candidate],
        asks: &[Ask],
        most: (usize, usize),
        ends: Option<u64>,
        seen: &mut Vec<(u64, u64)>,
    ) -> Seen {
        let tries = Cell::new(0);
        let try_words = |words: &[Word]| {
            tries.set(tries.get() + 1);
            seen.extend(words.iter().map(|word| (word.address >> 12, word.value)));
            let is_end = words.iter().any(|word| Some(word.value) == ends);
            Ok(Tried {
                outcome: if is_end {
                    Outcome::Leaves
                } else {
                    Outcome::Returns
                },
                left: match words.iter().any(|word| word.value == THROWS) {
                    true => Left::Exception,
                    false => Left::Loop,
                },
                moves: vec![words[0].address + 8],
                ..Tried::default()
            })
        };
        let clock = || Duration::from_millis(250) * tries.get();
        try_out(flags, asks, most, try_words, clock).expect("the tries")
    }

    #[test]
    fn values_that_other_tests_ask_for_are_tried_for_a_limited_time() {
        let mut flags: Vec<Candidate> = (1..9).map(|at| flag(at, None)).collect();
        let asks: Vec<Ask> = (1..9).map(|at| ask(at, 7)).collect();
        let first = tried(&mut flags, &asks, Some(7));
        assert_eq!(first, [(1, 7), (2, 7), (3, 7)]);
        assert!(flags[3].proof().is_none());
        // Of one word.
        let asks: Vec<Ask> = (100..109).map(|value| ask(1, value)).collect();
        let values = tried(&mut [flag(1, Some(0x20))], &asks, None);
        let of_tests = values
            .iter()
            .filter(|(_, value)| (100..109).contains(value));
        assert_eq!(of_tests.count(), 3);
    }

    #[test]
    fn further_words_are_tried_as_long_as_none_ends_the_loop() {
        let tried = |ending: u64| {
            let mut flags: Vec<Candidate> = (1..8).map(|at| flag(at, Some(at))).collect();
            let mut seen = Vec::new();
            try_all(&mut flags, &[], (2, 3), Some(ending), &mut seen);
            seen.iter().map(|word| word.0).collect::<Vec<u64>>()
        };
        assert_eq!(tried(1), [1, 2]);
        assert_eq!(tried(4), [1, 2, 3, 4]);
        assert!(!tried(7).contains(&7));
    }

    #[test]
    fn all_that_a_words_own_tests_ask_for_is_tried() {
        let mut flags: Vec<Candidate> = (1..9).map(|at| flag(at, Some(7))).collect();
        assert_eq!(tried(&mut flags, &[], Some(7)).len(), 8);
    }

    #[test]
    fn the_value_that_ends_the_loop_is_told_with_its_test() {
        let mut flags = [flag(1, Some(6))];
        assert_eq!(tried(&mut flags, &[ask(1, 7)], Some(7)), [(1, 6), (1, 7)]);
        assert_eq!(flags[0].flag.value.exit, Some(7));
        assert_eq!(flags[0].flag.exit_when, "it is 7");
    }

    #[test]
    fn words_that_only_an_exception_follows_are_told() {
        let mut flags = [flag(1, Some(THROWS)), flag(2, Some(7))];
        let seen = try_all(&mut flags, &[], (12, 0), Some(THROWS), &mut Vec::new());
        assert_eq!(seen.thrown, [0x1000]);
        assert_eq!(seen.moves, [(0x1000, 0x1008), (0x2000, 0x2008)]);
    }

    #[test]
    fn a_count_is_tried_beyond_the_flags_in_its_low_bits() {
        let word = Word {
            address: 0x1000,
            bytes: 4,
            value: 0x79,
        };
        let values: Vec<u64> = other_values(&word, 0x78).map(|w| w.value).collect();
        assert_eq!(values, [0x7a, 0x7c, 0x80, 0x88, 0x98, 0xb8]);
    }
}
