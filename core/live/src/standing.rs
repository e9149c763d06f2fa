// SPDX-License-Identifier: MIT
//! How sure the first word is, once it was tried out and the others were asked who owes it.
//!
//! In: a thread's flags in their order, and how sure it is that somebody owes each. Out: the score
//! of the first, and the word that is as good as it. A copy of another thread that wrote the word
//! makes it sure: the value and its writer were seen. Where another word would end the wait as
//! well, and no copy shows which of them is owed, the first is no more than one of two. If a trial
//! of a word did not end the loop, and nobody is known to owe it, only its code calls it the flag.
//! Blind spots: two debts that were both proved; a word that would do as well, but was not tried.

use flagfinder_flags::{Group, Rule, Standing, ENOUGH};
use flagfinder_linux::syscalls::{role, Role};
use flagfinder_replica::Outcome;

use crate::candidate::Candidate;
use crate::owed::Owing;

/// Least score of a word that a copy of another thread wrote.
const PROVED: f64 = 0.8;
/// Highest score of a word beside which another one would end the wait as well.
const ONE_OF_TWO: f64 = 0.5;
/// Highest score of a word whose trial ended nothing, and which nobody is known to owe.
const BY_ITS_CODE: f64 = 0.5;
/// Scores that differ by less count as equal.
const ALIKE: f64 = 0.06;

type Asked = (Candidate, Owing);

/// What is known of a word, apart from its report.
pub(crate) struct About<'a> {
    /// A check fails if the loop ends by this word, so that says nothing.
    pub is_nulled: &'a dyn Fn(&Candidate) -> bool,
    /// The program's code counts the word up or down.
    pub is_counted: &'a dyn Fn(&Candidate) -> bool,
    /// The waiting thread moves the word itself.
    pub is_own: &'a dyn Fn(&Candidate) -> bool,
    /// The word is tested within the call that polls.
    pub is_in_poll: &'a dyn Fn(&Candidate) -> bool,
    /// The word lets the waiting thread move a word of its own.
    pub moves_own: &'a dyn Fn(&Candidate) -> bool,
    /// A round does more than to ask for a word or two.
    pub has_long_rounds: bool,
    /// Others change a word that the loop reads, nearly all the time.
    pub reads_news: bool,
}

/// The words of a thread, in their order, on the way to a verdict.
struct Weighed<'a> {
    flags: &'a mut [Asked],
    groups: &'a [Group],
    about: &'a About<'a>,
    /// The place of a word or a poll that would end the wait as well as the first word.
    as_good: Option<usize>,
}

type Pass = fn(&mut Weighed);

/// What is done with the words, in this order.
const PASSES: [(Rule, Pass); 5] = [
    (Rule::OneOfTwo, doubt),
    (Rule::BesidePoll, doubt_beside_poll),
    (Rule::EndedNothing, doubt_what_ended_nothing),
    (Rule::NewsBeside, doubt_beside_news),
    (Rule::TrustProved, trust_proved),
];

/// Gives the first word its score, and each its standing. Returns the place of a word or a poll
/// that would end the wait as well, if there is one.
pub(crate) fn weigh(flags: &mut [Asked], groups: &[Group], about: &About) -> Option<usize> {
    if let Some(poll) = poll_beside(flags).filter(|_| Rule::PollFirst.is_on()) {
        if (about.is_in_poll)(&flags[0].0) {
            poll_first(flags, poll);
            return None;
        }
    }
    let mut weighed = Weighed {
        flags,
        groups,
        about,
        as_good: None,
    };
    for (_, pass) in PASSES.iter().filter(|(rule, _)| rule.is_on()) {
        pass(&mut weighed);
    }
    for (flag, owing) in weighed.flags.iter_mut() {
        flag.flag.standing = standing(flag, *owing, about);
    }
    weighed.as_good
}

/// How it is known that the loop waits for the flag.
fn standing(flag: &Candidate, owing: Owing, about: &About) -> Standing {
    let by_code = flag.flag.standing;
    if !flag.is_word() {
        return by_code;
    }
    if (about.is_nulled)(flag) {
        return Standing::Unsure;
    }
    let moves_on = flag.ends_alone() || flag.does_something() && flag.outcome().is_some();
    let known = match owing {
        Owing::Proved if moves_on => Standing::Proved,
        _ if flag.ends_alone() => Standing::EndsLoop,
        _ => by_code,
    };
    flag.doubt.map_or(known, |doubt| doubt.max(known))
}

