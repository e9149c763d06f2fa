// SPDX-License-Identifier: MIT
//! Walking a thread's flow: block ids and events, in order, one section in memory
//! at a time.
//!
//! A position is a byte offset in the thread's FLOW stream. Events are framed, so
//! decoding can begin at section starts only. A damaged or missing section is a
//! [`Flow::Gap`]; the walk goes on behind it.

use crate::block::BlockId;
use crate::container::{Section, SectionLoader, Storage};
use crate::error::{Failure, Result};
use crate::event::{decode_record, Event};
use crate::protocol as p;
use crate::thread::Thread;

/// Why flow is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// Sections are missing: dropped by the tracer or by `--last`.
    Lost,
    /// A section is there but its checksum or framing is wrong.
    Damaged,
}

/// One item of a thread's flow. Positions are byte offsets in its FLOW stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The thread entered a block.
    Block {
        /// Its record may be missing in the process.
        id: BlockId,
        /// Where its unit stands.
        pos: u64,
    },
    /// Something that is no block.
    Event {
        /// What happened.
        event: Event,
        /// Where its record begins.
        pos: u64,
    },
    /// Flow is missing between the item before and `pos`.
    Gap {
        /// Why it is missing.
        reason: GapReason,
        /// Where flow goes on.
        pos: u64,
    },
}

impl Flow {
    /// Where the item begins; of a gap, where flow goes on.
    pub fn pos(&self) -> u64 {
        match self {
            Flow::Block { pos, .. } | Flow::Event { pos, .. } | Flow::Gap { pos, .. } => *pos,
        }
    }
}

/// What comes next, without taking it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upcoming {
    Fault,
    Other,
    End,
}

/// Iterates over a thread's flow. Yields `Err` once for an I/O error, then ends.
pub struct FlowCursor<'a> {
    storage: &'a Storage,
    sections: &'a [Section],
    /// Index of the section to load next.
    next: usize,
    loader: SectionLoader,
    buffer: Vec<u8>,
    offset: usize,
    /// Position of `buffer[0]`.
    base: u64,
    gap: Option<GapReason>,
    /// Position that continues what was walked.
    expected: Option<u64>,
    failed: Option<Failure>,
}

impl Thread {
    /// All of the thread's flow.
    pub fn flow(&self) -> FlowCursor<'_> {
        FlowCursor::new(self, 0)
    }

    /// Flow from the last section start at or before `pos`: the first items may lie
    /// before it.
    pub fn flow_from(&self, pos: u64) -> FlowCursor<'_> {
        let after = self
            .flow_sections
            .partition_point(|s| s.header.start_pos <= pos);
        FlowCursor::new(self, after.saturating_sub(1))
    }

    /// At least the last `bytes` of flow, from a section start.
    pub fn flow_tail(&self, bytes: u64) -> FlowCursor<'_> {
        self.flow_from(self.flow_end().saturating_sub(bytes))
    }
}

impl<'a> FlowCursor<'a> {
    /// Begins at section `first` of the thread's flow.
    fn new(thread: &'a Thread, first: usize) -> Self {
        let expected = if first == 0 { Some(0) } else { None };
        FlowCursor {
            storage: &thread.storage,
            sections: &thread.flow_sections,
            next: first,
            loader: SectionLoader::default(),
            buffer: Vec::new(),
            offset: 0,
            base: 0,
            gap: None,
            expected,
            failed: None,
        }
    }

    /// Loads sections until something can be decoded. `false`: the end.
    fn refill(&mut self) -> bool {
        while self.offset + 2 > self.buffer.len() && self.gap.is_none() && self.failed.is_none() {
            let Some(section) = self.sections.get(self.next) else {
                return false;
            };
            self.next += 1;
            self.offset = 0;
            self.base = section.header.start_pos;
            let missing = self.expected.is_some_and(|pos| pos != self.base);
            self.expected = Some(self.base + section.header.raw_bytes);
            if missing {
                self.gap = Some(GapReason::Lost);
            }
            if let Err(error) = self.loader.load(self.storage, section, &mut self.buffer) {
                self.buffer.clear();
                if error.is_bad_file() {
                    self.damaged(section);
                } else {
                    self.next = self.sections.len();
                    self.failed = Some(error);
                }
            }
        }
        true
    }

    fn damaged(&mut self, section: &Section) {
        self.buffer.clear();
        self.offset = 0;
        self.base = section.header.start_pos + section.header.raw_bytes;
        self.gap = Some(GapReason::Damaged);
    }

    fn unit(&self, at: usize) -> u16 {
        match self.buffer.get(at..at + 2) {
            Some(bytes) => u16::from_le_bytes([bytes[0], bytes[1]]),
            None => p::FLOW_PAD,
        }
    }

    pub(crate) fn upcoming(&mut self) -> Upcoming {
        loop {
            if !self.refill() {
                return Upcoming::End;
            }
            if self.gap.is_some() || self.failed.is_some() {
                return Upcoming::Other;
            }
            match self.unit(self.offset) {
                p::FLOW_PAD => self.offset = self.buffer.len(),
                p::FLOW_EVENT if self.unit(self.offset + 2) == p::EVENT_FAULT => {
                    return Upcoming::Fault
                }
                _ => return Upcoming::Other,
            }
        }
    }
}

