// SPDX-License-Identifier: MIT
//! Of two words whose distance keeps a loop, the one that the waiting thread moves itself:
//! `while (ring.head == ring.tail)`.
//!
//! In: the words that keep the loop for as long as they are so far apart, and which of them a copy
//! gave another value once one of the others let it go on. Out: the thread's own words. A thread
//! that takes from a ring, or puts into one, moves its own index on as soon as the other index lets
//! it. It waits for the other index, whichever thread else moves its own. Blind spots: copies that
//! crash before they come so far; a thread that takes back what it waits for.

use flagfinder_replica::Word;

use crate::candidate::Candidate;
use crate::report::ThreadReport;

/// The words of the flags whose addresses these are.
pub(crate) fn words(flags: &[Candidate], addresses: &[u64]) -> Vec<Word> {
    let word = |flag: &Candidate| {
        let address = flag.address()?;
        let bytes = flag.bytes()?;
        addresses.contains(&address).then_some(Word {
            address,
            bytes,
            value: 0,
        })
    };
    flags.iter().filter_map(word).collect()
}

/// Is the word the thread's own, beside one of the flags?
pub(crate) fn is_own(flags: &[Candidate], moves: &[(u64, u64)], flag: &Candidate) -> bool {
    flags.iter().any(|other| is_moved_by(moves, other, flag))
}

/// Does the word let the thread move one of its own on?
pub(crate) fn moves_own(flags: &[Candidate], moves: &[(u64, u64)], flag: &Candidate) -> bool {
    flags.iter().any(|other| is_moved_by(moves, flag, other))
}

/// Puts the first word behind the one that lets the thread move it on.
pub(crate) fn set_behind(thread: &mut ThreadReport) {
    let moves = &thread.moves;
    let flags = &mut thread.flags;
    let Some(own) = flags.first() else { return };
    let mover =
        |at: &usize| is_moved_by(moves, &flags[*at], own) && !is_own(flags, moves, &flags[*at]);
    let Some(at) = (1..flags.len()).find(mover) else {
        return;
    };
    let by = own.flag.confidence.max(flags[at].flag.confidence);
    let (own, other) = (&own.flag.name, &flags[at].flag.name);
    let why = format!("a copy that this word let go on moved {own}, the thread's own word");
    let comes = format!("{other} comes before {own}: {why}");
    thread.explain.push(comes);
    flags[at].flag.confidence = by;
    flags[at].note(why);
    flags[..=at].rotate_right(1);
}

/// Did a copy that went on by `one` move `other`, and none the reverse? A thread that serves comes
/// back to its loop.
fn is_moved_by(moves: &[(u64, u64)], one: &Candidate, other: &Candidate) -> bool {
    let (Some(one_at), Some(other_at)) = (one.address(), other.address()) else {
        return false;
    };
    (one.ends_alone() || one.serves())
        && moves.contains(&(one_at, other_at))
        && !moves.contains(&(other_at, one_at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::tests::{name, word, Came, LEAVES, SERVES, STAYS};
    use crate::report::Class;

    const HEAD: u64 = 0x1000;
    const TAIL: u64 = 0x2000;

    fn ring(outcome: Came, moves: &[(u64, u64)]) -> ThreadReport {
        let mut thread = ThreadReport::blank(1, Class::RepeatedYield);
        let mut flags = [word("head", 0.65, LEAVES), word("tail", 0.57, outcome)];
        for (flag, address) in flags.iter_mut().zip([HEAD, TAIL]) {
            (flag.flag.address.spin, flag.flag.size) = (Some(address), 8);
        }
        thread.flags = flags.to_vec();
        thread.moves = moves.to_vec();
        set_behind(&mut thread);
        thread
    }

    fn first(outcome: Came, moves: &[(u64, u64)]) -> String {
        name(&ring(outcome, moves).flags[0]).into()
    }

    #[test]
    fn the_index_that_the_thread_moves_itself_is_not_what_it_waits_for() {
        let thread = ring(LEAVES, &[(TAIL, HEAD)]);
        let flag = &thread.flags[0];
        assert_eq!((name(flag), flag.flag.confidence), ("tail", 0.65));
        let why = "a copy that this word let go on moved head, the thread's own word";
        assert_eq!(flag.flag.evidence, [why]);
        let flags = &thread.flags;
        assert!(is_own(flags, &thread.moves, &flags[1]));
        assert!(!is_own(flags, &thread.moves, &flags[0]));
        assert!(moves_own(flags, &thread.moves, &flags[0]));
        assert_eq!(first(SERVES, &[(TAIL, HEAD)]), "tail", "and comes back");
    }

    #[test]
    fn words_that_move_each_other_or_that_end_nothing_tell_nothing() {
        assert_eq!(first(LEAVES, &[]), "head");
        assert_eq!(
            first(LEAVES, &[(HEAD, TAIL)]),
            "head",
            "it is behind already"
        );
        assert_eq!(first(LEAVES, &[(TAIL, HEAD), (HEAD, TAIL)]), "head");
        assert_eq!(first(STAYS, &[(TAIL, HEAD)]), "head");
    }

    #[test]
    fn only_words_of_a_distance_are_asked_about() {
        let thread = ring(LEAVES, &[]);
        let asked = words(&thread.flags, &[TAIL]);
        assert_eq!(
            asked.iter().map(|word| word.address).collect::<Vec<_>>(),
            [TAIL]
        );
    }
}
