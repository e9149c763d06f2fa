// SPDX-License-Identifier: MIT
//! The loop of a virtual machine: which of the words that it tests is the program's?
//!
//! In: a thread's report, with what came of trying its words out and who owes them. Out: the word
//! that ends the loop, as the flag; or none. The machine tests much of its own in each round:
//! types, bounds, requests to stop. A copy tells these apart from what the program waits for: where
//! a check fails the machine sees to it and comes back to the loop. Several words may end it all
//! the same, as an exception does: then it is the one that a thread would write, or the one that
//! looks least like a check. Of an interpreter that is a module's code only the one word is
//! believed with which the interpreted program leaves its loop. A thread that counts, and whose
//! word nobody else can write, comes to an end by itself as likely as not. Blind spots: a check
//! whose failure alone ends the loop; a thread that counts how often it asked for what a signal's
//! handler writes.

use std::cmp::Ordering;
use std::time::Duration;

use flagfinder_flags::{FlagKind, Own, Rule, Verdict, ENOUGH_ALONE};

use crate::candidate::Candidate;
use crate::owed::Owing;
use crate::report::{Class, ThreadReport, Via};

/// Highest score of a word for which only a copy speaks, and not the code.
const TRIED_ONLY: f64 = 0.5;
/// A word that scores no more is not tried: too much speaks against it.
const LEAST: f64 = 0.05;
/// After this time no words are tried for a further thread that has no flag.
const LATEST: Duration = Duration::from_millis(1500);
/// Scores that differ by no more than this count as equal.
const ALIKE: f64 = 0.06;

/// Is it a virtual machine's loop in which the code alone makes no word the flag?
pub(crate) fn is_open(thread: &ThreadReport) -> bool {
    thread.facts.machine.is_some()
        && (is_made(thread) || shows_program(thread))
        && !thread.facts.gets_on
        && !thread.has_flag()
        && thread.considered.iter().any(Candidate::is_word)
}

/// Has so much time passed for other threads that this one's words are not tried?
pub(crate) fn is_late(thread: &ThreadReport, passed: Duration) -> bool {
    passed > LATEST && is_open(thread)
}

/// Is it known where the interpreter is in its program? If not, a word that an interpreter's module
/// tests is hardly ever the program's: trying it out is not worth the time.
fn shows_program(thread: &ThreadReport) -> bool {
    let machine = thread.facts.machine.as_ref();
    machine.is_some_and(|machine| !machine.readers.is_empty())
}

/// Is the loop's code generated?
fn is_made(thread: &ThreadReport) -> bool {
    let spin_loop = thread.spin_loop.as_ref();
    spin_loop.is_none_or(|spin_loop| spin_loop.header.module.is_none())
}

/// Takes the words that were considered as flags, to try them out: those first that may be the
/// program's.
pub(crate) fn take_up(thread: &mut ThreadReport) {
    let considered = std::mem::take(&mut thread.considered).into_iter();
    let is_compared = |flag: &Candidate| is_compared(thread, flag);
    let (mut words, others): (Vec<Candidate>, Vec<Candidate>) = considered.partition(|flag| {
        let is_likely = flag.flag.confidence > LEAST;
        flag.is_word() && (is_likely || is_compared(flag))
    });
    let is_own = |word: &Candidate| own(thread, word).is_some_and(|own| own != Own::Shared);
    words.sort_by_key(|word| (is_own(word) || is_of_machine(word), !is_compared(word)));
    (thread.flags, thread.considered) = (words, others);
}

const OF_INTERPRETER: &str = "the loop is an interpreter's: its code does not say which of the \
    words that it tests is the program's; a stack dump of the program's own tools tells the line";

/// Why the word is one of the machine's own, if it is.
fn own(thread: &ThreadReport, flag: &Candidate) -> Option<Own> {
    let address = flag.address()?;
    let mut words = thread.facts.machine.as_ref()?.own.iter();
    words.find(|word| word.0 == address).map(|word| word.1)
}

/// The words of the machine's modules are the machine's own, and so are variables of its functions:
/// a program's variables lie in objects.
fn is_of_machine(flag: &Candidate) -> bool {
    matches!(
        flag.flag.kind,
        FlagKind::Global | FlagKind::Tls | FlagKind::Stack
    )
}

/// May the program wait for it? The machine compares references to tell of which kind an object
/// is. `is_owed`: a thread would write it. What describes an object is written with the object,
/// and a check that has a writer may be the program's.
fn may_be(own: Option<Own>, flag: &Candidate, is_owed: bool, tests: &Tests) -> bool {
    let is_other = || (tests.is_reference)(flag) || (tests.is_local)(flag);
    match is_owed {
        true => matches!(own, None | Some(Own::Check)),
        false => own.is_none() && !is_of_machine(flag) && !is_other(),
    }
}

