// SPDX-License-Identifier: MIT
//! A loop whose code alone shows no flag, only words with a low score: copies tell more.
//!
//! In: a thread's report without a flag, the outcomes of trying its words out, and who owes them.
//! Out: the word as the flag that a copy of another thread wrote, if a copy of the waiting thread
//! then left its loop; or none, as before. No thread is about to write what the loop tests beside
//! (a check, a bound). If one is, it is not known which of the words is waited for. Blind spots:
//! words of other processes, and of threads that can't be copied.

use flagfinder_flags::{Standing, Verdict, MERE_BOUND};

use crate::candidate::Candidate;
use crate::owed::Owing;
use crate::report::{Class, ThreadReport};

/// A word that scores no more is not tried: too much speaks against it.
const LEAST: f64 = 0.05;
/// Score of a word beside which a copy wrote another one, too.
const ONE_OF_SEVERAL: f64 = 0.5;

/// Is there a word worth trying out? None of a thread that makes progress.
pub(crate) fn is_open(thread: &ThreadReport) -> bool {
    let mut considered = thread.considered.iter();
    thread.facts.machine.is_none()
        && !thread.facts.gets_on
        && !thread.has_flag()
        && considered.any(|flag| flag.is_word() && flag.flag.confidence > MERE_BOUND)
}

/// Takes the words that were considered as flags, to try them out.
pub(crate) fn take_up(thread: &mut ThreadReport) {
    let may_be = |flag: &Candidate| flag.is_word() && flag.flag.confidence > LEAST;
    let considered = std::mem::take(&mut thread.considered).into_iter();
    (thread.flags, thread.considered) = considered.partition(may_be);
}

/// Leaves the one word that was proved to be owed and to end the loop, or none.
pub(crate) fn settle(
    thread: &mut ThreadReport,
    owings: &mut Vec<Owing>,
    is_nulled: impl Fn(&Candidate) -> bool,
) {
    let (flags, considered) = (&mut thread.flags, &mut thread.considered);
    let is_proved = |at: &usize| {
        let flag = &flags[*at];
        // A copy that comes to a call whose answer nobody knows had left its loop before.
        let is_out = flag.ends_alone() || flag.is_open() && flag.does_something();
        owings.get(*at) == Some(&Owing::Proved) && is_out && !is_nulled(flag)
    };
    let mut proved = (0..flags.len()).filter(is_proved);
    let chosen = proved.next().filter(|_| proved.next().is_none());
    let written = owings.iter().filter(|owes| **owes >= Owing::Late);
    let owing = match written.count() {
        1 => Owing::Proved,
        _ => Owing::Unknown,
    };
    let flag = chosen.map(|at| flags.remove(at));
    *owings = flag.iter().map(|_| owing).collect();
    flags.append(considered);
    *considered = std::mem::take(flags);
    let Some(mut flag) = flag else {
        return;
    };
    let (name, ends) = (&flag.flag.name, &flag.flag.exit_when);
    thread.reason = format!("the loop polls {name}; it ends when {ends}");
    thread.verdict = Some(Verdict::DataFlag);
    thread.class = Class::RepeatedYield;
    flag.flag.rank = 1;
    flag.flag.confidence = flag.flag.confidence.max(ONE_OF_SEVERAL);
    if owing != Owing::Proved {
        flag.doubt = Some(Standing::OneOfSeveral);
    }
    let why = match owing {
        Owing::Proved => "copies show who writes it, and that it ends the loop",
        _ => "copies show that it ends the loop; its writer writes other words of the loop, too",
    };
    flag.note(format!("its code alone says too little; {why}"));
    *flags = vec![flag];
}

#[cfg(test)]
mod tests {
    use flagfinder_replica::Outcome;

    use super::*;
    use crate::candidate::tests::{name, word, Came, HALTS, LEAVES, SERVES};

    fn near(words: Vec<Candidate>) -> ThreadReport {
        ThreadReport {
            considered: words,
            reason: "nothing is sure enough".into(),
            verdict: Some(Verdict::NoFlag),
            ..ThreadReport::blank(1, Class::LongRunning)
        }
    }

    /// Its name, what came of trying it out, and how sure it is that somebody owes it.
    type Word = (&'static str, Came, Owing);

    fn settled(words: &[Word]) -> ThreadReport {
        let made = words
            .iter()
            .map(|(name, outcome, _)| word(name, 0.4, *outcome));
        let mut thread = near(made.collect());
        assert!(is_open(&thread));
        take_up(&mut thread);
        let mut owings: Vec<Owing> = words.iter().map(|word| word.2).collect();
        settle(&mut thread, &mut owings, |flag| name(flag) == "pointer");
        assert_eq!(owings.len(), usize::from(thread.has_flag()));
        thread
    }

    #[test]
    fn a_word_is_the_flag_if_a_copy_wrote_it_and_another_then_left() {
        let beside = ("bound", LEAVES, Owing::Nobody);
        let thread = settled(&[beside, ("count", LEAVES, Owing::Proved)]);
        assert_eq!(name(&thread.flags[0]), "count");
        assert_eq!(thread.verdict, Some(Verdict::DataFlag));
        assert_eq!(name(&thread.considered[0]), "bound");
    }

    #[test]
    fn a_word_that_is_written_with_another_one_is_not_sure() {
        for owing in [Owing::Proved, Owing::Late] {
            let stays = ("queue", SERVES, owing);
            let thread = settled(&[stays, ("done", LEAVES, Owing::Proved)]);
            assert_eq!(name(&thread.flags[0]), "done");
            assert_eq!(thread.flags[0].flag.confidence, ONE_OF_SEVERAL);
        }
    }

    #[test]
    fn a_copy_that_comes_to_an_unknown_call_was_out_of_its_loop() {
        let of = |came| settled(&[("done", came, Owing::Proved)]).has_flag();
        assert!(of(HALTS) && !of(Some((Outcome::Unknown, None))));
    }

    #[test]
    fn without_a_proved_word_there_is_no_flag() {
        let stays = SERVES;
        for words in [
            vec![("stop", LEAVES, Owing::ByCode)],
            vec![("stop", LEAVES, Owing::Late)],
            vec![("count", stays, Owing::Proved)],
            vec![("pointer", LEAVES, Owing::Proved)],
            vec![
                ("one", LEAVES, Owing::Proved),
                ("other", LEAVES, Owing::Proved),
            ],
        ] {
            let thread = settled(&words);
            assert!(!thread.has_flag(), "{words:?}");
            assert_eq!(thread.reason, "nothing is sure enough");
            assert_eq!(thread.considered.len(), words.len());
        }
    }

    #[test]
    fn a_thread_with_progress_or_with_only_a_bound_is_not_tried() {
        let mut thread = near(vec![word("count", 0.4, None)]);
        assert!(is_open(&thread));
        thread.facts.gets_on = true;
        assert!(!is_open(&thread));
        assert!(!is_open(&near(vec![word("bound", MERE_BOUND, None)])));
    }
}
