// SPDX-License-Identifier: MIT
//! A thread polls a word for many sections, and a second one writes it: whatever is left out, and
//! however the rest is shared out, the findings are those of one replay from beginning to end.

use flagfinder_machine::replayer;
use flagfinder_trace::{Level, Registers, Slot, SlotKind, Trace, TraceBuilder};

use super::*;
use crate::reads::{self, Reads};
use crate::stores::{self, Stores};

const FLAG: u64 = 0x5000;
const POLL: u64 = 0x1000;
const LEAVE: u64 = 0x1010;
const WRITE: u64 = 0x1020;
const OTHER: u64 = 0x1040;
const PID: u32 = 1;
const READER: u32 = 10;
const WRITER: u32 = 11;

/// The poll's rounds are in [`ROUNDS`] sections or more.
const SECTION: usize = 512;
const ROUNDS: usize = 20 * SECTION;

fn registers(rbx: u64) -> Registers {
    let mut registers = Registers {
        valid: 1 << 3 | 1 << 4,
        ..Registers::default()
    };
    registers.values[3] = rbx;
    registers.values[4] = 0x7000;
    registers
}

/// `done`: in which of the writer's rounds it writes the flag, elsewhere it writes beside it with
/// the same code.
fn trace(done: usize) -> Trace {
    let load = Slot {
        instruction: 0,
        kind: SlotKind::Load,
        size: 8,
        detail: 0,
    };
    let mut builder = TraceBuilder::new(Level::Values).expect("a builder");
    builder.section_bytes(SECTION);
    builder.process(PID, 0, "/bin/poll");
    // mov rax, [rbx]; test rax, rax; je POLL
    let poll = [0x48, 0x8b, 0x03, 0x48, 0x85, 0xc0, 0x74, 0xf8];
    let poll = builder.block(PID, None, POLL, &poll, 3, &[load]);
    let leave = builder.block(PID, None, POLL + 8, &[0x90], 1, &[]);
    let leave_there = builder.block(PID, None, LEAVE, &[0x90], 1, &[]);
    // mov rcx, [rbx]; mov [rcx], rdx; jmp WRITE
    let write = [0x48, 0x8b, 0x0b, 0x48, 0x89, 0x11, 0xeb, 0xf8];
    let write = builder.block(PID, None, WRITE, &write, 3, &[load]);
    let other = builder.block(PID, None, OTHER, &[0x48, 0x8b, 0x03], 1, &[load]);

    let reader = builder.thread(PID, READER, 0, "reader", POLL);
    let cut = |builder: &mut TraceBuilder, thread, round: usize| {
        // About as the tracer does: a checkpoint with each section of flow.
        if round % (SECTION / 2) == 0 {
            builder.checkpoint(thread, registers(FLAG));
        }
    };
    for round in 0..ROUNDS {
        cut(&mut builder, reader, round);
        builder.run_with_values(reader, poll, &0u64.to_le_bytes());
    }
    builder.run_with_values(reader, poll, &7u64.to_le_bytes());
    builder.run(reader, &[leave, leave_there]);
    builder.run_with_values(reader, other, &1u64.to_le_bytes());

    let writer = builder.thread(PID, WRITER, READER, "writer", WRITE);
    for round in 0..ROUNDS {
        cut(&mut builder, writer, round);
        let at = FLAG + if round == done { 0 } else { 64 };
        builder.run_with_values(writer, write, &at.to_le_bytes());
    }
    builder.finish().expect("a trace")
}

fn reads() -> Reads {
    let mut questions = reads::Questions::default();
    questions.loads.insert(POLL, vec![(0, 0)]);
    let exit = reads::Exit {
        waiting: 0,
        spin_pc: 0x99,
        leaves: reads::Leaves::To(POLL + 8),
        candidates: vec![0],
    };
    questions.exits.insert(POLL + 6, vec![exit]);
    Reads::new(questions, [1].into_iter())
}

