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

use flagfinder_flags::{Rule, Verdict, ENOUGH};
use flagfinder_replica::Outcome;

use crate::candidate::Candidate;
use crate::owed::Owing;
use crate::report::ThreadReport;
use crate::standing::{self, About};

/// Puts the word first that decides, and says so. Until now the flags have the ranks that the code
/// alone gave them.
pub(crate) fn decide(thread: &mut ThreadReport, owings: &[Owing], about: &About) {
    let mut flags: Vec<(Candidate, Owing)> = std::mem::take(&mut thread.flags)
        .into_iter()
        .enumerate()
        .map(|(at, flag)| (flag, owings.get(at).copied().unwrap_or_default()))
        .collect();
    if let Some(at) = best(&flags, about).filter(|_| Rule::OwedFirst.is_on()) {
        let (first, owes) = &flags[0];
        let by = first.flag.confidence.max(flags[at].0.flag.confidence);
        let why = told(&flags[at].0, first, *owes);
        let flag = &mut flags[at].0;
        flag.flag.confidence = by;
        let comes = format!("{} comes first: {why}", flag.flag.name);
        thread.explain.push(comes);
        flag.note(why);
        flags[..=at].rotate_right(1);
    }
    let as_good = standing::weigh(&mut flags, &thread.groups, about);
    thread.flags = flags.into_iter().map(|(flag, _)| flag).collect();
    let flags = &thread.flags;
    if let Some(first) = flags.first().filter(|first| first.flag.rank != 1) {
        let (name, ends) = (&first.flag.name, &first.flag.exit_when);
        let (reason, verdict) = match first.is_word() {
            true => (
                format!("the loop polls {name}; it ends when {ends}"),
                Verdict::DataFlag,
            ),
            false => (
                format!("the loop repeats because {name}"),
                Verdict::SyscallLoop,
            ),
        };
        (thread.reason, thread.verdict) = (reason, Some(verdict));
    }
    if let Some(other) = as_good {
        let [name, and] = [0, other].map(|at| &flags[at].flag.name);
        let and = match flags[other].is_word() {
            true => and.clone(),
            false => format!("goes on because {and}"),
        };
        thread.reason = format!("the loop polls {name} and {and}; either would end it");
    }
    renumber(thread);
    if let Some(other) = as_good {
        thread.flags[0].as_good = Some(thread.flags[other].flag.rank);
    }
}

/// The flag that comes before the first.
fn best(flags: &[(Candidate, Owing)], about: &About) -> Option<usize> {
    let (first, owing) = flags.first()?;
    let is_in_vain = |flag: &Candidate| match flag.outcome() {
        Some(Outcome::Returns) => !flag.does_something(),
        outcome => outcome == Some(Outcome::Faults),
    };
    let overtakes = |(flag, owes): &(Candidate, Owing)| {
        let fits = flag.is_word() && !(about.is_nulled)(flag) && !(about.is_own)(flag);
        let counts = fits && !is_in_vain(flag);
        // A call that decides is not written by anybody. A copy that comes to a call whose answer
        // nobody knows, as a wait for a thread's end, had left its loop before.
        let is_out = *owes == Owing::Proved && flag.is_open() && flag.does_something();
        let is_clear = first.is_word() || flag.outcome() == Some(Outcome::Leaves) || is_out;
        let is_ahead = match owes {
            Owing::Proved => *owing < Owing::Proved,
            Owing::Late => *owing == Owing::Nobody,
            // Each would end the loop, and a thread is on its way to write only the other one.
            Owing::ByCode if first.ends_alone() && flag.ends_alone() => *owing == Owing::Nobody,
            // A thread is on its way to write the word, and the loop does something else then: a
            // ring's index beside a word to stop by, by which no copy was seen to end the loop.
            Owing::ByCode => {
                let serves =
                    flag.outcome() == Some(Outcome::Returns) && flag.flag.confidence >= ENOUGH;
                let ends_nothing = !matches!(first.outcome(), None | Some(Outcome::Leaves));
                *owing == Owing::Nobody && ends_nothing && serves
            }
            Owing::Nobody | Owing::Unknown => false,
        };
        counts && is_clear && is_ahead
    };
    let places = (1..flags.len()).filter(|&at| overtakes(&flags[at]));
    places.max_by_key(|&at| (flags[at].1, Reverse(at)))
}

