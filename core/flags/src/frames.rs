// SPDX-License-Identifier: MIT
//! The open calls of threads on whose stacks a word lies, so that it gets the name of its
//! frame; and who called the allocator for a word on the heap. In: the reader's steps, or a replay
//! of the thread that owns the stack. Blind spot: calls opened in a part of a long thread that is
//! not replayed.

use std::collections::BTreeSet;

use flagfinder_analysis::Analysis;
use flagfinder_code::{CodeMap, DataKind, Names, StackFrame};
use flagfinder_machine::decoded::Decoded;
use flagfinder_machine::decoded_blocks::DecodedBlocks;
use flagfinder_machine::evaluator::Evaluator;
use flagfinder_machine::replayer::{replay, Visitor};
use flagfinder_machine::value::Machine;
use flagfinder_machine::Window;
use flagfinder_trace::{Result, Thread};
use iced_x86::FlowControl;

use crate::access_path::Explorer;

const RSP: usize = 4;
/// Most open calls that are remembered.
const CALLS: usize = 256;
/// Bytes of values and of flow that are replayed at a thread's beginning, and at its end.
const REPLAYED: u64 = 32 << 20;
/// How deep the red zone is: bytes below rsp that a leaf function may use.
const RED_ZONE: u64 = 128;

/// Follows calls and returns by the stack pointer, which no tail call or longjmp deceives.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls {
    /// (stack pointer before the call, return address), outermost first.
    calls: Vec<(u64, u64)>,
}

impl OpenCalls {
    /// Before each instruction.
    pub fn step(&mut self, code: &Decoded, machine: &Machine) {
        let flow = code.instruction.flow_control();
        let is_call = matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
        if !is_call && flow != FlowControl::Return {
            return;
        }
        let Some(rsp) = machine.registers[RSP].get(64) else {
            return;
        };
        // A return takes the return address off: the call was made 8 bytes above.
        let open_above = if is_call { rsp } else { rsp.saturating_add(8) };
        while self.calls.last().is_some_and(|(at, _)| *at <= open_above) {
            self.calls.pop();
        }
        if is_call {
            if self.calls.len() == CALLS {
                self.calls.remove(0);
            }
            self.calls.push((rsp, code.instruction.next_ip()));
        }
    }

    /// Return addresses, innermost first, of calls that were made above `rsp`.
    pub fn returns(&self, rsp: u64) -> impl Iterator<Item = u64> + '_ {
        let open = self.calls.iter().rev().filter(move |(at, _)| *at > rsp);
        open.map(|(_, pc)| *pc)
    }

    /// The frames of a thread that executes at `pc`, innermost first. The outermost
    /// function's is not among them: nothing called it.
    pub fn frames(&self, pc: u64, rsp: u64) -> Vec<StackFrame> {
        let mut frames = Vec::new();
        let (mut pc, mut sp) = (pc, rsp);
        for &(cfa, back) in self.calls.iter().rev().filter(|(at, _)| *at > rsp) {
            frames.push(StackFrame { pc, sp, cfa });
            (pc, sp) = (back, cfa);
        }
        frames
    }
}

/// Where a thread is at the end of a replay.
#[derive(Default)]
struct Whereabouts {
    calls: OpenCalls,
    pc: u64,
    rsp: Option<u64>,
}

impl Visitor for Whereabouts {
    fn before(&mut self, code: &Decoded, machine: &Machine) {
        self.calls.step(code, machine);
        self.pc = code.pc();
        self.rsp = machine.registers[RSP].get(64);
    }

    fn after(&mut self, _code: &Decoded, _evaluator: &Evaluator) {}
}

/// Replays the thread's beginning, which opened its outer calls, and its end.
fn whereabouts(blocks: &DecodedBlocks, thread: &Thread) -> Result<Whereabouts> {
    let mut there = Whereabouts::default();
    let tail = thread.value_tail(REPLAYED, REPLAYED);
    let before = tail.map_or(0, |tail| tail.start_pos);
    let mut left = REPLAYED;
    for span in thread.value_spans() {
        let flow = REPLAYED.saturating_sub(span.start_pos);
        let head = thread.value_head(&span, left, flow);
        if let Some(head) = head.filter(|head| head.start_pos < before) {
            left -= head.bytes;
            replay(blocks, thread, &head, &mut there)?;
        }
    }
    if let Some(tail) = tail {
        replay(blocks, thread, &tail, &mut there)?;
    }
    Ok(there)
}

