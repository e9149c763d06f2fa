// SPDX-License-Identifier: MIT

use flagfinder_code::{Names, NamesInput};
use flagfinder_machine::evaluator::Access;
use flagfinder_machine::value::Value;
use flagfinder_machine::{Syscall, Window};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

use super::{LEAST, SELDOM};
use crate::report::{Flag, FlagKind, ThreadName};

const DISPATCH: (u64, &[u8]) = (0x1000, &[0xff, 0xd0]);
/// cmp dword [rbx], 0; jne; ret
const TEST: [(u64, &[u8]); 3] = [
    (0x2000, &[0x83, 0x3b, 0x00]),
    (0x2003, &[0x75, 0x20]),
    (0x2005, &[0xc3]),
];
/// syscall; test eax, eax; jns; ret
const ASK: [(u64, &[u8]); 4] = [
    (0x3000, &[0x0f, 0x05]),
    (0x3002, &[0x85, 0xc0]),
    (0x3004, &[0x79, 0x20]),
    (0x3006, &[0xc3]),
];
/// nop; ret
const WORK: [(u64, &[u8]); 2] = [(0x4000, &[0x90]), (0x4001, &[0xc3])];

/// What comes first in the loop of an interpreter whose program tests a word in each of its
/// rounds of `pieces`, and asks for a file that is not there in those in which `asks` says so.
fn first(pieces: u64, asks: impl Fn(u64) -> bool) -> FlagKind {
    first_of(12, pieces, asks).kind
}

fn first_of(rounds: u64, pieces: u64, asks: impl Fn(u64) -> bool) -> Flag {
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    for round in 0..rounds {
        for piece in 0..pieces {
            let routine: Vec<(u64, &[u8])> = match piece {
                0 if pieces == 1 && asks(round) => [&TEST[..], &ASK].concat(),
                0 => TEST.to_vec(),
                1 if asks(round) => ASK.to_vec(),
                _ => WORK.to_vec(),
            };
            for &(pc, bytes) in [DISPATCH].iter().chain(&routine) {
                let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
                let index = window.intern(&decoder.decode(), 0, &mut factory);
                let rsp = if pc == DISPATCH.0 { 0x7000 } else { 0x6ff8 };
                window.push(index, Value::of(rsp));
                match pc {
                    0x2000 => window.push_access(Access {
                        address: Some(0x5000),
                        bytes: 4,
                        write: false,
                        value: Value::of(0),
                    }),
                    0x3000 => window.syscalls.push(Syscall {
                        step: window.len() - 1,
                        number: libc::SYS_newfstatat as u32,
                        args: [3; 6],
                        result: Some(-i64::from(libc::ENOENT)),
                        written: Vec::new(),
                    }),
                    _ => {}
                }
            }
        }
    }
    let names = Names::new(NamesInput::from_code_maps("", 0));
    let thread = ThreadName {
        tid: 1,
        name: String::new(),
    };
    let report = crate::find_in_window(&window, &names, thread);
    report.flags.into_iter().next().expect("a flag")
}

#[test]
fn a_call_made_as_often_as_the_word_is_read_is_not_rare() {
    assert_eq!(first(2, |_| true), FlagKind::Syscall);
    assert_eq!(first(4, |_| true), FlagKind::Syscall);
    assert_ne!(first(4, |round| round % 3 == 0), FlagKind::Syscall);
}

/// Who looks once a second is seen to look a few times only.
#[test]
fn a_call_of_every_round_counts_however_few_there_were() {
    let rounds = LEAST as u64;
    let flag = first_of(rounds, 1, |round| round > 0);
    assert_eq!((flag.kind, flag.confidence), (FlagKind::Syscall, SELDOM));
    let call = flag.call.expect("what was asked");
    assert_eq!(i64::from(call.number), libc::SYS_newfstatat);
    assert_eq!(call.result, Some(-i64::from(libc::ENOENT)));
    let flag = first_of(rounds, 1, |round| round == 1);
    assert_ne!(flag.kind, FlagKind::Syscall, "once");
}

struct Unreadable;

impl crate::LiveMemory for Unreadable {
    fn read(&self, _: u64, _: &mut [u8]) -> usize {
        0
    }
    fn initial(&self, _: u64, _: u32) -> Option<u64> {
        None
    }
    fn is_own_wakeup(&self, _: i32) -> bool {
        false
    }
}

/// What comes first in a loop that tests a word, and calls a function that asks for a file
/// which is not there; behind the call it does this.
fn beside(behind: &[u8]) -> FlagKind {
    let mut window = Window::default();
    let mut factory = InstructionInfoFactory::new();
    let round: [(u64, &[u8], u64); 9] = [
        (0x1000, &[0xe8, 0xfb, 0x1f, 0, 0], 0x7000), // call 0x3000
        (ASK[0].0, ASK[0].1, 0x6ff8),
        (ASK[1].0, ASK[1].1, 0x6ff8),
        (ASK[2].0, ASK[2].1, 0x6ff8),
        (ASK[3].0, ASK[3].1, 0x6ff8),
        (0x1005, behind, 0x7000),
        (0x1007, &[0x83, 0x3b, 0x00], 0x7000), // cmp dword [rbx], 0
        (0x100a, &[0x75, 0x20], 0x7000),       // jne
        (0x100c, &[0xeb, 0xf2], 0x7000),       // jmp 0x1000
    ];
    for (pc, bytes, rsp) in [round; 12].into_iter().flatten() {
        let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
        let index = window.intern(&decoder.decode(), 0, &mut factory);
        window.push(index, Value::of(rsp));
        match pc {
            0x1007 => window.push_access(Access {
                address: Some(0x5000),
                bytes: 4,
                write: false,
                value: Value::of(0),
            }),
            0x3000 => window.syscalls.push(Syscall {
                step: window.len() - 1,
                number: libc::SYS_newfstatat as u32,
                args: [3; 6],
                result: Some(-i64::from(libc::ENOENT)),
                written: Vec::new(),
            }),
            _ => {}
        }
    }
    let names = Names::new(NamesInput::from_code_maps("", 0));
    let thread = ThreadName {
        tid: 1,
        name: String::new(),
    };
    let report = crate::find_in_live_window(&window, &names, thread, &Unreadable);
    report.flags.into_iter().next().expect("a flag").kind
}

#[test]
fn a_call_whose_answer_the_loop_does_not_take_is_asked_aside() {
    assert_eq!(beside(&[0x85, 0xc0]), FlagKind::Syscall); // test eax, eax
    assert_ne!(beside(&[0x31, 0xc0]), FlagKind::Syscall); // xor eax, eax
}
