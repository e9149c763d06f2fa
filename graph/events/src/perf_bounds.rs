// SPDX-License-Identifier: MIT
//! Whether the lengths in a perf.data file can be true: the library that reads it allocates what
//! they say.
//!
//! Layout: tools/perf/Documentation/perf.data-file-format.txt of the kernel. Little-endian only, as
//! all that is imported.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

const FEATURES: u64 = 72;
const HEADER_BYTES: u64 = 104;
const EVENT_DESC: u64 = 12;
/// Of `perf_event_attr`, as it was first (PERF_ATTR_SIZE_VER0), and more than it will ever have.
const ATTR_BYTES: std::ops::RangeInclusive<u64> = 64..=4096;
/// PERF_ATTR_SIZE_VER0 to VER8.
const ATTR_SIZES: [u64; 9] = [64, 72, 80, 96, 104, 112, 120, 128, 136];
const SECTION_BYTES: u64 = 16;
const AUXTRACE: u32 = 71;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;
const RECORD_HEADER_BYTES: u64 = 8;
/// Compressed records may unpack to so many bytes, and to so many more for each byte of the file.
/// Real ones unpack to five times their size.
const UNPACKED: u64 = 8 << 20;
const UNPACKED_PER_BYTE: u64 = 32;

type Checked<T = ()> = Result<T, String>;

/// Offset and size.
#[derive(Clone, Copy)]
struct Section(u64, u64);

struct Places<'f> {
    file: &'f File,
    bytes: u64,
}

fn cut(error: &std::io::Error) -> String {
    format!("a cut file ({error})")
}

impl Places<'_> {
    fn read<const N: usize>(&self, at: u64) -> Checked<[u8; N]> {
        let mut bytes = [0; N];
        let read = self.file.read_exact_at(&mut bytes, at);
        read.map_err(|error| cut(&error))?;
        Ok(bytes)
    }

    fn word(&self, at: u64) -> Checked<u64> {
        self.read(at).map(u64::from_le_bytes)
    }

    fn half(&self, at: u64) -> Checked<u64> {
        self.read(at)
            .map(|bytes| u64::from(u32::from_le_bytes(bytes)))
    }

    /// A section, which must lie in the file.
    fn section(&self, at: u64) -> Checked<Section> {
        let section = Section(self.word(at)?, self.word(at + 8)?);
        let end = section.0.checked_add(section.1);
        match end.filter(|&end| end <= self.bytes) {
            Some(_) => Ok(section),
            None => Err(format!(
                "a section of {} bytes at {} of a file of {} bytes",
                section.1, section.0, self.bytes
            )),
        }
    }

    /// A table of attributes, each with the place of its ids in its last bytes.
    fn attributes(&self, Section(start, size): Section, entry: u64) -> Checked {
        let mut ids = 0u64;
        for index in 0..size / entry {
            let Section(_, size) = self.section(start + (index + 1) * entry - SECTION_BYTES)?;
            ids += size;
        }
        if ids > self.bytes {
            return Err("more ids of events than the file has bytes".into());
        }
        Ok(())
    }

    /// The descriptions of events, which are lists with counts before them.
    fn descriptions(&self, Section(start, size): Section) -> Checked {
        let end = start + size;
        let fits = |at: u64| {
            let list = || "a list of events that is longer than its section".to_owned();
            (at <= end).then_some(at).ok_or_else(list)
        };
        let mut at = fits(start + 8)?;
        let (events, attr) = (self.half(start)?, self.half(start + 4)?);
        // Each event takes at least this.
        fits(at.saturating_add(events.saturating_mul(attr.max(*ATTR_BYTES.start()) + 8)))?;
        for _ in 0..events {
            // The library goes by the size that stands in the attribute itself, and loses its place
            // if no kernel had an attribute of that size.
            let own = self.half(at + 4)?;
            if own > attr || !ATTR_SIZES.contains(&own) {
                return Err(format!("an event's attribute of {own} bytes"));
            }
            at = fits(at + attr + 8)?;
            let (ids, name) = (self.half(at - 8)?, self.half(at - 4)?);
            at = fits(at + name + ids * 8)?;
        }
        Ok(())
    }

    /// Records name the size of what follows them, and may be packed.
    fn records(&self, Section(start, size): Section) -> Checked {
        let mut input = BufReader::new(self.file);
        input
            .seek(SeekFrom::Start(start))
            .map_err(|error| cut(&error))?;
        let mut unpacked = Unpacked::new(self.bytes)?;
        let mut body = Vec::new();
        let mut done = 0;
        while done < size {
            let mut header = [0; RECORD_HEADER_BYTES as usize];
            input.read_exact(&mut header).map_err(|error| cut(&error))?;
            let [k0, k1, k2, k3, _, _, s0, s1] = header;
            let kind = u32::from_le_bytes([k0, k1, k2, k3]);
            let record = u64::from(u16::from_le_bytes([s0, s1]));
            let Some(rest) = record.checked_sub(RECORD_HEADER_BYTES) else {
                return Err("a record without a header".into());
            };
            done += record;
            if ![AUXTRACE, COMPRESSED, COMPRESSED2].contains(&kind) {
                input
                    .seek_relative(rest as i64)
                    .map_err(|error| cut(&error))?;
                continue;
            }
            body.resize(rest as usize, 0);
            input.read_exact(&mut body).map_err(|error| cut(&error))?;
            let first = body
                .first_chunk()
                .map_or(0, |first| u64::from_le_bytes(*first));
            match kind {
                AUXTRACE if first > size - done.min(size) => {
                    return Err(format!("a trace of {first} bytes beyond the end"));
                }
                AUXTRACE => {
                    done += first;
                    input
                        .seek_relative(first as i64)
                        .map_err(|error| cut(&error))?;
                }
                COMPRESSED => unpacked.take(&body)?,
                _ => {
                    let packed = body.get(8..).unwrap_or_default();
                    let packed = packed.get(..first as usize);
                    unpacked.take(packed.ok_or("a packed record that is cut")?)?;
                }
            }
        }
        Ok(())
    }
}

