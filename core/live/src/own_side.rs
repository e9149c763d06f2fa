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
use serde_json::{json, Value};

use crate::report::{number, ThreadReport};
use crate::sure::{does_something, ends_alone, note, score, text};

/// The words of the flags whose addresses these are.
pub(crate) fn words(flags: &[Value], addresses: &[u64]) -> Vec<Word> {
    let word = |flag: &Value| {
        let address = number(&flag["address"]["spin"])?;
        let bytes = flag["size"].as_u64()? as usize;
        let is_one = addresses.contains(&address) && (1..=8).contains(&bytes);
        is_one.then_some(Word {
            address,
            bytes,
            value: 0,
        })
    };
    flags.iter().filter_map(word).collect()
}

/// Is the word the thread's own, beside one of the flags?
pub(crate) fn is_own(flags: &[Value], moves: &[(u64, u64)], flag: &Value) -> bool {
    flags.iter().any(|other| is_moved_by(moves, other, flag))
}

/// Does the word let the thread move one of its own on?
pub(crate) fn moves_own(flags: &[Value], moves: &[(u64, u64)], flag: &Value) -> bool {
    flags.iter().any(|other| is_moved_by(moves, flag, other))
}

/// Puts the first word behind the one that lets the thread move it on.
pub(crate) fn set_behind(thread: &mut ThreadReport) {
    let moves = &thread.moves;
    let Value::Array(flags) = &mut thread.flags else {
        return;
    };
    let Some(own) = flags.first() else { return };
    let mover =
        |at: &usize| is_moved_by(moves, &flags[*at], own) && !is_own(flags, moves, &flags[*at]);
    let Some(at) = (1..flags.len()).find(mover) else {
        return;
    };
    let by = score(own).max(score(&flags[at]));
    let (own, other) = (text(&own["name"]), text(&flags[at]["name"]));
    let why = format!("a copy that this word let go on moved {own}, the thread's own word");
    if let Value::Array(explain) = &mut thread.explain {
        explain.push(json!(format!("{other} comes before {own}: {why}")));
    }
    let flag = &mut flags[at];
    flag["confidence"] = json!(by);
    note(flag, &why);
    flags[..=at].rotate_right(1);
}

/// Did a copy that went on by `one` move `other`, and none the reverse? A thread that serves comes
/// back to its loop.
fn is_moved_by(moves: &[(u64, u64)], one: &Value, other: &Value) -> bool {
    let address = |flag: &Value| number(&flag["address"]["spin"]);
    let (Some(one_at), Some(other_at)) = (address(one), address(other)) else {
        return false;
    };
    let serves = one["proof"]["outcome"] == "returns" && does_something(one);
    (ends_alone(one) || serves)
        && moves.contains(&(one_at, other_at))
        && !moves.contains(&(other_at, one_at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Class;
    use crate::sure::tests::{word, LEAVES};

    const HEAD: u64 = 0x1000;
    const TAIL: u64 = 0x2000;

    fn ring(outcome: Option<(&str, Option<u64>)>, moves: &[(u64, u64)]) -> ThreadReport {
        let mut thread = ThreadReport::blank(1, Class::RepeatedYield);
        let mut flags = [word("head", 0.65, LEAVES), word("tail", 0.57, outcome)];
        for (flag, address) in flags.iter_mut().zip([HEAD, TAIL]) {
            flag["address"] = json!({ "spin": format!("{address:#x}") });
            flag["size"] = json!(8);
        }
        thread.flags = json!(flags);
        thread.moves = moves.to_vec();
        set_behind(&mut thread);
        thread
    }

    fn first(outcome: Option<(&str, Option<u64>)>, moves: &[(u64, u64)]) -> String {
        text(&ring(outcome, moves).flags[0]["name"]).into()
    }

    #[test]
    fn the_index_that_the_thread_moves_itself_is_not_what_it_waits_for() {
        let thread = ring(LEAVES, &[(TAIL, HEAD)]);
        let flag = &thread.flags[0];
        assert_eq!(
            (&flag["name"], &flag["confidence"]),
            (&json!("tail"), &json!(0.65))
        );
        let why = "a copy that this word let go on moved head, the thread's own word";
        assert_eq!(flag["evidence"], json!([why]));
        let flags = thread.flags.as_array().expect("flags");
        assert!(is_own(flags, &thread.moves, &flags[1]));
        assert!(!is_own(flags, &thread.moves, &flags[0]));
        assert!(moves_own(flags, &thread.moves, &flags[0]));
        let serves = Some(("returns", Some(40)));
        assert_eq!(first(serves, &[(TAIL, HEAD)]), "tail", "and comes back");
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
        assert_eq!(first(Some(("returns", None)), &[(TAIL, HEAD)]), "head");
    }

    #[test]
    fn only_words_of_a_distance_are_asked_about() {
        let thread = ring(LEAVES, &[]);
        let flags = thread.flags.as_array().expect("flags");
        let asked = words(flags, &[TAIL]);
        assert_eq!(
            asked.iter().map(|word| word.address).collect::<Vec<_>>(),
            [TAIL]
        );
    }
}
