// SPDX-License-Identifier: MIT
//! The shared-memory pool: the recorder's side of `include/ff_protocol.h`.
//!
//! All unsafe access to shared memory stands here. Tracers write at any time, so
//! shared words are atomics and chunk data is read only once FULL (it is ours
//! then) or through `pread`, which also leaves holes of the sparse file unallocated.

use std::collections::hash_map::RandomState;
use std::fs::{File, OpenOptions};
use std::hash::BuildHasher;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{fchown, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::Duration;

use flagfinder_trace::protocol::{self as p, Chunk, Introduction, ShmHeader};
use flagfinder_trace::{Level, Note, NoteLevel};
use memmap2::MmapRaw;

use crate::error::{io, Failure, Result};
use crate::lock::lock;
use crate::room::{allocate, available_memory, claim, free_bytes, sweep, PREFIX, SUFFIX};
use crate::user::User;

const MIB: u64 = 1 << 20;
/// FULL chunks that may wait for the recorder, in bytes; beyond it tracers wait.
const BACKLOG_BYTES: u64 = 256 * MIB;
/// The least that a pool needs.
const MINIMUM_BYTES: u64 = 24 * MIB;
const MAXIMUM_BYTES: u64 = 4 << 30;
/// Two per thread; the target reserves address space for all of them.
const MOST_CHUNKS: u64 = 8192;
const PAGE: u64 = 4096;
pub(crate) const DESCRIPTORS: u64 = PAGE;
const _: () = assert!(
    std::mem::size_of::<ShmHeader>() + p::INTRODUCTIONS * std::mem::size_of::<Introduction>()
        <= DESCRIPTORS as usize
);
/// Backing memory is given ahead for so many chunks at once, so that a full tmpfs is noticed here
/// and never becomes a SIGBUS in the target.
const BACKING_STEP: u32 = 16;
/// A tracer's search may pass a chunk that is freed behind it and take a later one.
const BACKING_SLACK: u32 = 4;

/// How much of the pool is free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Ample,
    /// Soon tracers overwrite values instead of taking another chunk (`FF_FLOW_SHARE`).
    Tight,
    /// No memory is left and no chunk will be free: tracers wait for ever.
    Starved,
}

pub struct Pool {
    path: PathBuf,
    file: File,
    map: MmapRaw,
    pub chunk_bytes: u32,
    pub chunk_count: u32,
    data_offset: u64,
    /// Chunks below this index have backing memory.
    backed: AtomicU32,
    growing: Mutex<()>,
    /// No chunk at or above this index was ever in use.
    high_water: AtomicU32,
}

macro_rules! header_word {
    ($pool:expr, $field:ident, $type:ty) => {{
        let offset = std::mem::offset_of!(ShmHeader, $field);
        // SAFETY: the map is at least a page, is aligned to one, and lives as long
        // as the pool; the field is aligned; shared words are only used as atomics.
        unsafe { &*($pool.map.as_ptr().add(offset) as *const $type) }
    }};
}

impl Pool {
    /// Creates the file: in /dev/shm when that has room, else in the temporary
    /// directory. Returns the notes about it.
    pub fn create(level: Level, user: Option<&User>) -> Result<(Pool, Vec<Note>)> {
        let mut notes = Vec::new();
        let shm = Path::new("/dev/shm");
        let (directory, free) = match free_bytes(shm) {
            Some(free) if free / 2 >= MINIMUM_BYTES => (shm.to_path_buf(), free),
            found => {
                let directory = std::env::temp_dir();
                let free = free_bytes(&directory).unwrap_or(0);
                let reason = found.map_or("is not there".to_owned(), |f| {
                    format!("has only {} MiB free", f / MIB)
                });
                let text = format!(
                    "/dev/shm {reason}: the buffers stand in {} instead, which slows recording \
                     down",
                    directory.display()
                );
                notes.push(Note {
                    level: NoteLevel::Fallback,
                    text,
                });
                (directory, free)
            }
        };
        let bytes = (free / 2).min(available_memory() / 2).min(MAXIMUM_BYTES);
        if bytes < MINIMUM_BYTES {
            return Err(Failure::unavailable(
                "There is no room for the recording buffers",
                format!("{} MiB usable in {}", bytes / MIB, directory.display()),
                format!(
                    "Free {} MiB there, or set TMPDIR to a directory that has it.",
                    2 * MINIMUM_BYTES / MIB
                ),
                "Existing traces can be read.",
            ));
        }
        // Small pools get small chunks: each thread needs two.
        let chunk_bytes = if bytes >= 256 * MIB { MIB } else { MIB / 4 };
        let chunk_count = (bytes / chunk_bytes).min(MOST_CHUNKS) as u32;
        sweep(&directory);
        let pool = Self::create_in(&directory, level, chunk_bytes as u32, chunk_count, user)?;
        Ok((pool, notes))
    }

