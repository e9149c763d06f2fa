// SPDX-License-Identifier: MIT
//! How sure the first word is, once it was tried out and the others were asked who owes it.
//!
//! In: a thread's flags in their order, and how sure it is that somebody owes each. Out: the score
//! of the first, and the word that is as good as it. A copy of another thread that wrote the word
//! makes it sure: the value and its writer were seen. Where another word would end the wait as
//! well, and no copy shows which of them is owed, the first is no more than one of two. If a trial
//! of a word did not end the loop, and nobody is known to owe it, only its code calls it the flag.
//! Blind spots: two debts that were both proved; a word that would do as well, but was not tried.

use flagfinder_flags::ENOUGH;
use flagfinder_linux::syscalls::{role, Role};
use flagfinder_waits::hot_call::HotCall;
use serde_json::{json, Value};

use crate::hot_call;
use crate::owed::Standing;

/// Least score of a word that a copy of another thread wrote.
const PROVED: f64 = 0.8;
/// Highest score of a word beside which another one would end the wait as well.
const ONE_OF_TWO: f64 = 0.5;
/// Highest score of a word whose trial ended nothing, and which nobody is known to owe.
const BY_ITS_CODE: f64 = 0.5;
/// Scores that differ by less count as equal.
const ALIKE: f64 = 0.06;

type Asked = (Value, Standing);

/// What is known of a word, apart from its report.
pub(crate) struct About<'a> {
    /// A check fails if the loop ends by this word, so that says nothing.
    pub is_nulled: &'a dyn Fn(&Value) -> bool,
    /// The program's code counts the word up or down.
    pub is_counted: &'a dyn Fn(&Value) -> bool,
    /// The waiting thread moves the word itself.
    pub is_own: &'a dyn Fn(&Value) -> bool,
    /// The word is tested within the call that polls.
    pub is_in_poll: &'a dyn Fn(&Value) -> bool,
    /// The word lets the waiting thread move a word of its own.
    pub moves_own: &'a dyn Fn(&Value) -> bool,
}

/// Of a thread that came back to its loop: was it somewhere else before?
pub(crate) fn does_something(flag: &Value) -> bool {
    !flag["proof"]["instructions"].is_null()
}

pub(crate) fn is_word(flag: &Value) -> bool {
    flag["kind"] != "syscall"
}

