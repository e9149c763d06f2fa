// SPDX-License-Identifier: MIT
//! A stretch of a recorded thread as a [`Window`]: its end, or what led to one block.

use std::ops::{ControlFlow, RangeInclusive};

use flagfinder_linux::syscalls::outputs;
use flagfinder_trace::protocol::TRANSFER_CALL_OVER;
use flagfinder_trace::{BlockId, Event, Result, Thread, ValueSpan};
use iced_x86::InstructionInfoFactory;
use rustc_hash::FxHashMap;

use crate::decoded::{is_syscall, Decoded};
use crate::decoded_blocks::DecodedBlocks;
use crate::evaluator::Evaluator;
use crate::replayer::{replay, Visitor};
use crate::value::Machine;
use crate::window::{Interruption, Syscall, Window};

/// Longest window, in instructions.
const STEPS: u32 = 400_000;
/// So many bytes of values are usually enough for it.
const VALUE_BYTES: u64 = 512 << 10;
/// So many bytes of flow are always enough: a block has an instruction or more, and takes 8 bytes
/// at most.
const FLOW_BYTES: u64 = STEPS as u64 * 8;

struct Filler {
    window: Window,
    factory: InstructionInfoFactory,
    /// By address of the shared `Decoded`.
    codes: FxHashMap<usize, u32>,
    written: u16,
    moved: bool,
    /// Positions of the first and the last block that are wanted.
    wanted: RangeInclusive<u64>,
    /// Is this block wanted?
    is_wanted: bool,
}

impl Filler {
    fn new(wanted: RangeInclusive<u64>) -> Filler {
        Filler {
            window: Window::default(),
            factory: InstructionInfoFactory::new(),
            codes: FxHashMap::default(),
            written: 0,
            moved: false,
            wanted,
            is_wanted: true,
        }
    }
}

impl Visitor for Filler {
    #[inline]
    fn enter(&mut self, _id: BlockId, pos: u64, _machine: &Machine) -> ControlFlow<()> {
        self.is_wanted = pos >= *self.wanted.start();
        match pos > *self.wanted.end() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn before(&mut self, code: &Decoded, machine: &Machine) {
        if !self.is_wanted {
            return;
        }
        let key = std::ptr::from_ref(code) as usize;
        let index = match self.codes.get(&key) {
            Some(index) => *index,
            None => {
                let likeness =
                    code.instruction.code() as u64 ^ (code.instruction.len() as u64) << 32;
                let index = self
                    .window
                    .intern(&code.instruction, likeness, &mut self.factory);
                self.codes.insert(key, index);
                index
            }
        };
        if self.window.len() >= STEPS * 2 {
            self.window.keep_last(STEPS);
        }
        if std::mem::take(&mut self.moved) {
            let at = self.window.len();
            self.window.interruptions.push((at, Interruption::Moved));
        }
        // Asking now and then is enough: it is about registers that do not change.
        if self.window.len() % 64 == 0 {
            self.window.registers = machine.registers;
        }
        self.window.push(index, machine.registers[4]);
        self.written = code.registers_written;
    }

    fn after(&mut self, code: &Decoded, evaluator: &Evaluator) {
        if !self.is_wanted {
            return;
        }
        for access in evaluator.accesses() {
            self.window.push_access(*access);
        }
        for number in (0..16).filter(|n| self.written >> n & 1 == 1) {
            let value = evaluator.machine.registers[number as usize];
            self.window.push_result(number, value);
        }
        if is_syscall(&code.instruction) {
            // Filled in by the events that follow.
            let step = self.window.len() - 1;
            self.window.syscalls.push(Syscall {
                step,
                number: u32::MAX,
                args: [0; 6],
                result: None,
                written: Vec::new(),
            });
        }
    }

    fn event(&mut self, event: &Event) {
        if !self.is_wanted {
            return;
        }
        match event {
            Event::SyscallEnter(call) => {
                if let Some(last) = self.window.syscalls.last_mut() {
                    last.number = call.number;
                    last.args = call.args;
                }
            }
            Event::SyscallExit { result, .. } => {
                if let Some(last) = self.window.syscalls.last_mut() {
                    last.result = Some(*result);
                    last.written = outputs(last.number, &last.args, *result);
                }
            }
            Event::Signal { signo, .. } => {
                let at = self.window.len();
                let what = Interruption::Signal { number: *signo };
                self.window.interruptions.push((at, what));
            }
            Event::Transfer { cause, .. } if *cause == TRANSFER_CALL_OVER => {
                let at = self.window.len();
                self.window
                    .interruptions
                    .push((at, Interruption::CalledOver));
            }
            Event::Transfer { .. } | Event::Gap { .. } => self.moved = true,
            _ => {}
        }
    }
}

/// The thread's last instructions; empty at level flow. `enough` looks at the window of
/// the newest values first, and more are taken until it says yes.
///
/// # Errors
/// When the trace cannot be read.
pub fn tail_window(
    blocks: &DecodedBlocks,
    thread: &Thread,
    enough: impl Fn(&Window) -> bool,
) -> Result<Window> {
    let mut bytes = VALUE_BYTES;
    loop {
        let Some(span) = thread.value_tail(bytes, FLOW_BYTES) else {
            return Ok(Window::default());
        };
        let mut filler = Filler::new(0..=u64::MAX);
        let statistics = replay(blocks, thread, &span, &mut filler)?;
        let mut window = filler.window;
        window.keep_last(STEPS);
        window.contradictions = statistics.contradictions;
        // A loop with few loads fills the window from few values: older ones add nothing.
        let full = window.len() >= STEPS;
        if full || span.bytes < bytes || bytes >= VALUE_BYTES * 16 || enough(&window) {
            return Ok(window);
        }
        bytes *= 4;
    }
}

/// The thread's instructions up to the end of the block at flow position `pos`, as far back as
/// `VALUE_BYTES` of values reach; empty where there are no values.
///
/// # Errors
/// When the trace cannot be read.
pub fn window_until(blocks: &DecodedBlocks, thread: &Thread, pos: u64) -> Result<Window> {
    window_between(blocks, thread, 0..=pos)
}

/// The same, without what came before the block at the first of these flow positions.
///
/// # Errors
/// When the trace cannot be read.
pub fn window_between(
    blocks: &DecodedBlocks,
    thread: &Thread,
    wanted: RangeInclusive<u64>,
) -> Result<Window> {
    let (from, pos) = (*wanted.start(), *wanted.end());
    let spans = thread.value_spans();
    let Some(span) = spans.iter().rev().find(|span| span.start_pos <= pos) else {
        return Ok(Window::default());
    };
    let mut pieces = thread.value_pieces(span);
    pieces.retain(|piece| piece.start_pos <= pos);
    let Some(mut taken) = pieces.pop() else {
        return Ok(Window::default());
    };
    let far = from.max(pos.saturating_sub(FLOW_BYTES));
    let is_enough = |span: &ValueSpan| span.bytes >= VALUE_BYTES || span.start_pos <= far;
    while let Some(piece) = pieces.pop().filter(|_| !is_enough(&taken)) {
        taken = piece.with(&taken);
    }
    let mut filler = Filler::new(wanted);
    let statistics = replay(blocks, thread, &taken, &mut filler)?;
    let mut window = filler.window;
    window.keep_last(STEPS);
    window.contradictions = statistics.contradictions;
    Ok(window)
}
