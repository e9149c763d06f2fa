//! What a function returns on a way that was never taken.

use super::*;
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
