// SPDX-License-Identifier: MIT
//! Checksums, which would keep nearly every change out of the decoders.

use flagfinder_events::container as events;
use flagfinder_trace::container::{SectionHeader, CODEC_RAW, FILE_MAGIC, SECTION_HEADER_BYTES};
use xxhash_rust::xxh3::xxh3_64_with_seed;

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

/// The same for a file of events. Lengths stay as they are, unless they reach past the end.
pub fn repair_events(bytes: &mut [u8]) {
    if bytes.len() < events::FILE_HEADER_BYTES {
        return;
    }
    bytes[..8].copy_from_slice(&events::FILE_MAGIC);
    bytes[12..16].copy_from_slice(&events::FILE_MINIMUM_READER.to_le_bytes());
    let mut at = events::FILE_HEADER_BYTES;
    while at + events::BLOCK_HEADER_BYTES <= bytes.len() {
        let payload = at + events::BLOCK_HEADER_BYTES;
        let mut header: events::BlockHeader = bytemuck::pod_read_unaligned(&bytes[at..payload]);
        header.kind %= 11;
        let left = (bytes.len() - payload) as u32;
        header.stored_bytes = header.stored_bytes.min(left);
        header.raw_bytes = header.raw_bytes.min(events::MAX_RAW_BYTES);
        let end = payload + header.stored_bytes as usize;
        header.payload_checksum = events::checksum(&bytes[payload..end]);
        header.seal();
        bytes[at..payload].copy_from_slice(bytemuck::bytes_of(&header));
        at = end;
    }
}

/// The same for a graph: its four parts, each with two lengths and a checksum before it.
pub fn repair_graph(bytes: &mut [u8]) {
    const HEADER: [u8; 16] = *b"FFGRAPH\n\x03\0\0\0\0\0\0\0";
    const NUMBERS: usize = 24;
    if bytes.len() < HEADER.len() {
        return;
    }
    bytes[..HEADER.len()].copy_from_slice(&HEADER);
    let mut at = HEADER.len();
    while at + NUMBERS <= bytes.len() {
        let payload = at + NUMBERS;
        let number = |place: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[place + i]));
        let raw = number(at);
        let stored = number(at + 8).min((bytes.len() - payload) as u64);
        let end = payload + stored as usize;
        let checksum = xxh3_64_with_seed(&bytes[payload..end], raw);
        bytes[at + 8..at + 16].copy_from_slice(&stored.to_le_bytes());
        bytes[at + 16..payload].copy_from_slice(&checksum.to_le_bytes());
        at = end;
    }
}
