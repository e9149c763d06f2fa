// SPDX-License-Identifier: MIT
//! Checksums, which would keep nearly every change out of the decoders.

use flagfinder_container::{checksum, Format, Sealed, FILE_HEADER_BYTES};
use flagfinder_events::container as events;
use flagfinder_graph::file as graph;
use flagfinder_trace::container as trace;

/// Makes the file header and every section header found by walking valid again, once `tame` has
/// changed it. That is told how many bytes are left, and sets the number of stored ones.
fn repair_as<H: Sealed>(
    bytes: &mut [u8],
    format: &Format,
    tame: impl Fn(&mut H, u64),
    sum: impl Fn(&mut H) -> &mut u64,
) {
    let head = size_of::<H>();
    if bytes.len() < FILE_HEADER_BYTES {
        return;
    }
    bytes[..8].copy_from_slice(&format.magic);
    for (at, version) in [(8, format.version), (12, format.minimum_reader)] {
        bytes[at..at + 4].copy_from_slice(&version.to_le_bytes());
    }
    let mut at = FILE_HEADER_BYTES;
    while at + head <= bytes.len() {
        let payload = at + head;
        let mut header: H = bytemuck::pod_read_unaligned(&bytes[at..payload]);
        tame(&mut header, (bytes.len() - payload) as u64);
        let end = payload + header.payload().stored_bytes as usize;
        *sum(&mut header) = checksum(&bytes[payload..end]);
        header.seal();
        bytes[at..payload].copy_from_slice(bytemuck::bytes_of(&header));
        at = end;
    }
}

pub fn repair(bytes: &mut [u8]) {
    let tame = |header: &mut trace::SectionHeader, left: u64| {
        header.stored_bytes = header.stored_bytes.min(left);
        header.raw_bytes = header.raw_bytes.min(1 << 20);
        header.kind %= 9;
        // Few distinct owners, so that streams meet.
        header.pid %= 3;
        header.tid %= 4;
        header.seq %= 16;
        if header.codec == trace::CODEC_RAW {
            header.raw_bytes = header.stored_bytes;
        }
    };
    repair_as(bytes, &trace::FORMAT, tame, |h| &mut h.payload_checksum);
}

/// The same for a file of events. Lengths stay as they are, unless they reach past the end.
pub fn repair_events(bytes: &mut [u8]) {
    let tame = |header: &mut events::BlockHeader, left: u64| {
        header.kind %= 11;
        header.stored_bytes = header.stored_bytes.min(left as u32);
        header.raw_bytes = header.raw_bytes.min(events::MAX_RAW_BYTES);
    };
    repair_as(bytes, &events::FORMAT, tame, |h| &mut h.payload_checksum);
}

/// The same for a graph.
pub fn repair_graph(bytes: &mut [u8]) {
    let tame = |header: &mut graph::PartHeader, left: u64| {
        header.stored_bytes = header.stored_bytes.min(left);
        header.raw_bytes %= graph::PartHeader::MOST_RAW;
    };
    repair_as(bytes, &graph::FORMAT, tame, |h| &mut h.payload_checksum);
}
