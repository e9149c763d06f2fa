// SPDX-License-Identifier: MIT
//! The file: header, sections, checksums. Reader and writer of both headers stand
//! here together on purpose. The layout is described in docs/trace-format.md.

use std::fs::File;
use std::os::unix::fs::FileExt;

use bytemuck::{Pod, Zeroable};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Result, TraceError, TraceErrorKind};
use crate::times;

pub const FILE_MAGIC: [u8; 8] = *b"FFTRACE\n";
/// Version that this code writes.
pub const FILE_VERSION: u32 = 2;
/// Oldest reader that understands what this code writes.
pub const FILE_MINIMUM_READER: u32 = 2;
pub const SECTION_MAGIC: u32 = u32::from_le_bytes(*b"FFSC");
/// A larger section is refused: no tracer makes chunks near this size, and a
/// damaged length must not become an allocation.
pub const MAX_RAW_BYTES: u64 = 16 << 20;
/// No recording reaches such a position or number; sums of a few never overflow.
const MAX_COUNTER: u64 = 1 << 56;
/// Flag: the chunk was still being written when it was collected.
pub const FLAG_PARTIAL: u8 = 1;

pub const CODEC_RAW: u8 = 0;
pub const CODEC_ZSTD: u8 = 1;
/// zstd of flow whose times stand apart (`times.rs`); since version 2.
pub const CODEC_ZSTD_TIMES: u8 = 2;

/// What a section contains.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SectionKind {
    Info = 1,
    Meta = 2,
    Flow = 3,
    Values = 4,
    Maps = 5,
    Note = 6,
    Names = 7,
    End = 8,
}

impl SectionKind {
    /// `None` for a kind that a newer writer added: readers skip it.
    pub fn from_u16(kind: u16) -> Option<Self> {
        Some(match kind {
            1 => Self::Info,
            2 => Self::Meta,
            3 => Self::Flow,
            4 => Self::Values,
            5 => Self::Maps,
            6 => Self::Note,
            7 => Self::Names,
            8 => Self::End,
            _ => return None,
        })
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
const _: () = assert!(std::mem::size_of::<FileHeader>() == 64);

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SectionHeader {
    pub magic: u32,
    pub kind: u16,
    pub codec: u8,
    pub flags: u8,
    pub pid: u32,
    pub tid: u32,
    pub seq: u64,
    pub start_pos: u64,
    pub raw_bytes: u64,
    pub stored_bytes: u64,
    pub ts_open: u64,
    pub ts_full: u64,
    pub lost: u64,
    pub payload_checksum: u64,
    pub regs_valid: u32,
    pub header_checksum: u32,
    /// Tells the streams of one pid before and after an exec apart; 0: unknown.
    pub image_ts: u64,
}
pub const SECTION_HEADER_BYTES: usize = 96;
const _: () = assert!(std::mem::size_of::<SectionHeader>() == SECTION_HEADER_BYTES);

impl SectionHeader {
    pub fn section_kind(&self) -> Option<SectionKind> {
        SectionKind::from_u16(self.kind)
    }

    pub fn is_partial(&self) -> bool {
        self.flags & FLAG_PARTIAL != 0
    }

    pub fn seal(&mut self) {
        self.magic = SECTION_MAGIC;
        self.header_checksum = 0;
        self.header_checksum = xxh3_64(bytemuck::bytes_of(self)) as u32;
    }

    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    /// Parses and verifies a header. `None`: not a header.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header: SectionHeader = crate::protocol::read(bytes)?;
        let counters = [header.seq, header.start_pos, header.lost];
        let absurd = header.raw_bytes > MAX_RAW_BYTES || counters.iter().any(|&n| n > MAX_COUNTER);
        if header.magic != SECTION_MAGIC || absurd {
            return None;
        }
        let mut sealed = header;
        sealed.seal();
        (sealed.header_checksum == header.header_checksum).then_some(header)
    }
}

/// The checksum of a payload.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// One section of the file: its header and where its stored bytes are.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub header: SectionHeader,
    /// File offset of the stored payload.
    pub payload_offset: u64,
}

