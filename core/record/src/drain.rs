// SPDX-License-Identifier: MIT
//! Taking chunks out of the pool: workers compress FULL chunks and free them; at the end
//! half-filled chunks are collected too.
//!
//! The target waits for its flow and for nothing else. So one worker serves flow, and the others,
//! which compress values, get little of the processor time that others want. Values that they do
//! not manage to compress stay in the pool until there is no room: then the thread with most of
//! them loses its oldest chunk, but never its first chunks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use flagfinder_trace::protocol::{self as p, Chunk};
use flagfinder_trace::{settled_bytes, settled_records, Failure, Note, NoteLevel};

use crate::chunk_writer::{tracer_notes, ChunkWriter};
use crate::family::Family;
use crate::lock::lock;
use crate::pool::{Pool, Room};
use crate::sink::Sink;
use crate::spinning::FullChunks;

/// The niceness of workers for values: a tenth of what the target gets where both compete.
const SPARE_NICENESS: i32 = 10;
/// How long a worker sleeps when no doorbell rings.
const IDLE: Duration = Duration::from_millis(20);
/// How long FULL chunks are still drained once the recording is over: a tracer that ignores `stop`
/// would fill more for ever.
const LAST_DRAIN: Duration = Duration::from_secs(60);
/// A partial chunk is cut so many bytes behind its last nonzero byte: no event ends in more zeros.
const ZERO_TAIL: usize = 512;
/// So many first chunks of values of a thread are never dropped: they show how things were set up.
const HEAD_CHUNKS: u64 = 48;

/// What a worker takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Flow and what describes it; values once the recording is over.
    Flow,
    /// Everything, at a low priority.
    Spare,
}

/// What workers and the supervisor share.
pub struct Drain<'a> {
    pub pool: &'a Pool,
    pub sink: &'a Mutex<Sink>,
    pub family: &'a Family,
    /// Chunks of which a part is in the file: index -> (ts_open, bytes).
    saved: Mutex<HashMap<u32, (u64, usize)>>,
    /// FULL chunks that a worker has.
    taken: Vec<AtomicBool>,
    pub busy: AtomicU32,
    pub stop: AtomicBool,
    /// Chunks of values that were dropped.
    pub let_go: AtomicU64,
    /// The flow that the search for spinning threads looks at.
    pub full: Option<FullChunks>,
}

impl<'a> Drain<'a> {
    pub fn new(
        pool: &'a Pool,
        sink: &'a Mutex<Sink>,
        family: &'a Family,
        full: Option<FullChunks>,
    ) -> Self {
        let taken = (0..pool.chunk_count)
            .map(|_| AtomicBool::new(false))
            .collect();
        Drain {
            pool,
            sink,
            family,
            saved: Mutex::default(),
            taken,
            busy: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            let_go: AtomicU64::new(0),
            full,
        }
    }

    /// A worker's whole life: until `stop` and nothing is FULL. Errors: the
    /// compressor could not be had.
    pub fn work(&self, duty: Duty) -> Result<(), Failure> {
        let mut writer = ChunkWriter::new()?;
        let mut stopped: Option<Instant> = None;
        if duty == Duty::Spare {
            // SAFETY: a plain system call; 0 is this thread. Without it there is more competition.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, SPARE_NICENESS) };
        }
        loop {
            let seen = self.pool.doorbell();
            if duty == Duty::Flow {
                self.family.answer(self.pool);
            }
            let stop = self.stop.load(Ordering::Acquire);
            if stop {
                stopped.get_or_insert_with(Instant::now);
            }
            let overdue = stopped.is_some_and(|since| since.elapsed() > LAST_DRAIN);
            let with_values = stop || duty == Duty::Spare;
            if !overdue && self.drain_one(&mut writer, with_values) {
                continue;
            }
            if stop {
                return Ok(());
            }
            if duty == Duty::Flow && self.let_one_go() {
                continue;
            }
            self.pool.wait_full(seen, IDLE);
        }
    }