/// Nothing is tried out: what a virtual machine's loop tests is no flag then.
pub(crate) fn leave(thread: &mut ThreadReport) {
    if thread.facts.machine.is_some() {
        settle(thread, &mut Vec::new(), false, &NOTHING);
    }
}

/// What the loop's test asks of a word.
pub(crate) struct Tests<'a> {
    /// The loop ends by it because a check fails.
    pub fails: &'a dyn Fn(&Candidate) -> bool,
    /// It holds an address.
    pub is_reference: &'a dyn Fn(&Candidate) -> bool,
    /// It lies in the loop's own frame, on the machine's stack.
    pub is_local: &'a dyn Fn(&Candidate) -> bool,
    /// The class of its object, if the value of such an object never changes.
    pub never_changes: &'a dyn Fn(&Candidate) -> Option<String>,
    /// No other thread or process can write it.
    pub has_one_writer: &'a dyn Fn(&Candidate) -> bool,
}

const NOTHING: Tests = Tests {
    fails: &|_| false,
    is_reference: &|_| false,
    is_local: &|_| false,
    never_changes: &|_| None,
    has_one_writer: &|_| false,
};

/// Does the loop compare the word with another one, as a program's comparison does?
fn is_compared(thread: &ThreadReport, flag: &Candidate) -> bool {
    let address = flag.address();
    let asks = thread.facts.machine.as_ref().map_or(&[][..], |vm| &vm.asks);
    let mut asks = asks.iter();
    asks.any(|ask| ask.with_word && Some(ask.address) == address)
}

/// By how many pointers an interpreter comes to the word.
fn hops(thread: &ThreadReport, flag: &Candidate) -> Option<u32> {
    let address = flag.address()?;
    let mut words = thread.facts.machine.as_ref()?.hops.iter();
    words.find(|word| word.0 == address).map(|word| word.1)
}

/// Are two hashes compared? An interpreter that looks a name up compares that of the name with the
/// one that it finds. Both look like chance: they are greater than counts, addresses and times, far
/// apart, and have no zeros at their ends, as plain fractions have.
fn is_hash(thread: &ThreadReport, flag: &Candidate) -> bool {
    const LEAST: u64 = 1 << 48;
    const END: u64 = 0xffff;
    let is_chance = |value: &u64| *value >= LEAST && value & END != 0;
    let value = &flag.flag.value;
    let [Some(held), Some(asked)] = [value.spin, value.exit].map(|one| one.filter(is_chance))
    else {
        return false;
    };
    held.abs_diff(asked) >= LEAST && is_compared(thread, flag)
}

