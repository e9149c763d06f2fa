// SPDX-License-Identifier: MIT
use flagfinder_code::Code;
use flagfinder_flags::{Ask, Facts, LoopKind, LoopReport, VirtualMachine};
use flagfinder_machine::Reader;
use flagfinder_replica::Outcome::{self, Faults, Leaves, Returns};

use super::*;
use crate::candidate::tests::{self as candidates, name};

const MODULE: Option<&str> = Some("interpreter");

fn word(name: &str, outcome: Outcome) -> Candidate {
    candidates::word(name, 0.45, Some((outcome, None)))
}

/// At this address.
fn word_at(name: &str, outcome: Outcome, address: u64) -> Candidate {
    let mut word = word(name, outcome);
    word.flag.address.spin = Some(address);
    word
}

fn of_machine(machine: VirtualMachine) -> Facts {
    Facts {
        machine: Some(machine),
        ..Facts::default()
    }
}

/// The one of these words, in a loop of generated code, that is the flag: one that a thread may
/// owe, or the likeliest.
fn settled(words: Vec<Candidate>, owed: Option<usize>) -> ThreadReport {
    settled_in(None, words, owed)
}

fn settled_in(module: Option<&str>, words: Vec<Candidate>, owed: Option<usize>) -> ThreadReport {
    settled_of(VirtualMachine::default(), module, words, owed)
}

fn settled_of(
    machine: VirtualMachine,
    module: Option<&str>,
    words: Vec<Candidate>,
    owed: Option<usize>,
) -> ThreadReport {
    let mut standings = vec![Owing::Nobody; words.len()];
    if let Some(owed) = owed {
        standings[owed] = Owing::Proved;
    }
    let mut thread = ThreadReport {
        flags: words,
        facts: of_machine(machine),
        spin_loop: Some(LoopReport {
            kind: LoopKind::Busy,
            function: None,
            module: None,
            iterations: 9,
            header: Code {
                module: module.map(str::to_owned),
                ..Code::default()
            },
            at: None,
        }),
        verdict: Some(Verdict::NoFlag),
        ..ThreadReport::blank(1, Class::LongRunning)
    };
    let tests = Tests {
        fails: &|flag| name(flag) == "nulled",
        is_reference: &|flag| name(flag) == "object",
        is_local: &|flag| name(flag) == "local",
        never_changes: &|flag| (name(flag) == "boxed").then(|| "Integer".into()),
        has_one_writer: &|flag| name(flag) == "private",
    };
    settle(&mut thread, &mut standings, true, &tests);
    assert_eq!(standings.len(), usize::from(thread.has_flag()));
    thread
}

fn flag(words: &[(&str, Outcome)], owed: Option<usize>) -> Option<String> {
    let words = words.iter().map(|(name, outcome)| word(name, *outcome));
    let thread = settled(words.collect(), owed);
    first(&thread)
}

fn first(thread: &ThreadReport) -> Option<String> {
    thread.flags.first().map(|flag| name(flag).to_owned())
}

#[test]
fn a_loop_that_counts_does_not_wait_for_what_nobody_else_can_write() {
    let is_told = |counts: bool, name: &str| {
        let machine = VirtualMachine {
            readers: vec![reader()],
            counts,
            ..VirtualMachine::default()
        };
        settled_of(machine, MODULE, vec![word(name, Leaves)], None).has_flag()
    };
    assert!(is_told(true, "flag") && is_told(false, "private"));
    assert!(!is_told(true, "private"));
}

#[test]
fn the_word_that_alone_ends_the_loop_is_the_flag() {
    let words = [("request", Returns), ("state", Leaves), ("type", Faults)];
    assert_eq!(flag(&words, None).as_deref(), Some("state"));
    assert_eq!(flag(&words[..1], None), None);
    let words = [("nulled", Leaves), ("object", Leaves), ("state", Leaves)];
    assert_eq!(flag(&words, None).as_deref(), Some("state"));
    let thread = settled(vec![word("state", Leaves), word("type", Returns)], None);
    assert_eq!(thread.verdict, Some(Verdict::DataFlag));
    assert_eq!(thread.considered.len(), 1);
}

