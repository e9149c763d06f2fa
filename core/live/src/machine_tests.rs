// SPDX-License-Identifier: MIT
use flagfinder_flags::VirtualMachine;
use flagfinder_machine::Reader;

use super::*;

fn word(name: &str, outcome: &str) -> Value {
    json!({
        "name": name, "kind": "heap", "confidence": 0.45, "evidence": [],
        "exit_when": "it is 1",
        "proof": { "outcome": outcome, "with": { "0x1000": "0x1" } },
    })
}

/// The one of these words, in a loop of generated code, that is the flag: one that a thread may
/// owe, or the likeliest.
fn settled(words: Vec<Value>, owed: Option<usize>) -> ThreadReport {
    settled_in(&Value::Null, words, owed)
}

fn settled_in(module: &Value, words: Vec<Value>, owed: Option<usize>) -> ThreadReport {
    settled_of(VirtualMachine::default(), module, words, owed)
}

fn settled_of(
    machine: VirtualMachine,
    module: &Value,
    words: Vec<Value>,
    owed: Option<usize>,
) -> ThreadReport {
    let mut standings = vec![Standing::Nobody; words.len()];
    if let Some(owed) = owed {
        standings[owed] = Standing::Proved;
    }
    let mut thread = ThreadReport {
        flags: Value::Array(words),
        machine: Some(machine),
        spin_loop: json!({ "header": { "module": module } }),
        verdict: Some("no-flag".into()),
        ..ThreadReport::blank(1, Class::LongRunning)
    };
    let tests = Tests {
        fails: &|flag| flag["name"] == "nulled",
        is_reference: &|flag| flag["name"] == "object",
        is_local: &|flag| flag["name"] == "local",
        never_changes: &|flag| (flag["name"] == "boxed").then(|| "Integer".into()),
    };
    settle(&mut thread, &mut standings, true, &tests);
    assert_eq!(standings.len(), usize::from(thread.has_flag()));
    thread
}

fn flag(words: &[(&str, &str)], owed: Option<usize>) -> Option<String> {
    let words = words.iter().map(|(name, outcome)| word(name, outcome));
    let thread = settled(words.collect(), owed);
    thread.flags[0]["name"].as_str().map(str::to_owned)
}

#[test]
fn the_word_that_alone_ends_the_loop_is_the_flag() {
    let words = [
        ("request", "returns"),
        ("state", "leaves"),
        ("type", "faults"),
    ];
    assert_eq!(flag(&words, None).as_deref(), Some("state"));
    assert_eq!(flag(&words[..1], None), None);
    let words = [
        ("nulled", "leaves"),
        ("object", "leaves"),
        ("state", "leaves"),
    ];
    assert_eq!(flag(&words, None).as_deref(), Some("state"));
    let thread = settled(vec![word("state", "leaves"), word("type", "returns")], None);
    assert_eq!(thread.verdict.as_deref(), Some("data-flag"));
    assert_eq!(thread.considered.as_array().map(Vec::len), Some(1));
}

#[test]
fn the_owed_word_of_several_is_the_flag() {
    let words = [("length", "leaves"), ("state", "leaves")];
    assert_eq!(flag(&words, None), None);
    assert_eq!(flag(&words, Some(1)).as_deref(), Some("state"));
    let words = words.map(|(name, outcome)| word(name, outcome)).to_vec();
    assert!(settled(words, None).reason.contains("each of 2 words"));
}

