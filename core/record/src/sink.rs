// SPDX-License-Identifier: MIT
//! The file that all drain workers append to: counts, the flight recorder's limit,
//! and what happens when the disk is full.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flagfinder_files::create_private;
use flagfinder_trace::{
    container::SectionHeader, EncodedSection, End, Failure, Info, Note, NoteLevel, SectionKind,
    SectionMeta, TraceWriter,
};

use crate::error::Result;
use crate::options::Last;

/// Removed sections are reclaimed once they make up this part of the file: then copying the rest
/// costs less than writing it did.
const RECLAIM_BYTES: u64 = 16 << 20;
/// So much META that came after the failure is kept: what the flow in the file needs came before
/// the rest.
const RESCUED_BYTES: u64 = 16 << 20;
/// How many sections may be dropped so that META and END fit on a full disk.
const SACRIFICE: usize = 256;

#[derive(Clone, Copy)]
struct Kept {
    kind: SectionKind,
    pid: u32,
    offset: u64,
    bytes: u64,
    live: bool,
    age: u64,
}

/// The order in which a flight recorder drops sections: flow by its end, values by their beginning,
/// so that values never outlive their flow.
fn age(header: &SectionHeader) -> u64 {
    match header.section_kind() {
        Some(SectionKind::Values) => header.ts_open,
        _ if header.ts_full == 0 => u64::MAX,
        _ => header.ts_full,
    }
}

pub struct Sink {
    path: PathBuf,
    writer: TraceWriter<File>,
    /// File header and INFO.
    head_bytes: u64,
    last: Option<Last>,
    /// Sections behind INFO, in file order.
    sections: Vec<Kept>,
    /// Limited sections: (age, index in `sections`), the oldest first. This is not the file's
    /// order: values wait longest before they are written.
    by_age: BTreeSet<(u64, usize)>,
    limited_bytes: u64,
    dead_bytes: u64,
    pub dropped_sections: u64,
    pub flow_bytes: u64,
    pub values_bytes: u64,
    /// The threads that have flow here: process, image (exec changes it), thread.
    pub threads: BTreeSet<(u32, u64, u32)>,
    pub notes: Vec<Note>,
    /// META that came after the failure.
    rescued: Vec<EncodedSection>,
    rescued_bytes: u64,
    /// Set by the first write that failed; nothing is appended after it.
    pub failure: Option<Failure>,
}

impl Sink {
    pub fn create(path: &Path, info: &Info, last: Option<Last>) -> Result<Sink> {
        let writer = TraceWriter::create(path, info)?;
        Ok(Sink {
            path: path.to_path_buf(),
            head_bytes: writer.bytes(),
            writer,
            last,
            sections: Vec::new(),
            by_age: BTreeSet::new(),
            limited_bytes: 0,
            dead_bytes: 0,
            dropped_sections: 0,
            flow_bytes: 0,
            values_bytes: 0,
            threads: BTreeSet::new(),
            notes: Vec::new(),
            rescued: Vec::new(),
            rescued_bytes: 0,
            failure: None,
        })
    }

    pub fn stored_bytes(&self) -> u64 {
        self.writer.bytes()
    }

    pub fn append(&mut self, section: &EncodedSection) {
        let header = &section.header;
        let kind = header.section_kind();
        if self.failure.is_none() {
            let offset = self.writer.bytes();
            match self.writer.append(section) {
                Ok(()) => {
                    self.count(header);
                    let kind = kind.unwrap_or(SectionKind::Note);
                    return self.keep(kind, header.pid, offset, age(header));
                }
                Err(error) => self.failure = Some(error),
            }
        }
        // Without descriptions of its blocks the flow in the file is worth nothing.
        let is_meta = kind == Some(SectionKind::Meta);
        if is_meta && self.rescued_bytes < RESCUED_BYTES {
            self.rescued_bytes += header.stored_bytes;
            self.rescued.push(section.clone());
        } else {
            // Workers write side by side: what came later may be in the file already.
            self.dropped_sections += 1;
        }
    }

    fn count(&mut self, header: &SectionHeader) {
        match header.section_kind() {
            Some(SectionKind::Flow) => {
                self.flow_bytes += header.raw_bytes;
                self.threads
                    .insert((header.pid, header.image_ts, header.tid));
            }
            Some(SectionKind::Values) => self.values_bytes += header.raw_bytes,
            _ => {}
        }
    }