    /// Creates a pool of a given shape. Errors: the system's.
    pub fn create_in(
        directory: &Path,
        level: Level,
        chunk_bytes: u32,
        chunk_count: u32,
        user: Option<&User>,
    ) -> Result<Pool> {
        // Others may write there, too: a name that they could guess might be taken.
        let name = RandomState::new().hash_one(std::process::id());
        let path = directory.join(format!("{PREFIX}{name:x}{SUFFIX}"));
        let fail = |e: &std::io::Error| {
            io(
                format!(
                    "The recording buffers {} could not be created",
                    path.display()
                ),
                e,
                "Make room there, or set TMPDIR to another directory.",
            )
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| fail(&e))?;
        let descriptors = u64::from(chunk_count) * std::mem::size_of::<Chunk>() as u64;
        let data_offset = (DESCRIPTORS + descriptors).div_ceil(PAGE) * PAGE;
        let total = data_offset + u64::from(chunk_count) * u64::from(chunk_bytes);
        let prepared = claim(&file)
            .and_then(|()| file.set_len(total))
            .and_then(|()| allocate(&file, 0, data_offset))
            .and_then(|()| {
                user.map_or(Ok(()), |user| fchown(&file, Some(user.uid), Some(user.gid)))
            });
        let map = prepared
            .and_then(|()| MmapRaw::map_raw(&file))
            .map_err(|e| {
                let _ = std::fs::remove_file(&path);
                fail(&e)
            })?;
        let pool = Pool {
            path,
            file,
            map,
            chunk_bytes,
            chunk_count,
            data_offset,
            backed: AtomicU32::new(0),
            growing: Mutex::default(),
            high_water: AtomicU32::new(0),
        };
        pool.back(BACKING_STEP * 2);
        let limit = pool.live_limit();
        let header = ShmHeader {
            magic: p::SHM_MAGIC,
            version: p::PROTOCOL_VERSION,
            chunk_count,
            chunk_bytes,
            level: if level == Level::Values {
                p::LEVEL_VALUES
            } else {
                p::LEVEL_FLOW
            },
            descriptor_offset: DESCRIPTORS,
            data_offset,
            answers: 1,
            live_limit: limit,
            ..bytemuck::Zeroable::zeroed()
        };
        // SAFETY: no tracer knows the file yet.
        unsafe { std::ptr::write(pool.map.as_mut_ptr().cast::<ShmHeader>(), header) };
        Ok(pool)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The word that tells tracers that this process lives.
    pub fn alive(&self) -> &AtomicU32 {
        header_word!(self, recorder_alive, AtomicU32)
    }

    /// (place, number) of the processes that wait to be told who they are.
    pub fn introductions(&self) -> Vec<(usize, u32)> {
        let asks = |place| {
            let (number, pid) = self.introduction(place);
            let number = number.load(Ordering::Acquire);
            (number != 0 && pid.load(Ordering::Acquire) == 0).then_some((place, number))
        };
        (0..p::INTRODUCTIONS).filter_map(asks).collect()
    }

    /// Tells the process in that place its pid.
    pub fn answer(&self, place: usize, pid: Option<u32>) {
        let word = self.introduction(place).1;
        word.store(pid.unwrap_or(p::PID_UNKNOWN), Ordering::Release);
        futex(word, libc::FUTEX_WAKE, i32::MAX as u32, None);
    }

    fn introduction(&self, place: usize) -> (&AtomicU32, &AtomicU32) {
        assert!(place < p::INTRODUCTIONS);
        let offset = std::mem::size_of::<ShmHeader>() + place * std::mem::size_of::<Introduction>();
        let word = |field: usize| {
            // SAFETY: between the header and the descriptors; aligned; only used as atomics.
            unsafe { &*(self.map.as_ptr().add(offset + field) as *const AtomicU32) }
        };
        let number = std::mem::offset_of!(Introduction, number);
        (word(number), word(std::mem::offset_of!(Introduction, pid)))
    }

    /// Which process holds the lock of that number, by the kernel, in this process's pid namespace.
    pub fn holder(&self, number: u32) -> Option<u32> {
        // SAFETY: plain data, filled by the call.
        let lock = unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            lock.l_type = libc::F_WRLCK as libc::c_short;
            lock.l_start = (p::LOCK_BASE + u64::from(number)) as i64;
            lock.l_len = 1;
            if libc::fcntl(self.file.as_raw_fd(), libc::F_GETLK, &mut lock) != 0 {
                return None;
            }
            lock
        };
        let held = lock.l_type == libc::F_WRLCK as libc::c_short && lock.l_pid > 0;
        held.then_some(lock.l_pid as u32)
    }