#[test]
fn a_word_that_is_compared_with_another_is_tried_first_whatever_its_score() {
    let asks = json!([{
        "address": 0x3000, "bytes": 8, "with_word": true, "value": 7, "when": "it is 7",
    }]);
    let words = [
        ("check", 0x1000, 0.3),
        ("rare", 0x2000, 0.0),
        ("state", 0x3000, 0.0),
    ];
    let words = words.map(|(name, at, confidence)| {
        let mut word = word(name, "returns");
        word["address"] = json!({ "spin": format!("{at:#x}") });
        word["confidence"] = json!(confidence);
        word
    });
    let mut thread = ThreadReport {
        considered: json!(words),
        machine: Some(VirtualMachine {
            asks: serde_json::from_value(asks).expect("asks"),
            ..VirtualMachine::default()
        }),
        ..ThreadReport::blank(1, Class::LongRunning)
    };
    take_up(&mut thread);
    let flags = thread.flags.as_array().into_iter().flatten();
    let names: Vec<_> = flags.filter_map(|flag| flag["name"].as_str()).collect();
    assert_eq!(names, ["state", "check"]);
}

#[test]
fn of_a_variable_and_a_constant_the_one_behind_more_pointers_is_the_flag() {
    let reader = json!({ "pc": 1, "base": 0, "index": null, "scale": 1, "displacement": 0 });
    let of = |hops: &[(u64, u32)]| {
        let machine = VirtualMachine {
            readers: vec![serde_json::from_value(reader.clone()).expect("a reader")],
            hops: hops.to_vec(),
            ..VirtualMachine::default()
        };
        let words = [("constant", "0x1000"), ("variable", "0x2000")].map(|(name, at)| {
            let mut word = word(name, "leaves");
            word["address"] = json!({ "spin": at });
            word
        });
        let thread = settled_of(machine, &json!("module"), words.to_vec(), None);
        thread.flags[0]["name"].as_str().map(str::to_owned)
    };
    assert_eq!(of(&[(0x1000, 3), (0x2000, 5)]).as_deref(), Some("variable"));
    assert_eq!(of(&[(0x1000, 3), (0x2000, 3)]), None, "both alike");
    assert_eq!(of(&[(0x1000, 3)]), None, "it is not known of the other");
}

#[test]
fn the_word_least_like_a_check_is_the_flag() {
    let mut words = vec![word("length", "leaves"), word("state", "leaves")];
    words[0]["confidence"] = json!(0.3);
    assert_eq!(settled(words, None).flags[0]["name"], "state");
}

#[test]
fn the_machines_own_words_are_no_flags_though_they_end_the_loop() {
    let mut own = word("stop", "leaves");
    own["kind"] = json!("global");
    assert!(!settled(vec![own.clone()], None).has_flag());
    own["kind"] = json!("stack");
    assert!(
        !settled(vec![own.clone()], None).has_flag(),
        "a variable of its function"
    );
    assert!(settled(vec![own], Some(0)).has_flag(), "a thread owes it");
    let of = |own, owed| {
        let mut word = word("tag", "leaves");
        word["address"] = json!({ "spin": "0x1000" });
        settled_of(owns(own), &Value::Null, vec![word], owed).has_flag()
    };
    assert!(!of(Own::Check, None) && of(Own::Check, Some(0)));
    assert!(!of(Own::Bits, Some(0)), "it is written with its object");
}

#[test]
fn a_word_on_the_machines_stack_is_a_flag_only_if_it_is_owed() {
    let words = || vec![word("local", "leaves")];
    let thread = settled(words(), None);
    assert!(!thread.has_flag() && thread.reason.contains("its own frame"));
    assert!(settled(words(), Some(0)).has_flag());
}

#[test]
fn a_word_that_is_never_written_is_no_flag() {
    let thread = settled(vec![word("boxed", "leaves")], Some(0));
    assert!(!thread.has_flag() && thread.reason.contains("object of Integer never changes"));
    let mut shared = word("slot", "leaves");
    shared["address"] = json!({ "spin": "0x1000" });
    let thread = settled_of(owns(Own::Shared), &Value::Null, vec![shared], Some(0));
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
    let module = json!("interpreter");
    let machine = || VirtualMachine {
        readers: reader().into_iter().collect(),
        ..VirtualMachine::default()
    };
    let settled = |words| settled_of(machine(), &module, words, None);
    let words = vec![word("state", "leaves"), word("type", "returns")];
    assert_eq!(settled(words).flags[0]["name"], "state");
    let mut words = vec![word("state", "leaves"), word("constant", "leaves")];
    words[1]["confidence"] = json!(0.1);
    assert!(!settled(words).has_flag(), "its score says nothing");
}

