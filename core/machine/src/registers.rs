// SPDX-License-Identifier: MIT
//! The registers at the blocks of a thread that lead up to one of them: the branch at which two
//! runs part.
//!
//! In: a spin trace with values, the place. Out: [`RegisterHistory`]. From the registers the flag's
//! address follows: each instruction tells which addresses it read and wrote.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use flagfinder_code::{AllocationLog, Code, CodeBlock, Names, NamesInput};
use flagfinder_trace::{BlockId, Flow, Process, Result, Thread, Trace};
use iced_x86::{Formatter, Instruction, IntelFormatter};
use serde::Serialize;

use crate::decoded::Decoded;
use crate::decoded_blocks::DecodedBlocks;
use crate::evaluator::Evaluator;
use crate::replayer::{replay, Visitor};
use crate::value::Machine;

/// x86 numbering.
const NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// The last blocks of the spinning thread up to the branch at which the runs part, oldest first.
#[derive(Clone, Debug, Serialize)]
pub struct RegisterHistory {
    /// Of the spinning process.
    pub pid: u32,
    /// Of the spinning thread.
    pub tid: u32,
    /// Oldest first; those that the trace has no code of are left out.
    pub blocks: Vec<BlockRegisters>,
}

/// The machine when control entered a block.
#[derive(Clone, Debug, Serialize)]
pub struct BlockRegisters {
    /// Among the thread's blocks, from 0.
    pub index: u64,
    /// Where the block begins.
    pub code: Code,
    /// By name, as hex; `None` where it isn't known.
    pub registers: BTreeMap<&'static str, Option<String>>,
    /// An instruction each, with what it read and wrote.
    pub assembly: Vec<String>,
}

/// One execution of a block by a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// As the trace has it.
    pub pid: u32,
    /// Which of the process's programs, as [`Trace::image`] counts them.
    pub image: u32,
    /// As the trace has it.
    pub tid: u32,
    /// Among the thread's blocks, from 0.
    pub index: u64,
}

/// Reads at most `count` blocks up to and including that one. `None`: the trace has no such thread.
///
/// # Errors
/// When the trace cannot be read.
pub fn registers_before(
    spin: &Trace,
    place: &BlockPlace,
    count: u64,
) -> Result<Option<RegisterHistory>> {
    let Some((process, thread)) = find_thread(spin, place) else {
        return Ok(None);
    };
    let mut wanted = Wanted::locate(thread, place.index, count)?;
    if let Some(first) = wanted.places.keys().next() {
        if let Some(span) = thread.values_from(*first) {
            replay(&DecodedBlocks::new(process), thread, &span, &mut wanted)?;
        }
    }
    let names = Names::new(NamesInput::from_process(process, AllocationLog::default()));
    let blocks = wanted.places.into_values().filter_map(|place| {
        let block = process.block(place.id)?;
        let mut assembly = place.assembly;
        if assembly.is_empty() {
            let code = CodeBlock::decode(block.pc, &block.code);
            assembly = code.instructions.iter().map(line).collect();
        }
        Some(BlockRegisters {
            index: place.index,
            code: names.code(block.pc),
            registers: place.registers,
            assembly,
        })
    });
    Ok(Some(RegisterHistory {
        pid: thread.pid,
        tid: thread.tid,
        blocks: blocks.collect(),
    }))
}

fn find_thread<'t>(trace: &'t Trace, wanted: &BlockPlace) -> Option<(&'t Process, &'t Thread)> {
    let process = trace.image(wanted.pid, wanted.image)?;
    let mut threads = process.threads().iter().rev();
    Some((process, threads.find(|thread| thread.tid == wanted.tid)?))
}

struct Place {
    index: u64,
    id: BlockId,
    registers: BTreeMap<&'static str, Option<String>>,
    assembly: Vec<String>,
}

/// The blocks asked for, by flow position; filled by the replay.
struct Wanted {
    places: BTreeMap<u64, Place>,
    /// Position of the block whose instructions run now.
    current: u64,
}

impl Wanted {
    fn locate(thread: &Thread, last: u64, count: u64) -> Result<Self> {
        let first = last.saturating_sub(count.saturating_sub(1));
        let mut decoder = thread.flow_decoder();
        let mut decoded = flagfinder_trace::DecodedFlow::default();
        let mut places = BTreeMap::new();
        let mut before = 0;
        for (section, (start, _)) in thread.flow_section_extents().enumerate() {
            decoder.decode_folded(section, &mut decoded)?;
            let end = before + decoded.block_count();
            if end > first && before <= last {
                let mut index = before;
                for item in thread.flow_from(start) {
                    let Flow::Block { id, pos } = item? else {
                        continue;
                    };
                    if index >= end || index > last {
                        break;
                    }
                    if index >= first {
                        let registers = NAMES.iter().map(|&name| (name, None)).collect();
                        let place = Place {
                            index,
                            id,
                            registers,
                            assembly: Vec::new(),
                        };
                        places.insert(pos, place);
                    }
                    index += 1;
                }
            }
            before = end;
            if before > last {
                break;
            }
        }
        Ok(Wanted { places, current: 0 })
    }
}

impl Visitor for Wanted {
    fn enter(&mut self, _id: BlockId, pos: u64, machine: &Machine) -> ControlFlow<()> {
        self.current = pos;
        if self
            .places
            .keys()
            .next_back()
            .is_none_or(|&last| pos > last)
        {
            return ControlFlow::Break(());
        }
        if let Some(place) = self.places.get_mut(&pos) {
            for (name, register) in NAMES.iter().zip(&machine.registers) {
                let value = register.get(64).map(|value| format!("{value:#x}"));
                place.registers.insert(name, value);
            }
        }
        ControlFlow::Continue(())
    }

    fn after(&mut self, code: &Decoded, evaluator: &Evaluator) {
        let Some(place) = self.places.get_mut(&self.current) else {
            return;
        };
        let mut text = line(&code.instruction);
        for access in evaluator.accesses() {
            let Some(address) = access.address else {
                continue;
            };
            let verb = if access.write { "writes" } else { "reads" };
            text += &format!("; {verb} {} bytes at {address:#x}", access.bytes);
            if let Some(value) = access.value.get(access.bytes.min(8) * 8) {
                text += &format!(": {value:#x}");
            }
        }
        place.assembly.push(text);
    }
}

fn line(instruction: &Instruction) -> String {
    let mut text = format!("{:x}  ", instruction.ip());
    IntelFormatter::new().format(instruction, &mut text);
    text
}
