// SPDX-License-Identifier: MIT
//! A chunk of the pool as a section of the file.

use flagfinder_trace::protocol::{self as p, Chunk, Record};
use flagfinder_trace::{EncodedSection, Failure, SectionEncoder, SectionKind, SectionMeta};

/// Turns chunks into sections.
pub struct ChunkWriter {
    encoder: SectionEncoder,
    scratch: Vec<u8>,
    /// For its owner: a chunk that is still being written.
    pub snapshot: Vec<u8>,
}

impl ChunkWriter {
    pub fn new() -> Result<Self, Failure> {
        Ok(ChunkWriter {
            encoder: SectionEncoder::new()?,
            scratch: Vec::new(),
            snapshot: Vec::new(),
        })
    }

    /// `data` begins `skipped` bytes into the chunk. `None`: a stream this version
    /// does not know.
    pub fn encode(
        &mut self,
        chunk: &Chunk,
        skipped: usize,
        data: &[u8],
        partial: bool,
    ) -> Option<EncodedSection> {
        let kind = match chunk.stream {
            p::STREAM_META => SectionKind::Meta,
            p::STREAM_FLOW => SectionKind::Flow,
            p::STREAM_VALUES => SectionKind::Values,
            _ => return None,
        };
        let meta = SectionMeta {
            kind,
            partial,
            pid: chunk.pid,
            tid: chunk.tid,
            seq: chunk.seq,
            start_pos: chunk.start_pos + skipped as u64,
            ts_open: chunk.ts_open,
            ts_full: if partial { 0 } else { chunk.ts_full },
            lost: 0,
            regs_valid: if kind == SectionKind::Values {
                chunk.regs_valid
            } else {
                0
            },
            image_ts: chunk.image_ts,
        };
        if kind != SectionKind::Values {
            return self.encoder.encode(&meta, data).ok();
        }
        self.scratch.clear();
        self.scratch
            .extend_from_slice(bytemuck::bytes_of(&chunk.regs));
        self.scratch.extend_from_slice(data);
        self.encoder.encode(&meta, &self.scratch).ok()
    }
}

/// The texts of the NOTE records in a stretch of META that begins with a record.
pub fn tracer_notes(mut data: &[u8]) -> Vec<String> {
    const HEADER: usize = std::mem::size_of::<Record>();
    let mut notes = Vec::new();
    while let Some((header, rest)) = data.split_at_checked(HEADER) {
        let header: Record = bytemuck::pod_read_unaligned(header);
        let Some(text) = rest.get(..header.bytes as usize) else {
            break;
        };
        if header.magic != p::FLOW_EVENT {
            break;
        }
        if header.kind == p::META_NOTE {
            notes.push(String::from_utf8_lossy(text).into_owned());
        }
        let whole = header.bytes as usize + header.bytes as usize % 2;
        data = rest.get(whole..).unwrap_or_default();
    }
    notes
}