#[test]
fn a_hash_that_an_interpreter_compares_with_another_is_no_flag() {
    const HASH: u64 = 0x7d3a_91c4_55e0_1b27;
    let settled = |module: &Value, held: u64, asked: u64| {
        let asks = json!([{
            "address": 0x1000, "bytes": 8, "with_word": true, "value": asked, "when": "equal",
        }]);
        let machine = VirtualMachine {
            readers: reader().into_iter().collect(),
            asks: serde_json::from_value(asks).expect("asks"),
            ..VirtualMachine::default()
        };
        let mut word = word("word", "leaves");
        word["address"] = json!({ "spin": "0x1000" });
        word["value"] = json!({ "spin": format!("{held:#x}"), "exit": format!("{asked:#x}") });
        settled_of(machine, module, vec![word], None).has_flag()
    };
    let module = json!("interpreter");
    assert!(!settled(&module, HASH, 0x2e88_07f1_d94c_a603));
    assert!(settled(&module, HASH, HASH + 1), "values of a time");
    assert!(settled(&module, HASH, 7), "a count");
    let [half, two] = [0.5f64, 2.0].map(f64::to_bits);
    assert!(settled(&module, half, two), "fractions");
    assert!(
        settled(&Value::Null, HASH, 0x2e88_07f1_d94c_a603),
        "generated code"
    );
}

fn reader() -> Option<Reader> {
    let reader = json!({
        "pc": 0x1000, "base": 0, "index": null, "scale": 1, "displacement": 0,
    });
    serde_json::from_value(reader).ok()
}

#[test]
fn an_interpreter_in_a_module_has_a_flag_only_where_a_thread_owes_it() {
    let module = json!("interpreter");
    let words = || vec![word("state", "leaves")];
    let thread = settled_in(&module, words(), None);
    assert!(!thread.has_flag() && thread.reason.contains("an interpreter's"));
    assert!(settled_in(&module, words(), Some(0)).has_flag());
}

#[test]
fn without_a_copy_only_an_owed_word_is_a_flag() {
    let in_place = |standing| {
        let mut thread = ThreadReport {
            flags: json!([word("state", "leaves")]),
            machine: Some(VirtualMachine::default()),
            via: Some(Via::InPlace),
            ..ThreadReport::blank(1, Class::LongRunning)
        };
        let mut standings = vec![standing];
        settle(&mut thread, &mut standings, true, &NOTHING);
        thread.has_flag()
    };
    assert!(in_place(Standing::Proved) && !in_place(Standing::Nobody));
}

#[test]
fn a_word_that_is_not_tried_is_no_flag() {
    let mut thread = settled(vec![word("state", "leaves")], None);
    assert!(thread.has_flag());
    thread.flags[0]["proof"] = Value::Null;
    leave(&mut thread);
    assert!(!thread.has_flag());
    assert_eq!(thread.considered[0]["name"], "state");
}

#[test]
fn only_a_machines_loop_without_a_flag_is_open() {
    let mut thread = settled(vec![word("request", "returns")], None);
    assert!(is_open(&thread));
    take_up(&mut thread);
    assert!(thread.has_flag() && !is_open(&thread));
    let mut thread = settled(vec![word("request", "returns")], None);
    thread.gets_on = true;
    assert!(!is_open(&thread));
}

#[test]
fn the_last_of_many_threads_have_no_words_tried() {
    let thread = settled(vec![word("request", "returns")], None);
    assert!(is_late(&thread, LATEST * 2) && !is_late(&thread, LATEST / 2));
    let thread = settled(vec![word("state", "leaves")], None);
    assert!(!is_late(&thread, LATEST * 2), "it has a flag");
}