/// Counts what packed records unpack to: they are one stream.
struct Unpacked {
    decoder: Decoder<'static>,
    buffer: Vec<u8>,
    room: u64,
}

impl Unpacked {
    fn new(file_bytes: u64) -> Checked<Unpacked> {
        let decoder = Decoder::new().map_err(|error| error.to_string())?;
        let room = file_bytes.saturating_mul(UNPACKED_PER_BYTE);
        Ok(Unpacked {
            decoder,
            buffer: vec![0; 1 << 16],
            room: room.saturating_add(UNPACKED),
        })
    }

    fn take(&mut self, packed: &[u8]) -> Checked {
        let mut input = InBuffer::around(packed);
        loop {
            let mut output = OutBuffer::around(&mut self.buffer[..]);
            let ran = self.decoder.run(&mut input, &mut output);
            ran.map_err(|error| error.to_string())?;
            let made = output.pos();
            self.room = self
                .room
                .checked_sub(made as u64)
                .ok_or("records that unpack to far more than the file holds")?;
            if made < self.buffer.len() && input.pos() == packed.len() {
                return Ok(());
            }
        }
    }
}

/// # Errors
/// In words, the first length that can't be true.
pub(crate) fn check(file: &File) -> Checked {
    let bytes = file.metadata().map_err(|error| cut(&error))?.len();
    let places = Places { file, bytes };
    let attr = places.word(16)?;
    if !ATTR_BYTES.contains(&attr) {
        return Err(format!("attributes of {attr} bytes"));
    }
    let (attributes, data, types) = (
        places.section(24)?,
        places.section(40)?,
        places.section(56)?,
    );
    places.attributes(attributes, attr)?;
    places.attributes(types, attr + SECTION_BYTES)?;
    let mut at = data.0 + data.1;
    for bit in 0..8 * (HEADER_BYTES - FEATURES) {
        let words = places.word(FEATURES + bit / 64 * 8)?;
        if words >> (bit % 64) & 1 == 0 {
            continue;
        }
        let section = places.section(at)?;
        at += SECTION_BYTES;
        if bit == EVENT_DESC {
            places.descriptions(section)?;
        }
    }
    places.records(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest file that passes: a header, one attribute, and what is appended as records.
    fn file(records: &[u8]) -> Vec<u8> {
        let attr = 128u64;
        let data = (HEADER_BYTES + attr, records.len() as u64);
        let mut bytes = b"PERFILE2".to_vec();
        for word in [
            HEADER_BYTES,
            attr,
            HEADER_BYTES,
            attr,
            data.0,
            data.1,
            0,
            0,
            0,
            0,
            0,
            0,
        ] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.resize(data.0 as usize, 0);
        bytes.extend_from_slice(records);
        bytes
    }

    fn checked(bytes: &[u8]) -> Checked {
        let name = format!("flagfinder-bounds-{:?}", std::thread::current().id());
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let result = check(&File::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        result
    }

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = (RECORD_HEADER_BYTES as usize + body.len()) as u16;
        [&kind.to_le_bytes()[..], &[0, 0], &size.to_le_bytes(), body].concat()
    }

    #[test]
    fn a_sound_file_passes_and_lengths_beyond_it_do_not() {
        let sound = file(&record(1, &[0; 8]));
        assert_eq!(checked(&sound), Ok(()));
        // Sizes of attributes, of the tables and of the data; the ids of the one attribute.
        for place in [16, 32, 48, 64, 104 + 120] {
            for lie in [u64::MAX, u64::MAX - 15, 1 << 40] {
                let mut bytes = sound.clone();
                bytes[place..place + 8].copy_from_slice(&lie.to_le_bytes());
                assert!(checked(&bytes).is_err(), "{lie:#x} at {place}");
            }
        }
        assert!(checked(&file(&record(1, &[])[..6])).is_err());
        assert!(checked(&file(&[1, 0, 0, 0, 0, 0, 7, 0])).is_err());
    }

    /// With a list of events of so many entries behind the records.
    fn with_descriptions(events: u32, attr: u32, ids: u32, name: u32) -> Vec<u8> {
        let mut bytes = file(&[]);
        bytes[73] |= 1 << (EVENT_DESC - 8);
        let at = bytes.len() as u64 + SECTION_BYTES;
        let mut list: Vec<u8> = [events, attr].map(u32::to_le_bytes).concat();
        list.extend([0, 0, 0, 0, 128, 0, 0, 0]);
        list.extend([0; 120]);
        list.extend([ids, name].map(u32::to_le_bytes).concat());
        list.extend([0; 16]);
        bytes.extend(at.to_le_bytes());
        bytes.extend((list.len() as u64).to_le_bytes());
        bytes.extend(list);
        bytes
    }

    #[test]
    fn descriptions_of_events_hold_what_they_count() {
        assert_eq!(checked(&with_descriptions(1, 128, 1, 8)), Ok(()));
        let lies = [(u32::MAX, 128, 1, 8), (2, 128, 1, 8), (1, u32::MAX, 1, 8)];
        for (events, attr, ids, name) in lies.into_iter().chain([
            (1, 128, u32::MAX, 8),
            (1, 128, 1, u32::MAX),
            (u32::MAX, 0, 0, 0),
        ]) {
            let bytes = with_descriptions(events, attr, ids, name);
            assert!(checked(&bytes).is_err(), "{events} {attr} {ids} {name}");
        }
    }

    #[test]
    fn a_hardware_trace_ends_within_the_file() {
        let sound = [record(AUXTRACE, &[4, 0, 0, 0, 0, 0, 0, 0]), vec![0; 4]].concat();
        assert_eq!(checked(&file(&sound)), Ok(()));
        assert!(checked(&file(&record(AUXTRACE, &[0xff; 8]))).is_err());
    }

    #[test]
    fn packed_records_unpack_to_what_is_in_proportion() {
        let packed = |bytes: usize| zstd::bulk::compress(&vec![0; bytes], 1).unwrap();
        let second = |body: &[u8]| {
            let length = (body.len() as u64).to_le_bytes();
            record(COMPRESSED2, &[&length, body, &[0; 3]].concat())
        };
        let small = packed(1 << 20);
        for records in [record(COMPRESSED, &small), second(&small)] {
            assert_eq!(checked(&file(&records)), Ok(()));
        }
        let bomb = packed(64 << 20);
        assert!(bomb.len() < 32 << 10);
        for records in [record(COMPRESSED, &bomb), second(&bomb)] {
            assert!(checked(&file(&records)).unwrap_err().contains("far more"));
        }
        assert!(checked(&file(&record(COMPRESSED2, &[0xff; 8]))).is_err());
    }
}