/// Why the one comes before the other.
fn told(flag: &Candidate, other: &Candidate, owes: Owing) -> String {
    let other = &other.flag.name;
    let debt = match owes {
        Owing::Late => format!("{other} is written only later"),
        _ => format!("nobody is known to write {other} before"),
    };
    match flag.owed().first() {
        Some(owed) => {
            let after = owed.after.as_deref().unwrap_or_default();
            format!(
                "thread {} would write it after {after}, and {debt}",
                owed.tid
            )
        }
        None => debt,
    }
}

/// Gives the flags the ranks of their places, in the groups as well.
fn renumber(thread: &mut ThreadReport) {
    let mut ranks = std::collections::BTreeMap::new();
    for (flag, rank) in thread.flags.iter_mut().zip(1..) {
        ranks.insert(flag.flag.rank, rank);
        flag.flag.rank = rank;
    }
    for group in &mut thread.groups {
        group.flags = group
            .flags
            .iter()
            .filter_map(|before| ranks.get(before).copied())
            .collect();
        group.flags.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_code::Code;
    use flagfinder_flags::Group;

    use super::*;
    use crate::candidate::tests::{call, name, word, Came, CRASHES, HALTS, LEAVES, SERVES, STAYS};
    use crate::report::Class;

    fn decided(flags: Vec<(Candidate, Owing)>) -> ThreadReport {
        let mut thread = ThreadReport::blank(1, Class::RepeatedYield);
        let (mut flags, owings): (Vec<Candidate>, Vec<Owing>) = flags.into_iter().unzip();
        for (flag, rank) in flags.iter_mut().zip(1..) {
            flag.flag.rank = rank;
        }
        thread.groups = vec![Group {
            branch: Code::default(),
            exit_when: None,
            flags: vec![1],
            tests: Vec::new(),
        }];
        thread.flags = flags;
        thread.reason = "the loop polls the first".into();
        decide(
            &mut thread,
            &owings,
            &About {
                is_nulled: &|flag| name(flag) == "pointer",
                is_counted: &|flag| name(flag) == "count",
                is_own: &|flag| name(flag) == "own",
                is_in_poll: &|_| false,
                moves_own: &|_| false,
                has_long_rounds: false,
                reads_news: false,
            },
        );
        thread
    }

    fn first(flags: Vec<(Candidate, Owing)>) -> String {
        name(&decided(flags).flags[0]).into()
    }

    #[test]
    fn what_comes_next_is_before_what_a_thread_writes_when_all_is_over() {
        let flags = vec![
            (word("stop", 0.65, LEAVES), Owing::Late),
            (word("count", 0.4, SERVES), Owing::Proved),
        ];
        let thread = decided(flags);
        let flag = &thread.flags[0];
        assert_eq!((name(flag), flag.flag.rank), ("count", 1));
        assert_eq!(flag.flag.confidence, 0.8, "a copy wrote it");
        let why = "thread 7 would write it after its `read` on fd 0 returns data, \
                   and stop is written only later";
        assert_eq!(flag.flag.evidence, [why]);
        assert_eq!(
            thread.reason,
            "the loop polls count; it ends when value != 0x0"
        );
        assert_eq!(
            thread.groups[0].flags,
            [2],
            "its group is still that of stop"
        );
    }

    #[test]
    fn both_of_two_words_that_look_alike_are_named() {
        let both = [("a", 0.65), ("b", 0.61)];
        let flags = both.map(|(name, score)| (word(name, score, LEAVES), Owing::Nobody));
        let thread = decided(flags.to_vec());
        assert_eq!(thread.flags[0].as_good, Some(2));
        assert_eq!(thread.flags[1].flag.rank, 2);
        assert_eq!(thread.reason, "the loop polls a and b; either would end it");
    }

    #[test]
    fn a_word_that_does_not_end_the_wait_overtakes_none() {
        let behind = |flag: Candidate| {
            vec![
                (word("flag", 0.65, LEAVES), Owing::ByCode),
                (flag, Owing::Proved),
            ]
        };
        assert_eq!(first(behind(word("bound", 0.6, STAYS))), "flag");
        assert_eq!(first(behind(word("own", 0.6, LEAVES))), "flag");
        assert_eq!(first(behind(word("crash", 0.6, CRASHES))), "flag");
        assert_eq!(first(behind(word("pointer", 0.6, LEAVES))), "flag");
        assert_eq!(first(behind(word("other", 0.6, LEAVES))), "other");
    }

    #[test]
    fn a_store_ahead_alone_decides_nothing() {
        let after = |of_first, of_other| {
            let (one, other) = (word("a", 0.6, LEAVES), word("b", 0.6, LEAVES));
            first(vec![(one, of_first), (other, of_other)])
        };
        assert_eq!(after(Owing::Unknown, Owing::ByCode), "a");
        assert_eq!(after(Owing::Proved, Owing::Proved), "a");
        assert_eq!(after(Owing::Unknown, Owing::Proved), "b");
    }

    #[test]
    fn a_word_that_moves_the_loop_on_and_is_owed_is_before_one_that_nobody_owes() {
        let after = |of_first, outcome, of_other| {
            let (one, other) = (word("closed", 0.6, outcome), word("tail", 0.6, SERVES));
            first(vec![(one, of_first), (other, of_other)])
        };
        let halts = HALTS;
        assert_eq!(after(Owing::Nobody, halts, Owing::ByCode), "tail");
        assert_eq!(after(Owing::Nobody, SERVES, Owing::ByCode), "tail");
        assert_eq!(after(Owing::Unknown, halts, Owing::ByCode), "closed");
        assert_eq!(after(Owing::Nobody, LEAVES, Owing::ByCode), "closed");
        assert_eq!(after(Owing::Nobody, None, Owing::ByCode), "closed");
        assert_eq!(after(Owing::Nobody, halts, Owing::Unknown), "closed");
    }

    #[test]
    fn of_two_words_that_each_end_the_loop_the_owed_one_is_first() {
        let after = |of_first, of_other| {
            let (one, other) = (word("closed", 0.65, LEAVES), word("tail", 0.6, LEAVES));
            first(vec![(one, of_first), (other, of_other)])
        };
        assert_eq!(after(Owing::Nobody, Owing::ByCode), "tail");
        assert_eq!(after(Owing::Nobody, Owing::Unknown), "closed");
        assert_eq!(after(Owing::Unknown, Owing::ByCode), "closed");
        assert_eq!(after(Owing::ByCode, Owing::ByCode), "closed");
    }

    #[test]
    fn a_word_to_stop_by_is_before_one_that_nobody_writes() {
        let after = |of_first| {
            let (one, other) = (word("limit", 0.65, LEAVES), word("stop", 0.6, LEAVES));
            first(vec![(one, of_first), (other, Owing::Late)])
        };
        assert_eq!(after(Owing::Nobody), "stop");
        assert_eq!(after(Owing::Unknown), "limit");
        assert_eq!(after(Owing::ByCode), "limit");
    }

    #[test]
    fn a_call_steps_back_only_for_a_proved_word_that_ends_the_loop() {
        let behind = |proof, owing| {
            vec![
                (call("read", 0.6), Owing::Unknown),
                (word("flag", 0.3, proof), owing),
            ]
        };
        assert_eq!(first(behind(LEAVES, Owing::Proved)), "flag");
        let halts_outside = HALTS;
        assert_eq!(first(behind(halts_outside, Owing::Proved)), "flag");
        assert_eq!(first(behind(halts_outside, Owing::Late)), "read");
        let tells_nothing: Came = Some((Outcome::Unknown, None));
        assert_eq!(first(behind(tells_nothing, Owing::Proved)), "read");
        assert_eq!(first(behind(SERVES, Owing::Proved)), "read");
        assert_eq!(first(behind(LEAVES, Owing::ByCode)), "read");
    }
}
