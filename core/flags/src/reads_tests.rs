// SPDX-License-Identifier: MIT
//! What is read in pieces of a run that are put together.

use flagfinder_machine::decoded::Decoded;
use flagfinder_machine::replayer::Visitor;
use iced_x86::{Code, Instruction, InstructionInfoFactory, Register};

use super::{Exit, Leaves, Questions, Read, Reads, Seen};
use crate::passes::Pass;

fn seen_by(readers: &[u32]) -> Option<u32> {
    let mut read = Read::default();
    for &reader in readers {
        read.see(Seen {
            address: 0x1000,
            reader: Some(reader),
            left_with: None,
            varies: false,
        });
    }
    read.seen[0].reader
}

#[test]
fn a_place_that_several_threads_read_has_no_one_reader() {
    assert_eq!(seen_by(&[7, 7]), Some(7));
    assert_eq!(seen_by(&[7, 8]), None);
    assert_eq!(seen_by(&[7, 8, 7]), None);
}

/// Values read by a branch, and whether it then left the loop: was the last of them what let it
/// go?
fn lets_go(executions: &[(u64, bool)]) -> (bool, bool) {
    let mut read = Read::default();
    for &(value, leaves) in executions {
        read.last = Some((0x1000, value));
        read.decide(0x2000, leaves);
    }
    (read.let_go.is_some(), read.unchanged)
}

#[test]
fn a_value_that_stays_the_same_did_not_end_the_wait() {
    assert_eq!(lets_go(&[(0, false), (0, false), (1, true)]), (true, false));
    assert_eq!(lets_go(&[(7, false), (7, true)]), (false, true));
    let taken_each_time = [(0, true), (0, true)];
    assert_eq!(lets_go(&taken_each_time), (false, false), "never waited");
}

fn jump() -> Decoded {
    let mut jump = Instruction::with1(Code::Jmp_rm64, Register::RBX).expect("a jump");
    jump.set_ip(0x2000);
    Decoded::new(&jump, &mut InstructionInfoFactory::new())
}

/// The values that two words had when an exit was left which the first one decides.
fn left_with(leaves: Leaves) -> [Option<u64>; 2] {
    let mut questions = Questions::default();
    let exit = Exit {
        waiting: 0,
        spin_pc: 0x2000,
        leaves,
        candidates: vec![0],
    };
    questions.exits.insert(0x2000, vec![exit]);
    let mut reads = Reads::new(questions, [2].into_iter());
    for read in &mut reads.found[0] {
        read.value(0x1000, 7);
    }
    let jump = jump();
    reads.branch(&jump, 0x3000);
    reads.branch(&jump, 0x4000);
    [0, 1].map(|word| reads.found[0][word].leaving.map(|(_, value)| value))
}

#[test]
fn a_jump_that_goes_elsewhere_is_left_by_the_words_that_decide_it() {
    assert_eq!(left_with(Leaves::To(0x4000)), [Some(7), Some(7)]);
    let to_another_task = left_with(Leaves::ElsewhereThan(0x3000));
    assert_eq!(to_another_task, [Some(7), None]);
}

/// What is known of a place where these values were read, in two pieces of the run.
fn read(values: [&[u64]; 2]) -> Seen {
    let [mut first, second] = values.map(|values| {
        let mut read = Read::default();
        read.see(Seen {
            address: 0x1000,
            reader: Some(7),
            left_with: None,
            varies: false,
        });
        values.iter().for_each(|value| read.value(0x1000, *value));
        read
    });
    first.absorb(second);
    first.seen[0]
}

#[test]
fn a_place_that_reads_otherwise_was_written() {
    assert!(read([&[0, 0, 1], &[1]]).varies);
    assert!(read([&[0, 0], &[1]]).varies, "between the pieces");
    assert!(!read([&[0, 0], &[0]]).varies);
}

/// What the wait of a branch ended with, in two pieces of the run.
fn ends_with(pieces: [&[(u64, bool)]; 2]) -> Option<u64> {
    let [mut first, second] = pieces.map(|piece| {
        let mut read = Read::default();
        for &(value, leaves) in piece {
            read.value(0x1000, value);
            read.decide(0x2000, leaves);
        }
        read
    });
    first.absorb(second);
    first.let_go.map(|(_, value)| value)
}

#[test]
fn a_wait_ends_with_what_was_read_behind_another_value() {
    assert_eq!(
        ends_with([&[(0, false), (7, true), (8, true)], &[]]),
        Some(7)
    );
    assert_eq!(ends_with([&[(7, true), (8, true)], &[(9, true)]]), None);
    assert_eq!(ends_with([&[(0, false)], &[(7, true), (8, true)]]), Some(7));
    assert_eq!(ends_with([&[(0, false), (7, true)], &[(8, true)]]), Some(7));
}

#[test]
fn a_read_that_is_not_known_is_no_earlier_one() {
    let mut read = Read::default();
    read.value(0x1000, 7);
    read.lose();
    read.leave();
    assert_eq!(read.leaving, None);
    let mut first = Read::default();
    first.value(0x1000, 7);
    first.absorb(read);
    assert_eq!(first.leaving, None);
}

/// With what a jump is left that goes round at 0x3000, in two pieces of the run: what its word had,
/// and where it went.
fn jump_left_with(pieces: [&[(u64, u64)]; 2]) -> Option<u64> {
    let mut questions = Questions::default();
    let exit = Exit {
        waiting: 0,
        spin_pc: 0x2000,
        leaves: Leaves::ElsewhereThan(0x3000),
        candidates: vec![0],
    };
    questions.exits.insert(0x2000, vec![exit]);
    let mut all = Reads::new(questions, [1].into_iter());
    let jump = jump();
    for piece in pieces {
        let mut part = all.begin(7);
        for &(value, next) in piece {
            part.found[0][0].value(0x1000, value);
            part.branch(&jump, next);
        }
        all.absorb(part);
    }
    all.found[0][0].leaving.map(|(_, value)| value)
}

#[test]
fn a_jump_is_left_by_the_first_value_behind_its_wait() {
    const ROUND: u64 = 0x3000;
    const OTHER: u64 = 0x4000;
    const LAST: u64 = 0x5000;
    let left = jump_left_with;
    assert_eq!(left([&[(2, ROUND), (3, OTHER), (4, LAST)], &[]]), Some(3));
    assert_eq!(left([&[(0, OTHER), (1, LAST)], &[(2, ROUND)]]), None);
    assert_eq!(left([&[(2, ROUND)], &[(3, OTHER), (4, LAST)]]), Some(3));
    assert_eq!(left([&[(2, ROUND), (3, OTHER)], &[(4, LAST)]]), Some(3));
}
