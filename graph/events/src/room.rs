// SPDX-License-Identifier: MIT
//! Keeps a file within a size: the oldest part is dropped.
//!
//! In: where segments begin. Each begins with all the facts that its events need, so those before
//! it can go. Of the oldest, the first header is replaced by one of kind DROPPED that spans it, and
//! only then the disk gets its space back: the file is sound at every moment. Its length grows on,
//! but what was dropped takes no space. Blind spot: a copy that does not keep holes takes all the
//! space again.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use bytemuck::Zeroable;

use crate::container::{BlockHeader, BlockKind, Sealed, BLOCK_HEADER_BYTES, FILE_HEADER_BYTES};

/// Smallest size; a part of it holds facts.
pub const SMALLEST: u64 = 1 << 20;
/// Segments of a size. One is being written and may become twice as long by its last events, so two
/// parts are kept free.
const PARTS: u64 = 8;
const SPARE: u64 = 2;
/// One DROPPED header spans at least a segment.
const LONGEST_SEGMENT: u64 = 1 << 30;

pub(crate) struct Room {
    file: File,
    size: u64,
    /// Where the segments begin that are kept; the last is being written.
    segments: VecDeque<u64>,
    /// Where the events of the last segment begin: its facts do not count.
    filled_from: u64,
    /// Where the newest DROPPED header is, or the first will be.
    header: u64,
    pub freed: u64,
}

impl Room {
    /// Of a file in which nothing but the first segment stands.
    ///
    /// # Errors
    /// When its file system can't make holes.
    pub fn new(file: File, size: u64, written: u64) -> io::Result<Room> {
        let begin = FILE_HEADER_BYTES as u64;
        let room = Room {
            file,
            size,
            segments: [begin].into(),
            filled_from: written,
            header: begin,
            freed: 0,
        };
        room.punch(written, written + 1)?; // behind the end: only to learn whether it can be done
        Ok(room)
    }

    fn segment_bytes(&self) -> u64 {
        (self.size / PARTS).min(LONGEST_SEGMENT)
    }

    /// Bytes of as many records as may be written at once, whatever they contain.
    pub fn most_records(&self) -> usize {
        const LARGEST_RECORD: u64 = 280; // a stack that was not there before
        (self.segment_bytes() / LARGEST_RECORD) as usize
    }

    /// Whether a new segment should begin, now that the file's length is `end`.
    pub fn is_full(&self, end: u64) -> bool {
        end - self.filled_from >= self.segment_bytes()
    }

    /// A new segment was begun at `begin`, and its facts end at `filled_from`.
    ///
    /// # Errors
    /// When the file can't be changed.
    pub fn begun(&mut self, begin: u64, filled_from: u64) -> io::Result<()> {
        self.segments.push_back(begin);
        self.filled_from = filled_from;
        let kept = self.size - SPARE * (self.size / PARTS);
        while self.segments.len() > 1 && filled_from - self.segments[0] > kept {
            let oldest = self.segments[0];
            self.drop_up_to(oldest, self.segments[1])?;
            self.segments.pop_front();
        }
        Ok(())
    }

    fn drop_up_to(&mut self, from: u64, end: u64) -> io::Result<()> {
        let payload = |header: u64| header + BLOCK_HEADER_BYTES as u64;
        // What was dropped before becomes part of this, as far as one header can span it.
        if end - payload(self.header) > u64::from(u32::MAX) {
            self.header = from;
        }
        let mut header = BlockHeader {
            kind: BlockKind::Dropped as u16,
            stored_bytes: (end - payload(self.header)) as u32,
            ..BlockHeader::zeroed()
        };
        header.seal();
        self.file
            .write_all_at(bytemuck::bytes_of(&header), self.header)?;
        self.punch(payload(self.header), end)?;
        self.freed += end - from;
        Ok(())
    }