/// Tells `names` the frames of threads whose stacks hold candidates. `tid` is the reader.
///
/// # Errors
/// When the trace cannot be read.
pub(crate) fn name_frames(
    names: &mut Names,
    blocks: &DecodedBlocks,
    threads: &[Thread],
    tid: u32,
    window: &Window,
    analysis: &Analysis,
) -> Result<()> {
    let mut replayed: BTreeSet<u32> = BTreeSet::new();
    let on_stacks = analysis.candidates.iter();
    for candidate in on_stacks.filter(|c| c.kind == DataKind::Stack) {
        let Some((owner, _)) = names.stack_place(candidate.address) else {
            continue;
        };
        if owner == tid && replayed.is_empty() {
            // Most often the word is in the frame of the code that reads it.
            let frame = Explorer::new(window, names).frame(candidate.step);
            let holds = |f: &StackFrame| {
                (f.sp.saturating_sub(RED_ZONE)..f.cfa).contains(&candidate.address)
            };
            if let Some(frame) = frame.filter(holds) {
                let frames = vec![frame];
                names.set_frames(tid, frames);
                continue;
            }
        }
        let thread = threads.iter().find(|thread| thread.tid == owner);
        let Some(thread) = thread.filter(|_| replayed.insert(owner)) else {
            continue;
        };
        let there = whereabouts(blocks, thread)?;
        if let Some(rsp) = there.rsp {
            // The thread may have run on other stacks than its own (those of tasks).
            let is_own = |at: u64| names.stack_place(at).is_some_and(|(tid, _)| tid == owner);
            let mut frames = there.calls.frames(there.pc, rsp);
            frames.retain(|frame| is_own(frame.sp) && is_own(frame.cfa - 1));
            names.set_frames(owner, frames);
        }
    }
    Ok(())
}

/// Tells `names` for whom the candidates' objects were allocated.
///
/// # Errors
/// When the trace cannot be read.
pub(crate) fn name_allocations(
    names: &mut Names,
    code: &CodeMap,
    analysis: &Analysis,
) -> Result<()> {
    let mut known: BTreeSet<u64> = BTreeSet::new();
    let on_heap = analysis.candidates.iter();
    for candidate in on_heap.filter(|c| c.kind == DataKind::Heap) {
        let found = names.input().allocations.at(candidate.address).copied();
        let Some(allocation) = found.filter(|found| known.insert(found.address)) else {
            continue;
        };
        let callers = flagfinder_code::outer_callers(code, &allocation)?;
        names.set_outer_callers(allocation.address, callers);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    const CALL: &[u8] = &[0xe8, 0, 0, 0, 0];
    const RETURN: &[u8] = &[0xc3];

    fn step(calls: &mut OpenCalls, pc: u64, code: &[u8], rsp: u64) {
        let instruction = Decoder::with_ip(64, code, pc, DecoderOptions::NONE).decode();
        let decoded = Decoded::new(&instruction, &mut InstructionInfoFactory::new());
        let mut machine = Machine::default();
        machine.registers[RSP] = Value::of(rsp);
        calls.step(&decoded, &machine);
    }

    #[test]
    fn a_call_that_returned_is_not_open() {
        let mut calls = OpenCalls::default();
        step(&mut calls, 0x1000, CALL, 0x900);
        step(&mut calls, 0x2000, CALL, 0x800);
        step(&mut calls, 0x3000, RETURN, 0x7f8);
        // The caller goes on further down the stack than its call.
        let open: Vec<u64> = calls.returns(0x700).collect();
        assert_eq!(open, [0x1005]);
    }

    #[test]
    fn a_longjmp_closes_what_it_leaves() {
        let mut calls = OpenCalls::default();
        step(&mut calls, 0x1000, CALL, 0x900);
        step(&mut calls, 0x2000, CALL, 0x800);
        assert_eq!(calls.returns(0x850).collect::<Vec<_>>(), [0x1005]);
        step(&mut calls, 0x1100, CALL, 0x880);
        assert_eq!(calls.returns(0x700).collect::<Vec<_>>(), [0x1105, 0x1005]);
    }

    #[test]
    fn frames_lie_between_calls() {
        let mut calls = OpenCalls::default();
        step(&mut calls, 0x1000, CALL, 0x900);
        step(&mut calls, 0x2000, CALL, 0x800);
        let frame = |pc, sp, cfa| StackFrame { pc, sp, cfa };
        let expected = [frame(0x3000, 0x780, 0x800), frame(0x2005, 0x800, 0x900)];
        assert_eq!(calls.frames(0x3000, 0x780), expected);
    }
}
