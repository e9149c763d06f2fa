// SPDX-License-Identifier: MIT

use flagfinder_machine::evaluator::Access;
use flagfinder_machine::value::Value;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

use super::*;

const WORD: u64 = 0x5000;

/// What eax holds behind `mov eax, [rbx]; test eax, eax; mov edx, 0; cmovs eax, edx`.
fn maximum(word: u32) -> Expression {
    const CODE: [(u8, &[u8]); 4] = [
        (0, &[0x8b, 0x03]),
        (0, &[0x85, 0xc0]),
        (2, &[0xba, 0, 0, 0, 0]),
        (0, &[0x0f, 0x48, 0xc2]),
    ];
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    for (pc, (register, bytes)) in (0x1000..).step_by(8).zip(CODE) {
        let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
        let index = window.intern(&decoder.decode(), 0, &mut factory);
        window.push(index, Value::of(0x7000));
        match pc {
            0x1000 => window.push_access(Access {
                address: Some(WORD),
                bytes: 4,
                write: false,
                value: Value::of(u64::from(word)),
            }),
            0x1008 => continue,
            _ => {}
        }
        let value = if register == 0 { word } else { 0 };
        window.push_result(register, Value::of(u64::from(value)));
    }
    Builder::new(&window).register(window.len(), 0, DEPTH)
}

#[test]
fn a_maximum_is_what_was_moved() {
    assert!(matches!(maximum(3), Expression::Load { address: WORD, .. }));
    assert_eq!(maximum(-3i32 as u32), Expression::Number(0));
}

/// What `movzx eax, word ptr [rsp+at]` finds behind `mov eax, [rbx]; mov [rsp], eax`.
fn part(at: u8) -> Expression {
    const STACK: u64 = 0x7000;
    let codes: [&[u8]; 3] = [
        &[0x8b, 0x03],
        &[0x89, 0x04, 0x24],
        &[0x0f, 0xb7, 0x44, 0x24, at],
    ];
    let accesses = [
        (WORD, 4, false, 0x1_0002),
        (STACK, 4, true, 0x1_0002),
        (STACK + u64::from(at), 2, false, 0x1_0002 >> (8 * at)),
    ];
    moved(codes, accesses)
}

/// What the last of these instructions finds, which loads into eax. `accesses`: address, bytes,
/// whether it is a write, and the value.
fn moved(codes: [&[u8]; 3], accesses: [(u64, u32, bool, u64); 3]) -> Expression {
    const STACK: u64 = 0x7000;
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    for (code, (address, bytes, write, value)) in codes.into_iter().zip(accesses) {
        let pc = 0x1000 + 8 * u64::from(window.len());
        let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
        let index = window.intern(&decoder.decode(), 0, &mut factory);
        window.push(index, Value::of(STACK));
        window.push_access(Access {
            address: Some(address),
            bytes,
            write,
            value: Value::of(value),
        });
    }
    window.push_result(0, Value::of(accesses[2].3));
    Builder::new(&window).register(window.len(), 0, DEPTH)
}

#[test]
fn a_part_of_what_was_stored_is_a_part_of_what_was_loaded() {
    for (at, value, other) in [(0, 2, 3), (2, 1, 7)] {
        assert!(part(at).mentions(WORD, 4));
        assert_eq!(part(at).evaluate(WORD, 0x1_0002), Some(value));
        assert_eq!(part(at).evaluate(WORD, 0x7_0003), Some(other));
    }
}

/// What the last of so many `mov eax, [rbx]` finds behind `mov dword ptr [rbx], 2`.
fn read_again(times: usize) -> Expression {
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    let store: (u64, &[u8]) = (0x1000, &[0xc7, 0x03, 2, 0, 0, 0]);
    let load: (u64, &[u8]) = (0x1008, &[0x8b, 0x03]);
    for (pc, code) in std::iter::once(store).chain([load].repeat(times)) {
        let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
        let index = window.intern(&decoder.decode(), 0, &mut factory);
        window.push(index, Value::of(0x7000));
        window.push_access(Access {
            address: Some(WORD),
            bytes: 4,
            write: pc == store.0,
            value: Value::of(2),
        });
    }
    let last = window.len() - 1;
    Builder::new(&window).operand(last, window.code(last), 1, DEPTH)
}

#[test]
fn a_word_that_is_read_again_and_again_is_no_spill() {
    assert_eq!(read_again(1), Expression::Number(2));
    assert!(matches!(
        read_again(2),
        Expression::Load { address: WORD, .. }
    ));
}

