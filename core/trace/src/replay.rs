// SPDX-License-Identifier: MIT
//! Flow and values of one thread, walked together.
//!
//! A VALUES section belongs to the block unit at its `start_pos`; from there each
//! block takes its `slot_bytes`. Wherever the two streams no longer fit (flow was
//! lost, a block's record is missing) blocks have no values until the next section
//! says where it begins, so an error never spreads past one section.

use crate::block::{Block, BlockId};
use crate::error::Result;
use crate::event::{Event, Registers};
use crate::flow::{Flow, FlowCursor, GapReason, Upcoming};
use crate::thread::{Thread, ValueSpan};
use crate::values::ValuesBuffer;

/// One execution of a block.
#[derive(Debug)]
pub struct ReplayBlock<'c> {
    /// Its record may be missing.
    pub id: BlockId,
    /// Flow position of its unit.
    pub pos: u64,
    /// `None` when the block's record is missing.
    pub block: Option<&'c Block>,
    /// The slots' bytes in order, unaligned. `None`: not recorded or lost.
    pub values: Option<&'c [u8]>,
    /// At the first block of a VALUES section: registers at the block's entry.
    pub checkpoint: Option<&'c Registers>,
    /// The block was left early, or may not have finished when the target was
    /// killed: a `Fault` event right behind it says where.
    pub partial: bool,
}

/// One item of flow, a block with its values.
#[derive(Debug)]
pub enum ReplayItem<'c> {
    /// The thread entered a block.
    Block(ReplayBlock<'c>),
    /// Something that is no block.
    Event {
        /// What happened.
        event: Event,
        /// Flow position of its record.
        pos: u64,
    },
    /// Flow is missing; values are, too, up to the next section.
    Gap {
        /// Why it is missing.
        reason: GapReason,
        /// Where flow goes on.
        pos: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    /// Before the span's first block.
    Seeking,
    InStep,
    /// Waiting for the next section's start.
    Lost,
}

/// See [`Thread::replay`]. Not an `Iterator`: items borrow the section in memory.
pub struct ReplayCursor<'a> {
    thread: &'a Thread,
    flow: FlowCursor<'a>,
    values: ValuesBuffer,
    next_section: usize,
    end_section: usize,
    /// Where the span begins and ends.
    start: u64,
    stop: u64,
    sync: Sync,
    off: bool,
    mismatches: u64,
    damaged: u64,
    successor: Option<BlockId>,
    done: bool,
}

impl Thread {
    /// Walks flow and values of one span together.
    pub fn replay(&self, span: &ValueSpan) -> ReplayCursor<'_> {
        ReplayCursor::new(self, span)
    }
}

impl<'a> ReplayCursor<'a> {
    fn new(thread: &'a Thread, span: &ValueSpan) -> Self {
        let count = thread.values_sections.len();
        let first = span.first_section.min(count);
        let end_section = first.saturating_add(span.sections).min(count);
        ReplayCursor {
            thread,
            flow: thread.flow_from(span.start_pos),
            values: ValuesBuffer::default(),
            next_section: first,
            end_section,
            // Not beyond the start only where a damaged trace has positions out of order.
            stop: Some(span.end_pos)
                .filter(|&end| end > span.start_pos)
                .unwrap_or(u64::MAX),
            start: span.start_pos,
            sync: Sync::Seeking,
            off: false,
            mismatches: 0,
            damaged: 0,
            successor: None,
            done: false,
        }
    }

    /// How often flow and values did not fit so far. 0 in a sound trace.
    pub fn mismatches(&self) -> u64 {
        self.mismatches
    }

    /// VALUES sections whose bytes were damaged so far; their blocks have no values.
    pub fn damaged_sections(&self) -> u64 {
        self.damaged
    }

    /// Once there are no more items: the block that came next, where another section begins with
    /// it.
    pub fn successor(&self) -> Option<BlockId> {
        self.successor
    }

    /// The next item; `None` behind the last block that the span has values for
    /// (or at the end of flow).
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Result<ReplayItem<'_>>> {
        loop {
            if self.done {
                return None;
            }
            match self.flow.next()? {
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
                Ok(Flow::Block { id, pos }) => {
                    if self.sync == Sync::Seeking && pos < self.start {
                        continue;
                    }
                    if pos >= self.stop {
                        self.done = true;
                        // Events may stand at the border; they were given to this span.
                        self.successor = Some(id);
                        return None;
                    }
                    return self.block(id, pos);
                }
                Ok(Flow::Event { event, pos }) => {
                    match event {
                        Event::ValuesOff => self.off = true,
                        Event::ValuesOn => self.off = false,
                        Event::Gap { .. } => self.sync = self.lost(),
                        _ => {}
                    }
                    if self.sync != Sync::Seeking {
                        return Some(Ok(ReplayItem::Event { event, pos }));
                    }
                }
                Ok(Flow::Gap { reason, pos }) => {
                    self.sync = self.lost();
                    if self.sync != Sync::Seeking {
                        return Some(Ok(ReplayItem::Gap { reason, pos }));
                    }
                }
            }
        }
    }

    fn lost(&self) -> Sync {
        if self.sync == Sync::Seeking {
            Sync::Seeking
        } else {
            Sync::Lost
        }
    }

    fn next_start(&self) -> Option<u64> {
        (self.next_section < self.end_section).then(|| {
            self.thread.values_sections[self.next_section]
                .header
                .start_pos
        })
    }

    fn block(&mut self, id: BlockId, pos: u64) -> Option<Result<ReplayItem<'_>>> {
        let mut at_checkpoint = false;
        while let Some(start) = self.next_start().filter(|&start| start <= pos) {
            // The chunk before must have been used up, unless its thread was cut off.
            let section = self.thread.values_sections[self.next_section];
            if start < pos || (self.sync == Sync::InStep && self.values.left() != 0) {
                self.mismatches += 1;
            }
            self.next_section += 1;
            self.sync = Sync::Lost;
            if start == pos {
                match self.values.load(&self.thread.storage, &section) {
                    Err(error) => {
                        self.done = true;
                        return Some(Err(error));
                    }
                    Ok(false) => self.damaged += 1,
                    Ok(true) => {
                        self.sync = Sync::InStep;
                        self.off = false;
                        at_checkpoint = true;
                    }
                }
            }
        }
        if self.sync == Sync::Seeking {
            // A stretch without values: its blocks have no slots.
            self.sync = Sync::InStep;
        }
        let block = self.thread.blocks.get(id);
        let upcoming = self.flow.upcoming();
        // A thread that was killed may have entered a block and got no chunk for it.
        let cut_off = upcoming == Upcoming::End && self.thread.flow_is_partial();
        let mut range = None;
        if self.sync == Sync::InStep && !self.off {
            let needed = block.map(|block| block.slot_bytes as usize);
            range = needed.and_then(|needed| self.values.take(needed));
            if range.is_none() && !cut_off {
                let at_end = self.next_section == self.end_section && needed.is_some();
                self.sync = Sync::Lost;
                if !at_end || self.values.left() != 0 {
                    self.mismatches += 1;
                }
            }
        }
        if self.sync == Sync::Lost && self.next_section == self.end_section {
            self.done = true;
            return None;
        }
        Some(Ok(ReplayItem::Block(ReplayBlock {
            id,
            pos,
            block,
            values: range.map(|range| self.values.slice(range)),
            checkpoint: at_checkpoint.then_some(&self.values.checkpoint),
            partial: cut_off || upcoming == Upcoming::Fault,
        })))
    }
}
