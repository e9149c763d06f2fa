// SPDX-License-Identifier: MIT
//! Reads the file: its facts at once, its events as a stream in order of time.

use std::collections::BTreeMap;
use std::path::Path;

use flagfinder_waits::Looked;
use serde::de::DeserializeOwned;

use crate::container::{
    scan_blocks, Block, BlockKind, Damage, Loader, Most, Storage, FORMAT, MOST_CPUS,
};
use crate::error::{damaged, Result};
use crate::event::Event;
use crate::facts::{DescriptorFact, End, Info, MapsFact, Mark, Note, PythonFact, ThreadFact};
use crate::flows::FlowFact;
use crate::merge::in_order;
use crate::python::PYTHON;
use crate::sites::WALKED;

/// An event file. [`EventFile::damage`] tells of damaged blocks, which are left out; a file without
/// its INFO is no event file.
pub struct EventFile {
    pub(crate) storage: Storage,
    /// Of the file's first segment.
    pub info: Info,
    /// Those that were there before the recording.
    pub threads: Vec<ThreadFact>,
    /// Where processes have code; of one process there may be several, the newest last.
    pub maps: Vec<MapsFact>,
    /// In the file's order; of one number there may be several.
    pub descriptors: Vec<DescriptorFact>,
    /// In the file's order.
    pub marks: Vec<Mark>,
    /// What threads were in, and whom they waited for, at marks and in the end.
    pub looked: Vec<Looked>,
    /// Python functions by their numbers in stacks.
    pub python: BTreeMap<u32, PythonFact>,
    /// Connections, and addresses of datagrams.
    pub flows: Vec<FlowFact>,
    pub(crate) notes: Vec<Note>,
    /// `None`: the recorder was killed.
    pub end: Option<End>,
    /// Tables of stacks by the number of their first one. Numbers between them are of damaged
    /// tables, or were dropped.
    stacks: BTreeMap<u32, Vec<Box<[u64]>>>,
    /// EVENTS blocks by CPU, in the file's order, which is that of time.
    pub(crate) cpus: BTreeMap<u16, Vec<Block>>,
    damage: Vec<Damage>,
    has_info: bool,
}

fn parse<T: DeserializeOwned>(raw: &[u8], block: &Block) -> Result<T> {
    serde_json::from_slice(raw).map_err(|error| damaged(block.payload_offset, error.to_string()))
}