    pub fn state(&self, index: u32) -> &AtomicU32 {
        let offset = self.descriptor(index) + std::mem::offset_of!(Chunk, state);
        // SAFETY: as in header_word!; `descriptor` checks the index.
        unsafe { &*(self.map.as_ptr().add(offset) as *const AtomicU32) }
    }

    fn owner(&self, index: u32) -> &AtomicU32 {
        let offset = self.descriptor(index) + std::mem::offset_of!(Chunk, pid);
        // SAFETY: as in `state`.
        unsafe { &*(self.map.as_ptr().add(offset) as *const AtomicU32) }
    }

    fn descriptor(&self, index: u32) -> usize {
        assert!(index < self.chunk_count);
        DESCRIPTORS as usize + index as usize * std::mem::size_of::<Chunk>()
    }

    /// A copy of a chunk's descriptor. Its fields are stable while the chunk is FULL.
    pub fn chunk(&self, index: u32) -> Chunk {
        // SAFETY: inside the map; a copy torn by a tracer is still plain data.
        unsafe {
            std::ptr::read_volatile(
                self.map
                    .as_ptr()
                    .add(self.descriptor(index))
                    .cast::<Chunk>(),
            )
        }
    }

    fn data(&self, index: u32) -> *mut u8 {
        assert!(index < self.chunk_count);
        // SAFETY: inside the map.
        unsafe {
            self.map
                .as_mut_ptr()
                .add(self.data_offset as usize + index as usize * self.chunk_bytes as usize)
        }
    }

    /// The first `used` bytes of a FULL chunk that the caller has taken.
    pub fn full_data(&self, index: u32, used: u32) -> &[u8] {
        // SAFETY: inside the map; tracers do not write FULL chunks, and `free` is
        // called by the one who took it, after this borrow.
        unsafe { std::slice::from_raw_parts(self.data(index), used.min(self.chunk_bytes) as usize) }
    }

    /// Reads a chunk that may still be written, without allocating its holes.
    pub fn snapshot(&self, index: u32, buffer: &mut Vec<u8>) -> std::io::Result<()> {
        buffer.resize(self.chunk_bytes as usize, 0);
        let offset = self.data_offset + u64::from(index) * u64::from(self.chunk_bytes);
        self.file.read_exact_at(buffer, offset)
    }

    /// The same from byte `skip` on, unless nothing stands there yet.
    pub fn snapshot_from(
        &self,
        index: u32,
        skip: usize,
        buffer: &mut Vec<u8>,
    ) -> std::io::Result<()> {
        buffer.clear();
        let size = (self.chunk_bytes as usize).saturating_sub(skip);
        let offset =
            self.data_offset + u64::from(index) * u64::from(self.chunk_bytes) + skip as u64;
        let mut first = [0u8; 8];
        let probe = size.min(first.len());
        self.file.read_exact_at(&mut first[..probe], offset)?;
        if first != [0; 8] {
            buffer.resize(size, 0);
            self.file.read_exact_at(buffer, offset)?;
        }
        Ok(())
    }

