// SPDX-License-Identifier: MIT
//! The event file's blocks. The layout is described in docs/events-format.md.

use bytemuck::{Pod, Zeroable};
pub use flagfinder_container::{checksum, Damage, Sealed, Storage, FILE_HEADER_BYTES};
use flagfinder_container::{scan, Payload, Section};

use crate::error::{damaged, Result};
pub use crate::format::FORMAT;

/// A damaged length must not become an allocation.
pub const MAX_RAW_BYTES: u32 = 64 << 20;
/// Facts and stacks may unpack to so many bytes, and to so many more for each byte of the file.
/// Real files stay far below.
const UNPACKED: u64 = 4 << 20;
const UNPACKED_PER_BYTE: u64 = 64;
/// A file may announce so many events, and so many more for each of its bytes. A real event takes
/// several bytes.
const EVENTS: u64 = 1 << 20;
const EVENTS_PER_BYTE: u64 = 32;
/// CPUs are numbered below this (the kernel's largest NR_CPUS on x86-64).
pub(crate) const MOST_CPUS: u16 = 8192;

/// What a block contains.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// JSON of [`crate::Info`].
    Info = 1,
    /// Events of one CPU in columns (`columns.rs`).
    Events = 2,
    /// A table of stacks with consecutive numbers.
    Stacks = 3,
    /// JSON: a list of [`crate::ThreadFact`].
    Threads = 4,
    /// JSON of [`crate::MapsFact`].
    Maps = 5,
    /// JSON: a list of [`crate::DescriptorFact`].
    Descriptors = 6,
    /// JSON of [`crate::Mark`].
    Mark = 7,
    /// JSON of [`crate::Note`].
    Note = 8,
    /// JSON of [`crate::End`].
    End = 9,
    /// Nothing: what was here was dropped.
    Dropped = 10,
    /// JSON: a list of [`crate::Looked`].
    Waits = 11,
    /// JSON: a list of [`crate::PythonFact`].
    Python = 12,
    /// JSON: a list of [`crate::FlowFact`].
    Flows = 13,
}

impl BlockKind {
    /// `None` for a kind that a newer writer added: readers skip it.
    pub fn from_u16(kind: u16) -> Option<Self> {
        use BlockKind::*;
        let all = [
            Info,
            Events,
            Stacks,
            Threads,
            Maps,
            Descriptors,
            Mark,
            Note,
            End,
            Dropped,
            Waits,
            Python,
            Flows,
        ];
        all.into_iter().find(|known| *known as u16 == kind)
    }
}

/// Payloads are always one zstd frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockHeader {
    pub(crate) magic: u32,
    /// A [`BlockKind`]; readers skip numbers that they do not know.
    pub kind: u16,
    /// The CPU whose events these are; of EVENTS only.
    pub(crate) cpu: u16,
    /// Events, stacks or other things inside.
    pub(crate) count: u32,
    /// Length of the payload once it is unpacked.
    pub raw_bytes: u32,
    /// Time of the first and last event inside.
    pub(crate) first_ts: u64,
    pub(crate) last_ts: u64,
    /// xxh3-64 of the stored bytes.
    pub payload_checksum: u64,
    /// Length of the payload in the file.
    pub stored_bytes: u32,
    pub(crate) header_checksum: u32,
}
pub(crate) const BLOCK_HEADER_BYTES: usize = 48;
const _: () = assert!(std::mem::size_of::<BlockHeader>() == BLOCK_HEADER_BYTES);

impl BlockHeader {
    pub(crate) fn block_kind(&self) -> Option<BlockKind> {
        BlockKind::from_u16(self.kind)
    }
}

impl Sealed for BlockHeader {
    const MAGIC: u32 = u32::from_le_bytes(*b"FFEB");
    const MOST_RAW: u64 = MAX_RAW_BYTES as u64;

    fn seals(&mut self) -> (&mut u32, &mut u32) {
        (&mut self.magic, &mut self.header_checksum)
    }

    fn payload(&self) -> Payload {
        Payload {
            raw_bytes: self.raw_bytes.into(),
            stored_bytes: self.stored_bytes.into(),
            checksum: self.payload_checksum,
        }
    }
}

pub(crate) type Block = Section<BlockHeader>;

/// What the blocks of a file may still hold: all that is read is kept, or becomes a graph.
pub(crate) struct Most {
    /// Bytes of facts and stacks, unpacked.
    bytes: u64,
    events: u64,
}

impl Most {
    pub fn of(storage: &Storage) -> Most {
        let most = |some: u64, per_byte: u64| {
            some.saturating_add(storage.bytes().saturating_mul(per_byte))
        };
        Most {
            bytes: most(UNPACKED, UNPACKED_PER_BYTE),
            events: most(EVENTS, EVENTS_PER_BYTE),
        }
    }

    /// Counts a block.
    ///
    /// # Errors
    /// When there is no room left for it.
    pub fn take(&mut self, block: &Block) -> Result<()> {
        let of_events = block.header.block_kind() == Some(BlockKind::Events);
        let (left, needed) = match of_events {
            true => (&mut self.events, block.header.count),
            false => (&mut self.bytes, block.header.raw_bytes),
        };
        let less = left.checked_sub(needed.into()).ok_or_else(|| {
            damaged(
                block.payload_offset,
                "blocks that unpack to far more than the file holds",
            )
        })?;
        *left = less;
        Ok(())
    }
}

/// All blocks of a file, and the bytes that belong to none.
pub(crate) fn scan_blocks(storage: &Storage) -> Result<(Vec<Block>, Vec<Damage>)> {
    scan(storage).map_err(|error| damaged(0, error.to_string()))
}

/// Loads one block after the other into the same memory.
pub(crate) struct Loader<'s> {
    storage: &'s Storage,
    loader: flagfinder_container::Loader,
    raw: Vec<u8>,
}

impl<'s> Loader<'s> {
    pub fn new(storage: &'s Storage) -> Loader<'s> {
        Loader {
            storage,
            loader: flagfinder_container::Loader::default(),
            raw: Vec::new(),
        }
    }

    /// The raw bytes of a block, verified.
    ///
    /// # Errors
    /// When they can't be read, or are damaged.
    pub fn load(&mut self, block: &Block) -> Result<&[u8]> {
        let announced = block.header.raw_bytes as usize;
        let read = self.loader.read(self.storage, block).map(drop);
        read.and_then(|()| self.loader.unpack_all(announced, &mut self.raw))
            .map_err(|error| damaged(block.payload_offset, error.to_string()))?;
        Ok(&self.raw)
    }
}
