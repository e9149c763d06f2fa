// SPDX-License-Identifier: MIT
//! Flow decoded section by section, in bulk.

use crate::block::BlockId;
use crate::container::{Section, SectionHeader, SectionLoader};
use crate::error::Result;
use crate::event::Event;
use crate::flow::{decode_units, GapReason};
use crate::protocol as p;
use crate::thread::Thread;

/// One section of flow, decoded in bulk.
#[derive(Default)]
pub struct DecodedFlow {
    /// Ids in the order in which the thread entered them.
    pub blocks: Vec<BlockId>,
    /// (index into `blocks` before which it happened, position, event).
    pub events: Vec<(usize, u64, Event)>,
    /// Set when flow is missing before this section (`Lost`) or this section could
    /// not be decoded (to its end) (`Damaged`).
    pub gap: Option<GapReason>,
    /// Set by [`FlowDecoder::decode_folded`]: `blocks` ran over and over, without any
    /// event, and this many blocks in all (the last round may be cut short).
    pub cycled: Option<u64>,
    raw: Vec<u8>,
}

impl DecodedFlow {
    /// Blocks executed, folded ones too.
    pub fn block_count(&self) -> u64 {
        self.cycled.unwrap_or(self.blocks.len() as u64)
    }
}

/// Decodes sections in bulk: several hundred million blocks a second.
pub struct FlowDecoder<'a> {
    thread: &'a Thread,
    loader: SectionLoader,
    /// Sections that were nothing but rounds; the one met last is at the end.
    folded: Vec<Folded>,
}

/// Most sections that are remembered. A chunk holds no whole number of rounds, so each begins
/// elsewhere in a round until that repeats.
const REMEMBERED: usize = 16;

/// A section that was nothing but rounds.
struct Folded {
    /// As it stands in the file: sections with the same bytes hold the same.
    checksum: u64,
    stored_bytes: u64,
    raw_bytes: u64,
    codec: u8,
    round: Box<[BlockId]>,
    blocks: u64,
}

impl Folded {
    fn is(&self, header: &SectionHeader) -> bool {
        self.checksum == header.payload_checksum
            && self.stored_bytes == header.stored_bytes
            && self.raw_bytes == header.raw_bytes
            && self.codec == header.codec
    }
}

impl Thread {
    /// Decoding section by section, in bulk.
    pub fn flow_decoder(&self) -> FlowDecoder<'_> {
        FlowDecoder::new(self)
    }
}

impl<'a> FlowDecoder<'a> {
    fn new(thread: &'a Thread) -> Self {
        FlowDecoder {
            thread,
            loader: SectionLoader::default(),
            folded: Vec::new(),
        }
    }

    /// Replaces `out` with section `index` (0.. `Thread::flow_section_count`).
    /// Errors: I/O only; damage is told in `out.gap`.
    pub fn decode(&mut self, index: usize, out: &mut DecodedFlow) -> Result<()> {
        if let Some(section) = self.begin(index, out) {
            if self.load(section, out)? {
                unfold(section, out);
            }
        }
        Ok(())
    }

    /// As [`FlowDecoder::decode`], but a section in which a short cycle of blocks repeats
    /// from its beginning to its end gives one round only, with `out.cycled` set: a thread
    /// that spins runs a billion blocks a second.
    pub fn decode_folded(&mut self, index: usize, out: &mut DecodedFlow) -> Result<()> {
        let Some(section) = self.begin(index, out) else {
            return Ok(());
        };
        let known = self.folded.iter().position(|one| one.is(&section.header));
        if let Some(known) = known {
            let verified = self.loader.verify(&self.thread.storage, section);
            if is_sound(verified, out)? {
                let folded = self.folded.remove(known);
                out.blocks.extend_from_slice(&folded.round);
                out.cycled = Some(folded.blocks);
                self.folded.push(folded);
            }
            return Ok(());
        }
        if !self.load(section, out)? {
            return Ok(());
        }
        match fold(section, out) {
            true => self.remember(section, out),
            false => unfold(section, out),
        }
        Ok(())
    }