    fn keep(&mut self, kind: SectionKind, pid: u32, offset: u64, age: u64) {
        let kept = Kept {
            kind,
            pid,
            offset,
            bytes: self.writer.bytes() - offset,
            live: true,
            age,
        };
        if self.is_limited(kept.kind) {
            self.limited_bytes += kept.bytes;
            self.by_age.insert((age, self.sections.len()));
        }
        self.sections.push(kept);
        self.enforce_limit();
    }

    fn is_limited(&self, kind: SectionKind) -> bool {
        self.last.is_some_and(|last| {
            kind == SectionKind::Values || (last.flow && kind == SectionKind::Flow)
        })
    }

    fn enforce_limit(&mut self) {
        let Some(last) = self.last else { return };
        if self.limited_bytes <= last.bytes {
            return;
        }
        while self.limited_bytes > last.bytes {
            let Some((_, index)) = self.by_age.pop_first() else {
                break;
            };
            let kept = &mut self.sections[index];
            kept.live = false;
            self.limited_bytes -= kept.bytes;
            self.dead_bytes += kept.bytes;
            self.dropped_sections += 1;
        }
        if self.dead_bytes > (last.bytes / 2).max(RECLAIM_BYTES) {
            self.reclaim();
        }
    }

    /// Rewrites the file without its removed sections. The old file stays readable
    /// until the new one takes its name.
    fn reclaim(&mut self) {
        if self.dead_bytes == 0 || self.failure.is_some() {
            return;
        }
        let mut name = self.path.clone().into_os_string();
        name.push(".part");
        let part = PathBuf::from(name);
        match self.rewrite(&part) {
            Ok((writer, sections)) => {
                self.writer = writer;
                self.sections = sections;
                self.dead_bytes = 0;
                self.by_age = self.limited_by_age();
            }
            Err(error) => {
                let _ = std::fs::remove_file(&part);
                let what = "The flight recorder's file could not be rewritten";
                let fix = "Make room on the disk for twice the size given with --last.";
                self.failure = Some(Failure::io(
                    what,
                    &error,
                    fix,
                    "The trace up to here is readable.",
                ));
            }
        }
    }

    fn limited_by_age(&self) -> BTreeSet<(u64, usize)> {
        let sections = self.sections.iter().enumerate();
        sections
            .filter(|(_, kept)| kept.live && self.is_limited(kept.kind))
            .map(|(index, kept)| (kept.age, index))
            .collect()
    }

    fn rewrite(&mut self, part: &Path) -> std::io::Result<(TraceWriter<File>, Vec<Kept>)> {
        let old = self.writer.file();
        let new = create_private(part)?;
        let mut buffer = Vec::new();
        let mut copy = |offset: u64, bytes: u64, to: u64| -> std::io::Result<()> {
            buffer.resize(bytes as usize, 0);
            old.read_exact_at(&mut buffer, offset)?;
            new.write_all_at(&buffer, to)
        };
        copy(0, self.head_bytes, 0)?;
        let mut end = self.head_bytes;
        let mut sections = Vec::new();
        for kept in self.sections.iter().filter(|kept| kept.live) {
            copy(kept.offset, kept.bytes, end)?;
            sections.push(Kept {
                offset: end,
                ..*kept
            });
            end += kept.bytes;
        }
        (&new).seek(SeekFrom::Start(end))?;
        std::fs::rename(part, &self.path)?;
        let writer = TraceWriter::resume(new, end, sections.len() as u64 + 1)
            .map_err(std::io::Error::other)?;
        Ok((writer, sections))
    }

    /// Appends a section that belongs to no chunk.
    pub fn section(&mut self, meta: &SectionMeta, raw: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        let offset = self.writer.bytes();
        match self.writer.section(meta, raw) {
            Ok(()) => self.keep(meta.kind, meta.pid, offset, meta.ts_open),
            Err(error) => self.failure = Some(error),
        }
    }

    /// Writes a note into the trace and keeps it for the caller.
    pub fn note(&mut self, note: Note) {
        if let Ok(text) = serde_json::to_vec(&note) {
            self.section(&SectionMeta::new(SectionKind::Note), &text);
        }
        self.notes.push(note);
    }

