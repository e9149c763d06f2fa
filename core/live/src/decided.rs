// SPDX-License-Identifier: MIT
//! Which of the words that would end the wait is the answer: who owes them decides.
//!
//! In: a thread's flags, each with what came of trying it out, and how sure it is that somebody owes
//! it. Out: their order and ranks, and what of the report follows from these. A word that a thread writes
//! as soon as what it waits for comes is what the loop waits for. One that others write later, when
//! threads have ended or nothing more comes, is a word to stop by. One that only functions write
//! which no thread comes to is a setting. Blind spot: a thread that waits for what will never come
//! has its debt all the same.

use serde_json::{json, Value};

use crate::owed::Standing;
use crate::report::ThreadReport;

/// A word may be this much less likely by the code than one that nobody owes.
const NEAR: f64 = 0.15;
/// Most that a word gets where another one would do as well, and nobody is known to owe either.
const ONE_OF_TWO: f64 = 0.5;

/// Does the loop end, or the thread do something else before it comes back?
pub(crate) fn ends_wait(flag: &Value) -> bool {
    let proof = &flag["proof"];
    match proof["outcome"].as_str() {
        Some("leaves") => true,
        Some("returns") => !proof["instructions"].is_null(),
        _ => false,
    }
}

fn is_word(flag: &Value) -> bool {
    flag["kind"] != "syscall"
}

