// SPDX-License-Identifier: MIT
//! Writes the file, block by block. A recorder that is killed leaves whole blocks.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use bytemuck::Zeroable;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::columns;
use crate::container::{checksum, BlockHeader, BlockKind, Sealed, BLOCK_HEADER_BYTES, FORMAT};
use crate::error::{io, Failure, Result};
use crate::event::{Event, Kind};
use crate::facts::{Before, Info};
use crate::room::Room;

const LEVEL: i32 = 1;
/// Most different stacks that are kept; programs have thousands.
const MOST_STACKS: usize = 1 << 20;

/// `W` is a file, or a `Vec<u8>` in tests.
pub struct EventWriter<W: Write> {
    output: W,
    compressor: zstd::bulk::Compressor<'static>,
    bytes: u64,
    numbers: FxHashMap<Box<[u64]>, u32>,
    unwritten: Vec<Box<[u64]>>,
    /// Numbers of stacks that were given.
    issued: u32,
    written: Before,
    pub(crate) stacks_dropped: u64,
}

pub(crate) fn failed(error: &std::io::Error) -> Failure {
    Failure::io(
        "The event file can't be written any further",
        error,
        "Make room on the disk, or choose another path with -o.",
        "What was written before is a readable event file.",
    )
}

impl EventWriter<File> {
    /// Creates (or replaces) the file and writes header and INFO.
    ///
    /// # Errors
    /// When the file can't be created or written.
    pub fn create(path: &Path, info: &Info) -> Result<Self> {
        let file = flagfinder_files::create_private(path).map_err(|error| {
            let what = format!("The event file {} can't be created", path.display());
            io(what, &error, "Choose another path with -o.")
        })?;
        Self::new(file, info).map_err(|mut failure| {
            flagfinder_files::discard(path);
            failure.still_works = "Nothing was recorded.".into();
            failure
        })
    }

    /// Keeps the file within `size` bytes of the disk, see [`Room`].
    ///
    /// # Errors
    /// Where the file system can't give space back.
    pub(crate) fn within(&self, size: u64) -> Result<Room> {
        let room = self.output.try_clone();
        let room = room.and_then(|file| Room::new(file, size, self.bytes));
        room.map_err(|error| {
            io(
                "The file can't be kept within a size",
                &error,
                "Put it on ext4, xfs, btrfs or tmpfs with -o, or leave out --size.",
            )
        })
    }
}

impl<W: Write> EventWriter<W> {
    /// Writes header and INFO.
    ///
    /// # Errors
    /// When `output` can't be written.
    pub fn new(output: W, info: &Info) -> Result<Self> {
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(|error| failed(&error))?;
        let mut writer = EventWriter {
            output,
            compressor,
            bytes: 0,
            numbers: FxHashMap::default(),
            unwritten: Vec::new(),
            issued: 0,
            written: Before::default(),
            stacks_dropped: 0,
        };
        writer.put(bytemuck::bytes_of(&FORMAT.header()))?;
        writer.fact(BlockKind::Info, info)?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.output
            .write_all(bytes)
            .map_err(|error| failed(&error))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn block(&mut self, mut header: BlockHeader, raw: &[u8]) -> Result<()> {
        let packed = self
            .compressor
            .compress(raw)
            .map_err(|error| failed(&error))?;
        header.raw_bytes = raw.len() as u32;
        header.stored_bytes = packed.len() as u32;
        header.payload_checksum = checksum(&packed);
        header.seal();
        let mut bytes = Vec::with_capacity(BLOCK_HEADER_BYTES + packed.len());
        bytes.extend(bytemuck::bytes_of(&header));
        bytes.extend(packed);
        self.put(&bytes)
    }

    /// Writes a block of JSON.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn fact<T: Serialize>(&mut self, kind: BlockKind, fact: &T) -> Result<()> {
        let text = serde_json::to_vec(fact).unwrap_or_else(|_| b"null".to_vec());
        let header = BlockHeader {
            kind: kind as u16,
            count: 1,
            ..BlockHeader::zeroed()
        };
        self.block(header, &text)
    }

    /// The number of a stack, from 1; 0 when the table is full.
    pub fn stack(&mut self, words: &[u64]) -> u32 {
        if let Some(&number) = self.numbers.get(words) {
            return number;
        }
        if self.numbers.len() >= MOST_STACKS {
            self.stacks_dropped += 1;
            return 0;
        }
        self.issued += 1;
        self.numbers.insert(words.into(), self.issued);
        self.unwritten.push(words.into());
        self.issued
    }

    /// Forgets all stacks but those of events that are still to come: these get new numbers, also
    /// in the events. What is written from now on needs no stack from before.
    pub(crate) fn forget_stacks<'e>(&mut self, kept: impl Iterator<Item = &'e mut u32>) {
        let old = std::mem::take(&mut self.numbers);
        self.unwritten.clear();
        let words: FxHashMap<u32, Box<[u64]>> = old.into_iter().map(|(w, n)| (n, w)).collect();
        for number in kept {
            *number = words.get(number).map_or(0, |words| self.stack(words));
        }
    }

    /// What stands in the file, or stood there.
    pub(crate) fn written(&self) -> Before {
        self.written
    }

    fn write_stacks(&mut self) -> Result<()> {
        let stacks = std::mem::take(&mut self.unwritten);
        if stacks.is_empty() {
            return Ok(());
        }
        let first = self.issued as usize - stacks.len() + 1;
        let mut raw = (first as u32).to_le_bytes().to_vec();
        for words in &stacks {
            raw.push(words.len() as u8);
            words.iter().for_each(|word| raw.extend(word.to_le_bytes()));
        }
        let header = BlockHeader {
            kind: BlockKind::Stacks as u16,
            count: stacks.len() as u32,
            ..BlockHeader::zeroed()
        };
        self.block(header, &raw)
    }

    /// Writes events of one CPU, in order of time.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn events(&mut self, cpu: u16, events: &[Event]) -> Result<()> {
        self.write_stacks()?;
        for event in events {
            match event.kind {
                Kind::Lost => self.written.lost += event.words[0],
                _ => self.written.events += 1,
            }
        }
        let mut rest = events;
        while let Some(first) = rest.first() {
            let near = rest
                .windows(2)
                .take(columns::MOST_EVENTS - 1)
                .take_while(|pair| pair[1].ts - pair[0].ts <= columns::LONGEST);
            let (head, tail) = rest.split_at(near.count() + 1);
            rest = tail;
            let header = BlockHeader {
                kind: BlockKind::Events as u16,
                cpu,
                count: head.len() as u32,
                first_ts: first.ts,
                last_ts: head[head.len() - 1].ts,
                ..BlockHeader::zeroed()
            };
            self.block(header, &columns::encode(head))?;
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Flushes and hands the output back.
    ///
    /// # Errors
    /// When the last bytes can't be written.
    pub fn finish(mut self) -> Result<W> {
        self.output.flush().map_err(|error| failed(&error))?;
        Ok(self.output)
    }
}