pub(crate) fn score(flag: &Value) -> f64 {
    flag["confidence"].as_f64().unwrap_or(0.0)
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn note(flag: &mut Value, why: &str) {
    if let Some(evidence) = flag["evidence"].as_array_mut() {
        evidence.insert(0, json!(why));
    }
}

/// Gives the first word its score. Returns the place of a word or a poll that would end the wait as
/// well, if there is one.
pub(crate) fn weigh(flags: &mut [Asked], groups: &Value, about: &About) -> Option<usize> {
    if let Some(poll) = poll_beside(flags) {
        if (about.is_in_poll)(&flags[0].0) {
            poll_first(flags, poll);
            return None;
        }
    }
    let as_good = doubt(flags, groups, about);
    let poll = doubt_beside_poll(flags);
    doubt_what_ended_nothing(flags, about);
    trust_proved(flags);
    poll.or(as_good)
}

pub(crate) fn ends_alone(flag: &Value) -> bool {
    let with = flag["proof"]["with"].as_object();
    flag["proof"]["outcome"] == "leaves" && with.is_some_and(|with| with.len() == 1)
}

/// No trial told anything.
pub(crate) fn is_open(flag: &Value) -> bool {
    flag["proof"].is_null() || flag["proof"]["outcome"] == "unknown"
}

/// Of two words that would each end the loop, where no copy shows who owes them, the first is no
/// more than one of two. Where no copy shows that they end it, they have to be as likely, in one
/// condition. Of a thread that serves the loop does not end: there the other word moves it on. A
/// count comes before what is only set, as the bound is that it is compared with.
fn doubt(flags: &mut [Asked], groups: &Value, about: &About) -> Option<usize> {
    let is_counted = about.is_counted;
    let counts = |flag: &Value| is_word(flag) && !(about.is_nulled)(flag) && !(about.is_own)(flag);
    let (first, standing) = flags.first()?;
    if !counts(first) || *standing > Standing::ByCode {
        return None;
    }
    let in_one = |flag: &Value| {
        let mut groups = groups.as_array().into_iter().flatten();
        groups.any(|group| {
            let members = group["flags"].as_array();
            members.is_some_and(|of| of.contains(&flag["rank"]) && of.contains(&first["rank"]))
        })
    };
    let is_alike = |flag: &Value, stands: Standing| {
        let is_near = (score(flag) - score(first)).abs() < ALIKE;
        let by_code = is_open(first) && is_open(flag) && is_near && in_one(flag);
        // A thread that serves does not leave its loop.
        let serves = flag["proof"]["outcome"] == "returns" && does_something(flag);
        let is_owed = serves && stands >= Standing::ByCode && score(flag) >= ENOUGH;
        // A text, say: copies neither try nor watch as much at once.
        let is_wide = flag["size"].as_u64().is_some_and(|bytes| bytes > 8);
        let is_beyond = is_wide && *standing == Standing::Nobody && score(flag) >= ENOUGH;
        // A thread is on its way to write the other word, and none to write the first.
        let is_owed_alone = *standing == Standing::Nobody
            && stands == Standing::ByCode
            && flag["proof"].is_null()
            && score(flag) >= ENOUGH
            && in_one(flag);
        ends_alone(first) && (ends_alone(flag) || is_owed || is_beyond) || by_code || is_owed_alone
    };
    // A thread that is on its way to write one of the words, and none to write the other, decides
    // between them.
    let is_as_owed = |stands: Standing| *standing < Standing::ByCode || stands >= Standing::ByCode;
    let other = (1..flags.len()).find(|&at| {
        let (flag, stands) = &flags[at];
        counts(flag) && is_as_owed(*stands) && is_alike(flag, *stands)
    })?;
    let is_known = |at: usize| flags[at].1 >= Standing::ByCode;
    if is_known(0) == is_known(other) && is_counted(&flags[other].0) && !is_counted(&flags[0].0) {
        let why = format!(
            "it is counted, and {} is only set",
            text(&flags[0].0["name"])
        );
        note(&mut flags[other].0, &why);
        flags.swap(0, other);
    }
    let debt = match flags[0].1.max(flags[other].1) >= Standing::ByCode {
        true => "no copy shows which of them is owed",
        false => "nobody is known to owe either",
    };
    let name = |at: usize| text(&flags[at].0["name"]).to_owned();
    for (at, name) in [(0, name(other)), (other, name(0))] {
        let flag = &mut flags[at].0;
        flag["confidence"] = json!(score(flag).min(ONE_OF_TWO));
        let why = format!("one of two words: {name} would do as well, and {debt}");
        note(flag, &why);
    }
    Some(other)
}

/// A poll that finds nothing ready, beside a word that nobody is known to owe.
fn poll_beside(flags: &[Asked]) -> Option<usize> {
    let is_open = |(flag, stands): &Asked| {
        let debtors = flag["owed"].as_array().map_or(0, Vec::len);
        is_word(flag) && (*stands < Standing::ByCode || *stands == Standing::ByCode && debtors > 1)
    };
    if !flags.first().is_some_and(is_open) {
        return None;
    }
    let is_poll_in_vain = |flag: &Value| {
        let call: Option<HotCall> = hot_call::call(&flag["call"]);
        let is_poll = call.is_some_and(|call| role(call.number, &call.args) == Role::Poll);
        is_poll && flag["call"]["result"] == 0 && score(flag) >= ENOUGH
    };
    flags.iter().position(|(flag, _)| is_poll_in_vain(flag))
}

/// Beside such a poll it is not clear which of the two is waited for: an idle server tests a word
/// to stop by between its polls.
fn doubt_beside_poll(flags: &mut [Asked]) -> Option<usize> {
    let poll = poll_beside(flags)?;
    let why = format!(
        "one of two: {} in the loop as well, and it is not known who owes the word",
        text(&flags[poll].0["name"])
    );
    let flag = &mut flags[0].0;
    flag["confidence"] = json!(score(flag).min(ONE_OF_TWO));
    note(flag, &why);
    Some(poll)
}

/// What a library's function tests on its way to its poll is usually its own affair: a setting, or
/// a word to stop by. What the loop waits for, the loop tests itself in what that function
/// returned.
fn poll_first(flags: &mut [Asked], poll: usize) {
    let why = format!(
        "{} is tested within the call that polls, and nobody is known to owe it",
        text(&flags[0].0["name"])
    );
    note(&mut flags[poll].0, &why);
    flags[..=poll].rotate_right(1);
}

/// A word that was tried without ending the loop, and that nobody is known to owe, may be a check
/// on the way.
fn doubt_what_ended_nothing(flags: &mut [Asked], about: &About) {
    let Some((flag, standing)) = flags.first_mut() else {
        return;
    };
    let is_tried = !flag["proof"].is_null() && flag["proof"]["outcome"] != "leaves";
    let is_vain = is_tried && !(about.moves_own)(flag);
    if is_word(flag) && is_vain && *standing < Standing::ByCode && score(flag) > BY_ITS_CODE {
        flag["confidence"] = json!(BY_ITS_CODE);
        note(
            flag,
            "no copy left the loop by it, and nobody is known to owe it",
        );
    }
}

/// A word that a copy of another thread wrote, with a value that moves the waiting thread on. Of
/// two such words it is not known which one hangs.
fn trust_proved(flags: &mut [Asked]) {
    let Some(((flag, Standing::Proved), others)) = flags.split_first_mut() else {
        return;
    };
    let is_only = others.iter().all(|(_, stands)| *stands != Standing::Proved);
    if is_only && is_word(flag) && score(flag) < PROVED {
        flag["confidence"] = json!(PROVED);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const LEAVES: Option<(&str, Option<u64>)> = Some(("leaves", Some(9)));

    /// A word with its score and the outcome of its trial.
    pub(crate) fn word(name: &str, score: f64, outcome: Option<(&str, Option<u64>)>) -> Value {
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

    /// The word `thread's index` is its own.
    fn about(is_counted: &dyn Fn(&Value) -> bool) -> About<'_> {
        About {
            is_nulled: &|_| false,
            is_counted,
            is_own: &|flag| flag["name"] == "thread's index",
            is_in_poll: &|_| false,
            moves_own: &|flag| flag["name"] == "other index",
        }
    }

    /// The score of the first word, the reasons for it, and the place of what would do as well.
    fn weighed(mut flags: Vec<Asked>, groups: Value) -> (Value, String, Option<usize>) {
        for (flag, rank) in flags.iter_mut().zip(1..) {
            flag.0["rank"] = json!(rank);
        }
        let as_good = weigh(&mut flags, &groups, &about(&|_| false));
        let first = &flags[0].0;
        let why = text(&first["evidence"][0]).to_owned();
        (first["confidence"].clone(), why, as_good)
    }

    #[test]
    fn where_no_copy_shows_an_end_two_words_of_one_condition_are_not_sure() {
        let of = |groups: Value, score| {
            let flags = vec![
                (word("a", 0.65, None), Standing::Unknown),
                (word("b", score, None), Standing::Unknown),
            ];
            weighed(flags, groups).0
        };
        assert_eq!(of(json!([{ "flags": [1, 2] }]), 0.65), 0.5);
        assert_eq!(of(json!([{ "flags": [1, 2] }]), 0.5), 0.65);
        assert_eq!(of(json!([{ "flags": [1] }, { "flags": [2] }]), 0.65), 0.65);
    }

    #[test]
    fn a_count_comes_before_the_bound_that_it_is_compared_with() {
        let first_of = |names: [&str; 2]| {
            let flags = names.map(|name| (word(name, 0.65, LEAVES), Standing::Nobody));
            let mut flags = flags.to_vec();
            let counted = |flag: &Value| flag["name"] == "count";
            assert_eq!(weigh(&mut flags, &json!([]), &about(&counted)), Some(1));
            assert_eq!(flags[0].0["confidence"], ONE_OF_TWO);
            text(&flags[0].0["name"]).to_owned()
        };
        assert_eq!(first_of(["bound", "count"]), "count");
        assert_eq!(first_of(["count", "bound"]), "count");
        assert_eq!(first_of(["one", "other"]), "one");
    }

    #[test]
    fn a_word_that_nobody_is_known_to_owe_is_not_sure_beside_an_empty_poll() {
        let of = |standing, debtors: usize, result| {
            let mut call = word("poll", 0.8, None);
            call["kind"] = json!("syscall");
            let args = ["0x1000", "0x1", "0x64", "0x0", "0x0", "0x0"];
            call["call"] = json!({ "number": libc::SYS_poll, "args": args, "result": result });
            let mut stop = word("stop", 0.65, LEAVES);
            stop["owed"] = json!(vec![json!({ "tid": 7 }); debtors]);
            let flags = vec![(stop, standing), (call, Standing::Unknown)];
            let (score, _, as_good) = weighed(flags, json!([]));
            assert_eq!(
                as_good.is_some(),
                score == ONE_OF_TWO,
                "the poll is as good"
            );
            score
        };
        assert_eq!(of(Standing::Nobody, 0, 0), ONE_OF_TWO);
        assert_eq!(of(Standing::ByCode, 3, 0), ONE_OF_TWO);
        assert_eq!(of(Standing::ByCode, 1, 0), 0.65, "one owes it");
        assert_eq!(of(Standing::Proved, 2, 0), PROVED, "one was proved to");
        assert_eq!(of(Standing::Nobody, 0, 1), 0.65, "the poll finds something");
    }

    #[test]
    fn a_poll_comes_before_what_is_tested_only_within_the_call_that_polls() {
        let first = |standing, is_in_poll| {
            let mut call = word("poll", 0.8, None);
            call["kind"] = json!("syscall");
            let args = ["0x1000", "0x1", "0x64", "0x0", "0x0", "0x0"];
            call["call"] = json!({ "number": libc::SYS_poll, "args": args, "result": 0 });
            let setting = word("setting", 0.65, None);
            let mut flags = vec![(setting, standing), (call, Standing::Unknown)];
            let about = About {
                is_in_poll: &|flag| is_in_poll && flag["name"] == "setting",
                ..about(&|_| false)
            };
            weigh(&mut flags, &json!([]), &about);
            text(&flags[0].0["name"]).to_owned()
        };
        assert_eq!(first(Standing::Nobody, true), "poll");
        assert_eq!(first(Standing::Nobody, false), "setting");
        assert_eq!(first(Standing::ByCode, true), "setting", "somebody owes it");
    }

    #[test]
    fn neither_of_two_words_is_sure_if_no_copy_tells_them_apart() {
        let two = |one, other| {
            let flags = vec![
                (word("a", 0.65, LEAVES), one),
                (word("b", 0.39, LEAVES), other),
            ];
            weighed(flags, json!([]))
        };
        let doubted = |why: &str| {
            let why = format!("one of two words: b would do as well, and {why}");
            (json!(0.5), why, Some(1))
        };
        let (nobody, no_copy) = (
            "nobody is known to owe either",
            "no copy shows which of them is owed",
        );
        assert_eq!(two(Standing::Unknown, Standing::Nobody), doubted(nobody));
        assert_eq!(two(Standing::Nobody, Standing::ByCode), doubted(no_copy));
        assert_eq!(two(Standing::ByCode, Standing::ByCode), doubted(no_copy));
        let sure = |score| (json!(score), String::new(), None);
        assert_eq!(two(Standing::ByCode, Standing::Unknown), sure(0.65));
        assert_eq!(two(Standing::Proved, Standing::ByCode), sure(PROVED));
        assert_eq!(two(Standing::Proved, Standing::Proved), sure(0.65));
    }

    #[test]
    fn a_word_that_is_owed_and_moves_the_thread_on_is_as_good_as_one_that_ends_its_loop() {
        let beside = |outcome, stands, score| {
            let flags = vec![
                (word("stop", 0.65, LEAVES), Standing::ByCode),
                (word("count", score, Some(outcome)), stands),
            ];
            weighed(flags, json!([])).2
        };
        let (serves, stays) = (("returns", Some(72)), ("returns", None));
        assert_eq!(beside(serves, Standing::ByCode, ENOUGH), Some(1));
        assert_eq!(beside(serves, Standing::ByCode, ENOUGH - 0.1), None);
        assert_eq!(beside(serves, Standing::Nobody, ENOUGH), None);
        assert_eq!(beside(stays, Standing::ByCode, ENOUGH), None);
    }

    #[test]
    fn a_text_that_could_not_be_tried_is_as_good_as_a_word_that_nobody_owes() {
        let beside = |stands, bytes: u64, score| {
            let mut text = word("text", score, None);
            text["size"] = json!(bytes);
            let flags = vec![
                (word("stop", 0.65, LEAVES), stands),
                (text, Standing::Unknown),
            ];
            weighed(flags, json!([])).2
        };
        assert_eq!(beside(Standing::Nobody, 32, ENOUGH), Some(1));
        assert_eq!(beside(Standing::Nobody, 8, ENOUGH), None);
        assert_eq!(beside(Standing::Nobody, 32, ENOUGH - 0.1), None);
        assert_eq!(beside(Standing::ByCode, 32, ENOUGH), None);
    }

    #[test]
    fn a_word_that_somebody_owes_is_as_good_as_one_beside_it_that_nobody_owes() {
        let beside = |first, stands, score, groups| {
            let flags = vec![
                (word("own index", 0.57, LEAVES), first),
                (word("other index", score, None), stands),
            ];
            weighed(flags, groups).2
        };
        let one = || json!([{ "flags": [1, 2] }]);
        let (nobody, by_code) = (Standing::Nobody, Standing::ByCode);
        assert_eq!(beside(nobody, by_code, ENOUGH, one()), Some(1));
        assert_eq!(beside(nobody, by_code, ENOUGH - 0.1, one()), None);
        assert_eq!(beside(nobody, by_code, ENOUGH, json!([])), None);
        assert_eq!(beside(nobody, nobody, ENOUGH, one()), None);
        assert_eq!(beside(Standing::Unknown, by_code, ENOUGH, one()), None);
    }

    #[test]
    fn the_thread_s_own_index_is_not_as_good_as_the_other_one() {
        let flags = vec![
            (word("index", 0.65, LEAVES), Standing::Nobody),
            (word("thread's index", 0.65, LEAVES), Standing::ByCode),
        ];
        assert_eq!(weighed(flags, json!([{ "flags": [1, 2] }])).2, None);
    }

    #[test]
    fn a_word_that_did_not_end_the_loop_and_nobody_owes_is_not_sure() {
        let alone = |outcome, standing| {
            let flags = vec![(word("a", 0.65, Some(outcome)), standing)];
            weighed(flags, json!([])).0
        };
        let (returns, unknown) = (("returns", Some(72)), ("unknown", None));
        assert_eq!(alone(returns, Standing::Nobody), BY_ITS_CODE);
        assert_eq!(alone(unknown, Standing::Nobody), BY_ITS_CODE);
        assert_eq!(alone(returns, Standing::ByCode), 0.65, "one owes it");
        assert_eq!(alone(("leaves", Some(9)), Standing::Nobody), 0.65);
        let other = vec![(word("other index", 0.65, Some(returns)), Standing::Nobody)];
        assert_eq!(
            weighed(other, json!([])).0,
            0.65,
            "it moved the thread's own on"
        );
        let flags = vec![(word("a", 0.65, None), Standing::Nobody)];
        assert_eq!(weighed(flags, json!([])).0, 0.65, "it was not tried");
    }
}
