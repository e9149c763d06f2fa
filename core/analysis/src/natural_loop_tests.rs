// SPDX-License-Identifier: MIT
//! What a function returns on a way that was never taken.

use flagfinder_machine::decoded::general;
use flagfinder_machine::value::Value;

use super::*;
use crate::exit::Transfer;

const OTHER: u64 = 0x2000;

/// `mov eax, value; ret`
fn ending(value: i32) -> Vec<u8> {
    let value = value.to_le_bytes();
    [&[0xb8][..], &value, &[0xc3]].concat()
}

/// Does a function that returned `now` behind its test return the same, as far as it matters, if
/// that goes the other way?
fn is_same(now: i32, otherwise: i32) -> bool {
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    let code = [vec![0x75, 0x20], ending(now)].concat();
    for at in [0, 2, 7] {
        let pc = 0x1000 + at as u64;
        let mut decoder = Decoder::with_ip(64, &code[at..], pc, DecoderOptions::NONE);
        let index = window.intern(&decoder.decode(), 0, &mut factory);
        window.push(index, Value::of(0x7000));
        if at == 2 {
            window.push_result(RAX, Value::of(u64::from(now as u32)));
        }
    }
    let exit = Exit {
        step: 0,
        transfer: Transfer::Branch,
        taken: false,
        other: Some(OTHER),
        sources: Vec::new(),
        words: 0,
        induction: false,
        ends_scan: false,
    };
    let code = ending(otherwise);
    let read = |address: u64, buffer: &mut [u8]| {
        let at = address.checked_sub(OTHER).map(|at| at as usize);
        let bytes = at.and_then(|at| code.get(at..)).unwrap_or(&[]);
        let got = bytes.len().min(buffer.len());
        buffer[..got].copy_from_slice(&bytes[..got]);
        got
    };
    returns_the_same(&window, &exit, OTHER, &read)
}

#[test]
fn another_error_does_not_end_the_loop() {
    assert!(is_same(-libc::EBUSY, -libc::EINVAL));
    assert!(is_same(1, 1));
    assert!(!is_same(-libc::EBUSY, 0));
    assert!(!is_same(1, -libc::EINVAL));
}

/// 0 and 1 lead to 2 and back to 0; from 1 another way leads over 3 to 2, or from there out of the
/// loop to 9.
#[test]
fn a_check_on_the_other_way_is_no_way_out() {
    let edges = [(0, 1), (1, 2), (2, 0), (2, 8), (1, 3), (3, 2), (3, 9)];
    let mut successors: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (from, to) in edges {
        successors.entry(from).or_default().push(to);
    }
    let function = Function {
        start: 0x1000,
        end: 0x1010,
        loops: Loops::new(&Graph::new(0, edges)),
        edges: successors,
        atomics: FxHashSet::default(),
        effects: FxHashMap::default(),
    };
    let around = &function.loops.all()[0];
    let executed = [0, 1, 2].into_iter().collect();
    let way = |dies: bool| {
        let dies = |pc: u64| dies && pc == 0x1009;
        function.beyond(3, around, &executed, &dies)
    };
    assert_eq!(way(true), Some(OtherWay::Stays));
    assert_eq!(way(false), Some(OtherWay::Tests));
}

/// Does the exit at the end of this code test what r14 held before it? (Where the stack pointer is
/// another, the code is a called function's.)
fn tests_r14(code: &[(u64, &[u8])]) -> bool {
    const FRAME: u64 = 0x7000;
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    let jump = (FRAME, &[0x75u8, 0x20][..]);
    let mut pc = 0x1000;
    for (rsp, bytes) in code.iter().copied().chain([jump]) {
        let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
        let index = window.intern(&decoder.decode(), 0, &mut factory);
        window.push(index, Value::of(rsp));
        pc += bytes.len() as u64;
    }
    let end = window.len();
    let exits = [(window.pc(end - 1), FRAME)].into_iter().collect();
    !later_test::tests(&window, 0..end, FRAME, general(14), &exits).is_empty()
}

#[test]
fn values_of_the_other_way_may_be_tested_later() {
    let test = (0x7000, &[0x49, 0x83, 0xfe, 0x03][..]); // cmp r14, 3
    let copy = (0x7000, &[0x4c, 0x89, 0xf0][..]); // mov rax, r14
    let test_copy = (0x7000, &[0x48, 0x85, 0xc0][..]); // test rax, rax
    let anew = (0x7000, &[0x45, 0x31, 0xf6][..]); // xor r14d, r14d
    let called = (0x6ff8, &[0x90][..]);
    let other = (0x7000, &[0x48, 0x83, 0xfb, 0x03][..]); // cmp rbx, 3
    assert!(tests_r14(&[test]));
    assert!(tests_r14(&[called, test]), "kept by who is called");
    assert!(tests_r14(&[copy, anew, test_copy]));
    assert!(!tests_r14(&[copy, anew, called, test_copy]), "not kept");
    assert!(!tests_r14(&[anew, test]));
    assert!(!tests_r14(&[test, other]));
}