    /// Zeroes a chunk and gives it back to the tracers.
    pub fn free(&self, index: u32, used: u32) {
        let used = u64::from(used).div_ceil(PAGE) * PAGE;
        let size = used.min(u64::from(self.chunk_bytes)) as usize;
        // SAFETY: inside the map; nobody else writes a chunk that is FULL or whose
        // owner is dead.
        unsafe { std::ptr::write_bytes(self.data(index), 0, size) };
        // Between its next claim and its description, the chunk must not be taken for the old
        // owner's.
        self.owner(index).store(0, Ordering::Relaxed);
        header_word!(self, live_count, AtomicU32)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| {
                live.checked_sub(1)
            })
            .ok();
        self.state(index).store(p::CHUNK_FREE, Ordering::Release);
        let doorbell = header_word!(self, free_doorbell, AtomicU32);
        doorbell.fetch_add(1, Ordering::Release);
        futex(doorbell, libc::FUTEX_WAKE, i32::MAX as u32, None);
    }

    /// Waits until a tracer rings or `timeout` passes; `seen` is the doorbell's
    /// value before the caller last looked for FULL chunks.
    pub fn wait_full(&self, seen: u32, timeout: Duration) {
        futex(
            header_word!(self, full_doorbell, AtomicU32),
            libc::FUTEX_WAIT,
            seen,
            Some(timeout),
        );
    }

    pub fn doorbell(&self) -> u32 {
        header_word!(self, full_doorbell, AtomicU32).load(Ordering::Acquire)
    }

    /// Tells tracers to stop writing and not to wait for anyone.
    pub fn close(&self) {
        header_word!(self, stop, AtomicU32).store(1, Ordering::Release);
        header_word!(self, recorder_gone, AtomicU32).store(1, Ordering::Release);
        let doorbell = header_word!(self, free_doorbell, AtomicU32);
        doorbell.fetch_add(1, Ordering::Release);
        futex(doorbell, libc::FUTEX_WAKE, i32::MAX as u32, None);
    }

    /// (flow bytes, value chunks) that tracers had to drop so far.
    pub fn dropped(&self) -> (u64, u64) {
        (
            header_word!(self, dropped_flow_bytes, AtomicU64).load(Ordering::Relaxed),
            header_word!(self, dropped_value_chunks, AtomicU64).load(Ordering::Relaxed),
        )
    }

    fn live_limit(&self) -> u32 {
        self.backed
            .load(Ordering::Relaxed)
            .saturating_sub(BACKING_SLACK)
    }

    fn back(&self, wanted: u32) {
        let backed = self.backed.load(Ordering::Relaxed);
        let wanted = wanted.min(self.chunk_count);
        if wanted <= backed {
            return;
        }
        let chunk = u64::from(self.chunk_bytes);
        let start = self.data_offset + u64::from(backed) * chunk;
        if allocate(&self.file, start, u64::from(wanted - backed) * chunk).is_ok() {
            self.backed.store(wanted, Ordering::Relaxed);
        }
    }

    /// Raises the limit of live chunks while `owned` chunks are being written: all
    /// of those, and a backlog.
    pub fn grow(&self, owned: u32, full: u32) -> Room {
        // One caller at a time: the supervisor and a worker call this.
        let _growing = lock(&self.growing);
        let backlog = (BACKLOG_BYTES / u64::from(self.chunk_bytes)) as u32;
        let live = owned + full;
        let most = owned.saturating_add(backlog);
        let backed = self.backed.load(Ordering::Relaxed);
        if live + live / 4 + 2 * BACKING_STEP > backed && backed < most {
            self.back(backed + BACKING_STEP.max(live / 2));
        }
        let limit = self.live_limit();
        header_word!(self, live_limit, AtomicU32).store(limit, Ordering::Release);
        if full == 0 && owned >= limit {
            Room::Starved
        } else if live > limit - limit / (p::FLOW_SHARE / 2) {
            Room::Tight
        } else {
            Room::Ample
        }
    }

    /// Indices that may be in use: everything below the highest ever seen in use,
    /// and somewhat beyond.
    pub fn span(&self) -> std::ops::Range<u32> {
        0..(self.high_water.load(Ordering::Relaxed) + 64).min(self.chunk_count)
    }

    pub fn used(&self, index: u32) {
        self.high_water.fetch_max(index + 1, Ordering::Relaxed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
        let _ = std::fs::remove_file(&self.path);
    }
}

fn futex(word: &AtomicU32, operation: i32, value: u32, timeout: Option<Duration>) {
    let time = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs() as i64,
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word outlives the call; a wrong or early return only means one
    // more look at the pool.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, time) };
}
