// SPDX-License-Identifier: MIT
//! The event file's blocks. The layout is described in docs/events-format.md.

use bytemuck::{Pod, Zeroable};
pub use flagfinder_container::{checksum, Damage, Sealed, Storage, FILE_HEADER_BYTES};
use flagfinder_container::{scan, Payload, Section};

use crate::error::{damaged, Result};
pub use crate::format::FORMAT;

/// A damaged length must not become an allocation.
pub const MAX_RAW_BYTES: u32 = 64 << 20;
/// What facts and stacks may unpack to: so much, and so much more for each byte of the file. Real
/// files stay far below.
const UNPACKED: u64 = 4 << 20;
const UNPACKED_PER_BYTE: u64 = 64;
/// CPUs are numbered below this (the kernel's largest NR_CPUS on x86-64).
pub const MOST_CPUS: u16 = 8192;

/// What a block contains.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockKind {
    Info = 1,
    Events = 2,
    Stacks = 3,
    Threads = 4,
    Maps = 5,
    Descriptors = 6,
    Mark = 7,
    Note = 8,
    End = 9,
    /// Nothing: what was here was let go of.
    Dropped = 10,
    Waits = 11,
    Python = 12,
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
        ];
        all.into_iter().find(|known| *known as u16 == kind)
    }
}

/// Payloads are always one zstd frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockHeader {
    pub magic: u32,
    pub kind: u16,
    /// The CPU whose events these are; of EVENTS only.
    pub cpu: u16,
    /// Events, stacks or other things inside.
    pub count: u32,
    pub raw_bytes: u32,
    /// Time of the first and last event inside.
    pub first_ts: u64,
    pub last_ts: u64,
    pub payload_checksum: u64,
    pub stored_bytes: u32,
    pub header_checksum: u32,
}
pub const BLOCK_HEADER_BYTES: usize = 48;
const _: () = assert!(std::mem::size_of::<BlockHeader>() == BLOCK_HEADER_BYTES);

impl BlockHeader {
    pub fn block_kind(&self) -> Option<BlockKind> {
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

pub type Block = Section<BlockHeader>;

/// Bytes that the facts and stacks of a file may unpack to.
pub fn room(storage: &Storage) -> u64 {
    UNPACKED.saturating_add(storage.bytes().saturating_mul(UNPACKED_PER_BYTE))
}

/// All blocks of a file, and what is none.
pub fn scan_blocks(storage: &Storage) -> Result<(Vec<Block>, Vec<Damage>)> {
    scan(storage).map_err(|error| damaged(0, error.to_string()))
}

/// Loads one block after the other into the same memory.
pub struct Loader<'s> {
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
