// SPDX-License-Identifier: MIT
//! Sections: how they are found, checked and unpacked.

use std::io::{Error, ErrorKind, Result};

use bytemuck::Pod;
use xxhash_rust::xxh3::xxh3_64;
use zstd::zstd_safe::WriteBuf;

use crate::format::FILE_HEADER_BYTES;
use crate::storage::Storage;

/// What a section's header says of the bytes behind it.
pub struct Payload {
    /// Length once it is unpacked.
    pub raw_bytes: u64,
    /// Length in the file.
    pub stored_bytes: u64,
    /// [`checksum`] of the stored bytes.
    pub checksum: u64,
}

/// The header of a section. Its first bytes are the magic number.
pub trait Sealed: Pod {
    /// The first bytes of every header of this kind.
    const MAGIC: u32;
    /// A larger section is refused: a damaged length must not become an allocation.
    const MOST_RAW: u64;
    /// Where its magic number and its own checksum stand.
    fn seals(&mut self) -> (&mut u32, &mut u32);
    /// As the header announces it.
    fn payload(&self) -> Payload;
    /// Whether its numbers are possible.
    fn is_sane(&self) -> bool {
        self.payload().raw_bytes <= Self::MOST_RAW
    }

    /// Puts in the magic number and the header's checksum: to be done last.
    fn seal(&mut self) {
        let (magic, checksum) = self.seals();
        (*magic, *checksum) = (Self::MAGIC, 0);
        let sum = xxh3_64(bytemuck::bytes_of(self)) as u32;
        *self.seals().1 = sum;
    }

    /// Parses and verifies a header. `None`: not a header.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let header: Self = bytemuck::pod_read_unaligned(bytes.get(..size_of::<Self>())?);
        let mut sealed = header;
        let found = (*sealed.seals().0, *sealed.seals().1);
        if found.0 != Self::MAGIC || !header.is_sane() {
            return None;
        }
        sealed.seal();
        (*sealed.seals().1 == found.1).then_some(header)
    }
}

/// The checksum of a payload.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// A section and where its payload is in the file.
#[derive(Clone, Copy, Debug)]
pub struct Section<H> {
    /// Verified.
    pub header: H,
    /// From the file's beginning.
    pub payload_offset: u64,
}

/// Bytes of the file that are no whole section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// File offset.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// In words, for people.
    pub what: &'static str,
}

/// Finds all sections by walking the headers. Where one is damaged the walk goes on at the next
/// whose checksum holds.
///
/// # Errors
/// The system's.
pub fn scan<H: Sealed>(storage: &Storage) -> Result<(Vec<Section<H>>, Vec<Damage>)> {
    let total = storage.bytes();
    let mut sections = Vec::new();
    let mut damage = Vec::new();
    let mut offset = FILE_HEADER_BYTES as u64;
    let mut bytes = vec![0u8; size_of::<H>()];
    while offset < total {
        let left = total - offset;
        let mut header = None;
        if left >= bytes.len() as u64 {
            storage.read_at(offset, &mut bytes)?;
            header = H::parse(&bytes);
        }
        let Some(header) = header else {
            let next = find_header::<H>(storage, offset + 1)?;
            let end = next.unwrap_or(total);
            let what = match next {
                Some(_) => "damaged header",
                None => "cut or damaged end",
            };
            damage.push(Damage {
                offset,
                bytes: end - offset,
                what,
            });
            offset = end;
            continue;
        };
        let payload_offset = offset + bytes.len() as u64;
        let stored = header.payload().stored_bytes;
        if stored > total - payload_offset {
            damage.push(Damage {
                offset,
                bytes: left,
                what: "the last section is cut",
            });
            break;
        }
        sections.push(Section {
            header,
            payload_offset,
        });
        offset = payload_offset + stored;
    }
    Ok((sections, damage))
}

fn find_header<H: Sealed>(storage: &Storage, from: u64) -> Result<Option<u64>> {
    const WINDOW: usize = 1 << 20;
    let head = size_of::<H>();
    let first = H::MAGIC.to_le_bytes()[0];
    let mut buffer = vec![0u8; WINDOW];
    let mut base = from;
    while base + head as u64 <= storage.bytes() {
        let size = (storage.bytes() - base).min(WINDOW as u64) as usize;
        let window = &mut buffer[..size];
        storage.read_at(base, window)?;
        let found =
            (0..=size - head).find(|&at| window[at] == first && H::parse(&window[at..]).is_some());
        if let Some(at) = found {
            return Ok(Some(base + at as u64));
        }
        base += (size - head + 1) as u64;
    }
    Ok(None)
}

/// A payload that is not what its header says. Its kind tells it from the system's errors.
pub fn payload_damage(found: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, found.into())
}

/// Loads one section after the other into the same memory: a fresh megabyte for each costs more
/// than unpacking it.
#[derive(Default)]
pub struct Loader {
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
    stored: Vec<u8>,
}

impl Loader {
    /// Reads a payload as it stands in the file, and verifies it.
    ///
    /// # Errors
    /// The system's, or [`payload_damage`].
    pub fn read<H: Sealed>(&mut self, storage: &Storage, section: &Section<H>) -> Result<&[u8]> {
        let payload = section.header.payload();
        // A payload that can't be packed grows a little.
        if payload.stored_bytes > H::MOST_RAW + (1 << 20) {
            let found = format!("a stored size of {} bytes", payload.stored_bytes);
            return Err(payload_damage(found));
        }
        self.stored.resize(payload.stored_bytes as usize, 0);
        storage.read_at(section.payload_offset, &mut self.stored)?;
        if checksum(&self.stored) != payload.checksum {
            return Err(payload_damage("a payload that does not match its checksum"));
        }
        Ok(&self.stored)
    }

    /// Unpacks what was read last, a zstd frame, into `room`; tells how many bytes it had.
    ///
    /// # Errors
    /// [`payload_damage`].
    pub fn unpack<W: WriteBuf + ?Sized>(&mut self, room: &mut W) -> Result<usize> {
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            empty => empty.insert(zstd::bulk::Decompressor::new()?),
        };
        let unpacked = decompressor.decompress_to_buffer(&self.stored, room);
        unpacked.map_err(|error| payload_damage(error.to_string()))
    }

    /// Unpacks what was read last, which holds so many bytes.
    ///
    /// # Errors
    /// [`payload_damage`].
    pub fn unpack_all(&mut self, announced: usize, raw: &mut Vec<u8>) -> Result<()> {
        raw.clear();
        raw.reserve(announced);
        match self.unpack(raw)? {
            found if found == announced => Ok(()),
            found => Err(payload_damage(format!(
                "{found} bytes where {announced} are announced"
            ))),
        }
    }
}