#[test]
fn a_word_is_not_the_only_one_if_there_was_no_time_to_try_all() {
    let chosen = |not_all_tried: bool, owing: Owing| {
        let mut thread = settled(vec![word("state", Returns)], None);
        thread.flags = vec![word("state", Leaves)];
        thread.not_all_tried = not_all_tried;
        settle(&mut thread, &mut vec![owing], true, &NOTHING);
        first(&thread)
    };
    assert_eq!(chosen(false, Owing::Nobody).as_deref(), Some("state"));
    assert_eq!(chosen(true, Owing::Nobody), None);
    assert_eq!(chosen(true, Owing::Proved).as_deref(), Some("state"));
}

#[test]
fn the_owed_word_of_several_is_the_flag() {
    let words = [("length", Leaves), ("state", Leaves)];
    assert_eq!(flag(&words, None), None);
    assert_eq!(flag(&words, Some(1)).as_deref(), Some("state"));
    let words = words.map(|(name, outcome)| word(name, outcome)).to_vec();
    assert!(settled(words, None).reason.contains("each of 2 words"));
}

#[test]
fn a_word_that_is_compared_with_another_is_tried_first_whatever_its_score() {
    let asks = vec![compared(0x3000, 7)];
    let words = [
        ("check", 0x1000, 0.3),
        ("rare", 0x2000, 0.0),
        ("state", 0x3000, 0.0),
    ];
    let words = words.map(|(name, at, confidence)| {
        let mut word = word_at(name, Returns, at);
        word.flag.confidence = confidence;
        word
    });
    let mut thread = ThreadReport {
        considered: words.to_vec(),
        facts: of_machine(VirtualMachine {
            asks,
            ..VirtualMachine::default()
        }),
        ..ThreadReport::blank(1, Class::LongRunning)
    };
    take_up(&mut thread);
    let names: Vec<_> = thread.flags.iter().map(name).collect();
    assert_eq!(names, ["state", "check"]);
}

#[test]
fn of_a_variable_and_a_constant_the_one_behind_more_pointers_is_the_flag() {
    let of = |hops: &[(u64, u32)]| {
        let machine = VirtualMachine {
            readers: vec![reader()],
            hops: hops.to_vec(),
            ..VirtualMachine::default()
        };
        let words = [("constant", 0x1000), ("variable", 0x2000)];
        let words = words.map(|(name, at)| word_at(name, Leaves, at));
        let thread = settled_of(machine, MODULE, words.to_vec(), None);
        first(&thread)
    };
    assert_eq!(of(&[(0x1000, 3), (0x2000, 5)]).as_deref(), Some("variable"));
    assert_eq!(of(&[(0x1000, 3), (0x2000, 3)]), None, "both alike");
    assert_eq!(of(&[(0x1000, 3)]), None, "it is not known of the other");
}

#[test]
fn the_word_least_like_a_check_is_the_flag() {
    let mut words = vec![word("length", Leaves), word("state", Leaves)];
    words[0].flag.confidence = 0.3;
    assert_eq!(first(&settled(words, None)).as_deref(), Some("state"));
}

#[test]
fn the_machines_own_words_are_no_flags_though_they_end_the_loop() {
    let mut own = word("stop", Leaves);
    own.flag.kind = FlagKind::Global;
    assert!(!settled(vec![own.clone()], None).has_flag());
    own.flag.kind = FlagKind::Stack;
    assert!(
        !settled(vec![own.clone()], None).has_flag(),
        "a variable of its function"
    );
    assert!(settled(vec![own], Some(0)).has_flag(), "a thread owes it");
    let of = |own, owed| {
        let word = word_at("tag", Leaves, 0x1000);
        settled_of(owns(own), None, vec![word], owed).has_flag()
    };
    assert!(!of(Own::Check, None) && of(Own::Check, Some(0)));
    assert!(!of(Own::Bits, Some(0)), "it is written with its object");
}

#[test]
fn a_word_on_the_machines_stack_is_a_flag_only_if_it_is_owed() {
    let words = || vec![word("local", Leaves)];
    let thread = settled(words(), None);
    assert!(!thread.has_flag() && thread.reason.contains("its own frame"));
    assert!(settled(words(), Some(0)).has_flag());
}

#[test]
fn a_word_that_is_never_written_is_no_flag() {
    let thread = settled(vec![word("boxed", Leaves)], Some(0));
    assert!(!thread.has_flag() && thread.reason.contains("object of Integer never changes"));
    let shared = word_at("slot", Leaves, 0x1000);
    let thread = settled_of(owns(Own::Shared), None, vec![shared], Some(0));
    assert!(!thread.has_flag() && thread.reason.contains("copies it first"));
}