    fn punch(&self, from: u64, end: u64) -> io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a system call on a descriptor that is ours.
        let failed = unsafe {
            libc::fallocate(
                self.file.as_raw_fd(),
                mode,
                from as libc::off_t,
                (end - from) as libc::off_t,
            )
        } != 0;
        if failed {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::container::{scan_blocks, FORMAT};
    use crate::event::{Event, Kind};
    use crate::facts::Info;
    use crate::reader::EventFile;
    use crate::writer::EventWriter;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("flagfinder-room-{}-{name}", std::process::id()))
    }

    /// Events that zstd can do little about; each has a stack of its own.
    fn noise(writer: &mut EventWriter<File>, random: &mut u64, ts: &mut u64) -> Vec<Event> {
        let mut next = || {
            *random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *random >> 32
        };
        let event = |_| {
            *ts += next() & 0xffff;
            Event {
                ts: *ts,
                a: next() as u32 & 0xff,
                b: next() as u32 & 0xff,
                cpu: 0,
                kind: Kind::Switch,
                flags: 1,
                stack: writer.stack(&[next(), next()]),
                words: [next() << 16, 0, 0],
            }
        };
        (0..1500).map(event).collect()
    }

    #[test]
    fn a_file_keeps_within_its_size_and_is_sound_all_the_time() {
        let path = place("size");
        let mut info = Info::default();
        let mut writer = EventWriter::create(&path, &info).unwrap();
        let mut room = writer.within(SMALLEST).unwrap();
        let (mut random, mut ts, mut total) = (1, 1, 0);
        for round in 0..120 {
            let mut events = noise(&mut writer, &mut random, &mut ts);
            let begin = writer.bytes();
            if room.is_full(begin) {
                writer.forget_stacks(events.iter_mut().map(|event| &mut event.stack));
                info.before = writer.written();
                writer.fact(BlockKind::Info, &info).unwrap();
                room.begun(begin, writer.bytes()).unwrap();
            }
            writer.events(0, &events).unwrap();
            total += events.len() as u64;
            let file = EventFile::open(&path).unwrap();
            assert_eq!(file.damage(), []);
            assert!(
                file.disk_bytes() <= SMALLEST,
                "round {round}: {}",
                file.disk_bytes()
            );
            if round % 10 != 9 {
                continue;
            }
            let mut kept = 0;
            let bad = file.events(|event| {
                kept += 1;
                assert_eq!(file.stack(event.stack).len(), 2);
            });
            assert!(bad.is_empty());
            assert_eq!(file.info.before.events + kept, total);
        }
        assert!(info.before.events > 0 && room.freed > SMALLEST);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn more_than_one_header_can_span_is_dropped_by_several() {
        const SEGMENT: u64 = 1 << 30;
        let path = place("span");
        let writer = EventWriter::create(&path, &Info::default()).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let mut room = Room::new(file.try_clone().unwrap(), 8 * SEGMENT, writer.bytes()).unwrap();
        let mut segment = BlockHeader {
            kind: BlockKind::Events as u16,
            stored_bytes: (SEGMENT - BLOCK_HEADER_BYTES as u64) as u32,
            ..BlockHeader::zeroed()
        };
        segment.seal();
        let begin = FILE_HEADER_BYTES as u64;
        for number in 0..20 {
            let at = begin + number * SEGMENT;
            file.write_all_at(bytemuck::bytes_of(&segment), at).unwrap();
            file.set_len(at + SEGMENT).unwrap();
            if number > 0 {
                room.begun(at, at).unwrap();
            }
            let (blocks, damage) = scan_blocks(&FORMAT.open(&path).unwrap().0).unwrap();
            assert_eq!(damage, []);
            let kinds = blocks.iter().map(|block| block.header.block_kind());
            let dropped = kinds.filter(|kind| *kind == Some(BlockKind::Dropped));
            assert_eq!(dropped.count() as u64, number.saturating_sub(6).div_ceil(4));
        }
        std::fs::remove_file(path).unwrap();
    }
}
