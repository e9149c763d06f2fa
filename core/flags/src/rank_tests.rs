// SPDX-License-Identifier: MIT
//! A loop of generated code that tests a word, which it gets from a function that checks others, or
//! beside these checks.

use std::sync::atomic::AtomicU64;

use flagfinder_code::{Names, NamesInput};
use flagfinder_machine::evaluator::Access;
use flagfinder_machine::value::Value;
use flagfinder_machine::Window;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

use super::{doubt_alike, Ranked, ENOUGH, ENOUGH_ALONE};
use crate::report::{Flag, ThreadName};
use crate::rules::Signs;

const WORD: u64 = 0x50_0000;
const CHECKED: u64 = 0x60_0000;
const FRAME: u64 = 0x7fff_7000;
const RAX: u8 = 0;

/// call 0x2000
const CALL: (u64, &[u8]) = (0x1000, &[0xe8, 0xfb, 0x0f, 0, 0]);
/// mov eax, [rcx]; ret
const LOAD: (u64, &[u8]) = (0x2100, &[0x8b, 0x01]);
const RETURN: (u64, &[u8]) = (0x2102, &[0xc3]);
/// test eax, eax; je 0x1000
const TEST: (u64, &[u8]) = (0x1005, &[0x85, 0xc0]);
const BACK: (u64, &[u8]) = (0x1007, &[0x74, 0xf7]);

/// The flag that is found when the checks are made so far below the loop's frame.
fn found(below: u64) -> Flag {
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    let mut step = |(pc, bytes): (u64, &[u8]), rsp: u64, read: Option<u64>| {
        let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
        let index = window.intern(&decoder.decode(), 0, &mut factory);
        window.push(index, Value::of(rsp));
        window_read(&mut window, read);
        if pc == LOAD.0 {
            window.push_result(RAX, Value::of(0));
        }
    };
    for _ in 0..12 {
        step(CALL, FRAME, None);
        for number in 0..5 {
            // cmp dword [rbx], 0; jne +0x40
            let at = 0x2000 + 5 * number;
            let checked = CHECKED + 64 * number;
            step((at, &[0x83, 0x3b, 0x00]), FRAME - below, Some(checked));
            step((at + 3, &[0x75, 0x40]), FRAME - below, None);
        }
        step(LOAD, FRAME - below, Some(WORD));
        step(RETURN, FRAME - below, None);
        step(TEST, FRAME, None);
        step(BACK, FRAME, None);
    }
    let thread = ThreadName {
        tid: 1,
        name: String::new(),
    };
    let names = Names::new(NamesInput::default());
    let mut flags = crate::find_in_window(&window, &names, thread).flags;
    let of_word = flags
        .iter()
        .position(|flag| flag.address.spin == Some(WORD));
    flags.swap_remove(of_word.expect("the word among the flags"))
}

fn window_read(window: &mut Window, address: Option<u64>) {
    if let Some(address) = address {
        window.push_access(Access {
            address: Some(address),
            bytes: 4,
            write: false,
            value: Value::of(0),
        });
    }
}

/// Twelve rounds of these instructions, the first of which reads that word.
fn rounds(round: &[(u64, &[u8])], address: u64, bytes: u32, value: u64) -> Window {
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    for step in 0..12 * round.len() {
        let (pc, code) = round[step % round.len()];
        let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
        let index = window.intern(&decoder.decode(), 0, &mut factory);
        window.push(index, Value::of(FRAME));
        if step % round.len() == 0 {
            window.push_access(Access {
                address: Some(address),
                bytes,
                write: false,
                value: Value::of(value),
            });
        }
    }
    window
}

fn is_called_a_check(flag: &Flag) -> bool {
    let mut evidence = flag.evidence.iter();
    evidence.any(|why| why.contains("tests types and bounds like this"))
}

#[test]
fn what_the_loop_asks_of_an_answer_is_no_check_of_operands() {
    let flag = found(8);
    assert!(!is_called_a_check(&flag));
    assert_eq!(flag.rank, 1);
}

#[test]
fn among_checks_that_look_alike_it_may_be_one() {
    assert!(is_called_a_check(&found(0)));
}

