// SPDX-License-Identifier: MIT
//! The rules that judge words by names, so that each can be switched off and measured.
//!
//! In: the environment's `FF_WITHOUT`, names with commas between them. Out: whether a rule is
//! asked. The terms by which `rank.rs` adds up a score have no names yet.

use std::sync::OnceLock;

/// A step of judging that can be left out; [`RULES`] says what each does.
#[expect(missing_docs, reason = "RULES has a sentence for each")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    CallFirst,
    Commands,
    WaitedWord,
    AlikeInMachine,
    GetsPast,
    Computes,
    CountedCalls,
    OneMoment,
    StopBySignal,
    ProofOrder,
    Checks,
    OwnSide,
    MachineWords,
    LowScores,
    OwedFirst,
    PollFirst,
    OneOfTwo,
    BesidePoll,
    EndedNothing,
    TrustProved,
    ServesMachine,
    IdleBesideProgress,
    Heartbeats,
}

/// All rules, in the order in which they are asked: the rule, its name, and what it does.
pub const RULES: [(Rule, &str, &str); 23] = [
    (
        Rule::CallFirst,
        "call-first",
        "A system call whose answer decides comes before words that only look likely.",
    ),
    (
        Rule::Commands,
        "commands",
        "A call that changes something asks nothing: its success does not keep a loop waiting.",
    ),
    (
        Rule::WaitedWord,
        "waited-word",
        "The word of a wait with a time limit is the flag where nothing else is clear.",
    ),
    (
        Rule::AlikeInMachine,
        "alike-in-machine",
        "Of many equally likely words of a virtual machine's loop none is the flag.",
    ),
    (
        Rule::GetsPast,
        "gets-past",
        "A thread that leaves its loop while the word changes does not wait for the word.",
    ),
    (
        Rule::Computes,
        "computes",
        "No word of a loop that hands on a new value in each round is a flag: it computes.",
    ),
    (
        Rule::CountedCalls,
        "counted-calls",
        "A call that fails each time, where nothing else is answered anew, is made in vain.",
    ),
    (
        Rule::OneMoment,
        "one-moment",
        "In a core, a word is at most assumed, unless a thread that waits itself is to write it.",
    ),
    (
        Rule::StopBySignal,
        "stop-by-signal",
        "A word that only a signal's handler can write stops a loop of long rounds: it is no flag.",
    ),
    (
        Rule::ProofOrder,
        "proof-order",
        "A word by which a copy left the loop comes before one by which it did not.",
    ),
    (
        Rule::Checks,
        "checks",
        "A word by which only an error ends the loop is a check, and no flag.",
    ),
    (
        Rule::OwnSide,
        "own-side",
        "The index that the waiting thread moves itself is not what it waits for.",
    ),
    (
        Rule::MachineWords,
        "machine-words",
        "Of a virtual machine's words only one that ends the program's loop is the flag.",
    ),
    (
        Rule::LowScores,
        "low-scores",
        "A word with a low score is the flag if copies show its writer and its effect.",
    ),
    (
        Rule::OwedFirst,
        "owed-first",
        "A word that a thread is on its way to write comes before one that nobody owes.",
    ),
    (
        Rule::PollFirst,
        "poll-first",
        "A poll in vain comes before a word that is tested only within it.",
    ),
    (
        Rule::OneOfTwo,
        "one-of-two",
        "Where two words would do, and no copy tells them apart, neither is sure.",
    ),
    (
        Rule::BesidePoll,
        "beside-poll",
        "A word that nobody is known to owe is not sure beside a poll in vain.",
    ),
    (
        Rule::EndedNothing,
        "ended-nothing",
        "A word whose trial ended nothing, and which nobody owes, is not sure.",
    ),
    (
        Rule::TrustProved,
        "trust-proved",
        "A word that a copy of another thread wrote is sure.",
    ),
    (
        Rule::ServesMachine,
        "serves-machine",
        "A thread that serves a virtual machine and looks seldom has no flag.",
    ),
    (
        Rule::IdleBesideProgress,
        "idle-beside-progress",
        "An unsure word of an idle thread is no flag beside a thread that gets on.",
    ),
    (
        Rule::Heartbeats,
        "heartbeats",
        "A thread that wakes seldom comes behind one that repeats a wait all the time.",
    ),
];

impl Rule {
    /// Is it asked? All are but those that `FF_WITHOUT` names.
    pub fn is_on(self) -> bool {
        static OFF: OnceLock<Vec<Rule>> = OnceLock::new();
        let off = OFF.get_or_init(|| off(&std::env::var("FF_WITHOUT").unwrap_or_default()));
        !off.contains(&self)
    }
}

fn off(names: &str) -> Vec<Rule> {
    let rules = names
        .split(',')
        .filter_map(|name| RULES.iter().find(|rule| rule.1 == name.trim()));
    rules.map(|rule| rule.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_switched_off_by_name_and_each_name_is_one_rule() {
        assert_eq!(
            off("own-side, heartbeats,none"),
            [Rule::OwnSide, Rule::Heartbeats]
        );
        assert!(off("").is_empty());
        for (rule, name, _) in RULES {
            assert_eq!(off(name), [rule]);
        }
    }
}
