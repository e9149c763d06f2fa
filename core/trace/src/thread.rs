// SPDX-License-Identifier: MIT
//! A traced thread: who started it, its flow, and the stretches of it that have values.

use std::sync::Arc;

use crate::block::BlockTable;
use crate::container::{Section, Storage};

/// One life of one tid within a [`crate::Process`].
pub struct Thread {
    /// As the recorder's pid namespace has it.
    pub pid: u32,
    /// As the process's own pid namespace has it, and the program's futexes.
    pub tid: u32,
    /// As last seen; empty when never seen.
    pub name: String,
    /// `None` when the start of its flow is missing.
    pub start: Option<ThreadStart>,
    pub(crate) storage: Arc<Storage>,
    pub(crate) blocks: Arc<BlockTable>,
    pub(crate) flow_sections: Vec<Section>,
    pub(crate) values_sections: Vec<Section>,
    pub(crate) ended_open: bool,
    pub(crate) ended_by_exec: bool,
}

impl std::fmt::Debug for Thread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Thread")
            .field("tid", &self.tid)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What the thread's first event says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadStart {
    /// `None` for the process's first thread, or when unknown.
    pub creator_tid: Option<u32>,
    /// CLOCK_MONOTONIC ns.
    pub ts: u64,
    /// Thread pointer at the start; 0: unknown.
    pub fs_base: u64,
    /// At the first instruction; 0: unknown.
    pub stack_pointer: u64,
    /// The program's entry; 0 for a cloned thread, whose first block tells.
    pub start_pc: u64,
}

/// A stretch of flow with the VALUES sections that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueSpan {
    /// Index of its first section among the thread's VALUES sections.
    pub first_section: usize,
    /// 0: its blocks have no slots, or what they held was lost.
    pub sections: usize,
    /// Flow position of the block whose values come first.
    pub start_pos: u64,
    /// Flow position of the first block that is no longer in it; `u64::MAX`: it reaches as far as
    /// its values do.
    pub end_pos: u64,
    /// Raw bytes of slots.
    pub bytes: u64,
}

impl ValueSpan {
    fn new(index: usize, section: &Section) -> Self {
        ValueSpan {
            first_section: index,
            sections: 1,
            start_pos: section.header.start_pos,
            end_pos: u64::MAX,
            bytes: slot_bytes(section),
        }
    }

    fn add(&mut self, section: &Section) {
        self.sections += 1;
        self.bytes += slot_bytes(section);
    }

    /// It and what comes right behind it.
    pub fn with(&self, next: &ValueSpan) -> ValueSpan {
        ValueSpan {
            sections: self.sections + next.sections,
            bytes: self.bytes + next.bytes,
            end_pos: next.end_pos,
            ..*self
        }
    }
}

fn slot_bytes(section: &Section) -> u64 {
    let checkpoint = crate::values::CHECKPOINT_BYTES as u64;
    section.header.raw_bytes.saturating_sub(checkpoint)
}

impl Thread {
    /// `None` for the process's first thread, or when unknown.
    pub fn creator_tid(&self) -> Option<u32> {
        self.start.and_then(|start| start.creator_tid)
    }

    /// FLOW sections in the file, damaged payloads included.
    pub fn flow_section_count(&self) -> usize {
        self.flow_sections.len()
    }

    /// Start position and raw bytes of each FLOW section.
    pub fn flow_section_extents(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        self.flow_sections
            .iter()
            .map(|s| (s.header.start_pos, s.header.raw_bytes))
    }

    /// CLOCK_MONOTONIC ns at which the chunk of a FLOW section was opened and was full; 0 when
    /// unknown. Sections of one chunk share the first.
    pub fn flow_section_times(&self, index: usize) -> (u64, u64) {
        let section = self.flow_sections.get(index);
        section.map_or((0, 0), |s| (s.header.ts_open, s.header.ts_full))
    }

    /// Position behind the last section (its padding included).
    pub fn flow_end(&self) -> u64 {
        self.flow_sections
            .last()
            .map_or(0, |s| s.header.start_pos + s.header.raw_bytes)
    }

    /// Raw bytes of flow in the file.
    pub fn flow_bytes(&self) -> u64 {
        self.flow_sections.iter().map(|s| s.header.raw_bytes).sum()
    }

    /// Was the thread still running when its last chunk was collected? Its flow then
    /// does not end with its exit.
    pub fn ended_open(&self) -> bool {
        self.ended_open
    }

    /// Was its last chunk still being written? Its last block may not have finished.
    pub(crate) fn flow_is_partial(&self) -> bool {
        self.flow_sections
            .last()
            .is_some_and(|s| s.header.is_partial())
    }

    /// CLOCK_MONOTONIC ns at which its first and last FLOW chunk were opened.
    pub fn opened(&self) -> Option<(u64, u64)> {
        Some((
            self.flow_sections.first()?.header.ts_open,
            self.flow_sections.last()?.header.ts_open,
        ))
    }

