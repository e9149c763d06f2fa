// SPDX-License-Identifier: MIT
//! A process's blocks as the evaluator takes them, and what else of a process all replays share.

use std::sync::OnceLock;

use flagfinder_code::CodeBlock;
use flagfinder_linux::life;
use flagfinder_trace::{Block, DecodedFlow, Event, Process, Result, Slot, Thread};
use iced_x86::{InstructionInfoFactory, Mnemonic};

use crate::compact::{compile, Operation};
use crate::decoded::Decoded;

/// A block's instructions.
#[derive(Default)]
pub struct Codes {
    /// Its instructions, in the order of execution.
    pub instructions: Box<[Decoded]>,
    /// The block for a replay that looks at no single instruction.
    pub(crate) compact: Box<[Operation]>,
    /// Those that access memory and have no part in `compact`.
    pub(crate) left_out: Box<[u32]>,
    /// It loads, and the tracer was not asked to record the values.
    pub slotless: bool,
}

impl Codes {
    pub(crate) fn new(instructions: Box<[Decoded]>, slots: &[Slot]) -> Self {
        let compact = compile(&instructions, slots);
        let mut done = compact.iter().map(|one| one.index).peekable();
        let all = instructions.iter().zip(0..);
        let left_out =
            all.filter(|(code, index)| done.next_if_eq(index).is_none() && !code.memory.is_empty());
        Codes {
            left_out: left_out.map(|(_, index)| index).collect(),
            slotless: slots.is_empty() && instructions.iter().any(wants_slot),
            compact,
            instructions,
        }
    }
}

/// Blocks of one process, decoded once for all passes and threads.
pub struct DecodedBlocks<'p> {
    process: &'p Process,
    blocks: Vec<OnceLock<Codes>>,
    /// By thread: where in its flow it sets its thread pointer, and to what.
    set_bases: Vec<OnceLock<Option<(u64, u64)>>>,
}

impl<'p> DecodedBlocks<'p> {
    /// Blocks are decoded when they are first asked for.
    pub fn new(process: &'p Process) -> Self {
        let mut blocks = Vec::new();
        blocks.resize_with(process.blocks().len(), OnceLock::new);
        let mut set_bases = Vec::new();
        set_bases.resize_with(process.threads().len(), OnceLock::new);
        DecodedBlocks {
            process,
            blocks,
            set_bases,
        }
    }

    /// The process that the blocks are of.
    pub fn process(&self) -> &'p Process {
        self.process
    }

    /// `None` for a block that is none of the process's.
    pub fn get(&self, block: &Block) -> Option<&Codes> {
        let index = self.process.index_of(block)?;
        Some(self.blocks.get(index)?.get_or_init(|| {
            let mut factory = InstructionInfoFactory::new();
            let instructions: Box<[_]> = CodeBlock::decode(block.pc, &block.code)
                .instructions
                .iter()
                .map(|instruction| Decoded::new(instruction, &mut factory))
                .collect();
            Codes::new(instructions, &block.slots)
        }))
    }

    /// The thread pointer at a flow position: the start says it, but a process's first thread
    /// sets its own. libc does so once, early.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn fs_base(&self, thread: &Thread, pos: u64) -> Result<Option<u64>> {
        let base = thread.start.map(|start| start.fs_base);
        if let Some(base) = base.filter(|&base| base != 0) {
            return Ok(Some(base));
        }
        let index = self.process.thread_index(thread);
        let Some(cell) = index.and_then(|index| self.set_bases.get(index)) else {
            return Ok(None);
        };
        let set = match cell.get() {
            Some(known) => *known,
            None => {
                let found = set_base(thread)?;
                *cell.get_or_init(|| found)
            }
        };
        Ok(set.filter(|(at, _)| *at < pos).map(|(_, base)| base))
    }
}

/// Where a thread sets its thread pointer, and to what.
fn set_base(thread: &Thread) -> Result<Option<(u64, u64)>> {
    let mut decoder = thread.flow_decoder();
    let mut flow = DecodedFlow::default();
    for section in 0..thread.flow_section_count() {
        decoder.decode_folded(section, &mut flow)?;
        for (_, pos, event) in &flow.events {
            if let Event::SyscallEnter(call) = event {
                if let Some(base) = life::thread_pointer(call.number, &call.args) {
                    return Ok(Some((*pos, base)));
                }
            }
        }
    }
    Ok(None)
}

/// A plain load, which a tracer that records this block's values never leaves out.
fn wants_slot(code: &Decoded) -> bool {
    let plain = matches!(
        code.mnemonic,
        Mnemonic::Mov
            | Mnemonic::Movzx
            | Mnemonic::Movsx
            | Mnemonic::Movsxd
            | Mnemonic::Cmp
            | Mnemonic::Test
    );
    plain && code.memory.iter().any(|memory| memory.read)
}