/// A function of this code, of which the first `executed` bytes were executed, in one frame; the
/// register of results is 0 behind `zeroed`.
fn function(code: &[u8], executed: usize, zeroed: usize) -> (Function, Window) {
    const START: u64 = 0x1000;
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    let mut function = Function {
        start: START,
        end: START + code.len() as u64,
        loops: Loops::new(&Graph::new(0, [(0, 2)])),
        edges: FxHashMap::default(),
        atomics: FxHashSet::default(),
        effects: FxHashMap::default(),
    };
    let mut at = 0;
    while at < code.len() {
        let pc = START + at as u64;
        let instruction = Decoder::with_ip(64, &code[at..], pc, DecoderOptions::NONE).decode();
        let next = at + instruction.len();
        let effect = Effect::of(&instruction, false, &mut factory);
        let branches = instruction.flow_control() == FlowControl::ConditionalBranch;
        let ends = effect.returns || instruction.flow_control() == FlowControl::Exception;
        let target = branches.then(|| (instruction.near_branch_target() - START) as u32);
        let nexts = (!ends).then_some(next as u32).into_iter().chain(target);
        function.edges.insert(at as u32, nexts.collect());
        function.effects.insert(at as u32, effect);
        if at < executed {
            let index = window.intern(&instruction, 0, &mut factory);
            window.push(index, Value::of(0x7000));
        }
        if at == zeroed {
            window.push_result(RAX, Value::of(0));
        }
        at = next;
    }
    (function, window)
}

/// The exit at the second instruction, which would lead behind the first 7 bytes.
fn second(other: u64) -> Exit {
    Exit {
        step: 1,
        transfer: Transfer::Branch,
        taken: false,
        other: Some(other),
        sources: Vec::new(),
        words: 0,
        induction: false,
        ends_scan: false,
    }
}

/// Does a function that tested something and returned 0 return 0 behind this code, too, on the
/// other way of that test?
fn answers_alike(other: &[u8]) -> bool {
    // test cl, cl; jne 5; xor eax, eax; ret; then the other way
    let code = [&[0x84, 0xc9, 0x75, 0x03, 0x31, 0xc0, 0xc3], other].concat();
    let (function, window) = function(&code, 7, 4);
    function.answers_alike(&second(0x1007), 0x1007, &window)
}

#[test]
fn what_only_checks_something_more_skips_it() {
    // test cl, cl; jne 5; xor eax, eax; ret; the other way: test dl, dl; je back; ud2
    let code = [
        0x84, 0xc9, 0x75, 0x03, 0x31, 0xc0, 0xc3, 0x84, 0xd2, 0x74, 0xf9, 0x0f, 0x0b,
    ];
    let (function, window) = function(&code, 7, 4);
    let executed = [0, 2, 4, 6].into_iter().collect();
    let way = |dies: bool| {
        let dies = |pc: u64| dies && pc == 0x100b;
        function.skips(&second(0x1007), 7, &window, &executed, &dies)
    };
    assert_eq!(way(true), Some(OtherWay::Skips));
    assert_eq!(way(false), None);
}

#[test]
fn a_function_with_a_constant_result_says_nothing() {
    const CALL: &[u8] = &[0xe8, 0, 0x10, 0, 0];
    let way = |ending: &[u8]| answers_alike(&[CALL, ending].concat());
    assert!(way(&[0x31, 0xc0, 0xc3]), "xor eax, eax; ret");
    assert!(!way(&[0xb8, 1, 0, 0, 0, 0xc3]), "mov eax, 1; ret");
    assert!(!way(&[0xc3]), "what the call returned");
    assert!(
        !way(&[0x31, 0xc0, 0xe9, 0, 0x10, 0, 0]),
        "what another function returns"
    );
}

#[test]
fn a_later_test_must_lead_out() {
    let mut found = FxHashMap::default();
    for branch in [1, 2, 3, 4, 5] {
        found.insert(branch, OtherWay::Stays);
    }
    // 9 leads out; 4 and 5 test nothing that does.
    let tested = [(1, vec![2]), (2, vec![9]), (3, vec![4]), (5, vec![5])];
    later_test::decide(&mut found, tested.into_iter().collect());
    let decides = |branch: u64| found[&branch] == OtherWay::Decides;
    assert_eq!(
        [1, 2, 3, 4, 5].map(decides),
        [true, true, false, false, false]
    );
}