    /// The stretches with values, oldest first, none of whose VALUES sections is missing; empty at
    /// level flow.
    pub fn value_spans(&self) -> Vec<ValueSpan> {
        let mut spans: Vec<ValueSpan> = Vec::new();
        let mut expected = None;
        for (index, section) in self.values_sections.iter().enumerate() {
            let header = &section.header;
            match spans.last_mut() {
                Some(span) if expected == Some(header.seq) && header.lost == 0 => span.add(section),
                before => {
                    if let Some(span) = before {
                        span.end_pos = header.start_pos;
                    }
                    spans.push(ValueSpan::new(index, section));
                }
            }
            expected = Some(header.seq + 1);
        }
        spans
    }

    /// The span in pieces that can be replayed one by one. A tracer that ends its chunks together
    /// makes a piece of each chunk of flow: with a checkpoint where there are values, and else with
    /// no slots in it.
    pub fn value_pieces(&self, span: &ValueSpan) -> Vec<ValueSpan> {
        let mut pieces: Vec<ValueSpan> = Vec::new();
        let mut current = None;
        let end = (span.first_section + span.sections).min(self.values_sections.len());
        for index in span.first_section..end {
            let section = &self.values_sections[index];
            let pos = section.header.start_pos;
            let flow = self.flow_section_at(pos);
            match pieces.last_mut() {
                Some(piece) if current == Some(flow) || section.header.regs_valid == 0 => {
                    piece.add(section);
                }
                _ => {
                    pieces.push(ValueSpan::new(index, section));
                    current = Some(flow);
                }
            }
            let next = self
                .values_sections
                .get(index + 1)
                .filter(|_| index + 1 < end);
            let until = next.map_or(span.end_pos, |next| next.header.start_pos);
            for start_pos in self.without_slots(pos, until) {
                pieces.push(ValueSpan {
                    first_section: index + 1,
                    sections: 0,
                    start_pos,
                    end_pos: u64::MAX,
                    bytes: 0,
                });
                current = None;
            }
        }
        for index in 1..pieces.len() {
            pieces[index - 1].end_pos = pieces[index].start_pos;
        }
        if let Some(last) = pieces.last_mut() {
            last.end_pos = span.end_pos;
        }
        pieces
    }

    /// Index of the FLOW section that holds `pos`; that of the first where none does.
    fn flow_section_at(&self, pos: u64) -> usize {
        self.flow_sections
            .partition_point(|s| s.header.start_pos <= pos)
            .saturating_sub(1)
    }

    /// Where chunks of flow begin, behind the one in which a VALUES section begins at `pos`, and
    /// before `until`. Chunks end together, so if a block in these had a slot, another VALUES
    /// section would begin there.
    fn without_slots(&self, pos: u64, until: u64) -> impl DoubleEndedIterator<Item = u64> + '_ {
        let behind = self.flow_section_at(pos) + 1;
        let before = self
            .flow_sections
            .partition_point(|s| s.header.start_pos < until);
        (behind..before.max(behind)).filter_map(|index| {
            let (chunk, last) = (
                &self.flow_sections[index].header,
                &self.flow_sections[index - 1].header,
            );
            (chunk.seq != last.seq).then_some(chunk.start_pos)
        })
    }

    /// The span that holds `pos`, cut to begin at its last section start at or before `pos`:
    /// evaluating from there needs no more than one section of lead. `None`: no values that early.
    pub fn values_from(&self, pos: u64) -> Option<ValueSpan> {
        let spans = self.value_spans();
        let span = spans.iter().rev().find(|span| span.start_pos <= pos)?;
        let end = span.first_section + span.sections;
        let sections = &self.values_sections[span.first_section..end];
        let after = sections.partition_point(|s| s.header.start_pos <= pos);
        // 0 only where a damaged trace has positions out of order.
        let skipped = after.saturating_sub(1);
        Some(ValueSpan {
            first_section: span.first_section + skipped,
            sections: span.sections - skipped,
            start_pos: sections[skipped].header.start_pos,
            ..*span
        })
    }

    /// The shortest end of the last stretch with values that holds `bytes` bytes of slots, or
    /// `flow` bytes of flow (the whole stretch when it is shorter); `None` at level flow. A loop
    /// that loads nothing has values of a billion blocks in a few bytes.
    pub fn value_tail(&self, bytes: u64, flow: u64) -> Option<ValueSpan> {
        let span = self.value_spans().pop()?;
        let far = self.flow_end().saturating_sub(flow);
        let mut pieces = self.value_pieces(&span);
        let mut tail = pieces.pop()?;
        while let Some(piece) = pieces
            .pop()
            .filter(|_| tail.bytes < bytes && tail.start_pos > far)
        {
            tail = piece.with(&tail);
        }
        Some(tail)
    }

    /// The span's beginning: pieces that hold at most `bytes` bytes of slots and begin within
    /// `flow` bytes of flow. `None`: already the first one holds more.
    pub fn value_head(&self, span: &ValueSpan, bytes: u64, flow: u64) -> Option<ValueSpan> {
        let far = span.start_pos.saturating_add(flow);
        let fits =
            |held: u64, piece: &ValueSpan| piece.start_pos < far && held + piece.bytes <= bytes;
        let mut pieces = self.value_pieces(span).into_iter();
        let mut head = pieces.next().filter(|first| fits(0, first))?;
        for piece in pieces {
            if !fits(head.bytes, &piece) {
                break;
            }
            head = head.with(&piece);
        }
        Some(head)
    }
}