/// Of two words that would each end the loop, where no copy shows who owes them, the first is no
/// more than one of two. Where no copy shows that they end it, they have to be as likely, in one
/// condition. Of a thread that serves the loop does not end: there the other word moves it on. A
/// count comes before what is only set, as the bound is that it is compared with.
fn doubt(weighed: &mut Weighed) {
    let (flags, about) = (&mut *weighed.flags, weighed.about);
    let is_counted = about.is_counted;
    let counts =
        |flag: &Candidate| flag.is_word() && !(about.is_nulled)(flag) && !(about.is_own)(flag);
    let Some((first, owing)) = flags.first().filter(|(first, _)| counts(first)) else {
        return;
    };
    if *owing > Owing::ByCode {
        return;
    }
    let in_one = |flag: &Candidate| {
        let both = [flag.flag.rank, first.flag.rank];
        let mut groups = weighed.groups.iter();
        groups.any(|group| both.iter().all(|rank| group.flags.contains(rank)))
    };
    let is_alike = |flag: &Candidate, owes: Owing| {
        let score = flag.flag.confidence;
        let is_near = (score - first.flag.confidence).abs() < ALIKE;
        let by_code = first.is_open() && flag.is_open() && is_near && in_one(flag);
        // A thread that serves does not leave its loop.
        let is_owed = flag.serves() && owes >= Owing::ByCode && score >= ENOUGH;
        // A text, say: copies neither try nor watch as much at once.
        let is_wide = flag.flag.size > 8;
        let is_beyond = is_wide && *owing == Owing::Nobody && score >= ENOUGH;
        // A thread is on its way to write the other word, and none to write the first.
        let is_owed_alone = *owing == Owing::Nobody
            && owes == Owing::ByCode
            && flag.proof().is_none()
            && score >= ENOUGH
            && in_one(flag);
        let would_do = flag.ends_alone() || is_owed || is_beyond;
        first.ends_alone() && would_do || by_code || is_owed_alone
    };
    // A thread that is on its way to write one of the words, and none to write the other, decides
    // between them.
    let is_as_owed = |owes: Owing| *owing < Owing::ByCode || owes >= Owing::ByCode;
    let would_do = |at: &usize| {
        let (flag, owes) = &flags[*at];
        counts(flag) && is_as_owed(*owes) && is_alike(flag, *owes)
    };
    let Some(other) = (1..flags.len()).find(would_do) else {
        return;
    };
    let is_known = |at: usize| flags[at].1 >= Owing::ByCode;
    if is_known(0) == is_known(other) && is_counted(&flags[other].0) && !is_counted(&flags[0].0) {
        let why = format!("it is counted, and {} is only set", flags[0].0.flag.name);
        flags[other].0.note(why);
        flags.swap(0, other);
    }
    let is_owed = flags[0].1.max(flags[other].1) >= Owing::ByCode;
    let debt = match is_owed {
        true => "no copy shows which of them is owed",
        false => "nobody is known to owe either",
    };
    // Where nobody is known to write either, a loop that does more than to ask may have no end.
    let standing = match is_owed || !about.has_long_rounds {
        true => Standing::OneOfSeveral,
        false => Standing::Unsure,
    };
    let name = |at: usize| flags[at].0.flag.name.clone();
    for (at, name) in [(0, name(other)), (other, name(0))] {
        let why = format!("one of two words: {name} would do as well, and {debt}");
        let flag = &mut flags[at].0;
        flag.doubt(standing, ONE_OF_TWO, why);
    }
    weighed.as_good = Some(other);
}

/// A poll that finds nothing ready, beside a word that nobody is known to owe.
fn poll_beside(flags: &[Asked]) -> Option<usize> {
    let is_open = |(flag, owes): &Asked| {
        let is_open = match *owes {
            Owing::ByCode => flag.owed().len() > 1,
            owes => owes < Owing::ByCode,
        };
        flag.is_word() && is_open
    };
    if !flags.first().is_some_and(is_open) {
        return None;
    }
    let is_poll_in_vain = |flag: &Candidate| {
        let in_vain = flag
            .flag
            .call
            .as_ref()
            .filter(|call| call.result == Some(0));
        let is_poll = in_vain.is_some_and(|call| role(call.number, &call.args) == Role::Poll);
        is_poll && flag.flag.confidence >= ENOUGH
    };
    flags.iter().position(|(flag, _)| is_poll_in_vain(flag))
}