/// Leaves the one word that is the flag, or none. `is_open`: the words were taken up.
pub(crate) fn settle(
    thread: &mut ThreadReport,
    owings: &mut Vec<Owing>,
    is_open: bool,
    tests: &Tests,
) {
    let is_made = is_made(thread);
    let shows_program = shows_program(thread);
    let flags = thread.flags.iter();
    let own: Vec<Option<Own>> = flags.clone().map(|flag| own(thread, flag)).collect();
    let hops: Vec<Option<u32>> = flags.clone().map(|flag| hops(thread, flag)).collect();
    let hashes: Vec<bool> = flags
        .map(|flag| !is_made && is_hash(thread, flag))
        .collect();
    let flags = &mut thread.flags;
    let Some(first) = flags.first().filter(|first| first.is_word()) else {
        return;
    };
    let by_code = first.flag.confidence >= ENOUGH_ALONE;
    let ends = |flag: &Candidate| flag.ends_alone() && !(tests.fails)(flag);
    let ending: Vec<usize> = (0..flags.len()).filter(|&at| ends(&flags[at])).collect();
    let score = |at: usize| flags[at].flag.confidence;
    let is_owed = |at: usize| owings.get(at) == Some(&Owing::Proved);
    // If no copy stands for the thread, it shows little that a copy leaves the loop.
    let has_copy = thread.via != Some(Via::InPlace);
    let mut likeliest: Vec<usize> = ending.clone();
    likeliest.retain(|&at| {
        !hashes[at]
            && (is_owed(at) || has_copy && (is_made || shows_program))
            && may_be(own[at], &flags[at], is_owed(at), tests)
    });
    likeliest.sort_by(|&a, &b| {
        (is_owed(b), score(b))
            .partial_cmp(&(is_owed(a), score(a)))
            .unwrap_or(Ordering::Equal)
    });
    let chosen = match *likeliest.as_slice() {
        [one] => Some(one),
        [one, next, ..] if is_owed(one) != is_owed(next) => Some(one),
        [one, next, ..] if is_made && !is_owed(one) && score(one) > score(next) + ALIKE => {
            Some(one)
        }
        // A constant of the program is found from where the program is; a variable through more
        // objects (a scope, a table). Writing to either may end the loop.
        _ if !is_made
            && likeliest
                .iter()
                .all(|&at| !is_owed(at) && hops[at].is_some()) =>
        {
            let farthest = likeliest.iter().copied().max_by_key(|&at| hops[at]);
            let is_as_far = |&&at: &&usize| farthest.is_some_and(|one| hops[at] == hops[one]);
            farthest.filter(|_| likeliest.iter().filter(is_as_far).count() == 1)
        }
        _ => None,
    };
    // Another one may end the loop as well.
    let is_cut = thread.not_all_tried;
    let chosen = chosen.filter(|&at| is_owed(at) || !is_cut);
    let counts = thread.facts.machine.as_ref().is_some_and(|vm| vm.counts);
    let is_counting = |&at: &usize| {
        Rule::CountsAlone.is_on() && counts && !is_made && (tests.has_one_writer)(&flags[at])
    };
    let bound = chosen
        .filter(is_counting)
        .map(|at| flags[at].flag.name.clone());
    let chosen = chosen.filter(|_| bound.is_none());
    let fixed = chosen.and_then(|at| Some((at, (tests.never_changes)(&flags[at])?)));
    let chosen = chosen.filter(|_| fixed.is_none());
    let name = |flag: &Candidate| flag.flag.name.clone();
    let names: Vec<String> = ending.iter().map(|&at| name(&flags[at])).collect();
    let local = ending.iter().map(|&at| &flags[at]);
    let local = local.filter(|flag| (tests.is_local)(flag)).map(name).next();
    let copied = ending.iter().find(|&&at| own[at] == Some(Own::Shared));
    let copied = copied.map(|&at| name(&flags[at]));
    let fixed = fixed.map(|(at, class)| (name(&flags[at]), class));
    let tried = flags.iter().filter(|flag| flag.proof().is_some()).count();
    let flag = chosen.map(|at| flags.remove(at));
    let owing = chosen.and_then(|at| owings.get(at).copied());
    *owings = owing.into_iter().collect();
    flags.append(&mut thread.considered);
    std::mem::swap(flags, &mut thread.considered);
    let Some(mut flag) = flag else {
        thread.verdict = Some(Verdict::NoFlag);
        if let Some(name) = local {
            thread.reason = format!(
                "the loop ends by {name}, which lies in its own frame on the virtual machine's \
                 stack: no other thread is known to reach it"
            );
        } else if let Some(name) = bound {
            thread.reason = format!(
                "the loop ends by {name}, but its thread counts, and nobody else can write the \
                 word: it may come to an end by itself"
            );
        } else if let Some((name, class)) = fixed {
            thread.reason = format!(
                "the loop ends by {name}, but the value of an object of {class} never changes: a \
                 reference to another such object would be written"
            );
        } else if let Some(name) = copied {
            thread.reason = format!(
                "the loop ends by {name}, but its object is a constant of the program, too: who \
                 writes to the variable copies it first"
            );
        } else if !is_made {
            thread.reason = OF_INTERPRETER.into();
        } else if names.len() > 1 {
            thread.reason = format!(
                "each of {} words would end the virtual machine's loop, and nobody is known to owe \
                 one of them: {}",
                names.len(),
                names.join(", ")
            );
        } else if let (true, [one]) = (is_cut, names.as_slice()) {
            thread.reason = format!(
                "the loop ends by {one}, but there was no time to try all words that it tests"
            );
        } else if !is_open {
            thread.reason = format!(
                "the loop is a virtual machine's; {} comes nearest, but no copy shows that it ends \
                 the loop",
                thread.considered.first().map(name).unwrap_or_default()
            );
        }
        return;
    };
    thread.reason = format!(
        "the loop polls {}; it ends when {}",
        flag.flag.name, flag.flag.exit_when
    );
    thread.verdict = Some(Verdict::DataFlag);
    thread.class = Class::RepeatedYield;
    let by_code = if by_code { flag.flag.confidence } else { 0.0 };
    flag.flag.confidence = by_code.max(TRIED_ONLY);
    flag.flag.rank = 1;
    flag.note(match names.len() {
        1 => format!("of {tried} words that were tried in a copy, it alone ends the loop"),
        many => format!("of {many} words that end the loop, the others are more likely checks"),
    });
    *flags = vec![flag];
}

#[cfg(test)]
#[path = "vm_words_tests.rs"]
mod tests;
