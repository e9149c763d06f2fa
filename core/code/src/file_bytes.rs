// SPDX-License-Identifier: MIT
//! The bytes of a file, mapped, and those of its sections, unpacked within bounds.
//!
//! The file is one that a trace or a process names: what its headers announce need not be true, and
//! a small section may unpack to more than the memory holds.

use std::borrow::Cow;
use std::path::Path;

use flagfinder_files::open_named;
use flate2::{Decompress, FlushDecompress};
use object::{CompressionFormat, ObjectSection};

use crate::mapped::Mapped;

/// A packed section may unpack to so many bytes, and to so many more for each of its bytes. Debug
/// information unpacks to five times its size.
const UNPACKED: u64 = 1 << 20;
const UNPACKED_PER_BYTE: u64 = 64;

/// Maps a regular file to read it.
pub(crate) fn map(path: &Path) -> std::io::Result<Mapped> {
    Mapped::of(&open_named(path)?)
}

/// `None` when it can't be unpacked, or announces far more than it holds.
pub(crate) fn unpacked<'d>(section: &impl ObjectSection<'d>) -> Option<Cow<'d, [u8]>> {
    let packed = section.compressed_data().ok()?;
    if packed.format == CompressionFormat::None {
        return Some(packed.data.into());
    }
    let most = (packed.data.len() as u64).saturating_mul(UNPACKED_PER_BYTE);
    if packed.uncompressed_size > most.saturating_add(UNPACKED) {
        return None;
    }
    let bytes = packed.uncompressed_size as usize;
    let whole = match packed.format {
        CompressionFormat::Zlib => {
            let mut whole = Vec::with_capacity(bytes);
            Decompress::new(true)
                .decompress_vec(packed.data, &mut whole, FlushDecompress::Finish)
                .ok()?;
            whole
        }
        CompressionFormat::Zstandard => zstd::bulk::decompress(packed.data, bytes).ok()?,
        _ => return None,
    };
    (whole.len() == bytes).then(|| whole.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use object::elf::{ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD, SHF_COMPRESSED};
    use object::Object;

    use super::*;

    const HEADER: usize = 64;

    /// An ELF file whose second section is packed so and announces so many bytes.
    fn file(kind: u32, announced: u64, packed: &[u8]) -> Vec<u8> {
        let body = [
            &kind.to_le_bytes()[..],
            &[0; 4],
            &announced.to_le_bytes(),
            &1u64.to_le_bytes(),
            packed,
        ]
        .concat();
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(HEADER, 0);
        let (relocatable, machine) = (1u16, 62u16);
        file[16..18].copy_from_slice(&relocatable.to_le_bytes());
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        file[20] = 1;
        file[40..48].copy_from_slice(&((HEADER + body.len()) as u64).to_le_bytes());
        // Sizes of headers, their number, and which section holds their names.
        for (at, half) in [(52, HEADER as u16), (58, 64), (60, 3), (62, 2)] {
            file[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
        file.extend(&body);
        let (none, data, names) = (0u32, 1u32, 3u32);
        for (kind, flags, bytes) in [
            (none, 0, 0),
            (data, SHF_COMPRESSED, body.len() as u64),
            (names, 0, 0),
        ] {
            file.extend([0; 4]);
            file.extend(kind.to_le_bytes());
            for word in [u64::from(flags), 0, HEADER as u64, bytes, 0, 0, 0] {
                file.extend(word.to_le_bytes());
            }
        }
        file
    }

    fn found(kind: u32, announced: u64, packed: &[u8]) -> Option<Vec<u8>> {
        let file = file(kind, announced, packed);
        let parsed = object::File::parse(&file[..]).unwrap();
        let section = parsed.section_by_index(object::SectionIndex(1)).unwrap();
        assert_eq!(section.compressed_data().unwrap().data, packed);
        unpacked(&section).map(Cow::into_owned)
    }

    fn deflated(raw: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(raw).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn packed_sections_are_unpacked_to_what_they_announce() {
        let raw = b"debug information, debug information".repeat(100);
        let bytes = raw.len() as u64;
        let zstd = zstd::bulk::compress(&raw, 1).unwrap();
        for (kind, packed) in [(ELFCOMPRESS_ZLIB, deflated(&raw)), (ELFCOMPRESS_ZSTD, zstd)] {
            assert!(found(kind, bytes, &packed) == Some(raw.clone()));
            for lie in [bytes + 1, 1 << 40, u64::MAX] {
                assert!(found(kind, lie, &packed).is_none(), "{lie}");
            }
        }
    }

    #[test]
    fn a_small_section_that_unpacks_to_much_is_refused() {
        let raw = vec![0u8; 64 << 20];
        let bytes = raw.len() as u64;
        let zstd = zstd::bulk::compress(&raw, 1).unwrap();
        for (kind, packed) in [(ELFCOMPRESS_ZLIB, deflated(&raw)), (ELFCOMPRESS_ZSTD, zstd)] {
            assert!(packed.len() < 100 << 10);
            assert!(found(kind, bytes, &packed).is_none());
            // What is announced is the most that comes.
            let cut = found(kind, 100, &packed);
            assert!(cut.is_none() || cut.is_some_and(|raw| raw.len() == 100));
        }
    }
}
