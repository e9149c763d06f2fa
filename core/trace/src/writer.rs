// SPDX-License-Identifier: MIT
//! Writing a trace. Sections are encoded apart from the file, so that several
//! threads can compress while one appends.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;

use bytemuck::Zeroable;
use flagfinder_files::{create_private, discard};

use crate::container::{
    checksum, Sealed, SectionHeader, SectionKind, CODEC_RAW, CODEC_ZSTD, CODEC_ZSTD_TIMES,
    FLAG_PARTIAL, FORMAT, MAX_RAW_BYTES,
};
use crate::error::{io, Failure, Result};
use crate::info::{End, Info, Note};
use crate::times;

/// A section before it is encoded: what its header says beside sizes and checksums.
#[derive(Clone, Copy, Debug)]
pub struct SectionMeta {
    /// What the payload is.
    pub kind: SectionKind,
    /// The chunk was still being written when it was collected.
    pub partial: bool,
    /// 0: of no process.
    pub pid: u32,
    /// 0: of no thread.
    pub tid: u32,
    /// Number of the chunk in its stream, from 0.
    pub seq: u64,
    /// Flow position (bytes): of its first unit, or of the block with its first slots.
    pub start_pos: u64,
    /// CLOCK_MONOTONIC ns.
    pub ts_open: u64,
    /// CLOCK_MONOTONIC ns; 0: the chunk was not full.
    pub ts_full: u64,
    /// Chunks of this stream dropped just before this one.
    pub lost: u64,
    /// Of VALUES: bit r set: checkpoint register r is known.
    pub regs_valid: u32,
    /// Start of the program image that wrote it; 0 where unknown.
    pub image_ts: u64,
}

impl SectionMeta {
    /// A section that belongs to no stream.
    pub fn new(kind: SectionKind) -> Self {
        SectionMeta {
            kind,
            partial: false,
            pid: 0,
            tid: 0,
            seq: 0,
            start_pos: 0,
            ts_open: 0,
            ts_full: 0,
            lost: 0,
            regs_valid: 0,
            image_ts: 0,
        }
    }
}

/// A section ready to be appended.
#[derive(Clone)]
pub struct EncodedSection {
    /// Also the first of `bytes`.
    pub header: SectionHeader,
    /// Header and stored payload, as they go into the file.
    pub bytes: Vec<u8>,
}

/// Compresses sections; keep one per thread.
pub struct SectionEncoder {
    compressor: zstd::bulk::Compressor<'static>,
}

/// zstd's level: 1 keeps up with a tracer; flow shrinks 27 to 400 times already.
const ZSTD_LEVEL: i32 = 1;
/// It is not worth compressing less than this.
const COMPRESS_FROM: usize = 128;

impl SectionEncoder {
    /// Fails only for want of memory.
    pub fn new() -> Result<Self> {
        let compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(|e| {
            io(
                "The compressor could not be started",
                &e,
                "Free some memory.",
            )
        })?;
        Ok(SectionEncoder { compressor })
    }

    /// Compresses `raw` unless that makes it larger. VALUES payloads begin with the
    /// checkpoint registers.
    pub fn encode(&mut self, meta: &SectionMeta, raw: &[u8]) -> Result<EncodedSection> {
        if raw.len() as u64 > MAX_RAW_BYTES {
            return Err(Failure::usage(
                "A section is too large to be written",
                format!("{} bytes; at most {MAX_RAW_BYTES} are allowed", raw.len()),
                "Use smaller chunks.",
                "Everything written before is kept.",
            ));
        }
        let mut header = SectionHeader {
            kind: meta.kind as u16,
            flags: if meta.partial { FLAG_PARTIAL } else { 0 },
            codec: CODEC_RAW,
            pid: meta.pid,
            tid: meta.tid,
            seq: meta.seq,
            start_pos: meta.start_pos,
            raw_bytes: raw.len() as u64,
            ts_open: meta.ts_open,
            ts_full: meta.ts_full,
            lost: meta.lost,
            regs_valid: meta.regs_valid,
            image_ts: meta.image_ts,
            ..SectionHeader::zeroed()
        };
        let head = std::mem::size_of::<SectionHeader>();
        let mut bytes = vec![0u8; head];
        if raw.len() >= COMPRESS_FROM {
            let apart = (meta.kind == SectionKind::Flow)
                .then(|| times::separate(raw))
                .flatten();
            let packed = self
                .compressor
                .compress(apart.as_deref().unwrap_or(raw))
                .map_err(|e| io("A section could not be compressed", &e, "Free some memory."))?;
            if packed.len() < raw.len() {
                header.codec = if apart.is_some() {
                    CODEC_ZSTD_TIMES
                } else {
                    CODEC_ZSTD
                };
                bytes.extend_from_slice(&packed);
            }
        }
        if header.codec == CODEC_RAW {
            bytes.extend_from_slice(raw);
        }
        header.stored_bytes = (bytes.len() - head) as u64;
        header.payload_checksum = checksum(&bytes[head..]);
        header.seal();
        bytes[..head].copy_from_slice(bytemuck::bytes_of(&header));
        Ok(EncodedSection { header, bytes })
    }
}