    /// When the pool is nearly full: frees a chunk of values unwritten.
    fn let_one_go(&self) -> bool {
        let (mut owned, mut full) = (0, 0);
        for index in self.pool.span() {
            match self.pool.state(index).load(Ordering::Acquire) {
                p::CHUNK_OWNED => owned += 1,
                p::CHUNK_FULL => full += 1,
                _ => {}
            }
        }
        if self.pool.grow(owned, full) == Room::Ample {
            return false;
        }
        let mut held: HashMap<(u32, u64, u32), Vec<(u64, u32)>> = HashMap::new();
        for index in self.waiting() {
            let chunk = self.pool.chunk(index);
            if chunk.stream == p::STREAM_VALUES && chunk.seq >= HEAD_CHUNKS {
                held.entry(thread_of(&chunk))
                    .or_default()
                    .push((chunk.seq, index));
            }
        }
        let richest = held.iter().max_by_key(|(_, chunks)| chunks.len());
        let oldest = richest.and_then(|(thread, chunks)| Some((*thread, *chunks.iter().min()?)));
        let Some((thread, (seq, index))) = oldest else {
            return false;
        };
        self.let_go_of(index, thread, seq);
        true
    }

    /// Frees that chunk of values, unless it is another chunk by now.
    fn let_go_of(&self, index: u32, thread: (u32, u64, u32), seq: u64) {
        if !self.claim(index) {
            return;
        }
        // Only now the chunk stands still. Since it was looked at, another worker may have written
        // it, and the target may have filled it again, with flow.
        let chunk = self.pool.chunk(index);
        if chunk.stream == p::STREAM_VALUES && thread_of(&chunk) == thread && chunk.seq == seq {
            self.let_go.fetch_add(1, Ordering::Relaxed);
            self.release(index, chunk.used);
        } else {
            self.give_back(index);
        }
    }

    fn drain_one(&self, writer: &mut ChunkWriter, with_values: bool) -> bool {
        let Some(index) = self.take(with_values) else {
            return false;
        };
        let chunk = self.pool.chunk(index);
        let used = chunk.used.min(self.pool.chunk_bytes);
        if chunk.stream == p::STREAM_FLOW {
            // The file describes every block that its flow names.
            self.save(writer, p::STREAM_META, |other| other.pid == chunk.pid);
            if let Some(full) = &self.full {
                full.offer(&chunk, self.pool.full_data(index, used));
            }
        }
        let saved = self.forget_saved(index, &chunk).min(used as usize);
        let data = &self.pool.full_data(index, used)[saved..];
        // All of it may be in the file already; values count even when there are none.
        if !data.is_empty() || chunk.stream == p::STREAM_VALUES {
            self.append(writer, &chunk, saved, data, false);
        }
        self.release(index, used);
        true
    }

    /// Puts what a chunk holds from byte `from` on into the file. What the tracer could not record
    /// is a loss.
    fn append(
        &self,
        writer: &mut ChunkWriter,
        chunk: &Chunk,
        from: usize,
        data: &[u8],
        partial: bool,
    ) {
        let Some(section) = writer.encode(chunk, from, data, partial) else {
            return;
        };
        let mut sink = lock(self.sink);
        sink.append(&section);
        if chunk.stream == p::STREAM_META {
            for text in tracer_notes(data) {
                // It is in the file. Only the caller hears of it, and once.
                let level = NoteLevel::Lost;
                let note = Note { level, text };
                if !sink.notes.contains(&note) {
                    sink.notes.push(note);
                }
            }
        }
    }

    /// How many bytes of a chunk stand in the file already; forgets that.
    fn forget_saved(&self, index: u32, chunk: &Chunk) -> usize {
        let saved = lock(&self.saved).remove(&index);
        saved
            .filter(|(ts_open, _)| *ts_open == chunk.ts_open)
            .map_or(0, |(_, bytes)| bytes)
    }

    /// Writes what is finished of chunks that are still being written, so that it is
    /// in the file should this process be killed. For META and FLOW.
    fn save(&self, writer: &mut ChunkWriter, stream: u32, of: impl Fn(&Chunk) -> bool) {
        // Held throughout, so that nobody drains a chunk of which a part is being saved.
        let mut saved = lock(&self.saved);
        for index in self.pool.span() {
            if self.pool.state(index).load(Ordering::Acquire) != p::CHUNK_OWNED {
                continue;
            }
            let chunk = self.pool.chunk(index);
            if chunk.pid == 0 || chunk.stream != stream || !of(&chunk) {
                continue;
            }
            let known = saved
                .get(&index)
                .filter(|(ts_open, _)| *ts_open == chunk.ts_open);
            let before = known.map_or(0, |(_, bytes)| *bytes);
            let mut data = std::mem::take(&mut writer.snapshot);
            if self.pool.snapshot_from(index, before, &mut data).is_ok() {
                let settled = match stream {
                    p::STREAM_META => settled_records(&data),
                    _ => settled_bytes(&data),
                };
                // A chunk that is FULL by now will do. One that is FREE will not: it belonged to
                // another thread when it was OWNED.
                let still = self.pool.chunk(index).ts_open == chunk.ts_open
                    && self.pool.state(index).load(Ordering::Acquire) != p::CHUNK_FREE;
                if settled > 0 && still {
                    self.append(writer, &chunk, before, &data[..settled], false);
                    saved.insert(index, (chunk.ts_open, before + settled));
                }
            }
            writer.snapshot = data;
        }
    }

