// SPDX-License-Identifier: MIT
//! A loop whose code alone shows no flag, only words with a low score: copies tell more.
//!
//! In: a thread's report without a flag, the outcomes of trying its words out, and who owes them.
//! Out: the word as the flag that a copy of another thread wrote, if a copy of the waiting thread
//! then left its loop; or none, as before. No thread is about to write what the loop tests beside
//! (a check, a bound). If one is, it is not known which of the words is waited for. Blind spots:
//! words of other processes, and of threads that can't be copied.

use flagfinder_flags::MERE_BOUND;
use serde_json::{json, Value};

use crate::owed::Standing;
use crate::report::{Class, ThreadReport};
use crate::sure::{self, does_something, ends_alone, is_word, note, score, text};

/// A word that scores no more is not tried: too much speaks against it.
const LEAST: f64 = 0.05;
/// Score of a word beside which a copy wrote another one, too.
const ONE_OF_SEVERAL: f64 = 0.5;

/// Is there a word worth trying out? None of a thread that makes progress.
pub(crate) fn is_open(thread: &ThreadReport) -> bool {
    let mut considered = thread.considered.as_array().into_iter().flatten();
    thread.machine.is_none()
        && !thread.gets_on
        && !thread.has_flag()
        && considered.any(|flag| is_word(flag) && score(flag) > MERE_BOUND)
}

/// Takes the words that were considered as flags, to try them out.
pub(crate) fn take_up(thread: &mut ThreadReport) {
    if let Value::Array(considered) = thread.considered.take() {
        let may_be = |flag: &Value| is_word(flag) && score(flag) > LEAST;
        let (words, others) = considered.into_iter().partition(may_be);
        thread.flags = Value::Array(words);
        thread.considered = Value::Array(others);
    }
}

/// Leaves the one word that was proved to be owed and to end the loop, or none.
pub(crate) fn settle(
    thread: &mut ThreadReport,
    standings: &mut Vec<Standing>,
    is_nulled: impl Fn(&Value) -> bool,
) {
    let (Value::Array(flags), Value::Array(considered)) =
        (&mut thread.flags, &mut thread.considered)
    else {
        return;
    };
    let is_proved = |at: &usize| {
        let flag = &flags[*at];
        // A copy that comes to a call whose answer nobody knows had left its loop before.
        let is_out = ends_alone(flag) || sure::is_open(flag) && does_something(flag);
        standings.get(*at) == Some(&Standing::Proved) && is_out && !is_nulled(flag)
    };
    let mut proved = (0..flags.len()).filter(is_proved);
    let chosen = proved.next().filter(|_| proved.next().is_none());
    let written = standings.iter().filter(|stands| **stands >= Standing::Late);
    let standing = match written.count() {
        1 => Standing::Proved,
        _ => Standing::Unknown,
    };
    let flag = chosen.map(|at| flags.remove(at));
    *standings = flag.iter().map(|_| standing).collect();
    flags.append(considered);
    *considered = std::mem::take(flags);
    let Some(mut flag) = flag else {
        return;
    };
    let (name, ends) = (text(&flag["name"]), text(&flag["exit_when"]));
    thread.reason = format!("the loop polls {name}; it ends when {ends}");
    thread.verdict = Some("data-flag".into());
    thread.class = Class::RepeatedYield;
    flag["rank"] = json!(1);
    flag["confidence"] = json!(score(&flag).max(ONE_OF_SEVERAL));
    let why = match standing {
        Standing::Proved => "copies show who writes it, and that it ends the loop",
        _ => "copies show that it ends the loop; its writer writes other words of the loop, too",
    };
    note(&mut flag, &format!("its code alone says too little; {why}"));
    *flags = vec![flag];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sure::tests::{word, LEAVES};

    fn near(words: Vec<Value>) -> ThreadReport {
        ThreadReport {
            considered: Value::Array(words),
            flags: json!([]),
            reason: "nothing is sure enough".into(),
            verdict: Some("no-flag".into()),
            ..ThreadReport::blank(1, Class::LongRunning)
        }
    }

    /// Its name, what came of trying it out, and how it stands.
    type Word = (&'static str, Option<(&'static str, Option<u64>)>, Standing);

    fn settled(words: &[Word]) -> ThreadReport {
        let made = words
            .iter()
            .map(|(name, outcome, _)| word(name, 0.4, *outcome));
        let mut thread = near(made.collect());
        assert!(is_open(&thread));
        take_up(&mut thread);
        let mut standings: Vec<Standing> = words.iter().map(|word| word.2).collect();
        settle(&mut thread, &mut standings, |flag| {
            flag["name"] == "pointer"
        });
        assert_eq!(standings.len(), usize::from(thread.has_flag()));
        thread
    }

    #[test]
    fn a_word_is_the_flag_if_a_copy_wrote_it_and_another_then_left() {
        let beside = ("bound", LEAVES, Standing::Nobody);
        let thread = settled(&[beside, ("count", LEAVES, Standing::Proved)]);
        assert_eq!(thread.flags[0]["name"], "count");
        assert_eq!(thread.verdict.as_deref(), Some("data-flag"));
        assert_eq!(thread.considered[0]["name"], "bound");
    }

    #[test]
    fn a_word_that_is_written_with_another_one_is_not_sure() {
        for standing in [Standing::Proved, Standing::Late] {
            let stays = ("queue", Some(("returns", Some(9))), standing);
            let thread = settled(&[stays, ("done", LEAVES, Standing::Proved)]);
            assert_eq!(thread.flags[0]["name"], "done");
            assert_eq!(thread.flags[0]["confidence"], ONE_OF_SEVERAL);
        }
    }

    #[test]
    fn a_copy_that_comes_to_an_unknown_call_was_out_of_its_loop() {
        let of = |instructions| {
            let word = ("done", Some(("unknown", instructions)), Standing::Proved);
            settled(&[word]).has_flag()
        };
        assert!(of(Some(11)) && !of(None));
    }

    #[test]
    fn without_a_proved_word_there_is_no_flag() {
        let stays = Some(("returns", Some(9)));
        for words in [
            vec![("stop", LEAVES, Standing::ByCode)],
            vec![("stop", LEAVES, Standing::Late)],
            vec![("count", stays, Standing::Proved)],
            vec![("pointer", LEAVES, Standing::Proved)],
            vec![
                ("one", LEAVES, Standing::Proved),
                ("other", LEAVES, Standing::Proved),
            ],
        ] {
            let thread = settled(&words);
            assert!(!thread.has_flag(), "{words:?}");
            assert_eq!(thread.reason, "nothing is sure enough");
            assert_eq!(
                thread.considered.as_array().map(Vec::len),
                Some(words.len())
            );
        }
    }

    #[test]
    fn a_thread_with_progress_or_with_only_a_bound_is_not_tried() {
        let mut thread = near(vec![word("count", 0.4, None)]);
        assert!(is_open(&thread));
        thread.gets_on = true;
        assert!(!is_open(&thread));
        assert!(!is_open(&near(vec![word("bound", MERE_BOUND, None)])));
    }
}
