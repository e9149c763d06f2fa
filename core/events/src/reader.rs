//! Reads the file: its facts at once, its events as a stream in order of time.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::container::{Block, BlockKind, Damage, Storage};
use crate::error::{damaged, Result};
use crate::event::Event;
use crate::facts::{DescriptorFact, End, Info, MapsFact, Mark, Note, ThreadFact};
use crate::merge::in_order;

/// An event file. Damaged blocks are told by [`EventFile::damage`] and left out, but a file without its INFO is none.
pub struct EventFile {
    storage: Storage,
    pub info: Info,
    pub threads: Vec<ThreadFact>,
    pub maps: Vec<MapsFact>,
    pub descriptors: Vec<DescriptorFact>,
    pub marks: Vec<Mark>,
    pub notes: Vec<Note>,
    /// `None`: the recorder was killed.
    pub end: Option<End>,
    stacks: Vec<Box<[u64]>>,
    /// The number of the first of them; those before were let go of.
    first_stack: Option<usize>,
    /// EVENTS blocks by CPU, in the file's order, which is that of time.
    cpus: BTreeMap<u16, Vec<Block>>,
    damage: Vec<Damage>,
    has_info: bool,
}

fn parse<T: DeserializeOwned>(raw: &[u8], block: &Block) -> Result<T> {
    serde_json::from_slice(raw).map_err(|error| damaged(block.payload_offset, error.to_string()))
}

fn parse_stacks(raw: &[u8]) -> Option<(usize, Vec<Box<[u64]>>)> {
    let (first, mut rest) = raw.split_at_checked(4)?;
    let first = u32::from_le_bytes(first.try_into().ok()?) as usize;
    let mut stacks = Vec::new();
    while let Some((&count, tail)) = rest.split_first() {
        let (words, after) = tail.split_at_checked(count as usize * 8)?;
        rest = after;
        let words = words
            .chunks_exact(8)
            .filter_map(|w| w.try_into().ok().map(u64::from_le_bytes));
        stacks.push(words.collect());
    }
    Some((first, stacks))
}

impl EventFile {
    /// Reads everything but the events.
    ///
    /// # Errors
    /// When the file can't be read, is no event file, or comes from a newer flagfinder.
    pub fn open(path: &Path) -> Result<EventFile> {
        let storage = Storage::open(path)?;
        let (blocks, damage) = storage.scan()?;
        let mut file = EventFile {
            storage,
            info: Info::default(),
            threads: Vec::new(),
            maps: Vec::new(),
            descriptors: Vec::new(),
            marks: Vec::new(),
            notes: Vec::new(),
            end: None,
            stacks: Vec::new(),
            first_stack: None,
            cpus: BTreeMap::new(),
            damage,
            has_info: false,
        };
        for block in &blocks {
            if file.take(block).is_err() {
                file.damage.push(Damage {
                    offset: block.payload_offset,
                    bytes: u64::from(block.header.stored_bytes),
                    what: "damaged block",
                });
            }
        }
        if !file.has_info {
            return Err(damaged(
                64,
                "the block that says how it was recorded is missing",
            ));
        }
        Ok(file)
    }

    fn take(&mut self, block: &Block) -> Result<()> {
        let Some(kind) = block.header.block_kind() else {
            return Ok(());
        };
        match kind {
            BlockKind::Events => {
                self.cpus.entry(block.header.cpu).or_default().push(*block);
                return Ok(());
            }
            BlockKind::Dropped => return Ok(()),
            // Each segment begins with these; they hold for the first.
            BlockKind::Info if self.has_info => return Ok(()),
            BlockKind::Threads if !self.threads.is_empty() => return Ok(()),
            _ => {}
        }
        let raw = self.storage.load(block)?;
        match kind {
            BlockKind::Info => (self.info, self.has_info) = (parse(&raw, block)?, true),
            BlockKind::Threads => self.threads = parse(&raw, block)?,
            BlockKind::Maps => self.maps.push(parse(&raw, block)?),
            BlockKind::Descriptors => {
                self.descriptors
                    .extend(parse::<Vec<DescriptorFact>>(&raw, block)?);
            }
            BlockKind::Mark => self.marks.push(parse(&raw, block)?),
            BlockKind::Note => {
                let note = parse(&raw, block)?;
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
            BlockKind::End => self.end = Some(parse(&raw, block)?),
            BlockKind::Stacks => {
                let parsed = parse_stacks(&raw);
                let (first, stacks) = parsed.ok_or_else(|| {
                    damaged(block.payload_offset, "a table of stacks that is cut")
                })?;
                let index = first.saturating_sub(*self.first_stack.get_or_insert(first));
                // A damaged table before this one leaves its numbers empty.
                self.stacks
                    .resize(self.stacks.len().max(index), Box::default());
                self.stacks.truncate(index);
                self.stacks.extend(stacks);
            }
            BlockKind::Events | BlockKind::Dropped => {}
        }
        Ok(())
    }

    /// What is no whole block. EVENTS blocks are verified when they are read.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// How many events the headers announce.
    pub fn event_count(&self) -> u64 {
        let blocks = self.cpus.values().flatten();
        blocks.map(|block| u64::from(block.header.count)).sum()
    }

    /// That it takes on the disk.
    pub fn disk_bytes(&self) -> u64 {
        self.storage.disk_bytes
    }

    /// First and last time; `None` without events.
    pub fn span(&self) -> Option<(u64, u64)> {
        let headers = || self.cpus.values().flatten().map(|block| &block.header);
        let first = headers().map(|header| header.first_ts).min()?;
        Some((first, headers().map(|header| header.last_ts).max()?))
    }

    /// Code addresses, innermost first, as found on the stack: old ones may be among them. Empty for 0 and unknown numbers.
    pub fn stack(&self, number: u32) -> &[u64] {
        let index = (number as usize).checked_sub(self.first_stack.unwrap_or(1));
        index
            .and_then(|i| self.stacks.get(i))
            .map_or(&[], |words| words)
    }

    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// Hands all events to `take`, in order of time (of equal times: by CPU, then as they were recorded). Returns the damaged blocks that were left out.
    /// Blocks are decoded by a thread for each CPU of the recording, and merged by another, while events are taken.
    pub fn events(&self, mut take: impl FnMut(&Event)) -> Vec<crate::EventsError> {
        let cpus = self.cpus.values().map(Vec::as_slice);
        in_order(&self.storage, cpus, &mut take)
    }
}
