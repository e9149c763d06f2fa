//! What the targets share: inputs that get past the checksums.

pub use flagfinder_trace::container::FILE_MAGIC;
use flagfinder_trace::container::{SectionHeader, CODEC_RAW, SECTION_HEADER_BYTES};

/// Makes the file header and every section header found by walking valid again.
pub fn repair(bytes: &mut [u8]) {
    if bytes.len() < 64 + SECTION_HEADER_BYTES {
        return;
    }
    bytes[..8].copy_from_slice(&FILE_MAGIC);
    bytes[12..16].copy_from_slice(&1u32.to_le_bytes());
    let mut at = 64;
    while at + SECTION_HEADER_BYTES <= bytes.len() {
        let Some(mut header) = flagfinder_trace::protocol::read::<SectionHeader>(&bytes[at..])
        else {
            return;
        };
        let payload = at + SECTION_HEADER_BYTES;
        header.stored_bytes = header.stored_bytes.min((bytes.len() - payload) as u64);
        header.raw_bytes = header.raw_bytes.min(1 << 20);
        header.kind %= 9;
        // Few distinct owners, so that streams meet.
        header.pid %= 3;
        header.tid %= 4;
        header.seq %= 16;
        let end = payload + header.stored_bytes as usize;
        if header.codec == CODEC_RAW {
            header.raw_bytes = header.stored_bytes;
        }
        header.payload_checksum = flagfinder_trace::container::checksum(&bytes[payload..end]);
        header.seal();
        bytes[at..payload].copy_from_slice(header.as_bytes());
        at = end;
    }
}