/// Appends sections to a trace. `W` is a file, or a `Vec<u8>` in tests.
pub struct TraceWriter<W: Write> {
    output: W,
    encoder: SectionEncoder,
    sections: u64,
    bytes: u64,
}

impl TraceWriter<File> {
    /// Creates (or replaces) the file and writes header and INFO.
    pub fn create(path: &Path, info: &Info) -> Result<Self> {
        let file = create_private(path).map_err(|e| {
            io(
                format!("The trace {} could not be created", path.display()),
                &e,
                "Choose another path with -o, or make room on the disk.",
            )
        })?;
        Self::new(file, info).map_err(|mut failure| {
            discard(path);
            failure.still_works = "Nothing was recorded.".into();
            failure
        })
    }

    /// Continues a file that holds `sections` whole sections in its `bytes`, and
    /// is positioned there.
    pub fn resume(file: File, bytes: u64, sections: u64) -> Result<Self> {
        Ok(TraceWriter {
            output: file,
            encoder: SectionEncoder::new()?,
            sections,
            bytes,
        })
    }

    /// Cuts the file behind its first `sections` sections, which end at `bytes`;
    /// what a full disk left of the last one goes.
    pub fn truncate(&mut self, bytes: u64, sections: u64) -> std::io::Result<()> {
        self.output.set_len(bytes)?;
        self.output.seek(std::io::SeekFrom::Start(bytes))?;
        self.bytes = bytes;
        self.sections = sections;
        Ok(())
    }

    /// For reading: its position is the writer's.
    pub fn file(&self) -> &File {
        &self.output
    }
}

impl<W: Write> TraceWriter<W> {
    /// Writes header and INFO to `output`.
    pub fn new(output: W, info: &Info) -> Result<Self> {
        let mut writer = TraceWriter {
            output,
            encoder: SectionEncoder::new()?,
            sections: 0,
            bytes: 0,
        };
        writer.put(bytemuck::bytes_of(&FORMAT.header()))?;
        writer.json(SectionKind::Info, info)?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.output.write_all(bytes).map_err(|e| {
            Failure::io(
                "The trace could not be written any further",
                &e,
                "Make room on the disk, or choose another path with -o.",
                "What was written before is a readable trace.",
            )
        })?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Appends an encoded section. After an error the file ends in a cut section,
    /// which readers skip.
    pub fn append(&mut self, section: &EncodedSection) -> Result<()> {
        self.put(&section.bytes)?;
        self.sections += 1;
        Ok(())
    }

    /// Encodes and appends.
    pub fn section(&mut self, meta: &SectionMeta, raw: &[u8]) -> Result<()> {
        let encoded = self.encoder.encode(meta, raw)?;
        self.append(&encoded)
    }

    fn json<T: serde::Serialize>(&mut self, kind: SectionKind, value: &T) -> Result<()> {
        let text = serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec());
        self.section(&SectionMeta::new(kind), &text)
    }

    /// Appends a NOTE.
    pub fn note(&mut self, note: &Note) -> Result<()> {
        self.json(SectionKind::Note, note)
    }

    /// Writes END; nothing may follow. Can be tried again after `truncate`.
    pub fn end(&mut self, end: &End) -> Result<()> {
        let end = End {
            sections: self.sections,
            ..end.clone()
        };
        self.json(SectionKind::End, &end)
    }

    /// Writes END and hands the output back.
    pub fn finish(mut self, end: End) -> Result<W> {
        self.end(&end)?;
        self.output.flush().map_err(|e| {
            io(
                "The trace could not be closed",
                &e,
                "Make room on the disk.",
            )
        })?;
        Ok(self.output)
    }

    /// Bytes written, which is where the next section begins.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
