// SPDX-License-Identifier: MIT
//! A loop that calls a function unseen, as a debugger tells it.

use flagfinder_trace::{check, ReplayItem, Trace};

use super::*;

/// mov rax, [rbx]; call 0x2000. Behind the call: add rbx, 8; jmp 0x1000.
const LOAD: (u64, &[u8]) = (0x1000, &[0x48, 0x8b, 0x03]);
const CALL: (u64, &[u8]) = (0x1003, &[0xe8, 0xf8, 0x0f, 0, 0]);
const ADD: (u64, &[u8]) = (0x1008, &[0x48, 0x83, 0xc3, 0x08]);
const JUMP: (u64, &[u8]) = (0x100c, &[0xeb, 0xf2]);
const RBX: usize = 3;
const RSP: u64 = 0x7000;

fn words(rounds: u64) -> Vec<u64> {
    let registers = |rbx: u64| {
        let mut all = [0; 17];
        (all[0], all[1 + RBX], all[5]) = (tag::REGISTERS, rbx, RSP);
        all
    };
    let mut words = registers(0x5000).to_vec();
    for round in 0..rounds {
        let rbx = 0x5000 + 8 * round;
        words.extend([tag::STEP, LOAD.0, CALL.0, 1, rbx, round]);
        words.extend([tag::STEP, CALL.0, 0x2000, 0]);
        words.extend([tag::CALLED_OVER, 0x2000, ADD.0, RSP]);
        words.extend(registers(rbx));
        words.extend([tag::STEP, ADD.0, JUMP.0, 0]);
        words.extend([tag::STEP, JUMP.0, LOAD.0, 0]);
    }
    words
}

fn stepping() -> Stepping {
    let start = Start {
        pid: std::process::id(),
        tid: std::process::id(),
        pc: LOAD.0,
        ..Start::default()
    };
    let mut stepping = Stepping::new(&Info::default(), &start).expect("a recording");
    for (pc, code) in [LOAD, CALL, ADD, JUMP] {
        stepping.plan(pc, code);
    }
    stepping
}

#[test]
fn calls_that_ran_unseen_leave_registers_and_an_event() {
    let mut stepping = stepping();
    assert_eq!(stepping.feed(&words(3)), Some(()));
    assert_eq!(stepping.instructions(), 12);
    let bytes = stepping.finish(End::default()).expect("a trace");
    let trace = Trace::from_bytes(bytes).expect("a trace");
    assert_eq!(check(&trace).expect("a check"), []);
    let thread = &trace.processes()[0].threads()[0];
    let mut seen = Vec::new();
    for span in thread.value_spans() {
        let mut replay = thread.replay(&span);
        while let Some(item) = replay.next() {
            match item.expect("an item") {
                ReplayItem::Block(block) => seen.push((
                    block.block.map(|block| block.pc),
                    block.checkpoint.map(|registers| registers.values[RBX]),
                )),
                ReplayItem::Event {
                    event: Event::Transfer { cause, to_pc, .. },
                    ..
                } => {
                    assert_eq!((cause, to_pc), (TRANSFER_CALL_OVER, ADD.0));
                    seen.push((None, None));
                }
                _ => {}
            }
        }
    }
    // A checkpoint stands at the very block behind the call, though that has no slots.
    let round = |rbx: u64, first: Option<u64>| {
        [
            (Some(LOAD.0), first),
            (None, None),
            (Some(ADD.0), Some(rbx)),
        ]
    };
    let expected = [
        round(0x5000, Some(0x5000)),
        round(0x5008, None),
        round(0x5010, None),
    ];
    assert_eq!(seen, expected.concat());
}

#[test]
fn words_that_are_cut_or_of_unknown_code_are_refused() {
    let whole = words(1);
    let mut stepping = stepping();
    assert_eq!(stepping.feed(&whole[..whole.len() - 1]), None);
    assert_eq!(stepping.feed(&[tag::STEP, 0x9000, 0x9001, 0]), None);
    assert_eq!(stepping.feed(&[99]), None);
}