impl Iterator for FlowCursor<'_> {
    type Item = Result<Flow>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.offset + 2 > self.buffer.len() || self.gap.is_some() {
                if !self.refill() {
                    return None;
                }
                if let Some(error) = self.failed.take() {
                    return Some(Err(error));
                }
                if let Some(reason) = self.gap.take() {
                    return Some(Ok(Flow::Gap {
                        reason,
                        pos: self.base,
                    }));
                }
            }
            let pos = self.base + self.offset as u64;
            let unit = self.unit(self.offset);
            match unit {
                p::FLOW_PAD => self.offset = self.buffer.len(),
                p::FLOW_EVENT => {
                    let record = decode_record(&self.buffer[self.offset..]);
                    let event = record.and_then(|(kind, payload, taken)| {
                        Some((Event::decode(kind, payload)?, taken))
                    });
                    if let Some((event, taken)) = event {
                        self.offset += taken;
                        return Some(Ok(Flow::Event { event, pos }));
                    }
                    self.broken_event();
                }
                short if short < p::FLOW_LONG => {
                    self.offset += 2;
                    return Some(Ok(Flow::Block {
                        id: u32::from(short),
                        pos,
                    }));
                }
                high if self.offset + 4 <= self.buffer.len() => {
                    let id = u32::from(high - p::FLOW_LONG) << 16
                        | u32::from(self.unit(self.offset + 2));
                    self.offset += 4;
                    return Some(Ok(Flow::Block { id, pos }));
                }
                _ => self.broken_event(),
            }
        }
    }
}

impl FlowCursor<'_> {
    /// The rest of the section cannot be framed: the end of a killed thread's
    /// flow, or damage.
    fn broken_event(&mut self) {
        let section = &self.sections[self.next - 1];
        if section.header.is_partial() {
            self.offset = self.buffer.len();
        } else {
            self.damaged(section);
        }
    }
}

/// Decodes raw flow that begins at position `base` (a section's, or a live chunk's
/// start) up to the first padding unit, appending to `blocks` and `events` as in
/// [`crate::DecodedFlow`]. `false`: framing broke before the end.
pub fn decode_units(
    raw: &[u8],
    base: u64,
    blocks: &mut Vec<BlockId>,
    events: &mut Vec<(usize, u64, Event)>,
) -> bool {
    const LANES: usize = 32;
    blocks.reserve(raw.len() / 2);
    let mut at = 0;
    let short = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
    while at + 2 <= raw.len() {
        // Nearly all units are short ids: whole groups of them, branch-free.
        while let Some(group) = raw.get(at..at + 2 * LANES) {
            let mut ids = [0u32; LANES];
            let mut plain = true;
            for (id, bytes) in ids.iter_mut().zip(group.chunks_exact(2)) {
                let unit = short(bytes);
                plain &= unit.wrapping_sub(1) < p::FLOW_LONG - 1;
                *id = u32::from(unit);
            }
            if !plain {
                break;
            }
            blocks.extend_from_slice(&ids);
            at += 2 * LANES;
        }
        let stop = (at + 2 * LANES).min(raw.len());
        while at < stop && at + 2 <= raw.len() {
            let unit = short(&raw[at..]);
            match unit {
                p::FLOW_PAD => return true,
                p::FLOW_EVENT => {
                    let Some((kind, payload, taken)) = decode_record(&raw[at..]) else {
                        return false;
                    };
                    let Some(event) = Event::decode(kind, payload) else {
                        return false;
                    };
                    events.push((blocks.len(), base + at as u64, event));
                    at += taken;
                }
                id if id < p::FLOW_LONG => {
                    blocks.push(u32::from(id));
                    at += 2;
                }
                high => {
                    let Some(low) = raw.get(at + 2..at + 4) else {
                        return false;
                    };
                    blocks.push(u32::from(high - p::FLOW_LONG) << 16 | u32::from(short(low)));
                    at += 4;
                }
            }
        }
    }
    true
}

/// How many bytes of a chunk that is still being written can be taken: whole units
/// up to the first padding. An event at the very end may be unfinished and stays.
pub fn settled_bytes(raw: &[u8]) -> usize {
    let mut at = 0;
    let mut settled = 0;
    while let Some(unit) = raw.get(at..at + 2) {
        let size = match u16::from_le_bytes([unit[0], unit[1]]) {
            p::FLOW_PAD => break,
            p::FLOW_EVENT => match decode_record(&raw[at..]) {
                Some((_, _, taken)) => taken,
                None => break,
            },
            short if short < p::FLOW_LONG => 2,
            _ => 4,
        };
        // What stands behind something is finished; a block id is one store.
        settled = if size <= 4 { at + size } else { at };
        at += size;
    }
    settled.min(raw.len())
}