    fn remember(&mut self, section: &Section, out: &DecodedFlow) {
        if self.folded.len() == REMEMBERED {
            self.folded.remove(0);
        }
        let header = &section.header;
        self.folded.push(Folded {
            checksum: header.payload_checksum,
            stored_bytes: header.stored_bytes,
            raw_bytes: header.raw_bytes,
            codec: header.codec,
            round: out.blocks.as_slice().into(),
            blocks: out.block_count(),
        });
    }

    /// Empties `out` and notes what is missing before the section.
    fn begin(&self, index: usize, out: &mut DecodedFlow) -> Option<&'a Section> {
        out.blocks.clear();
        out.events.clear();
        out.gap = None;
        out.cycled = None;
        let sections = &self.thread.flow_sections;
        let section = sections.get(index)?;
        let before = index.checked_sub(1).map(|i| &sections[i].header);
        let expected = before.map_or(0, |header| header.start_pos + header.raw_bytes);
        if expected != section.header.start_pos {
            out.gap = Some(GapReason::Lost);
        }
        Some(section)
    }

    /// Unpacks the section. `false`: its bytes could not be read.
    fn load(&mut self, section: &Section, out: &mut DecodedFlow) -> Result<bool> {
        let loaded = self
            .loader
            .load(&self.thread.storage, section, &mut out.raw);
        is_sound(loaded, out)
    }
}

/// Was the payload what its header says? If not, `out` is told so.
fn is_sound(loaded: Result<()>, out: &mut DecodedFlow) -> Result<bool> {
    match loaded {
        Ok(()) => Ok(true),
        Err(error) if error.is_bad_file() => {
            out.gap = Some(GapReason::Damaged);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn unfold(section: &Section, out: &mut DecodedFlow) {
    let start = section.header.start_pos;
    let whole = decode_units(&out.raw, start, &mut out.blocks, &mut out.events);
    if !whole && !section.header.is_partial() {
        out.gap = Some(GapReason::Damaged);
    }
}

/// Longest round that is looked for, in units.
const ROUND_LIMIT: usize = 512;
/// Fewest rounds worth folding.
const ROUNDS: usize = 16;

/// Decodes one round if the section is nothing but rounds; else leaves `out` as it was.
fn fold(section: &Section, out: &mut DecodedFlow) -> bool {
    let raw = &out.raw;
    let limit = (raw.len() / 2 / ROUNDS).min(ROUND_LIMIT);
    // Only the shortest round at the beginning can be one of the whole section: longer ones that
    // fit there consist of several. A section that is nothing but rounds up to some place is read
    // once.
    let head = &raw[..(4 * limit).min(raw.len())];
    let repeats =
        |bytes: &[u8], round: usize| bytes[2 * round..] == bytes[..bytes.len() - 2 * round];
    let shortest = (1..=limit).find(|&round| repeats(head, round));
    let Some(round) = shortest.filter(|&round| repeats(raw, round)) else {
        return false;
    };
    // Units of one block must not straddle rounds, nor a cut last one.
    let rest = raw.len() % (2 * round);
    let mut last = Vec::new();
    let mut decodes = |bytes: &[u8], blocks: &mut Vec<BlockId>| {
        blocks.clear();
        let whole = decode_units(bytes, section.header.start_pos, blocks, &mut out.events);
        let units: usize = blocks
            .iter()
            .map(|&id| 1 + usize::from(id >= u32::from(p::FLOW_LONG)))
            .sum();
        whole && out.events.is_empty() && units * 2 == bytes.len()
    };
    if decodes(&raw[..2 * round], &mut out.blocks) && decodes(&raw[..rest], &mut last) {
        let rounds = (raw.len() / (2 * round)) as u64;
        out.cycled = Some(rounds * out.blocks.len() as u64 + last.len() as u64);
        return true;
    }
    out.blocks.clear();
    out.events.clear();
    false
}