/// Bytes of the file that are no whole section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// File offset.
    pub offset: u64,
    pub bytes: u64,
    pub what: &'static str,
}

/// Where a trace's bytes come from.
pub enum Storage {
    /// Read with `pread`: a file that shrinks meanwhile gives an error, not a SIGBUS.
    File {
        file: File,
        bytes: u64,
    },
    Memory(Vec<u8>),
}

impl Storage {
    pub fn bytes(&self) -> u64 {
        match self {
            Storage::File { bytes, .. } => *bytes,
            Storage::Memory(data) => data.len() as u64,
        }
    }

    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        match self {
            Storage::File { file, .. } => file.read_exact_at(buffer, offset),
            Storage::Memory(data) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let source = start
                    .checked_add(buffer.len())
                    .and_then(|end| data.get(start..end))
                    .ok_or(std::io::ErrorKind::UnexpectedEof)?;
                buffer.copy_from_slice(source);
                Ok(())
            }
        }
    }
}

/// Reads the file header; refuses foreign, empty and too new files.
pub fn read_file_header(storage: &Storage) -> Result<FileHeader> {
    let bad = |found: String, fix: &str| {
        Err(TraceError::new(
            TraceErrorKind::BadTrace,
            "This is not a trace that can be read.",
            found,
            fix,
            "Other trace files are unaffected.",
        ))
    };
    let record = "Record again with `flagfinder record`.";
    if storage.bytes() == 0 {
        return bad("an empty file".into(), record);
    }
    let mut bytes = [0u8; 64];
    let available = storage.bytes().min(64) as usize;
    storage.read_at(0, &mut bytes[..available]).map_err(|e| {
        TraceError::io(
            "The trace's header could not be read.",
            &e,
            "Check the disk and try again.",
        )
    })?;
    let header: FileHeader = bytemuck::pod_read_unaligned(&bytes);
    if header.magic != FILE_MAGIC {
        let start = String::from_utf8_lossy(&bytes[..available.min(8)])
            .escape_debug()
            .to_string();
        return bad(
            format!("a file that begins with \"{start}\" instead of \"FFTRACE\""),
            "Give a file that `flagfinder record` wrote.",
        );
    }
    if available < 64 {
        return bad(
            format!("a file of {available} bytes, cut inside its header"),
            record,
        );
    }
    if header.minimum_reader > FILE_VERSION {
        return bad(
            format!(
                "trace format version {} that needs a reader of version {}; this one is {FILE_VERSION}",
                header.version, header.minimum_reader
            ),
            "Upgrade flagfinder, or record with this version.",
        );
    }
    Ok(header)
}

