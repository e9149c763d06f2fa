// SPDX-License-Identifier: MIT
//! Which of the words that would end the wait is the answer: who owes them decides.
//!
//! In: a thread's flags, each with what came of trying it out, and how sure it is that somebody
//! owes it. Out: their order and ranks, and what of the report follows from these. A word that a
//! thread writes as soon as what it waits for comes is what the loop waits for. One that others
//! write later, when threads have ended or nothing more comes, is a word to stop by. Blind spots:
//! that nobody was found to write a word speaks against none; a thread that waits for what will
//! never come has its debt all the same.

use std::cmp::Reverse;

use flagfinder_flags::ENOUGH;
use flagfinder_linux::syscalls::{role, Role};
use flagfinder_waits::hot_call::HotCall;
use serde_json::{json, Value};

use crate::hot_call;
use crate::owed::Standing;
use crate::report::ThreadReport;

/// Most that a word gets where another one would do as well, and nobody is known to owe either.
const ONE_OF_TWO: f64 = 0.5;
/// Scores that differ by less tell little.
const ALIKE: f64 = 0.06;

/// Of a thread that came back to its loop: was it somewhere else before?
fn does_something(flag: &Value) -> bool {
    !flag["proof"]["instructions"].is_null()
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
/// `is_counted`: the program's code counts it up or down. Until now the flags have the ranks that
/// the code alone gave them.
pub(crate) fn decide(
    thread: &mut ThreadReport,
    standings: &[Standing],
    is_nulled: impl Fn(&Value) -> bool,
    is_counted: impl Fn(&Value) -> bool,
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
    doubt(&mut flags, &thread.groups, &is_nulled, &is_counted);
    doubt_beside_poll(&mut flags);
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
    let is_in_vain = |flag: &Value| match flag["proof"]["outcome"].as_str() {
        Some("returns") => !does_something(flag),
        outcome => outcome == Some("faults"),
    };
    let overtakes = |(flag, stands): &(Value, Standing)| {
        let counts = is_word(flag) && !is_nulled(flag) && !is_in_vain(flag);
        // A call that decides is not written by anybody.
        let is_clear = is_word(first) || flag["proof"]["outcome"] == "leaves";
        let is_ahead = match stands {
            Standing::Proved => *standing < Standing::Proved,
            Standing::Late => *standing == Standing::Nobody,
            _ => false,
        };
        counts && is_clear && is_ahead
    };
    let places = (1..flags.len()).filter(|&at| overtakes(&flags[at]));
    places.max_by_key(|&at| (flags[at].1, Reverse(at)))
}

/// Why the one comes before the other.
fn told(flag: &Value, other: &Value, stands: Standing) -> String {
    let owed = &flag["owed"][0];
    let other = text(&other["name"]);
    let debt = match stands {
        Standing::Late => format!("{other} is written only later"),
        _ => format!("nobody is known to write {other} before"),
    };
    let (tid, after) = (&owed["tid"], text(&owed["after"]));
    format!("thread {tid} would write it after {after}, and {debt}")
}

fn note(flag: &mut Value, why: &str) {
    if let Some(evidence) = flag["evidence"].as_array_mut() {
        evidence.insert(0, json!(why));
    }
}

/// Of two words that would each end the loop, where nobody is known to owe either, the first is no
/// more than one of two. Where no copy shows it, they have to be as likely, in one condition. A
/// count comes before what is only set, as the bound is that it is compared with.
fn doubt(
    flags: &mut [(Value, Standing)],
    groups: &Value,
    is_nulled: &impl Fn(&Value) -> bool,
    is_counted: &impl Fn(&Value) -> bool,
) {
    let counts = |(flag, stands): &(Value, Standing)| {
        is_word(flag) && !is_nulled(flag) && *stands < Standing::ByCode
    };
    let Some((first, _)) = flags.first().filter(|first| counts(first)) else {
        return;
    };
    let leaves = |flag: &Value| {
        let with = flag["proof"]["with"].as_object();
        flag["proof"]["outcome"] == "leaves" && with.is_some_and(|with| with.len() == 1)
    };
    let is_open = |flag: &Value| flag["proof"].is_null() || flag["proof"]["outcome"] == "unknown";
    let in_one = |flag: &Value| {
        let mut groups = groups.as_array().into_iter().flatten();
        groups.any(|group| {
            let members = group["flags"].as_array();
            members.is_some_and(|of| of.contains(&flag["rank"]) && of.contains(&first["rank"]))
        })
    };
    let is_alike = |flag: &Value| {
        let is_near = (score(flag) - score(first)).abs() < ALIKE;
        let by_code = is_open(first) && is_open(flag) && is_near && in_one(flag);
        leaves(first) && leaves(flag) || by_code
    };
    let other = (1..flags.len()).find(|&at| counts(&flags[at]) && is_alike(&flags[at].0));
    let Some(other) = other else {
        return;
    };
    if is_counted(&flags[other].0) && !is_counted(&flags[0].0) {
        let why = format!(
            "it is counted, and {} is only set",
            text(&flags[0].0["name"])
        );
        note(&mut flags[other].0, &why);
        flags.swap(0, other);
    }
    let name = |at: usize| text(&flags[at].0["name"]).to_owned();
    for (at, other) in [(0, name(other)), (other, name(0))] {
        let flag = &mut flags[at].0;
        flag["confidence"] = json!(score(flag).min(ONE_OF_TWO));
        let why = format!(
            "one of two words: {other} would do as well, and nobody is known to owe either"
        );
        note(flag, &why);
    }
}

/// A word beside a poll that finds nothing ready is one of two things, unless it is known who owes
/// the word: an idle server tests whether to stop between its looks.
fn doubt_beside_poll(flags: &mut [(Value, Standing)]) {
    let is_open = |(flag, stands): &(Value, Standing)| {
        let debtors = flag["owed"].as_array().map_or(0, Vec::len);
        is_word(flag) && (*stands < Standing::ByCode || *stands == Standing::ByCode && debtors > 1)
    };
    if !flags.first().is_some_and(is_open) {
        return;
    }
    let is_poll_in_vain = |flag: &Value| {
        let call: Option<HotCall> = hot_call::call(&flag["call"]);
        let is_poll = call.is_some_and(|call| role(call.number, &call.args) == Role::Poll);
        is_poll && flag["call"]["result"] == 0 && score(flag) >= ENOUGH
    };
    let Some(poll) = flags.iter().find(|(flag, _)| is_poll_in_vain(flag)) else {
        return;
    };
    let why = format!(
        "one of two: {} in the loop as well, and it is not known who owes the word",
        text(&poll.0["name"])
    );
    let flag = &mut flags[0].0;
    flag["confidence"] = json!(score(flag).min(ONE_OF_TWO));
    note(flag, &why);
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
        decide(
            &mut thread,
            &standings,
            |flag| flag["name"] == "pointer",
            |flag| flag["name"] == "count",
        );
        thread
    }

    fn first(flags: Vec<(Value, Standing)>) -> String {
        text(&decided(flags).flags[0]["name"]).into()
    }

    #[test]
    fn what_comes_next_is_before_what_a_thread_writes_when_all_is_over() {
        let flags = vec![
            (word("stop", 0.65, LEAVES), Standing::Late),
            (word("count", 0.4, SERVES), Standing::Proved),
        ];
        let thread = decided(flags);
        let flag = &thread.flags[0];
        assert_eq!((&flag["name"], &flag["rank"]), (&json!("count"), &json!(1)));
        assert_eq!(
            flag["confidence"], 0.65,
            "it is as sure as the one before which it came"
        );
        let why = "thread 7 would write it after its `read` on fd 0 returns data, \
                   and stop is written only later";
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
                (word("flag", 0.65, LEAVES), Standing::ByCode),
                (flag, Standing::Proved),
            ]
        };
        assert_eq!(first(behind(word("bound", 0.6, STAYS))), "flag");
        assert_eq!(
            first(behind(word("crash", 0.6, Some(("faults", Some(9)))))),
            "flag"
        );
        assert_eq!(first(behind(word("pointer", 0.6, LEAVES))), "flag");
        assert_eq!(first(behind(word("other", 0.6, LEAVES))), "other");
    }

    #[test]
    fn what_a_store_ahead_alone_tells_decides_nothing() {
        let after = |of_first, of_other| {
            let (one, other) = (word("a", 0.6, LEAVES), word("b", 0.6, LEAVES));
            first(vec![(one, of_first), (other, of_other)])
        };
        assert_eq!(after(Standing::Unknown, Standing::ByCode), "a");
        assert_eq!(after(Standing::Proved, Standing::Proved), "a");
        assert_eq!(after(Standing::Unknown, Standing::Proved), "b");
    }

    #[test]
    fn a_word_to_stop_by_is_before_one_that_nobody_writes() {
        let after = |of_first| {
            let (one, other) = (word("limit", 0.65, LEAVES), word("stop", 0.6, LEAVES));
            first(vec![(one, of_first), (other, Standing::Late)])
        };
        assert_eq!(after(Standing::Nobody), "stop");
        assert_eq!(after(Standing::Unknown), "limit");
        assert_eq!(after(Standing::ByCode), "limit");
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
        assert_eq!(first(behind(LEAVES, Standing::ByCode)), "read");
    }

    #[test]
    fn where_no_copy_shows_an_end_two_words_of_one_condition_are_not_sure() {
        let of = |groups: Value, score| {
            let mut flags = vec![(word("a", 0.65, None), Standing::Unknown)];
            flags.push((word("b", score, None), Standing::Unknown));
            for (flag, rank) in flags.iter_mut().zip(1..) {
                flag.0["rank"] = json!(rank);
            }
            doubt(&mut flags, &groups, &|_| false, &|_| false);
            flags[0].0["confidence"].clone()
        };
        assert_eq!(of(json!([{ "flags": [1, 2] }]), 0.65), 0.5);
        assert_eq!(of(json!([{ "flags": [1, 2] }]), 0.5), 0.65);
        assert_eq!(of(json!([{ "flags": [1] }, { "flags": [2] }]), 0.65), 0.65);
    }

    #[test]
    fn a_count_comes_before_the_bound_that_it_is_compared_with() {
        let first_of = |names: [&str; 2]| {
            let flags = names.map(|name| (word(name, 0.65, LEAVES), Standing::Nobody));
            let thread = decided(flags.to_vec());
            assert_eq!(thread.flags[0]["confidence"], ONE_OF_TWO);
            text(&thread.flags[0]["name"]).to_owned()
        };
        assert_eq!(first_of(["bound", "count"]), "count");
        assert_eq!(first_of(["count", "bound"]), "count");
        assert_eq!(first_of(["one", "other"]), "one");
    }

    #[test]
    fn a_word_that_nobody_is_known_to_owe_is_not_sure_beside_a_poll_in_vain() {
        let of = |standing, debtors: usize, result| {
            let mut call = word("poll", 0.8, None);
            call["kind"] = json!("syscall");
            let args = ["0x1000", "0x1", "0x64", "0x0", "0x0", "0x0"];
            call["call"] = json!({ "number": libc::SYS_poll, "args": args, "result": result });
            let mut stop = word("stop", 0.65, LEAVES);
            stop["owed"] = json!(vec![json!({ "tid": 7 }); debtors]);
            let flags = decided(vec![(stop, standing), (call, Standing::Unknown)]).flags;
            assert_eq!(flags[0]["name"], "stop");
            flags[0]["confidence"].clone()
        };
        assert_eq!(of(Standing::Nobody, 0, 0), ONE_OF_TWO);
        assert_eq!(of(Standing::ByCode, 3, 0), ONE_OF_TWO);
        assert_eq!(of(Standing::ByCode, 1, 0), 0.65, "one owes it");
        assert_eq!(of(Standing::Proved, 2, 0), 0.65, "one was proved to");
        assert_eq!(of(Standing::Nobody, 0, 1), 0.65, "the poll finds something");
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
        let (scores, why) = two(Standing::Unknown, Standing::Unknown);
        assert_eq!(scores, (0.5, 0.5));
        assert!(
            why.starts_with("one of two words: b would do as well"),
            "{why}"
        );
        let sure = ((0.65, 0.61), String::new());
        assert_eq!(two(Standing::ByCode, Standing::Unknown), sure);
        assert_eq!(two(Standing::ByCode, Standing::ByCode), sure);
    }
}