    /// Saves the flow of threads that take longer than `age_ns` to fill a chunk.
    pub fn save_slow(&self, writer: &mut ChunkWriter, now: u64, age_ns: u64) {
        let slow = |chunk: &Chunk| now.saturating_sub(chunk.ts_open) > age_ns;
        self.save(writer, p::STREAM_META, |_| true);
        self.save(writer, p::STREAM_FLOW, slow);
    }

    /// FULL chunks that no worker has.
    fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.pool.span().filter(|&index| {
            self.pool.state(index).load(Ordering::Acquire) == p::CHUNK_FULL
                && !self.taken[index as usize].load(Ordering::Acquire)
        })
    }

    /// Takes a FULL chunk: META and FLOW before VALUES, as the target waits only for those; the
    /// oldest first.
    fn take(&self, with_values: bool) -> Option<u32> {
        loop {
            let mut best: Option<(u32, (bool, u64))> = None;
            for index in self.waiting() {
                let chunk = self.pool.chunk(index);
                let key = (chunk.stream == p::STREAM_VALUES, chunk.ts_full);
                if (with_values || !key.0) && best.is_none_or(|(_, least)| key < least) {
                    best = Some((index, key));
                }
            }
            let (index, _) = best?;
            if self.claim(index) {
                return Some(index);
            }
            // Another worker was faster; look again.
        }
    }

    /// Makes a FULL chunk the caller's. `false`: another worker has or had it.
    fn claim(&self, index: u32) -> bool {
        // Busy first, so that nobody sees "nothing FULL, nobody busy" in between.
        self.busy.fetch_add(1, Ordering::AcqRel);
        let mine = !self.taken[index as usize].swap(true, Ordering::AcqRel);
        if mine && self.pool.state(index).load(Ordering::Acquire) == p::CHUNK_FULL {
            return true;
        }
        if mine {
            self.taken[index as usize].store(false, Ordering::Release);
        }
        self.busy.fetch_sub(1, Ordering::AcqRel);
        false
    }

    fn release(&self, index: u32, used: u32) {
        self.pool.free(index, used);
        self.give_back(index);
    }

    /// Undoes a claim: the chunk waits again.
    fn give_back(&self, index: u32) {
        self.taken[index as usize].store(false, Ordering::Release);
        self.busy.fetch_sub(1, Ordering::AcqRel);
    }

    /// Does one of the processes that `of` names have a chunk that it is writing?
    pub fn has_half_filled(&self, of: impl Fn(u32) -> bool) -> bool {
        let owned = |index: &u32| {
            self.pool.state(*index).load(Ordering::Acquire) == p::CHUNK_OWNED
                && of(self.pool.chunk(*index).pid)
        };
        self.pool.span().any(|index| owned(&index))
    }

    /// Is a FULL chunk waiting, or being written?
    pub fn is_pending(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
            || self
                .pool
                .span()
                .any(|i| self.pool.state(i).load(Ordering::Acquire) == p::CHUNK_FULL)
    }

    /// Writes the half-filled chunks of the processes that `of` names. `dead`: they
    /// are freed as well. Once the workers have ended, FULL ones are written too: a
    /// tracer that still runs may have filled them meanwhile.
    pub fn collect(&self, dead: bool, of: impl Fn(u32) -> bool) -> Result<(), Failure> {
        let mut writer = ChunkWriter::new()?;
        let mut buffer = Vec::new();
        // A tracer that still runs makes a block's record before its flow reaches the block, so the
        // records are read last.
        let chunks = || 0..self.pool.chunk_count;
        let passes = [false, true];
        let each = passes
            .into_iter()
            .flat_map(|meta| chunks().map(move |index| (meta, index)));
        for (meta, index) in each {
            let state = self.pool.state(index).load(Ordering::Acquire);
            let alone = self.stop.load(Ordering::Acquire);
            if state != p::CHUNK_OWNED && !(state == p::CHUNK_FULL && alone) {
                continue;
            }
            let chunk = self.pool.chunk(index);
            if (chunk.stream == p::STREAM_META) != meta {
                continue;
            }
            // Claimed but not described yet: empty.
            if chunk.pid == 0 || !of(chunk.pid) || self.pool.snapshot(index, &mut buffer).is_err() {
                continue;
            }
            let partial = state == p::CHUNK_OWNED;
            let size = if partial {
                partial_size(&chunk, &buffer)
            } else {
                chunk.used as usize
            };
            let saved = self.forget_saved(index, &chunk);
            let data = &buffer[..size.min(buffer.len())];
            let data = data.get(saved..).unwrap_or_default();
            // An empty section still says that its thread was running.
            if saved > 0 || !data.is_empty() {
                self.append(&mut writer, &chunk, saved, data, partial);
            }
            if dead {
                self.pool.free(index, self.pool.chunk_bytes);
            }
        }
        Ok(())
    }
}

