//! What a function returns on a way that was never taken.

use super::*;
use crate::decoded::general;
use crate::value::Value;

const OTHER: u64 = 0x2000;

/// `mov eax, value; ret`
fn ending(value: i32) -> Vec<u8> {
    let value = value.to_le_bytes();
    [&[0xb8][..], &value, &[0xc3]].concat()
}

/// Does a function that returned `now` behind its test return the same, as far as it matters, if that goes the other way?
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
        taken: false,
        other: OTHER,
        sources: Vec::new(),
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
    returns_the_same(&window, &exit, &read)
}

#[test]
fn an_error_in_place_of_an_error_lets_nobody_go() {
    assert!(is_same(-libc::EBUSY, -libc::EINVAL));
    assert!(is_same(1, 1));
    assert!(!is_same(-libc::EBUSY, 0));
    assert!(!is_same(1, -libc::EINVAL));
}

/// 0 and 1 lead to 2 and back to 0; from 1 another way leads over 3 to 2, or from there out of the loop to 9.
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
        loops: Loops::new(&Graph::new(0, edges.into_iter())),
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
    is_tested(&window, 0..end, FRAME, general(14), &exits)
}

#[test]
fn what_the_other_way_leaves_may_be_tested_later() {
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

/// Does a function that tested something and returned 0 return 0 behind this code, too, on the other way of that test?
fn answers_alike(other: &[u8]) -> bool {
    const START: u64 = 0x1000;
    // test cl, cl; jne 5; xor eax, eax; ret; then the other way
    let code = [&[0x84, 0xc9, 0x75, 0x03, 0x31, 0xc0, 0xc3], other].concat();
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    let mut function = Function {
        start: START,
        end: START + code.len() as u64,
        loops: Loops::new(&Graph::new(0, [(0, 2)].into_iter())),
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
        if !effect.returns {
            function.edges.insert(at as u32, vec![next as u32]);
        }
        function.effects.insert(at as u32, effect);
        if at < 7 {
            let index = window.intern(&instruction, 0, &mut factory);
            window.push(index, Value::of(0x7000));
        }
        if at == 4 {
            window.push_result(RAX, Value::of(0));
        }
        at = next;
    }
    let exit = Exit {
        step: 1,
        taken: false,
        other: START + 7,
        sources: Vec::new(),
        induction: false,
        ends_scan: false,
    };
    function.answers_alike(&exit, &window)
}

#[test]
fn a_function_that_always_answers_alike_tells_nothing() {
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