/// What the branch behind these asks of a word that is 2, which the first loads.
fn asked(codes: &[&[u8]]) -> String {
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    for code in codes {
        let pc = 0x1000 + 8 * u64::from(window.len());
        let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
        let index = window.intern(&decoder.decode(), 0, &mut factory);
        window.push(index, Value::of(0x7000));
        if pc == 0x1000 {
            window.push_access(Access {
                address: Some(WORD),
                bytes: 4,
                write: false,
                value: Value::of(2),
            });
        }
    }
    let test = Condition::of(&window, window.len() - 1, false).expect("it is understood");
    test.text(&|_| "value".into())
}

/// mov eax, [rbx]; cmp eax, 15
const COMPARED: [&[u8]; 2] = [&[0x8b, 0x03], &[0x83, 0xf8, 15]];

#[test]
fn a_number_made_of_an_outcome_is_that_outcome() {
    // sete al; movzx eax, al; lea rax, [rax+rax+1]; cmp rax, 1; jne
    let made: [&[u8]; 5] = [
        &[0x0f, 0x94, 0xc0],
        &[0x0f, 0xb6, 0xc0],
        &[0x48, 0x8d, 0x44, 0x00, 0x01],
        &[0x48, 0x83, 0xf8, 0x01],
        &[0x75, 0x10],
    ];
    assert_eq!(asked(&[&COMPARED[..], &made].concat()), "value == 0xf");
}

#[test]
fn two_numbers_that_are_put_in_order_are_compared() {
    // seta al; sbb al, 0
    let without_sign: [&[u8]; 2] = [&[0x0f, 0x97, 0xc0], &[0x1c, 0]];
    // setg al; setl cl; sub al, cl
    let with_sign: [&[u8]; 3] = [&[0x0f, 0x9f, 0xc0], &[0x0f, 0x9c, 0xc1], &[0x28, 0xc8]];
    // cmp al, -1; jne
    let is_less: [&[u8]; 2] = [&[0x3c, 0xff], &[0x75, 0x10]];
    // movzx eax, al; test eax, eax; je
    let is_equal: [&[u8]; 3] = [&[0x0f, 0xb6, 0xc0], &[0x85, 0xc0], &[0x74, 0x10]];
    let of = |order: &[&[u8]], test: &[&[u8]]| asked(&[&COMPARED[..], order, test].concat());
    // mov edx, 15; cmp edx, eax; setb cl; cmp eax, edx; sbb cl, 0; movzx eax, cl
    let mirrored: [&[u8]; 6] = [
        &[0xba, 15, 0, 0, 0],
        &[0x39, 0xc2],
        &[0x0f, 0x92, 0xc1],
        &[0x39, 0xd0],
        &[0x80, 0xd9, 0],
        &[0x0f, 0xb6, 0xc1],
    ];
    for order in [&without_sign[..], &mirrored] {
        assert_eq!(of(order, &is_less), "value >= 0xf");
        assert_eq!(of(order, &is_equal), "value == 0xf");
    }
    assert_eq!(of(&with_sign, &is_less), "value >= 0xf (signed)");
    assert_eq!(of(&with_sign, &is_equal), "value == 0xf");
}

#[test]
fn the_carry_of_another_comparison_puts_nothing_in_order() {
    // seta al; cmp edx, 3; sbb al, 0; cmp al, -1; jne
    let made: [&[u8]; 5] = [
        &[0x0f, 0x97, 0xc0],
        &[0x83, 0xfa, 3],
        &[0x1c, 0],
        &[0x3c, 0xff],
        &[0x75, 0x10],
    ];
    let asked = asked(&[&COMPARED[..], &made].concat());
    assert!(!asked.contains("value"), "{asked}");
}

/// What `mov eax, [rsp+at]` finds behind `movups xmm0, [rbx]; movups [rsp], xmm0`.
fn copied(at: u8) -> Expression {
    const STACK: u64 = 0x7000;
    let codes: [&[u8]; 3] = [
        &[0x0f, 0x10, 0x03],
        &[0x0f, 0x11, 0x04, 0x24],
        &[0x8b, 0x44, 0x24, at],
    ];
    let accesses = [
        (WORD, 16, false, 3),
        (STACK, 16, true, 3),
        (STACK + u64::from(at), 4, false, 3),
    ];
    moved(codes, accesses)
}

#[test]
fn a_value_that_is_copied_with_its_type_is_what_was_loaded() {
    for (at, from) in [(0, WORD), (8, WORD + 8)] {
        let load = Expression::Load {
            address: from,
            bits: 32,
            value: 3,
        };
        assert_eq!(copied(at), load);
    }
}