fn thread_of(chunk: &Chunk) -> (u32, u64, u32) {
    (chunk.pid, chunk.image_ts, chunk.tid)
}

/// How many bytes of a half-filled chunk to keep; 0: it was not begun.
fn partial_size(chunk: &Chunk, data: &[u8]) -> usize {
    match data.iter().rposition(|&byte| byte != 0) {
        None => 0,
        Some(last) if chunk.stream == p::STREAM_FLOW => (last + 1 + ZERO_TAIL).min(data.len()),
        // Records and values may end in zeros: the reader knows where they end.
        Some(_) => data.len(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    use flagfinder_trace::{Info, Level};

    use super::*;
    use crate::pool::DESCRIPTORS;

    const CHUNK_BYTES: u32 = 4096;
    const AT: u32 = 3;

    fn full(stream: u32, tid: u32, seq: u64) -> Chunk {
        Chunk {
            state: p::CHUNK_FULL,
            stream,
            pid: 1,
            tid,
            seq,
            used: 16,
            ..bytemuck::Zeroable::zeroed()
        }
    }

    /// Are chunks that are FULL by now dropped, if a chunk of values has to go?
    fn is_let_go(now: Chunk) -> bool {
        let folder = std::env::temp_dir();
        let pool = Pool::create_in(&folder, Level::Values, CHUNK_BYTES, 8, None).expect("a pool");
        let trace = pool.path().with_extension("trace");
        let info = Info::default();
        let sink = Mutex::new(Sink::create(&trace, &info, None).expect("a file"));
        let family = Family::of(std::process::id());
        let drain = Drain::new(&pool, &sink, &family, None);
        let file = OpenOptions::new().write(true).open(pool.path());
        let at = DESCRIPTORS + u64::from(AT) * std::mem::size_of::<Chunk>() as u64;
        let written = file.and_then(|file| file.write_all_at(bytemuck::bytes_of(&now), at));
        written.expect("a chunk");
        let chosen = full(p::STREAM_VALUES, 1, HEAD_CHUNKS);
        drain.let_go_of(AT, thread_of(&chosen), chosen.seq);
        let _ = std::fs::remove_file(trace);
        let is_free = pool.state(AT).load(Ordering::Acquire) == p::CHUNK_FREE;
        assert_eq!(is_free, drain.let_go.load(Ordering::Relaxed) == 1);
        assert_eq!(drain.waiting().any(|index| index == AT), !is_free);
        assert_eq!(drain.busy.load(Ordering::Relaxed), 0);
        is_free
    }

    #[test]
    fn only_the_chunk_that_was_chosen_is_let_go() {
        assert!(is_let_go(full(p::STREAM_VALUES, 1, HEAD_CHUNKS)));
        assert!(!is_let_go(full(p::STREAM_FLOW, 1, HEAD_CHUNKS)));
        assert!(!is_let_go(full(p::STREAM_VALUES, 1, HEAD_CHUNKS + 1)));
        assert!(!is_let_go(full(p::STREAM_VALUES, 2, HEAD_CHUNKS)));
    }
}