/// Beside such a poll it is not clear which of the two is waited for: an idle server tests a word
/// to stop by between its polls.
fn doubt_beside_poll(weighed: &mut Weighed) {
    let flags = &mut *weighed.flags;
    let Some(poll) = poll_beside(flags) else {
        return;
    };
    let why = format!(
        "one of two: {} in the loop as well, and it is not known who owes the word",
        flags[poll].0.flag.name
    );
    let (flag, owing) = &mut flags[0];
    let standing = match *owing {
        Owing::ByCode => Standing::OneOfSeveral,
        _ => Standing::Unsure,
    };
    flag.doubt(standing, ONE_OF_TWO, why);
    weighed.as_good = Some(poll);
}

/// What a library's function tests on its way to its poll is usually its own affair: a setting, or
/// a word to stop by. What the loop waits for, the loop tests itself in what that function
/// returned.
fn poll_first(flags: &mut [Asked], poll: usize) {
    let why = format!(
        "{} is tested within the call that polls, and nobody is known to owe it",
        flags[0].0.flag.name
    );
    flags[poll].0.note(why);
    flags[..=poll].rotate_right(1);
}

/// A word that was tried without ending the loop, and that nobody is known to owe, may be a check
/// on the way.
fn doubt_what_ended_nothing(weighed: &mut Weighed) {
    let about = weighed.about;
    let Some((flag, owing)) = weighed.flags.first_mut() else {
        return;
    };
    let ended_nothing = !matches!(flag.outcome(), None | Some(Outcome::Leaves));
    let is_vain = ended_nothing && !(about.moves_own)(flag) && *owing < Owing::ByCode;
    if flag.is_word() && is_vain {
        let why = "no copy left the loop by it, and nobody is known to owe it";
        flag.doubt(Standing::Unsure, BY_ITS_CODE, why);
    }
}

/// A loop that reads words which others change all the time works on these: it may ask only whether
/// it is to stop.
fn doubt_beside_news(weighed: &mut Weighed) {
    let Some((flag, Owing::Nobody)) = weighed.flags.first_mut() else {
        return;
    };
    if flag.is_word() && weighed.about.reads_news {
        let why = "nobody is known to owe it, and others change what the loop reads beside it";
        flag.doubt(Standing::Unsure, BY_ITS_CODE, why);
    }
}