/// Finds all sections by walking the headers. Where a header is damaged the walk
/// goes on at the next header whose checksum holds.
pub fn scan_sections(storage: &Storage) -> Result<(Vec<Section>, Vec<Damage>)> {
    let total = storage.bytes();
    let mut sections = Vec::new();
    let mut damage: Vec<Damage> = Vec::new();
    let mut offset = 64u64;
    while offset < total {
        let left = total - offset;
        let mut bytes = [0u8; SECTION_HEADER_BYTES];
        let header = if left < SECTION_HEADER_BYTES as u64 {
            None
        } else {
            storage.read_at(offset, &mut bytes).map_err(read_error)?;
            SectionHeader::parse(&bytes)
        };
        let Some(header) = header else {
            let next = find_header(storage, offset + 1)?;
            let end = next.unwrap_or(total);
            let what = if next.is_some() {
                "damaged section header"
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
        let payload_offset = offset + SECTION_HEADER_BYTES as u64;
        if header.stored_bytes > total - payload_offset {
            damage.push(Damage {
                offset,
                bytes: left,
                what: "last section is cut",
            });
            break;
        }
        sections.push(Section {
            header,
            payload_offset,
        });
        offset = payload_offset + header.stored_bytes;
    }
    Ok((sections, damage))
}

fn find_header(storage: &Storage, from: u64) -> Result<Option<u64>> {
    const WINDOW: usize = 1 << 20;
    let total = storage.bytes();
    let mut buffer = vec![0u8; WINDOW];
    let mut base = from;
    while base + SECTION_HEADER_BYTES as u64 <= total {
        let size = (total - base).min(WINDOW as u64) as usize;
        let window = &mut buffer[..size];
        storage.read_at(base, window).map_err(read_error)?;
        for at in 0..=size - SECTION_HEADER_BYTES {
            if window[at] == b'F' && SectionHeader::parse(&window[at..]).is_some() {
                return Ok(Some(base + at as u64));
            }
        }
        base += (size - SECTION_HEADER_BYTES + 1) as u64;
    }
    Ok(None)
}

fn read_error(error: std::io::Error) -> TraceError {
    TraceError::io(
        "The trace could not be read.",
        &error,
        "Check the disk; copy the file and try again.",
    )
}

/// Loads payloads; keeps its decompressor and buffer between sections.
pub struct SectionLoader {
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
    stored: Vec<u8>,
}

impl Default for SectionLoader {
    fn default() -> Self {
        Self::new()
    }
}

impl SectionLoader {
    pub fn new() -> Self {
        SectionLoader {
            decompressor: None,
            stored: Vec::new(),
        }
    }

    /// Replaces `raw` with the section's raw bytes, after verifying its checksum.
    /// Errors: I/O, or a damaged payload (kind `BadTrace`).
    pub fn load(&mut self, storage: &Storage, section: &Section, raw: &mut Vec<u8>) -> Result<()> {
        let header = &section.header;
        let damaged = |found: String| {
            TraceError::new(
                TraceErrorKind::BadTrace,
                format!(
                    "The section at file offset {:#x} is damaged.",
                    section.payload_offset
                ),
                found,
                "Record again, or copy the file again from where it came.",
                "All other sections are read; this one is reported as a gap.",
            )
        };
        raw.clear();
        if header.stored_bytes > MAX_RAW_BYTES + (1 << 20) {
            return Err(damaged(format!(
                "a stored size of {} bytes",
                header.stored_bytes
            )));
        }
        self.stored.resize(header.stored_bytes as usize, 0);
        storage
            .read_at(section.payload_offset, &mut self.stored)
            .map_err(read_error)?;
        if checksum(&self.stored) != header.payload_checksum {
            return Err(damaged("a payload that does not match its checksum".into()));
        }
        let expected = header.raw_bytes as usize;
        match header.codec {
            CODEC_RAW if self.stored.len() == expected => raw.extend_from_slice(&self.stored),
            CODEC_ZSTD | CODEC_ZSTD_TIMES => {
                let decompressor = match &mut self.decompressor {
                    Some(decompressor) => decompressor,
                    empty => {
                        let new =
                            zstd::bulk::Decompressor::new().map_err(|e| damaged(e.to_string()))?;
                        empty.insert(new)
                    }
                };
                let apart = header.codec == CODEC_ZSTD_TIMES;
                raw.reserve(if apart {
                    times::longest(expected)
                } else {
                    expected
                });
                let size = decompressor
                    .decompress_to_buffer(&self.stored, raw)
                    .map_err(|e| damaged(e.to_string()))?;
                if apart {
                    return times::unite(raw, expected)
                        .ok_or_else(|| damaged("times that do not belong to its flow".into()));
                }
                if size != expected {
                    return Err(damaged(format!(
                        "{size} bytes where {expected} are announced"
                    )));
                }
            }
            CODEC_RAW => {
                return Err(damaged(format!(
                    "{} bytes where {expected} are announced",
                    self.stored.len()
                )))
            }
            other => {
                return Err(damaged(format!(
                    "codec {other}, which this version does not know"
                )))
            }
        }
        Ok(())
    }
}