fn owns(own: Own) -> VirtualMachine {
    VirtualMachine {
        own: vec![(0x1000, own)],
        ..VirtualMachine::default()
    }
}

#[test]
fn the_flag_of_an_interpreted_program_is_the_only_word_that_ends_its_loop() {
    let machine = || VirtualMachine {
        readers: vec![reader()],
        ..VirtualMachine::default()
    };
    let settled = |words| settled_of(machine(), MODULE, words, None);
    let words = vec![word("state", Leaves), word("type", Returns)];
    assert_eq!(first(&settled(words)).as_deref(), Some("state"));
    let mut words = vec![word("state", Leaves), word("constant", Leaves)];
    words[1].flag.confidence = 0.1;
    assert!(!settled(words).has_flag(), "its score says nothing");
}

#[test]
fn a_hash_that_an_interpreter_compares_with_another_is_no_flag() {
    const HASH: u64 = 0x7d3a_91c4_55e0_1b27;
    let settled = |module: Option<&str>, held: u64, asked: u64| {
        let machine = VirtualMachine {
            readers: vec![reader()],
            asks: vec![compared(0x1000, asked)],
            ..VirtualMachine::default()
        };
        let mut word = word_at("word", Leaves, 0x1000);
        (word.flag.value.spin, word.flag.value.exit) = (Some(held), Some(asked));
        settled_of(machine, module, vec![word], None).has_flag()
    };
    assert!(!settled(MODULE, HASH, 0x2e88_07f1_d94c_a603));
    assert!(settled(MODULE, HASH, HASH + 1), "values of a time");
    assert!(settled(MODULE, HASH, 7), "a count");
    let [half, two] = [0.5f64, 2.0].map(f64::to_bits);
    assert!(settled(MODULE, half, two), "fractions");
    assert!(settled(None, HASH, 0x2e88_07f1_d94c_a603), "generated code");
}

fn reader() -> Reader {
    let reader = r#"{"pc": 4096, "base": 0, "index": null, "scale": 1, "displacement": 0}"#;
    serde_json::from_str(reader).expect("a reader")
}

/// A test that compares the word at the address with another one.
fn compared(address: u64, value: u64) -> Ask {
    Ask {
        address,
        bytes: 8,
        with_word: true,
        value,
        when: "equal".into(),
    }
}

#[test]
fn an_interpreter_in_a_module_has_a_flag_only_where_a_thread_owes_it() {
    let words = || vec![word("state", Leaves)];
    let thread = settled_in(MODULE, words(), None);
    assert!(!thread.has_flag() && thread.reason.contains("an interpreter's"));
    assert!(settled_in(MODULE, words(), Some(0)).has_flag());
}

#[test]
fn without_a_copy_only_an_owed_word_is_a_flag() {
    let in_place = |standing| {
        let mut thread = ThreadReport {
            flags: vec![word("state", Leaves)],
            facts: of_machine(VirtualMachine::default()),
            via: Some(Via::InPlace),
            ..ThreadReport::blank(1, Class::LongRunning)
        };
        let mut standings = vec![standing];
        settle(&mut thread, &mut standings, true, &NOTHING);
        thread.has_flag()
    };
    assert!(in_place(Owing::Proved) && !in_place(Owing::Nobody));
}

#[test]
fn a_word_that_is_not_tried_is_no_flag() {
    let mut thread = settled(vec![word("state", Leaves)], None);
    assert!(thread.has_flag());
    thread.flags[0].trial = None;
    leave(&mut thread);
    assert!(!thread.has_flag());
    assert_eq!(name(&thread.considered[0]), "state");
}

#[test]
fn only_a_machines_loop_without_a_flag_is_open() {
    let mut thread = settled(vec![word("request", Returns)], None);
    assert!(is_open(&thread));
    take_up(&mut thread);
    assert!(thread.has_flag() && !is_open(&thread));
    let mut thread = settled(vec![word("request", Returns)], None);
    thread.facts.gets_on = true;
    assert!(!is_open(&thread));
}

#[test]
fn the_last_of_many_threads_have_no_words_tried() {
    let thread = settled(vec![word("request", Returns)], None);
    assert!(is_late(&thread, LATEST * 2) && !is_late(&thread, LATEST / 2));
    let thread = settled(vec![word("state", Leaves)], None);
    assert!(!is_late(&thread, LATEST * 2), "it has a flag");
}
