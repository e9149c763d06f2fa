// SPDX-License-Identifier: MIT
//! The file: header, blocks, checksums. The layout is described in docs/events-format.md.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use bytemuck::{Pod, Zeroable};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{bad_file, cant_read, damaged, Result};

pub const FILE_MAGIC: [u8; 8] = *b"FFEVENT\n";
/// Version that this code writes.
pub const FILE_VERSION: u32 = 4;
/// Oldest reader that understands what this code writes.
pub const FILE_MINIMUM_READER: u32 = 4;
pub const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"FFEB");
/// A damaged length must not become an allocation.
pub const MAX_RAW_BYTES: u32 = 64 << 20;
/// What facts and stacks may unpack to: so much, and so much more for each byte of the file. Real
/// files stay far below.
const UNPACKED: u64 = 4 << 20;
const UNPACKED_PER_BYTE: u64 = 64;
/// CPUs are numbered below this (the kernel's largest NR_CPUS on x86-64).
pub const MOST_CPUS: u16 = 8192;
const RECORD_AGAIN: &str = "Record again with `flagfinder events record`.";

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
        ];
        all.into_iter().find(|known| *known as u16 == kind)
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct FileHeader {
    pub magic: [u8; 8],
    pub version: u32,
    pub minimum_reader: u32,
    /// Features a reader may ignore; incompatible ones raise `minimum_reader`.
    pub features: u64,
    /// ns since the Unix epoch.
    pub created: u64,
    pub reserved: [u64; 4],
}
pub const FILE_HEADER_BYTES: usize = 64;
const _: () = assert!(std::mem::size_of::<FileHeader>() == FILE_HEADER_BYTES);

/// Payloads are always one zstd frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockHeader {
    pub magic: u32,
    pub kind: u16,
    /// Of EVENTS: whose they are.
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

    pub fn seal(&mut self) {
        self.magic = BLOCK_MAGIC;
        self.header_checksum = 0;
        self.header_checksum = xxh3_64(bytemuck::bytes_of(self)) as u32;
    }

    /// Parses and verifies a header. `None`: not a header.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header: BlockHeader = bytemuck::pod_read_unaligned(bytes.get(..BLOCK_HEADER_BYTES)?);
        if header.magic != BLOCK_MAGIC || header.raw_bytes > MAX_RAW_BYTES {
            return None;
        }
        let mut sealed = header;
        sealed.seal();
        (sealed.header_checksum == header.header_checksum).then_some(header)
    }
}

pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

impl Storage {
    /// Bytes that its facts and stacks may unpack to.
    pub fn room(&self) -> u64 {
        UNPACKED.saturating_add(self.bytes.saturating_mul(UNPACKED_PER_BYTE))
    }
}

/// One block and where its payload is.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub header: BlockHeader,
    pub payload_offset: u64,
}

/// Bytes of the file that are no whole block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub offset: u64,
    pub bytes: u64,
    pub what: &'static str,
}

/// An open file. Read with `pread`: a file that shrinks meanwhile gives an error, not a SIGBUS.
pub struct Storage {
    file: File,
    pub bytes: u64,
    /// Without its holes.
    pub disk_bytes: u64,
}

impl Storage {
    /// Opens and checks the header; refuses foreign, empty and too new files.
    pub fn open(path: &Path) -> Result<Storage> {
        let file = File::open(path).map_err(|error| cant_read(path, &error))?;
        let metadata = file.metadata().map_err(|error| cant_read(path, &error))?;
        if !metadata.is_file() {
            return Err(bad_file(
                "it is no regular file",
                "Give a file that `flagfinder events record` wrote.",
            ));
        }
        let storage = Storage {
            file,
            bytes: metadata.len(),
            disk_bytes: metadata.len().min(metadata.blocks() * 512),
        };
        storage.check_header(path)?;
        Ok(storage)
    }

    fn check_header(&self, path: &Path) -> Result<()> {
        if self.bytes == 0 {
            return Err(bad_file("an empty file", RECORD_AGAIN));
        }
        let mut bytes = [0u8; FILE_HEADER_BYTES];
        let available = self.bytes.min(FILE_HEADER_BYTES as u64) as usize;
        let read = self.file.read_exact_at(&mut bytes[..available], 0);
        read.map_err(|error| cant_read(path, &error))?;
        let header: FileHeader = bytemuck::pod_read_unaligned(&bytes);
        if header.magic != FILE_MAGIC {
            let start = String::from_utf8_lossy(&bytes[..available.min(8)])
                .escape_debug()
                .to_string();
            return Err(bad_file(
                format!("a file that begins with \"{start}\" instead of \"FFEVENT\""),
                "Give a file that `flagfinder events record` wrote.",
            ));
        }
        if available < FILE_HEADER_BYTES {
            return Err(bad_file(
                format!("a file of {available} bytes, cut inside its header"),
                RECORD_AGAIN,
            ));
        }
        if header.minimum_reader > FILE_VERSION {
            return Err(bad_file(
                format!(
                    "format version {} that needs a reader of version {}; this one is {FILE_VERSION}",
                    header.version, header.minimum_reader
                ),
                "Upgrade flagfinder, or record with this version.",
            ));
        }
        Ok(())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact_at(buffer, offset);
        read.map_err(|error| damaged(offset, error.to_string()))
    }

