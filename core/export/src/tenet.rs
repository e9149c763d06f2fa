// SPDX-License-Identifier: MIT
//! Recordings as Tenet's text traces: a line for each instruction, with what it changed.
//!
//! A line shows the state behind an instruction: registers that changed, `rip` of the next one, and
//! the memory that it read (`mr`) and wrote (`mw`), as bytes. The first line is the state at the
//! beginning. What the recording does not tell (vector registers, registers behind a gap) is left
//! out, which the format allows; a reader goes on with the old value.

use std::io::Write;
use std::ops::ControlFlow;

use flagfinder_machine::decoded::Decoded;
use flagfinder_machine::decoded_blocks::DecodedBlocks;
use flagfinder_machine::evaluator::Evaluator;
use flagfinder_machine::replayer::{replay, Visitor};
use flagfinder_machine::value::Machine;
use flagfinder_trace::{BlockId, Process, ReplayItem, Thread, ValueSpan};

use crate::error::ExportError;

/// x86 numbering.
pub(crate) const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// A block takes at most so many bytes of flow.
const BLOCK_BYTES: u64 = 8;

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Lines but for the first.
    pub instructions: u64,
    /// Instructions of the thread before these, as far as they were counted: from the piece of the
    /// recording on in which the first one lies.
    pub left_out: u64,
}

/// Writes the thread's last `count` instructions.
///
/// # Errors
/// When the recording can't be read or the output can't be written.
pub fn tenet(
    process: &Process,
    thread: &Thread,
    count: u64,
    out: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let (span, total) = last(thread, count)?;
    let mut lines = Lines {
        skip: total.saturating_sub(count),
        shown: [None; 16],
        line: None,
        written: 0,
        failed: None,
        out,
    };
    replay(&DecodedBlocks::new(process), thread, &span, &mut lines)?;
    if let Some(error) = lines.failed {
        return Err(error.into());
    }
    lines.out.flush()?;
    // The first line belongs to no instruction, and it is not known where the last one went.
    let instructions = lines.written.saturating_sub(1);
    Ok(Exported {
        instructions,
        left_out: total - instructions,
    })
}

/// A tail that holds `count` instructions (all of the last stretch with values where that has
/// fewer), and how many it holds.
fn last(thread: &Thread, count: u64) -> Result<(ValueSpan, u64), ExportError> {
    let mut flow = count.saturating_mul(BLOCK_BYTES);
    loop {
        let span = tail(thread, flow);
        let total = instructions(thread, &span)?;
        if total >= count || flow >= thread.flow_end() {
            return Ok((span, total));
        }
        // Events take room between the blocks.
        flow = flow.saturating_mul(4);
    }
}

/// The end of the flow, with its values if there are any.
fn tail(thread: &Thread, flow: u64) -> ValueSpan {
    thread.value_tail(u64::MAX, flow).unwrap_or(ValueSpan {
        first_section: 0,
        sections: 0,
        start_pos: thread.flow_end().saturating_sub(flow),
        end_pos: u64::MAX,
        bytes: 0,
    })
}

fn instructions(thread: &Thread, span: &ValueSpan) -> Result<u64, ExportError> {
    let mut cursor = thread.replay(span);
    let mut count = 0;
    while let Some(item) = cursor.next() {
        if let ReplayItem::Block(block) = item? {
            count += block.block.map_or(0, |b| u64::from(b.instruction_count));
        }
    }
    Ok(count)
}

struct Lines<'o> {
    /// Instructions that are still skipped.
    skip: u64,
    shown: [Option<u64>; 16],
    /// The memory part of the line under way; it ends where the next instruction tells `rip`.
    line: Option<String>,
    written: u64,
    failed: Option<std::io::Error>,
    out: &'o mut dyn Write,
}

impl Lines<'_> {
    /// Writes the line under way: the machine behind it, and the next instruction's address.
    fn end(&mut self, machine: &Machine, pc: u64) {
        let Some(memory) = self.line.take() else {
            return;
        };
        let mut text = String::new();
        for (number, shown) in self.shown.iter_mut().enumerate() {
            let now = machine.registers[number].get(64);
            if now.is_some() && now != *shown {
                *shown = now;
                text += &format!("{}={:#x},", REGISTERS[number], now.unwrap_or(0));
            }
        }
        self.written += 1;
        if let Err(error) = writeln!(self.out, "{text}rip={pc:#x}{memory}") {
            self.failed.get_or_insert(error);
        }
    }
}

impl Visitor for Lines<'_> {
    fn enter(&mut self, _id: BlockId, _pos: u64, _machine: &Machine) -> ControlFlow<()> {
        if self.failed.is_some() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn before(&mut self, code: &Decoded, machine: &Machine) {
        if self.skip > 0 {
            return;
        }
        if self.written == 0 {
            // The state at the beginning.
            self.line = Some(String::new());
        }
        self.end(machine, code.pc());
    }

    fn after(&mut self, _code: &Decoded, evaluator: &Evaluator) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let mut memory = String::new();
        for access in evaluator.accesses() {
            // Of longer ones the low 8 bytes are known.
            let bytes = access.bytes.min(8);
            let value = access.value.get(bytes * 8).filter(|_| bytes > 0);
            if let Some((address, value)) = access.address.zip(value) {
                memory += if access.write { ",mw=" } else { ",mr=" };
                memory += &format!("{address:#x}:");
                for byte in &value.to_le_bytes()[..bytes as usize] {
                    memory += &format!("{byte:02x}");
                }
            }
        }
        self.line = Some(memory);
    }
}