fn stores() -> Stores {
    let mut questions = stores::Questions::default();
    questions.watch(FLAG, 8, (0, FLAG), Some(READER));
    Stores::new(questions)
}

/// Every span in one go, nothing left out.
fn sequentially<P: Pass>(run: &Run, mut pass: P) -> P {
    for thread in run.process.threads() {
        for span in thread.value_spans() {
            let mut part = pass.begin(thread.tid);
            replayer::replay(&run.blocks, thread, &span, &mut part).expect("a sound trace");
            pass.absorb(part);
        }
    }
    pass
}

/// The block that begins at `pc`, as a set.
fn set_of(run: &Run, pc: u64) -> BlockSet {
    let blocks = run.process.blocks().iter();
    blocks
        .filter(|block| block.pc == pc)
        .map(|block| block.id)
        .collect()
}

#[test]
fn pieces_find_what_one_replay_finds() {
    let trace = trace(ROUNDS / 2 + 3);
    let run = Run::new(&trace.processes()[0]).expect("a run");
    let whole = sequentially(&run, reads());
    assert_eq!(whole.found[0][0].leaving, Some((FLAG, 7)));
    assert_eq!(whole.found[0][0].seen[0].left_with, Some(7));
    assert_eq!(whole.other_way.get(&(0, 0x99)), Some(&1));
    let writers = sequentially(&run, stores()).told();
    assert_eq!(writers.len(), 1);
    assert_eq!(
        (writers[0].tid, writers[0].pc, writers[0].count),
        (WRITER, WRITE + 3, 1)
    );
    assert!(writers[0].foreign);

    let nothing = BlockSet::default();
    let polling = set_of(&run, POLL);
    for waiting in [&nothing, &polling] {
        for group in [1, 3, GROUP] {
            let mut pass = reads();
            ask_in_groups(&run, waiting, &mut pass, group).expect("a sound trace");
            let (found, wanted) = (&pass.found[0][0], &whole.found[0][0]);
            assert_eq!(found.seen, wanted.seen, "groups of {group}");
            assert_eq!(found.leaving, wanted.leaving, "groups of {group}");
            assert_eq!(pass.other_way, whole.other_way);
            let mut pass = stores();
            ask_in_groups(&run, waiting, &mut pass, group).expect("a sound trace");
            assert_eq!(pass.told(), writers, "groups of {group}");
        }
    }
}

#[test]
fn only_the_middle_of_a_stay_is_left_out() {
    let trace = trace(5);
    let run = Run::new(&trace.processes()[0]).expect("a run");
    let thread = &run.process.threads()[0];
    let pieces = thread.value_pieces(&thread.value_spans()[0]);
    assert!(pieces.len() > 20, "{} pieces", pieces.len());
    let contents = run.contents(0).expect("a sound trace");
    let of = |idle: &BlockSet, waiting: &BlockSet| needed(thread, &pieces, contents, idle, waiting);
    let nothing = BlockSet::default();
    assert!(of(&nothing, &nothing).iter().all(|needed| *needed));
    let polling = of(&nothing, &set_of(&run, POLL));
    let last = polling.len() - 1;
    assert!(polling[0], "the beginning of the stay");
    assert!(
        polling[last] && polling[last - 1],
        "the way out and what is before it"
    );
    assert!(polling[1..last - 2].iter().all(|needed| !needed));
    // What tells nothing need not be looked at even at the borders.
    let idle = of(&set_of(&run, POLL), &nothing);
    assert!(idle[..last - 1].iter().all(|needed| !needed) && idle[last]);
}

#[test]
fn what_is_repeated_takes_several_sections() {
    let trace = trace(5);
    let run = Run::new(&trace.processes()[0]).expect("a run");
    assert_eq!(
        run.repeated(WRITER, ROUNDS as u64).expect("read"),
        set_of(&run, WRITE)
    );
    let short = run.repeated(WRITER, SECTION as u64 / 2).expect("read");
    assert_eq!(short, BlockSet::default());
}