    /// Of the flow and values of those processes keeps the newest `most` bytes. Their descriptions
    /// stay.
    pub fn bound_processes(&mut self, pids: &BTreeSet<u32>, most: u64) {
        let runs = |kept: &Kept| matches!(kept.kind, SectionKind::Flow | SectionKind::Values);
        let theirs = |kept: &Kept| kept.live && runs(kept) && pids.contains(&kept.pid);
        let mut bytes: u64 = 0;
        let mut last = BTreeMap::new();
        for kept in self.sections.iter().filter(|kept| theirs(kept)) {
            bytes += kept.bytes;
            let newest = last.entry(kept.pid).or_insert(0);
            *newest = kept.age.max(*newest);
        }
        // Only whole processes: a part of one is of no use.
        let mut by_end: Vec<(u64, u32)> = last.into_iter().map(|(pid, end)| (end, pid)).collect();
        by_end.sort_unstable();
        let mut dropped = 0;
        for (_, pid) in by_end {
            if bytes <= most {
                break;
            }
            dropped += 1;
            for (index, kept) in self.sections.iter_mut().enumerate() {
                if kept.pid == pid && kept.live && runs(kept) {
                    kept.live = false;
                    bytes -= kept.bytes;
                    self.dead_bytes += kept.bytes;
                    if self.by_age.remove(&(kept.age, index)) {
                        self.limited_bytes -= kept.bytes;
                    }
                }
            }
            self.threads.retain(|&(of, _, _)| of != pid);
        }
        if dropped > 0 {
            self.note(Note {
                level: NoteLevel::Lost,
                text: format!(
                    "{dropped} child processes that had ended before are described only: what all \
                     of them did fills more than {} MiB",
                    most >> 20
                ),
            });
        }
    }

    /// Closes the trace with late META, `last_words` and END. On a full disk the newest sections
    /// make room for them.
    pub fn finish(&mut self, end: &mut End, last_words: Vec<Note>) {
        if self.failure.is_none() {
            self.reclaim();
        }
        end.dropped_sections = self.dropped_sections;
        for _ in 0..=SACRIFICE {
            let (bytes, sections) = (self.end_of_sections(), self.sections.len() as u64 + 1);
            // Removes what a failed write left.
            if self.writer.truncate(bytes, sections).is_err() {
                break;
            }
            let rescued = self
                .rescued
                .iter()
                .try_for_each(|section| self.writer.append(section));
            let noted = rescued.and_then(|()| {
                last_words
                    .iter()
                    .try_for_each(|note| self.writer.note(note))
            });
            if noted.and_then(|()| self.writer.end(end)).is_ok() {
                break;
            }
            if self.sections.pop().is_none() {
                break;
            }
            end.dropped_sections += 1;
        }
        self.notes.extend(last_words);
    }

    /// Where the last whole section ends.
    fn end_of_sections(&self) -> u64 {
        self.sections
            .last()
            .map_or(self.head_bytes, |kept| kept.offset + kept.bytes)
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_trace::{SectionEncoder, Trace};

    use super::*;

    #[test]
    fn of_children_that_ended_the_newest_stay() {
        let path = std::env::temp_dir().join(format!("ff-bound-{}.trace", std::process::id()));
        let mut sink = Sink::create(&path, &Info::default(), None).expect("a file");
        let mut encoder = SectionEncoder::new().expect("a compressor");
        for pid in 1..=4 {
            let meta = SectionMeta {
                pid,
                tid: pid,
                ts_full: u64::from(pid),
                image_ts: 1,
                ..SectionMeta::new(SectionKind::Flow)
            };
            let section = encoder.encode(&meta, &[1, 0, 2, 0]).expect("a section");
            sink.append(&section);
        }
        let each = sink.sections[0].bytes;
        sink.bound_processes(&BTreeSet::from([1, 2, 3]), each);
        sink.finish(&mut End::default(), Vec::new());
        let trace = Trace::open(&path).expect("a trace");
        let _ = std::fs::remove_file(&path);
        let left: Vec<u32> = trace
            .processes()
            .iter()
            .map(|process| process.pid)
            .collect();
        assert_eq!(left, [3, 4]);
        assert_eq!(sink.threads.len(), 2);
        assert!(sink.notes[0].text.starts_with("2 child processes"));
    }
}