    /// Finds all blocks by walking the headers. Where one is damaged the walk goes on at the next
    /// whose checksum holds.
    pub fn scan(&self) -> Result<(Vec<Block>, Vec<Damage>)> {
        let mut blocks = Vec::new();
        let mut damage = Vec::new();
        let mut offset = FILE_HEADER_BYTES as u64;
        while offset < self.bytes {
            let left = self.bytes - offset;
            let mut bytes = [0u8; BLOCK_HEADER_BYTES];
            let mut header = None;
            if left >= BLOCK_HEADER_BYTES as u64 {
                self.read(offset, &mut bytes)?;
                header = BlockHeader::parse(&bytes);
            }
            let Some(header) = header else {
                let next = self.find_header(offset + 1)?;
                let end = next.unwrap_or(self.bytes);
                let what = if next.is_some() {
                    "damaged block header"
                } else {
                    "cut or damaged end"
                };
                damage.push(Damage {
                    offset,
                    bytes: end - offset,
                    what,
                });
                offset = end;
                continue;
            };
            let payload_offset = offset + BLOCK_HEADER_BYTES as u64;
            if u64::from(header.stored_bytes) > self.bytes - payload_offset {
                damage.push(Damage {
                    offset,
                    bytes: left,
                    what: "the last block is cut",
                });
                break;
            }
            blocks.push(Block {
                header,
                payload_offset,
            });
            offset = payload_offset + u64::from(header.stored_bytes);
        }
        Ok((blocks, damage))
    }

    fn find_header(&self, from: u64) -> Result<Option<u64>> {
        const WINDOW: usize = 1 << 20;
        let mut buffer = vec![0u8; WINDOW];
        let mut base = from;
        while base + BLOCK_HEADER_BYTES as u64 <= self.bytes {
            let size = (self.bytes - base).min(WINDOW as u64) as usize;
            let window = &mut buffer[..size];
            self.read(base, window)?;
            let found = (0..=size - BLOCK_HEADER_BYTES)
                .find(|&at| window[at] == b'F' && BlockHeader::parse(&window[at..]).is_some());
            if let Some(at) = found {
                return Ok(Some(base + at as u64));
            }
            base += (size - BLOCK_HEADER_BYTES + 1) as u64;
        }
        Ok(None)
    }

    /// The raw bytes of a block, verified.
    pub fn load(&self, block: &Block) -> Result<Vec<u8>> {
        let mut loader = Loader::new(self)?;
        loader.load(block)?;
        Ok(loader.raw)
    }
}

/// Loads one block after the other into the same memory: a fresh megabyte for each costs more than
/// unpacking it.
pub struct Loader<'s> {
    storage: &'s Storage,
    decompressor: zstd::bulk::Decompressor<'static>,
    stored: Vec<u8>,
    raw: Vec<u8>,
}

impl<'s> Loader<'s> {
    pub fn new(storage: &'s Storage) -> Result<Loader<'s>> {
        let decompressor = zstd::bulk::Decompressor::new();
        Ok(Loader {
            storage,
            decompressor: decompressor.map_err(|error| damaged(0, error.to_string()))?,
            stored: Vec::new(),
            raw: Vec::new(),
        })
    }

    /// The raw bytes of a block, verified.
    pub fn load(&mut self, block: &Block) -> Result<&[u8]> {
        let header = &block.header;
        let bad = |found: String| damaged(block.payload_offset, found);
        self.stored.resize(header.stored_bytes as usize, 0);
        self.storage.read(block.payload_offset, &mut self.stored)?;
        if checksum(&self.stored) != header.payload_checksum {
            return Err(bad("a payload that does not match its checksum".into()));
        }
        let announced = header.raw_bytes as usize;
        self.raw.clear();
        self.raw.reserve(announced);
        let unpacked = self
            .decompressor
            .decompress_to_buffer(&self.stored, &mut self.raw);
        let found = unpacked.map_err(|error| bad(error.to_string()))?;
        if found != announced {
            return Err(bad(format!(
                "{found} bytes where {announced} are announced"
            )));
        }
        Ok(&self.raw)
    }
}