/// A word that a copy of another thread wrote, with a value that moves the waiting thread on. Of
/// two such words it is not known which one hangs.
fn trust_proved(weighed: &mut Weighed) {
    let Some(((flag, Owing::Proved), others)) = weighed.flags.split_first_mut() else {
        return;
    };
    let is_only = others.iter().all(|(_, owes)| *owes != Owing::Proved);
    if is_only && flag.is_word() {
        flag.flag.confidence = flag.flag.confidence.max(PROVED);
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_flags::AskedCall;

    use super::*;
    use crate::candidate::tests::{call, debtor, name, word, Came, LEAVES, SERVES, STAYS};
    use crate::candidate::Known;

    const UNKNOWN: Came = Some((Outcome::Unknown, None));

    /// Groups of these ranks.
    fn groups(groups: &[&[u32]]) -> Vec<Group> {
        let group = |flags: &&[u32]| Group {
            branch: flagfinder_code::Code::default(),
            exit_when: None,
            flags: flags.to_vec(),
            tests: Vec::new(),
        };
        groups.iter().map(group).collect()
    }

    fn about(is_counted: &dyn Fn(&Candidate) -> bool) -> About<'_> {
        About {
            is_nulled: &|_| false,
            is_counted,
            is_own: &|flag| name(flag) == "thread's index",
            is_in_poll: &|_| false,
            moves_own: &|flag| name(flag) == "other index",
            has_long_rounds: false,
            reads_news: false,
        }
    }

    /// The score of the first word, the reasons for it, and the place of what would do as well.
    /// A poll of one descriptor for 0.1 s.
    fn poll(result: i64) -> Candidate {
        let mut poll = call("poll", 0.8);
        poll.flag.call = Some(AskedCall {
            number: libc::SYS_poll as u32,
            args: [0x1000, 1, 100, 0, 0, 0],
            result: Some(result),
            found: Vec::new(),
            path: None,
            per_second: None,
        });
        poll
    }

    fn weighed(mut flags: Vec<Asked>, ranks: &[&[u32]]) -> (f64, String, Option<usize>) {
        for (flag, rank) in flags.iter_mut().zip(1..) {
            flag.0.flag.rank = rank;
        }
        let as_good = weigh(&mut flags, &groups(ranks), &about(&|_| false));
        let first = &flags[0].0.flag;
        let why = first.evidence.first().cloned().unwrap_or_default();
        (first.confidence, why, as_good)
    }

    #[test]
    fn a_word_that_nobody_owes_is_not_sure_beside_what_others_change() {
        let standing = |owing, reads_news| {
            let mut flags = [(word("quit", 0.65, LEAVES), owing)];
            let about = About {
                reads_news,
                ..about(&|_| false)
            };
            weigh(&mut flags, &[], &about);
            flags[0].0.flag.standing
        };
        assert_eq!(standing(Owing::Nobody, true), Standing::Unsure);
        assert_eq!(standing(Owing::Nobody, false), Standing::EndsLoop);
        assert_eq!(standing(Owing::ByCode, true), Standing::EndsLoop);
    }

    #[test]
    fn where_no_copy_shows_an_end_two_words_of_one_condition_are_not_sure() {
        let of = |groups: &[&[u32]], score| {
            let flags = vec![
                (word("a", 0.65, None), Owing::Unknown),
                (word("b", score, None), Owing::Unknown),
            ];
            weighed(flags, groups).0
        };
        assert_eq!(of(&[&[1, 2]], 0.65), 0.5);
        assert_eq!(of(&[&[1, 2]], 0.5), 0.65);
        assert_eq!(of(&[&[1], &[2]], 0.65), 0.65);
    }

    #[test]
    fn a_count_comes_before_the_bound_that_it_is_compared_with() {
        let first_of = |names: [&str; 2]| {
            let flags = names.map(|name| (word(name, 0.65, LEAVES), Owing::Nobody));
            let mut flags = flags.to_vec();
            let counted = |flag: &Candidate| name(flag) == "count";
            assert_eq!(weigh(&mut flags, &[], &about(&counted)), Some(1));
            assert_eq!(flags[0].0.flag.confidence, ONE_OF_TWO);
            name(&flags[0].0).to_owned()
        };
        assert_eq!(first_of(["bound", "count"]), "count");
        assert_eq!(first_of(["count", "bound"]), "count");
        assert_eq!(first_of(["one", "other"]), "one");
    }

    #[test]
    fn a_word_that_nobody_is_known_to_owe_is_not_sure_beside_an_empty_poll() {
        let of = |owing, debtors: usize, result| {
            let mut stop = word("stop", 0.65, LEAVES);
            stop.owed_by(vec![debtor(7, Known::ByCode); debtors]);
            let flags = vec![(stop, owing), (poll(result), Owing::Unknown)];
            let (score, _, as_good) = weighed(flags, &[]);
            assert_eq!(
                as_good.is_some(),
                score == ONE_OF_TWO,
                "the poll is as good"
            );
            score
        };
        assert_eq!(of(Owing::Nobody, 0, 0), ONE_OF_TWO);
        assert_eq!(of(Owing::ByCode, 3, 0), ONE_OF_TWO);
        assert_eq!(of(Owing::ByCode, 1, 0), 0.65, "one owes it");
        assert_eq!(of(Owing::Proved, 2, 0), PROVED, "one was proved to");
        assert_eq!(of(Owing::Nobody, 0, 1), 0.65, "the poll finds something");
    }

    #[test]
    fn a_poll_comes_before_what_is_tested_only_within_the_call_that_polls() {
        let first = |owing, is_in_poll| {
            let setting = word("setting", 0.65, None);
            let mut flags = vec![(setting, owing), (poll(0), Owing::Unknown)];
            let about = About {
                is_in_poll: &|flag| is_in_poll && name(flag) == "setting",
                ..about(&|_| false)
            };
            weigh(&mut flags, &[], &about);
            name(&flags[0].0).to_owned()
        };
        assert_eq!(first(Owing::Nobody, true), "poll");
        assert_eq!(first(Owing::Nobody, false), "setting");
        assert_eq!(first(Owing::ByCode, true), "setting", "somebody owes it");
    }

    #[test]
    fn neither_of_two_words_is_sure_if_no_copy_tells_them_apart() {
        let two = |one, other| {
            let flags = vec![
                (word("a", 0.65, LEAVES), one),
                (word("b", 0.39, LEAVES), other),
            ];
            weighed(flags, &[])
        };
        let doubted = |why: &str| {
            let why = format!("one of two words: b would do as well, and {why}");
            (0.5, why, Some(1))
        };
        let (nobody, no_copy) = (
            "nobody is known to owe either",
            "no copy shows which of them is owed",
        );
        assert_eq!(two(Owing::Unknown, Owing::Nobody), doubted(nobody));
        assert_eq!(two(Owing::Nobody, Owing::ByCode), doubted(no_copy));
        assert_eq!(two(Owing::ByCode, Owing::ByCode), doubted(no_copy));
        let sure = |score| (score, String::new(), None);
        assert_eq!(two(Owing::ByCode, Owing::Unknown), sure(0.65));
        assert_eq!(two(Owing::Proved, Owing::ByCode), sure(PROVED));
        assert_eq!(two(Owing::Proved, Owing::Proved), sure(0.65));
    }

    #[test]
    fn a_word_that_is_owed_and_moves_the_thread_on_is_as_good_as_one_that_ends_its_loop() {
        let beside = |outcome, owes, score| {
            let flags = vec![
                (word("stop", 0.65, LEAVES), Owing::ByCode),
                (word("count", score, outcome), owes),
            ];
            weighed(flags, &[]).2
        };
        let (serves, stays) = (SERVES, STAYS);
        assert_eq!(beside(serves, Owing::ByCode, ENOUGH), Some(1));
        assert_eq!(beside(serves, Owing::ByCode, ENOUGH - 0.1), None);
        assert_eq!(beside(serves, Owing::Nobody, ENOUGH), None);
        assert_eq!(beside(stays, Owing::ByCode, ENOUGH), None);
    }

    #[test]
    fn a_text_that_could_not_be_tried_is_as_good_as_a_word_that_nobody_owes() {
        let beside = |owes, bytes, score| {
            let mut text = word("text", score, None);
            text.flag.size = bytes;
            let flags = vec![(word("stop", 0.65, LEAVES), owes), (text, Owing::Unknown)];
            weighed(flags, &[]).2
        };
        assert_eq!(beside(Owing::Nobody, 32, ENOUGH), Some(1));
        assert_eq!(beside(Owing::Nobody, 8, ENOUGH), None);
        assert_eq!(beside(Owing::Nobody, 32, ENOUGH - 0.1), None);
        assert_eq!(beside(Owing::ByCode, 32, ENOUGH), None);
    }

    #[test]
    fn a_word_that_somebody_owes_is_as_good_as_one_beside_it_that_nobody_owes() {
        let beside = |first, owes, score, groups: &[&[u32]]| {
            let flags = vec![
                (word("own index", 0.57, LEAVES), first),
                (word("other index", score, None), owes),
            ];
            weighed(flags, groups).2
        };
        let one = || -> &[&[u32]] { &[&[1, 2]] };
        let (nobody, by_code) = (Owing::Nobody, Owing::ByCode);
        assert_eq!(beside(nobody, by_code, ENOUGH, one()), Some(1));
        assert_eq!(beside(nobody, by_code, ENOUGH - 0.1, one()), None);
        assert_eq!(beside(nobody, by_code, ENOUGH, &[]), None);
        assert_eq!(beside(nobody, nobody, ENOUGH, one()), None);
        assert_eq!(beside(Owing::Unknown, by_code, ENOUGH, one()), None);
    }

    #[test]
    fn the_thread_s_own_index_is_not_as_good_as_the_other_one() {
        let flags = vec![
            (word("index", 0.65, LEAVES), Owing::Nobody),
            (word("thread's index", 0.65, LEAVES), Owing::ByCode),
        ];
        assert_eq!(weighed(flags, &[&[1, 2]]).2, None);
    }

    #[test]
    fn a_word_that_did_not_end_the_loop_and_nobody_owes_is_not_sure() {
        let alone = |outcome, owing| {
            let flags = vec![(word("a", 0.65, outcome), owing)];
            weighed(flags, &[]).0
        };
        assert_eq!(alone(SERVES, Owing::Nobody), BY_ITS_CODE);
        assert_eq!(alone(UNKNOWN, Owing::Nobody), BY_ITS_CODE);
        assert_eq!(alone(SERVES, Owing::ByCode), 0.65, "one owes it");
        assert_eq!(alone(LEAVES, Owing::Nobody), 0.65);
        let other = vec![(word("other index", 0.65, SERVES), Owing::Nobody)];
        assert_eq!(weighed(other, &[]).0, 0.65, "it moved the thread's own on");
        let flags = vec![(word("a", 0.65, None), Owing::Nobody)];
        assert_eq!(weighed(flags, &[]).0, 0.65, "it was not tried");
    }
}
