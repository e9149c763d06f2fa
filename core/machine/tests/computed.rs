// SPDX-License-Identifier: MIT
//! What tracers leave to the evaluator (`include/ff_computed.h`) it computes, and the other way
//! round.

use std::collections::BTreeSet;

use flagfinder_machine::decoded::Decoded;
use flagfinder_machine::evaluator::{Evaluator, Recorded};
use flagfinder_machine::value::Value;
use flagfinder_trace::computed::{computed, is_computed};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpKind};

/// Whether it leaves every general register known, where all that goes in is.
fn computes(code: &Decoded) -> bool {
    // Some values make some instructions fault: a divisor of zero, a quotient that does not fit.
    [(1, 1), (3, 0), (0, 1), (0x101, 0x300)]
        .into_iter()
        .any(|(all, high)| {
            let mut evaluator = Evaluator::default();
            evaluator.machine.registers = [Value::of(all); 16];
            evaluator.machine.registers[2] = Value::of(high);
            evaluator.machine.flags = Value::of(0);
            let recorded = Recorded {
                loads: [Some(3); 2],
                ..Recorded::default()
            };
            evaluator.step(code, &recorded);
            let known = |number: usize| evaluator.machine.registers[number].get(64).is_some();
            (0..16).all(|number| code.registers_written >> number & 1 == 0 || known(number))
        })
}

/// One of each opcode with register and memory operands, in all encodings of integer code. Left out
/// is what no compiler writes (a frame of 16 bits), what each tracer records by another rule
/// (repeated string instructions), and segment registers, whose values nobody computes.
fn instructions() -> Vec<Instruction> {
    const PREFIXES: [&[u8]; 8] = [
        &[],
        &[0x66],
        &[0x67],
        &[0xf2],
        &[0xf3],
        &[0x48],
        &[0xf3, 0x48],
        &[0xf2, 0x48],
    ];
    const MAPS: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
    let mut heads: Vec<Vec<u8>> = Vec::new();
    for prefix in PREFIXES {
        heads.extend(MAPS.map(|map| [prefix, map].concat()));
    }
    for map in 1..4u8 {
        // VEX: W and the prefix in its last byte; the third register is rbx, or there is none.
        let last = [0x60, 0x78]
            .into_iter()
            .flat_map(|third| [third, third | 0x80]);
        let last = last.flat_map(|bits| (0..4u8).map(move |prefix| bits | prefix));
        heads.extend(last.map(|last| vec![0xc4, 0xe0 | map, last]));
    }
    let mut found = vec![decoded(&[0xf3, 0x0f, 0x1e, 0xfa])];
    for (head, opcode) in heads.iter().flat_map(|h| (0..=255u8).map(move |o| (h, o))) {
        // The second operand is rsi, or memory at rsi.
        for operands in (0..8u8).flat_map(|n| [0xc6 | n << 3, 0x06 | n << 3]) {
            found.push(decoded(
                &[&head[..], &[opcode, operands], &[1; 12]].concat(),
            ));
        }
    }
    found.retain(|one| {
        let repeats = one.has_rep_prefix() || one.has_repne_prefix();
        let of_segment = (0..one.op_count()).any(|i| {
            one.op_kind(i) == OpKind::Register && one.op_register(i).is_segment_register()
        });
        let left_out = repeats && one.is_string_instruction()
            || one.is_invalid()
            || one.is_privileged()
            || one.code() == Code::Leavew
            || of_segment;
        !left_out
    });
    found
}

fn decoded(code: &[u8]) -> Instruction {
    Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode()
}

#[test]
fn the_list_is_what_the_evaluator_computes() {
    // Recorded although it is computed: its larger sister is not.
    const BESIDES: &str = "Cmpxchg8b";
    let listed: BTreeSet<&str> = computed().collect();
    let mut factory = InstructionInfoFactory::new();
    let (mut seen, mut unlisted) = (BTreeSet::new(), BTreeSet::new());
    let mut not_computed = BTreeSet::new();
    let mut failing = BTreeSet::new();
    for instruction in instructions() {
        let name = format!("{:?}", instruction.mnemonic());
        let code = Decoded::new(&instruction, &mut factory);
        if listed.contains(name.as_str()) {
            if !computes(&code) {
                not_computed.insert(instruction.to_string());
            }
            seen.insert(name);
        } else if !is_computed(&name) && name != BESIDES {
            if !computes(&code) {
                failing.insert(name);
            } else if code.registers_written != 0 {
                unlisted.insert(name);
            }
        }
    }
    let unlisted: Vec<_> = unlisted.difference(&failing).collect();
    assert_eq!((unlisted, not_computed), (Vec::new(), BTreeSet::new()));
    let missed: Vec<_> = listed
        .iter()
        .filter(|name| !seen.contains(**name))
        .collect();
    assert_eq!(
        missed,
        Vec::<&&str>::new(),
        "no instruction of these names was made"
    );
}
