// SPDX-License-Identifier: MIT
//! The trace file's format and sections. The layout is described in docs/trace-format.md.

use bytemuck::{Pod, Zeroable};
pub use flagfinder_container::{checksum, Damage, Sealed, Storage};
use flagfinder_container::{payload_damage, scan, Format, Payload};

use crate::error::{cant_read, damaged, Failure, Result};
use crate::times;

/// What the file header says of a trace, and which versions are read.
pub const FORMAT: Format = Format {
    magic: *b"FFTRACE\n",
    version: 2,
    minimum_reader: 2,
    oldest: 1,
    name: "a trace",
    made_by: "flagfinder record",
    still_works: crate::error::STILL_WORKS,
};
/// No tracer makes chunks near this size.
pub(crate) const MAX_RAW_BYTES: u64 = 16 << 20;
/// No recording reaches such a position or number; sums of a few never overflow.
const MAX_COUNTER: u64 = 1 << 56;
/// Flag: the chunk was still being written when it was collected.
pub(crate) const FLAG_PARTIAL: u8 = 1;

/// The payload as it is.
pub const CODEC_RAW: u8 = 0;
/// The payload as one zstd frame.
pub const CODEC_ZSTD: u8 = 1;
/// zstd of flow whose times stand apart (`times.rs`); since version 2.
pub(crate) const CODEC_ZSTD_TIMES: u8 = 2;

/// What a section's payload is (`docs/trace-format.md` has the list).
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SectionKind {
    /// JSON of [`crate::Info`].
    Info = 1,
    /// Records of `enum ff_meta`: process, modules, blocks, notes.
    Meta = 2,
    /// Block ids and events of one thread.
    Flow = 3,
    /// Checkpoint registers and slots of one thread.
    Values = 4,
    /// Text of /proc/PID/maps at `ts_open`.
    Maps = 5,
    /// JSON of [`crate::Note`].
    Note = 6,
    /// JSON: thread names of one process, by tid, as last seen.
    Names = 7,
    /// JSON of [`crate::End`].
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

/// The header in front of each payload, as it stands in the file (little-endian).
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SectionHeader {
    /// `FFSC`.
    pub(crate) magic: u32,
    /// A [`SectionKind`]; readers skip numbers that they do not know.
    pub kind: u16,
    /// How the payload is stored: `CODEC_*`.
    pub codec: u8,
    /// 1: the chunk was still being written when it was collected; else 0.
    pub(crate) flags: u8,
    /// Whose stream it is, as the recorder's pid namespace has it; 0: of no process.
    pub pid: u32,
    /// Whose stream it is, as the process's own pid namespace has it; 0: of no thread.
    pub tid: u32,
    /// Number of the chunk in its stream, from 0; parts of one chunk share it.
    pub seq: u64,
    /// Flow position (bytes): of its first unit, or of the block with its first slots.
    pub(crate) start_pos: u64,
    /// Length of the payload once it is unpacked.
    pub raw_bytes: u64,
    /// Length of the payload in the file.
    pub stored_bytes: u64,
    /// CLOCK_MONOTONIC ns at which its chunk was opened.
    pub ts_open: u64,
    /// CLOCK_MONOTONIC ns at which its chunk was full; 0: it was not.
    pub ts_full: u64,
    /// Chunks dropped just before it, where `seq` does not show it.
    pub(crate) lost: u64,
    /// xxh3-64 of the stored bytes.
    pub payload_checksum: u64,
    /// Of VALUES: bit r set: checkpoint register r is known.
    pub(crate) regs_valid: u32,
    /// Low half of xxh3-64 of the header with 0 here.
    pub(crate) header_checksum: u32,
    /// Tells the streams of one pid before and after an exec apart; 0: unknown.
    pub image_ts: u64,
}
/// Size of [`SectionHeader`].
pub const SECTION_HEADER_BYTES: usize = 96;
const _: () = assert!(std::mem::size_of::<SectionHeader>() == SECTION_HEADER_BYTES);

impl SectionHeader {
    /// `None` for a kind that a newer writer added.
    pub fn section_kind(&self) -> Option<SectionKind> {
        SectionKind::from_u16(self.kind)
    }

    pub(crate) fn is_partial(&self) -> bool {
        self.flags & FLAG_PARTIAL != 0
    }
}

impl Sealed for SectionHeader {
    const MAGIC: u32 = u32::from_le_bytes(*b"FFSC");
    const MOST_RAW: u64 = MAX_RAW_BYTES;

    fn seals(&mut self) -> (&mut u32, &mut u32) {
        (&mut self.magic, &mut self.header_checksum)
    }

    fn payload(&self) -> Payload {
        Payload {
            raw_bytes: self.raw_bytes,
            stored_bytes: self.stored_bytes,
            checksum: self.payload_checksum,
        }
    }

    fn is_sane(&self) -> bool {
        let counters = [self.seq, self.start_pos, self.lost];
        self.raw_bytes <= MAX_RAW_BYTES && counters.iter().all(|&n| n <= MAX_COUNTER)
    }
}

pub(crate) type Section = flagfinder_container::Section<SectionHeader>;

/// All sections of a trace, and the bytes that belong to none.
///
/// # Errors
/// The system's.
pub(crate) fn scan_sections(storage: &Storage) -> Result<(Vec<Section>, Vec<Damage>)> {
    scan(storage).map_err(|error| cant_read(&error))
}

fn told(section: &Section, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::InvalidData => damaged(section.payload_offset, error),
        _ => cant_read(error),
    }
}

/// Loads payloads; keeps its decompressor and buffer between sections.
#[derive(Default)]
pub(crate) struct SectionLoader(flagfinder_container::Loader);

impl SectionLoader {
    /// Replaces `raw` with the section's raw bytes, after verifying its checksum.
    ///
    /// # Errors
    /// The system's, or a bad file's for a damaged payload.
    pub fn load(&mut self, storage: &Storage, section: &Section, raw: &mut Vec<u8>) -> Result<()> {
        let unpacked = self.unpacked(storage, section, raw);
        unpacked.map_err(|error| told(section, &error))
    }

    /// Only verifies its checksum.
    ///
    /// # Errors
    /// As [`SectionLoader::load`].
    pub fn verify(&mut self, storage: &Storage, section: &Section) -> Result<()> {
        let read = self.0.read(storage, section);
        read.map(drop).map_err(|error| told(section, &error))
    }

    fn unpacked(
        &mut self,
        storage: &Storage,
        section: &Section,
        raw: &mut Vec<u8>,
    ) -> std::io::Result<()> {
        let stored = self.0.read(storage, section)?;
        let expected = section.header.raw_bytes as usize;
        raw.clear();
        match section.header.codec {
            CODEC_RAW if stored.len() == expected => raw.extend_from_slice(stored),
            CODEC_RAW => {
                let found = stored.len();
                return Err(payload_damage(format!(
                    "{found} bytes where {expected} are announced"
                )));
            }
            CODEC_ZSTD => self.0.unpack_all(expected, raw)?,
            CODEC_ZSTD_TIMES => {
                raw.reserve(times::longest(expected));
                self.0.unpack(raw)?;
                times::unite(raw, expected)
                    .ok_or_else(|| payload_damage("times that do not belong to its flow"))?;
            }
            other => {
                return Err(payload_damage(format!(
                    "codec {other}, which this version does not know"
                )))
            }
        }
        Ok(())
    }
}