/// Rounds of `cmp eax, [rip+0xc]` or `cmp eax, [rbx]`, which read executable memory, and a branch
/// back.
fn compared_with_code(by_rip: bool) -> f64 {
    const CONSTANT: u64 = 0x1012;
    let compare: &[u8] = match by_rip {
        true => &[0x3b, 0x05, 0x0c, 0, 0, 0],
        false => &[0x3b, 0x03, 0x0f, 0x1f, 0x40, 0],
    };
    let window = rounds(
        &[(0x1000, compare), (0x1006, &[0x74, 0xf8])],
        CONSTANT,
        4,
        0,
    );
    let thread = ThreadName {
        tid: 1,
        name: String::new(),
    };
    let maps = "1000-2000 rwxp 00000000 00:00 0 \n";
    let names = Names::new(NamesInput::from_code_maps(maps, 0));
    let report = crate::find_in_window(&window, &names, thread);
    report.flags.first().map_or(0.0, |flag| flag.confidence)
}

#[test]
fn a_constant_of_generated_code_is_no_flag() {
    assert!(compared_with_code(false) >= ENOUGH_ALONE);
    assert!(compared_with_code(true) < ENOUGH);
}

#[test]
fn of_many_words_that_are_all_as_good_none_is_the_flag() {
    let word = |candidate, score| Ranked {
        candidate,
        score,
        weight: score,
        exit: 0,
        signs: Signs::default(),
        own: None,
    };
    let best = |scores: &[f64]| {
        let mut ranked: Vec<Ranked> = (0..).zip(scores).map(|(n, s)| word(n, *s)).collect();
        doubt_alike(&mut ranked);
        ranked[0].score
    };
    assert!(best(&[0.63, 0.61, 0.59, 0.59]) < ENOUGH);
    assert_eq!(best(&[0.63, 0.61, 0.59, 0.5]), 0.63);
    assert_eq!(best(&[0.63, 0.3, 0.3, 0.3, 0.3]), 0.63);
}

/// The confidence in the word that an interpreter compares in each round, between jumps from
/// routine to routine, if this is its value.
fn interpreted(value: u64) -> f64 {
    // cmp rax, [rbx]; je +0x40; jmp rcx, the last of which goes back
    let round: [(u64, &[u8]); 6] = [
        (0x1000, &[0x48, 0x3b, 0x03]),
        (0x1003, &[0x74, 0x40]),
        (0x1005, &[0xff, 0xe1]),
        (0x2000, &[0xff, 0xe1]),
        (0x3000, &[0xff, 0xe1]),
        (0x4000, &[0xff, 0xe1]),
    ];
    let window = rounds(&round, WORD, 8, value);
    let thread = ThreadName {
        tid: 1,
        name: String::new(),
    };
    let maps = "1000-5000 rwxp 00000000 00:00 0 \n500000-700000 rw-p 00000000 00:00 0 \n";
    let names = Names::new(NamesInput::from_code_maps(maps, 0));
    let report = crate::find_in_window(&window, &names, thread);
    report.flags.first().map_or(0.0, |flag| flag.confidence)
}

#[test]
fn how_an_interpreter_uses_a_type_is_less_likely_the_flag() {
    let (object, code) = (interpreted(CHECKED), interpreted(0x2000));
    assert!(object > code + 0.1, "{object} {code}");
    assert!(code > 0.0);
}

/// Go's name for what a map gives for a key that it does not hold.
#[export_name = "runtime.zeroVal"]
static ZERO: AtomicU64 = AtomicU64::new(0);
#[export_name = "ff_some_word"]
static SOME_WORD: AtomicU64 = AtomicU64::new(0);

/// Is a word of this very program the flag of rounds of `cmp eax, [rbx]` and a branch back?
fn is_flag(word: &AtomicU64) -> bool {
    let address = std::ptr::from_ref(word) as u64;
    let round: [(u64, &[u8]); 2] = [(0x1000, &[0x3b, 0x03]), (0x1002, &[0x74, 0xfc])];
    let window = rounds(&round, address, 4, 0);
    let thread = ThreadName {
        tid: 1,
        name: String::new(),
    };
    let names = NamesInput::from_live(std::process::id()).expect("its own /proc");
    let report = crate::find_in_window(&window, &Names::new(names), thread);
    !report.flags.is_empty()
}

#[test]
fn what_maps_give_for_unknown_keys_is_no_flag() {
    assert!(is_flag(&SOME_WORD));
    assert!(!is_flag(&ZERO));
}