fn parse_stacks(raw: &[u8]) -> Option<(u32, Vec<Box<[u64]>>)> {
    let (first, mut rest) = raw.split_at_checked(4)?;
    let first = u32::from_le_bytes(first.try_into().ok()?);
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
        let (storage, _) = FORMAT.open(path)?;
        let (blocks, damage) = scan_blocks(&storage)?;
        let mut file = EventFile {
            storage,
            info: Info::default(),
            threads: Vec::new(),
            maps: Vec::new(),
            descriptors: Vec::new(),
            marks: Vec::new(),
            looked: Vec::new(),
            python: BTreeMap::new(),
            flows: Vec::new(),
            notes: Vec::new(),
            end: None,
            stacks: BTreeMap::new(),
            cpus: BTreeMap::new(),
            damage,
            has_info: false,
        };
        let mut most = Most::of(&file.storage);
        for block in &blocks {
            if file.take(block, &mut most).is_err() {
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

    /// `most`: what blocks may still hold.
    fn take(&mut self, block: &Block, most: &mut Most) -> Result<()> {
        let Some(kind) = block.header.block_kind() else {
            return Ok(());
        };
        match kind {
            BlockKind::Events if block.header.cpu >= MOST_CPUS => {
                return Err(damaged(block.payload_offset, "a CPU that there is not"));
            }
            BlockKind::Events => {
                most.take(block)?;
                self.cpus.entry(block.header.cpu).or_default().push(*block);
                return Ok(());
            }
            BlockKind::Dropped => return Ok(()),
            // Each segment begins with these; they hold for the first.
            BlockKind::Info if self.has_info => return Ok(()),
            BlockKind::Threads if !self.threads.is_empty() => return Ok(()),
            _ => {}
        }
        most.take(block)?;
        let mut loader = Loader::new(&self.storage);
        let raw = loader.load(block)?;
        match kind {
            BlockKind::Info => (self.info, self.has_info) = (parse(raw, block)?, true),
            BlockKind::Threads => self.threads = parse(raw, block)?,
            BlockKind::Maps => self.maps.push(parse(raw, block)?),
            BlockKind::Descriptors => {
                self.descriptors
                    .extend(parse::<Vec<DescriptorFact>>(raw, block)?);
            }
            BlockKind::Waits => self.looked.extend(parse::<Vec<Looked>>(raw, block)?),
            BlockKind::Python => {
                let functions: Vec<PythonFact> = parse(raw, block)?;
                self.python
                    .extend(functions.into_iter().map(|one| (one.number, one)));
            }
            BlockKind::Flows => self.flows.extend(parse::<Vec<FlowFact>>(raw, block)?),
            BlockKind::Mark => self.marks.push(parse(raw, block)?),
            BlockKind::Note => {
                let note = parse(raw, block)?;
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
            BlockKind::End => self.end = Some(parse(raw, block)?),
            BlockKind::Stacks => {
                let parsed = parse_stacks(raw);
                let (first, stacks) = parsed.ok_or_else(|| {
                    damaged(block.payload_offset, "a table of stacks that is cut")
                })?;
                // The later table holds where two give the same numbers.
                self.stacks.split_off(&first);
                if let Some((before, table)) = self.stacks.iter_mut().next_back() {
                    table.truncate((first - before) as usize);
                }
                self.stacks.insert(first, stacks);
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

    /// Bytes that the file takes on the disk.
    pub fn disk_bytes(&self) -> u64 {
        self.storage.disk_bytes()
    }

    /// First and last time; `None` without events.
    pub fn span(&self) -> Option<(u64, u64)> {
        let headers = || self.cpus.values().flatten().map(|block| &block.header);
        let first = headers().map(|header| header.first_ts).min()?;
        Some((first, headers().map(|header| header.last_ts).max()?))
    }

    /// When the recording begins, and when it ends: later than its last event where nothing
    /// happened any more. One whose recorder was killed lasts to its last event or mark.
    pub fn time(&self) -> (u64, u64) {
        let events = self.span();
        let first = events.map_or(self.info.started, |(first, _)| first);
        let marks = self.marks.iter().map(|mark| mark.ts);
        let ends = self.end.iter().map(|end| end.ts).chain(marks);
        let last = ends.chain(events.map(|(_, last)| last)).max();
        (first, last.unwrap_or(first).max(first))
    }

    /// The Python function that a word of a stack stands for.
    pub fn python_function(&self, word: u64) -> Option<&PythonFact> {
        let is_python = word & (PYTHON | WALKED) == PYTHON;
        self.python.get(&(word as u32)).filter(|_| is_python)
    }

    /// Code addresses, innermost first, as found on the stack: old ones may be among them. Behind
    /// them Python functions. Empty for 0 and unknown numbers.
    pub fn stack(&self, number: u32) -> &[u64] {
        let table = self.stacks.range(1..=number.max(1)).next_back();
        let stack = table.and_then(|(&first, stacks)| {
            let index = number.checked_sub(first)?;
            stacks.get(index as usize)
        });
        stack.map_or(&[], |words| words)
    }

    pub(crate) fn stack_count(&self) -> usize {
        self.stacks.values().map(Vec::len).sum()
    }

    /// Hands all events to `take`, in order of time (of equal times: by CPU, then as they were
    /// recorded). Returns the damaged blocks that were left out. Blocks are decoded by a thread for
    /// each CPU of the recording, and merged by another, while events are taken; where none may be
    /// started, by this one.
    pub fn events(&self, mut take: impl FnMut(&Event)) -> Vec<crate::Failure> {
        let cpus = self.cpus.values().map(Vec::as_slice);
        in_order(&self.storage, cpus, &mut take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::{checksum, BlockHeader, Sealed};
    use crate::event::Kind;
    use crate::writer::EventWriter;
    use bytemuck::Zeroable;

    /// A block that is sound, but for what it says.
    fn block(kind: BlockKind, cpu: u16, count: u32, raw: &[u8]) -> Vec<u8> {
        let packed = zstd::bulk::compress(raw, 1).unwrap();
        let mut header = BlockHeader {
            kind: kind as u16,
            cpu,
            count,
            raw_bytes: raw.len() as u32,
            stored_bytes: packed.len() as u32,
            payload_checksum: checksum(&packed),
            ..BlockHeader::zeroed()
        };
        header.seal();
        [bytemuck::bytes_of(&header), &packed].concat()
    }

    /// An INFO block behind a file's header.
    fn begun() -> Vec<u8> {
        let writer = EventWriter::new(Vec::new(), &Info::default()).unwrap();
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<EventFile> {
        let name = format!("flagfinder-reader-{:?}", std::thread::current().id());
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let file = EventFile::open(&path);
        std::fs::remove_file(&path).unwrap();
        file
    }

    /// A file of an INFO block and these.
    fn opened(blocks: &[Vec<u8>]) -> EventFile {
        read(&[begun(), blocks.concat()].concat()).unwrap()
    }

    #[test]
    fn earlier_versions_are_read_and_of_a_later_one_it_is_said_what_to_do() {
        let of = |version: u32| {
            let mut bytes = begun();
            // The version, and the reader's that it needs.
            for place in [8, 12] {
                bytes[place..place + 4].copy_from_slice(&version.to_le_bytes());
            }
            read(&bytes)
        };
        for version in 1..=FORMAT.version {
            assert!(of(version).is_ok(), "{version}");
        }
        let refused = of(FORMAT.version + 1).err().expect("a refusal");
        assert!(refused.fix.contains("Upgrade flagfinder"), "{refused:?}");
    }

    /// A table of stacks of one word each.
    fn stacks(first: u32, words: &[u64]) -> Vec<u8> {
        let mut raw = first.to_le_bytes().to_vec();
        for word in words {
            raw.push(1);
            raw.extend(word.to_le_bytes());
        }
        block(BlockKind::Stacks, 0, words.len() as u32, &raw)
    }

    #[test]
    fn stacks_are_found_by_number_and_a_huge_one_takes_no_room() {
        let far = u32::MAX - 1;
        let tables = [
            stacks(1, &[10, 20]),
            stacks(far, &[30]),
            stacks(5, &[50, 60]),
        ];
        let file = opened(&tables);
        let found = [0, 1, 2, 3, 5, 6, 7, u32::MAX].map(|number| file.stack(number).to_vec());
        let none = Vec::new;
        assert_eq!(
            found,
            [
                none(),
                vec![10],
                vec![20],
                none(),
                vec![50],
                vec![60],
                none(),
                none()
            ]
        );
        // The tables of a file are in order: all behind the first number of the last table was
        // dropped.
        assert_eq!((file.stack(far), file.stack_count()), (&[][..], 4));
        let file = opened(&[stacks(7, &[70, 80]), stacks(8, &[81]), stacks(far, &[30])]);
        assert_eq!(
            [7, 8, 9, far].map(|n| file.stack(n).first().copied()),
            [Some(70), Some(81), None, Some(30)]
        );
    }

    #[test]
    fn small_blocks_that_unpack_to_much_are_left_out() {
        // Empty stacks: a byte each in the file, and much more in memory.
        let raw = vec![0; 60 << 20];
        let file = opened(&vec![block(BlockKind::Stacks, 0, 1, &raw); 10]);
        assert_eq!((file.stack_count(), file.damage().len()), (0, 10));
    }

    #[test]
    fn a_small_file_has_no_more_events_than_its_bytes_can_hold() {
        let blocks = (0..400).map(|cpu| block(BlockKind::Events, cpu, 32_000, &[0; 100]));
        let blocks: Vec<_> = blocks.collect();
        assert!(blocks.iter().map(Vec::len).sum::<usize>() < 64 << 10);
        let file = opened(&blocks);
        assert!((1 << 20..3 << 20).contains(&file.event_count()));
        assert!(!file.damage().is_empty());
    }

    #[test]
    fn blocks_of_events_are_no_larger_and_of_no_other_cpu_than_there_can_be() {
        let raw = vec![0; 60 << 20];
        let bombs = (0..50).map(|cpu| block(BlockKind::Events, cpu, 32_000, &raw));
        let many = (0..50).map(|cpu| block(BlockKind::Events, cpu, u32::MAX, &[]));
        for blocks in [bombs.collect::<Vec<_>>(), many.collect()] {
            let file = opened(&blocks);
            let refused = file.damage().len();
            assert_eq!(refused + file.events(|_| panic!("an event")).len(), 50);
        }
        let file = opened(&[block(BlockKind::Events, MOST_CPUS, 0, &[])]);
        assert_eq!((file.events(|_| {}).len(), file.damage().len()), (0, 1));
        let event = Event {
            ts: 1,
            a: 1,
            b: 2,
            cpu: MOST_CPUS - 1,
            kind: Kind::Switch,
            flags: 0,
            stack: 0,
            words: [0; 3],
        };
        let raw = crate::columns::encode(&[event]);
        let file = opened(&[block(BlockKind::Events, MOST_CPUS - 1, 1, &raw)]);
        let mut seen = 0;
        assert!(file.events(|_| seen += 1).is_empty());
        assert_eq!(seen, 1);
    }
}
