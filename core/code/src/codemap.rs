// SPDX-License-Identifier: MIT
//! The decoded code of one traced process.
//!
//! Instructions come from the block bytes in the trace, never from files, so JIT
//! code and deleted or replaced files decode as they ran.

use std::sync::OnceLock;

use flagfinder_trace::{
    Block, BlockId, DecodedFlow, Event, GapReason, Module, ModuleId, Process, Thread,
};
use rustc_hash::FxHashMap;

use crate::block::{CodeBlock, Succession};
use crate::module::{ModuleIdentity, Place};

/// Blocks of one process, decoded at first use. Can be shared between threads.
#[derive(Debug)]
pub struct CodeMap<'p> {
    process: &'p Process,
    /// Beside `process.blocks()`, index by index.
    decoded: Vec<OnceLock<CodeBlock>>,
    identities: FxHashMap<ModuleId, ModuleIdentity>,
}

/// A place in a flow where a block is followed by one that cannot follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowBreak {
    /// The block before.
    pub from: BlockId,
    /// The block that stands behind it in the flow.
    pub to: BlockId,
    /// Flow position (bytes) of the event or the section's start before it.
    pub pos: u64,
}

/// Looks at every step from block to block.
struct Steps<'c, 'p> {
    code: &'c CodeMap<'p>,
    /// `None`: control may have come from anywhere.
    before: Option<BlockId>,
    breaks: Vec<FlowBreak>,
}

impl Steps<'_, '_> {
    fn take(&mut self, blocks: &[BlockId], pos: u64) {
        for &to in blocks {
            if let Some(from) = self.before.replace(to) {
                if self.code.impossible(from, to) {
                    self.breaks.push(FlowBreak { from, to, pos });
                }
            }
        }
    }
}

impl<'p> CodeMap<'p> {
    /// Blocks are decoded when they are first asked for.
    pub fn new(process: &'p Process) -> Self {
        let mut decoded = Vec::new();
        decoded.resize_with(process.blocks().len(), OnceLock::new);
        let identity = |m: &Module| (m.id, ModuleIdentity::new(&m.path, &m.build_id));
        CodeMap {
            process,
            decoded,
            identities: process.modules().iter().map(identity).collect(),
        }
    }

    /// The traced process, whose block ids these are.
    pub fn process(&self) -> &'p Process {
        self.process
    }

    /// The block's code; `None` when its record is not in the trace.
    #[inline]
    pub fn block(&self, id: BlockId) -> Option<&CodeBlock> {
        Some(self.decode(self.process.block(id)?))
    }

    /// The code of a block of this process's table.
    #[inline]
    pub fn decode(&self, block: &Block) -> &CodeBlock {
        let index = self.index(block);
        self.decoded[index].get_or_init(|| CodeBlock::decode(block.pc, &block.code))
    }

    /// Index of a block in `process().blocks()`: dense, for side tables.
    ///
    /// # Panics
    /// When the block belongs to another process.
    #[inline]
    pub fn index(&self, block: &Block) -> usize {
        self.process
            .index_of(block)
            .expect("the block is of this process")
    }

    /// Where an address lies, comparable between runs.
    pub fn place(&self, address: u64) -> Place {
        match self.process.module_at(address) {
            Some(module) => self.in_module(module, address),
            None => Place {
                module: None,
                offset: address,
            },
        }
    }

    fn in_module(&self, module: &Module, address: u64) -> Place {
        Place {
            module: self.identities.get(&module.id).cloned(),
            offset: address.wrapping_sub(module.base),
        }
    }

    /// Run-time address of a place in this process; `None` when it has no such module.
    pub fn address(&self, place: &Place) -> Option<u64> {
        let Some(wanted) = &place.module else {
            return Some(place.offset);
        };
        let modules = self.process.modules().iter().rev();
        let base = modules
            .filter(|module| self.identities.get(&module.id) == Some(wanted))
            // Loaded before unloaded, latest first.
            .min_by_key(|module| module.unload_ts.is_some())?
            .base;
        Some(base.wrapping_add(place.offset))
    }

    /// Every place where the thread's flow takes a step that the code does not allow
    /// and no event explains; at most `limit`. A damaged stretch ends the check of
    /// what lies around it, not the walk.
    pub fn flow_breaks(&self, thread: &Thread, limit: usize) -> Vec<FlowBreak> {
        let mut steps = Steps {
            code: self,
            before: None,
            breaks: Vec::new(),
        };
        let mut decoder = thread.flow_decoder();
        let mut flow = DecodedFlow::default();
        for (section, (mut pos, _)) in thread.flow_section_extents().enumerate() {
            if decoder.decode_folded(section, &mut flow).is_err() || flow.gap.is_some() {
                steps.before = None;
            }
            let mut done = 0;
            for (at, event_pos, event) in &flow.events {
                steps.take(&flow.blocks[done..*at], pos);
                if !keeps_control(event) {
                    steps.before = None;
                }
                (done, pos) = (*at, *event_pos);
            }
            steps.take(&flow.blocks[done..], pos);
            if let Some(count) = flow.cycled {
                // Once more, for the step from the round's end to its start; then to where it was
                // cut.
                steps.take(&flow.blocks[..1], pos);
                let last = (count - 1) % flow.blocks.len() as u64;
                steps.before = Some(flow.blocks[last as usize]);
            }
            if flow.gap == Some(GapReason::Damaged) {
                steps.before = None;
            }
            if steps.breaks.len() >= limit {
                steps.breaks.truncate(limit);
                break;
            }
        }
        steps.breaks
    }

    fn impossible(&self, from: BlockId, to: BlockId) -> bool {
        match (self.block(from), self.process.block(to)) {
            (Some(code), Some(next)) => code.succession(next.pc) == Succession::Impossible,
            _ => false,
        }
    }
}

/// Events that stand beside the code and do not move control.
fn keeps_control(event: &Event) -> bool {
    matches!(
        event,
        Event::Alloc { .. }
            | Event::Free { .. }
            | Event::ThreadName(_)
            | Event::ValuesOff
            | Event::ValuesOn
            | Event::Fork { .. }
    )
}