fn score(flag: &Value) -> f64 {
    flag["confidence"].as_f64().unwrap_or(0.0)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Puts the word first that decides, and says so. `is_nulled`: that its loop ends says nothing.
/// Until now the flags have the ranks that the code alone gave them.
pub(crate) fn decide(
    thread: &mut ThreadReport,
    standings: &[Standing],
    is_nulled: impl Fn(&Value) -> bool,
) {
    let Value::Array(flags) = &mut thread.flags else {
        return;
    };
    let mut flags: Vec<(Value, Standing)> = std::mem::take(flags)
        .into_iter()
        .enumerate()
        .map(|(at, flag)| (flag, standings.get(at).copied().unwrap_or_default()))
        .collect();
    if let Some(at) = best(&flags, &is_nulled) {
        let (first, stands) = &flags[0];
        let by = score(first).max(score(&flags[at].0));
        let why = told(&flags[at].0, first, *stands);
        let flag = &mut flags[at].0;
        flag["confidence"] = json!(by);
        note(flag, &why);
        if let Value::Array(explain) = &mut thread.explain {
            explain.push(json!(format!("{} comes first: {why}", text(&flag["name"]))));
        }
        flags[..=at].rotate_right(1);
    }
    doubt(&mut flags, &is_nulled);
    let flags: Vec<Value> = flags.into_iter().map(|(flag, _)| flag).collect();
    if let Some(first) = flags.first().filter(|first| first["rank"] != 1) {
        let (name, ends) = (text(&first["name"]), text(&first["exit_when"]));
        thread.reason = format!("the loop polls {name}; it ends when {ends}");
        thread.verdict = Some("data-flag".into());
    }
    thread.flags = Value::Array(flags);
    renumber(thread);
}

/// The flag that comes before the first.
fn best(flags: &[(Value, Standing)], is_nulled: &impl Fn(&Value) -> bool) -> Option<usize> {
    let (first, standing) = flags.first()?;
    // Nothing that was tried in vain; and where something ends the wait, nothing of which that is
    // not known.
    let is_open = |flag: &Value| flag["proof"]["outcome"] != "returns";
    let counts = |flag: &Value| ends_wait(flag) || is_open(flag) && !ends_wait(first);
    let overtakes = |(flag, stands): &(Value, Standing)| {
        is_word(flag)
            && !is_nulled(flag)
            && counts(flag)
            && match (stands, standing) {
                (Standing::Proved, _) if !is_word(first) => flag["proof"]["outcome"] == "leaves",
                (Standing::Proved, of_first) => *of_first != Standing::Proved,
                (Standing::Owed, Standing::Nobody) => score(flag) + NEAR >= score(first),
                _ => false,
            }
    };
    let places = (1..flags.len()).filter(|&at| overtakes(&flags[at]));
    places.max_by_key(|&at| (flags[at].1, std::cmp::Reverse(at)))
}

/// Why the one comes before the other.
fn told(flag: &Value, other: &Value, stands: Standing) -> String {
    let owed = &flag["owed"][0];
    let other = text(&other["name"]);
    let debt = match stands {
        Standing::Nobody => format!("no thread comes to a write of {other}"),
        Standing::Owed => format!("{other} is written only later"),
        Standing::Unknown | Standing::Proved => format!("nobody is known to owe {other}"),
    };
    let after = owed["after"].as_str();
    let after = after.map_or(String::new(), |after| match text(&owed["known"]) {
        "proved" => format!(" after {after}"),
        _ => format!(" (it waits: {after})"),
    });
    format!("thread {} would write it{after}, and {debt}", owed["tid"])
}

fn note(flag: &mut Value, why: &str) {
    if let Some(evidence) = flag["evidence"].as_array_mut() {
        evidence.insert(0, json!(why));
    }
}

/// Of two words that would each end the loop, where nobody is known to owe either, the first is no
/// more than one of two.
fn doubt(flags: &mut [(Value, Standing)], is_nulled: &impl Fn(&Value) -> bool) {
    let ends_alone = |(flag, stands): &(Value, Standing)| {
        let proof = &flag["proof"];
        let is_alone = proof["with"]
            .as_object()
            .is_some_and(|with| with.len() == 1);
        let leaves = proof["outcome"] == "leaves" && is_alone;
        is_word(flag) && leaves && !is_nulled(flag) && *stands < Standing::Owed
    };
    let mut alike = (0..flags.len()).filter(|&at| ends_alone(&flags[at]));
    let (Some(0), Some(other)) = (alike.next(), alike.next()) else {
        return;
    };
    let name = |at: usize| text(&flags[at].0["name"]).to_owned();
    for (at, other) in [(0, name(other)), (other, name(0))] {
        let flag = &mut flags[at].0;
        flag["confidence"] = json!(score(flag).min(ONE_OF_TWO));
        let why = format!(
            "one of two words: {other} would end the loop as well, and nobody is known to owe either"
        );
        note(flag, &why);
    }
}

/// Gives the flags the ranks of their places, in the groups as well.
fn renumber(thread: &mut ThreadReport) {
    let flags = thread.flags.as_array_mut().into_iter().flatten();
    let mut ranks = std::collections::BTreeMap::new();
    for (flag, rank) in flags.zip(1u64..) {
        if let Some(before) = flag["rank"].as_u64() {
            ranks.insert(before, rank);
        }
        flag["rank"] = json!(rank);
    }
    for group in thread.groups.as_array_mut().into_iter().flatten() {
        let members = group["flags"].as_array().into_iter().flatten();
        let mut members: Vec<u64> = members
            .filter_map(|before| ranks.get(&before.as_u64()?).copied())
            .collect();
        members.sort_unstable();
        group["flags"] = json!(members);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Class;

    /// A word with its score, and what came of trying it out.
    fn word(name: &str, score: f64, outcome: Option<(&str, Option<u64>)>) -> Value {
        let proof = outcome.map(|(outcome, instructions)| {
            json!({ "outcome": outcome, "instructions": instructions, "with": { "0x1000": "0x1" } })
        });
        let owed =
            json!([{ "tid": 7, "known": "proved", "after": "its `read` on fd 0 returns data" }]);
        json!({
            "name": name, "kind": "heap", "confidence": score, "proof": proof, "evidence": [],
            "owed": owed, "exit_when": "value != 0x0",
        })
    }

    const LEAVES: Option<(&str, Option<u64>)> = Some(("leaves", Some(9)));
    /// It does something else and comes back.
    const SERVES: Option<(&str, Option<u64>)> = Some(("returns", Some(9)));
    const STAYS: Option<(&str, Option<u64>)> = Some(("returns", None));

    fn decided(flags: Vec<(Value, Standing)>) -> ThreadReport {
        let mut thread = ThreadReport::blank(1, Class::RepeatedYield);
        let (mut flags, standings): (Vec<Value>, Vec<Standing>) = flags.into_iter().unzip();
        for (flag, rank) in flags.iter_mut().zip(1..) {
            flag["rank"] = json!(rank);
        }
        thread.groups = json!([{ "flags": [1] }]);
        thread.flags = Value::Array(flags);
        thread.reason = "the loop polls the first".into();
        decide(&mut thread, &standings, |flag| flag["name"] == "pointer");
        thread
    }

    fn first(flags: Vec<(Value, Standing)>) -> String {
        text(&decided(flags).flags[0]["name"]).into()
    }

    #[test]
    fn what_comes_next_is_before_what_a_thread_writes_when_all_is_over() {
        let flags = vec![
            (word("stop", 0.65, LEAVES), Standing::Owed),
            (word("count", 0.4, SERVES), Standing::Proved),
        ];
        let thread = decided(flags);
        let flag = &thread.flags[0];
        assert_eq!((&flag["name"], &flag["rank"]), (&json!("count"), &json!(1)));
        assert_eq!(
            flag["confidence"], 0.65,
            "it is as sure as the one before which it came"
        );
        let why = "thread 7 would write it after its `read` on fd 0 returns data, and stop is written only later";
        assert_eq!(flag["evidence"], json!([why]));
        assert_eq!(
            thread.reason,
            "the loop polls count; it ends when value != 0x0"
        );
        assert_eq!(
            thread.groups,
            json!([{ "flags": [2] }]),
            "its group is still that of stop"
        );
    }

    #[test]
    fn what_does_not_end_the_wait_overtakes_nothing() {
        let behind = |flag: Value| {
            vec![
                (word("flag", 0.65, LEAVES), Standing::Owed),
                (flag, Standing::Proved),
            ]
        };
        assert_eq!(first(behind(word("bound", 0.6, STAYS))), "flag");
        assert_eq!(first(behind(word("untried", 0.6, None))), "flag");
        assert_eq!(first(behind(word("pointer", 0.6, LEAVES))), "flag");
        assert_eq!(first(behind(word("other", 0.6, LEAVES))), "other");
    }

    #[test]
    fn a_word_that_code_ahead_writes_overtakes_only_a_setting_that_is_near() {
        let after = |score, standing| {
            let other = word("done", score, LEAVES);
            vec![
                (word("bound", 0.6, LEAVES), standing),
                (other, Standing::Owed),
            ]
        };
        assert_eq!(first(after(0.5, Standing::Nobody)), "done");
        assert_eq!(first(after(0.3, Standing::Nobody)), "bound");
        assert_eq!(first(after(0.5, Standing::Unknown)), "bound");
        assert_eq!(first(after(0.5, Standing::Proved)), "bound");
    }

    #[test]
    fn where_no_copy_shows_an_end_what_is_not_known_counts() {
        let unknown = Some(("unknown", Some(9)));
        let after = |proof| {
            let first = word("bound", 0.6, unknown);
            let other = word("done", 0.5, proof);
            vec![(first, Standing::Nobody), (other, Standing::Owed)]
        };
        assert_eq!(first(after(unknown)), "done");
        assert_eq!(first(after(None)), "done");
        assert_eq!(first(after(STAYS)), "bound");
    }

    #[test]
    fn a_call_steps_back_only_for_a_proved_word_that_ends_the_loop() {
        let behind = |proof, standing| {
            let mut call = word("read", 0.6, None);
            call["kind"] = json!("syscall");
            vec![
                (call, Standing::Unknown),
                (word("flag", 0.3, proof), standing),
            ]
        };
        assert_eq!(first(behind(LEAVES, Standing::Proved)), "flag");
        assert_eq!(first(behind(SERVES, Standing::Proved)), "read");
        assert_eq!(first(behind(LEAVES, Standing::Owed)), "read");
    }

    #[test]
    fn of_two_words_that_nobody_owes_none_is_sure() {
        let two = |one, other| {
            let flags = vec![
                (word("a", 0.65, LEAVES), one),
                (word("b", 0.61, LEAVES), other),
            ];
            let flags = decided(flags).flags;
            let scores = (score(&flags[0]), score(&flags[1]));
            (scores, text(&flags[0]["evidence"][0]).to_owned())
        };
        let (scores, why) = two(Standing::Unknown, Standing::Nobody);
        assert_eq!(scores, (0.5, 0.5));
        assert!(
            why.starts_with("one of two words: b would end the loop as well"),
            "{why}"
        );
        let sure = ((0.65, 0.61), String::new());
        assert_eq!(two(Standing::Owed, Standing::Unknown), sure);
        assert_eq!(two(Standing::Owed, Standing::Owed), sure);
    }
}
