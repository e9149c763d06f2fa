// SPDX-License-Identifier: MIT
//! The tracer's side of the shared-memory pool (`include/ff_protocol.h`).
//!
//! The whole pool is mapped once, so no descriptor stays open in the program. A chunk is written
//! through a *window*: the chunk's pages mapped a second time so that they end at a multiple of 4
//! GiB. Compiled blocks notice a full chunk by that: the low half of the pointer is zero, which
//! `jecxz` tells without touching flags.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use flagfinder_trace::protocol::{self as p, Chunk, ShmHeader};

use crate::sys;

const PAGE: usize = 4096;
const GIB4: usize = 1 << 32;
/// Windows end at multiples of 4 GiB between these.
const FIRST_END: usize = 0x1400 * GIB4;
const LAST_END: usize = 0x5000 * GIB4;

static HEADER: AtomicUsize = AtomicUsize::new(0);
static IMAGE_TS: AtomicU64 = AtomicU64::new(0);
static NEXT_END: AtomicUsize = AtomicUsize::new(FIRST_END);

fn header() -> Option<*mut ShmHeader> {
    let at = HEADER.load(Ordering::Acquire);
    (at != 0).then_some(at as *mut ShmHeader)
}

macro_rules! word {
    ($header:expr, $field:ident, $type:ty) => {
        // SAFETY: the pool stays mapped; the field is aligned and shared words are only used as
        // atomics.
        unsafe { &*(std::ptr::addr_of!((*$header).$field) as *const $type) }
    };
}

fn chunk_bytes(header: *mut ShmHeader) -> usize {
    // SAFETY: mapped, never changes.
    unsafe { (*header).chunk_bytes as usize }
}

/// Maps the pool. Errors: what is wrong with it.
pub fn open(path: &CStr) -> Result<(), &'static str> {
    let fd = sys::open(path).ok_or("the pool file cannot be opened")?;
    let mapped = map_pool(fd);
    sys::call3(sys::CLOSE, fd as usize, 0, 0);
    HEADER.store(mapped?, Ordering::Release);
    IMAGE_TS.store(sys::now(), Ordering::Relaxed);
    Ok(())
}

fn map_pool(fd: isize) -> Result<usize, &'static str> {
    let no_map = "the pool file cannot be mapped";
    let first = sys::map(0, PAGE, sys::PROT_READ, sys::MAP_SHARED, fd).ok_or(no_map)?;
    // SAFETY: a page of the file, which is never shorter.
    let facts = unsafe { *(first as *const ShmHeader) };
    sys::unmap(first, PAGE);
    if facts.magic != p::SHM_MAGIC || facts.version != p::PROTOCOL_VERSION {
        return Err("the pool file is not of this version of flagfinder");
    }
    let bytes =
        facts.data_offset as usize + facts.chunk_count as usize * facts.chunk_bytes as usize;
    let prot = sys::PROT_READ | sys::PROT_WRITE;
    sys::map(0, bytes, prot, sys::MAP_SHARED, fd).ok_or(no_map)
}

pub fn image_ts() -> u64 {
    IMAGE_TS.load(Ordering::Relaxed)
}

pub fn with_values() -> bool {
    // SAFETY: mapped, never changes.
    header().is_some_and(|header| unsafe { (*header).level } == p::LEVEL_VALUES)
}

/// False: nothing that is written will be read.
pub fn is_anyone_reading() -> bool {
    let Some(header) = header() else { return false };
    let gone = word!(header, recorder_gone, AtomicU32);
    if word!(header, stop, AtomicU32).load(Ordering::Acquire) != 0
        || gone.load(Ordering::Acquire) != 0
    {
        return false;
    }
    // The kernel clears it when the recorder dies.
    word!(header, recorder_alive, AtomicU32).load(Ordering::Acquire) & p::ALIVE != 0
}

/// Where a thread (or the process, for META) writes.
pub struct Buffer {
    chunk: Option<*mut Chunk>,
    /// First byte behind the window, a multiple of 4 GiB; 0: there is no window.
    pub end: usize,
    bytes: usize,
    seq: u64,
    pub start_pos: u64,
}

impl Buffer {
    pub const fn none() -> Self {
        Buffer {
            chunk: None,
            end: 0,
            bytes: 0,
            seq: 0,
            start_pos: 0,
        }
    }

    /// A buffer with a window of plain memory and no chunk. `None`: no address space.
    pub fn new() -> Option<Self> {
        let bytes = chunk_bytes(header()?);
        let flags =
            sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE | sys::MAP_FIXED_NOREPLACE;
        loop {
            let end = NEXT_END.fetch_add(GIB4, Ordering::Relaxed);
            if end >= LAST_END {
                return None;
            }
            // One page more: a unit of four bytes may begin in the last two.
            let prot = sys::PROT_READ | sys::PROT_WRITE;
            match sys::map(end - bytes, bytes + PAGE, prot, flags, -1) {
                Some(at) if at == end - bytes => {
                    return Some(Buffer {
                        end,
                        bytes,
                        ..Buffer::none()
                    })
                }
                Some(elsewhere) => sys::unmap(elsewhere, bytes + PAGE),
                None => {}
            }
        }
    }

    pub fn base(&self) -> usize {
        self.end - self.bytes
    }

    /// Is there a chunk behind the window?
    pub fn has_chunk(&self) -> bool {
        self.chunk.is_some()
    }

    pub fn chunk(&mut self) -> Option<&mut Chunk> {
        // SAFETY: an OWNED chunk's descriptor is its owner's.
        self.chunk.map(|chunk| unsafe { &mut *chunk })
    }

    /// Gives the window's memory back.
    pub fn drop_window(&mut self) {
        if self.end != 0 {
            sys::unmap(self.base(), self.bytes + PAGE);
        }
        *self = Buffer::none();
    }

    /// Hands the chunk over with `used` bytes in it.
    pub fn publish(&mut self, used: usize) {
        let (Some(chunk), Some(header)) = (self.chunk.take(), header()) else {
            return;
        };
        self.start_pos += used as u64;
        // SAFETY: ours until the state says otherwise.
        unsafe {
            (*chunk).used = used as u32;
            (*chunk).ts_full = sys::now();
            let state = &*(std::ptr::addr_of!((*chunk).state) as *const AtomicU32);
            state.store(p::CHUNK_FULL, Ordering::Release);
        }
        let bell = word!(header, full_doorbell, AtomicU32);
        bell.fetch_add(1, Ordering::Release);
        sys::wake(bell.as_ptr());
    }

    /// Takes a new chunk, waiting for the recorder. When nobody reads, the window becomes plain
    /// memory, to be written again and again; `used` bytes that stood in it count as lost.
    pub fn claim(&mut self, stream: u32, tid: u32, used: usize) {
        let Some(header) = header() else { return };
        while is_anyone_reading() {
            let bell = word!(header, free_doorbell, AtomicU32);
            let seen = bell.load(Ordering::Acquire);
            if self.try_claim(header, stream, tid, false) {
                return;
            }
            sys::wait(bell.as_ptr(), seen, 100);
        }
        word!(header, dropped_flow_bytes, AtomicU64).fetch_add(used as u64, Ordering::Relaxed);
        self.start_pos += used as u64;
        self.use_scratch();
    }

    /// For VALUES: hands the chunk over and takes a new one if there is one at once; else its
    /// content is lost and it is begun again.
    pub fn renew(&mut self, tid: u32, used: usize) {
        let Some(header) = header() else { return };
        let before = self.chunk;
        if !is_anyone_reading() {
            self.use_scratch();
            return;
        }
        if self.try_claim(header, p::STREAM_VALUES, tid, before.is_some()) {
            let mut old = Buffer {
                chunk: before,
                ..Buffer::none()
            };
            old.publish(used);
        } else if let Some(chunk) = self.chunk() {
            word!(header, dropped_value_chunks, AtomicU64).fetch_add(1, Ordering::Relaxed);
            chunk.ts_open = sys::now();
            chunk.seq += 1;
            self.seq += 1;
        } else {
            self.claim(p::STREAM_VALUES, tid, 0);
        }
    }

    fn use_scratch(&mut self) {
        if self.chunk.take().is_none() {
            return;
        }
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE | sys::MAP_FIXED;
        let prot = sys::PROT_READ | sys::PROT_WRITE;
        // Refused: the chunk stays under the window, its owner's for good.
        sys::map(self.base(), self.bytes, prot, flags, -1);
    }

    /// False: no chunk is to be had now.
    fn try_claim(&mut self, header: *mut ShmHeader, stream: u32, tid: u32, spare: bool) -> bool {
        let live = word!(header, live_count, AtomicU32);
        let limit = word!(header, live_limit, AtomicU32).load(Ordering::Acquire);
        let limit = limit - if spare { limit / p::FLOW_SHARE } else { 0 };
        let enter = |count: u32| (count < limit).then_some(count + 1);
        if live
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter)
            .is_err()
        {
            return false;
        }
        if let Some((chunk, at)) = take_free(header) {
            let fixed = [at, 0, self.bytes, sys::MREMAP_MAYMOVE_FIXED, self.base(), 0];
            // An old size of 0 maps shared pages a second time.
            // SAFETY: replaces the window, which is ours.
            if unsafe { sys::call(sys::MREMAP, fixed) } == self.base() as isize {
                self.describe(chunk, stream, tid);
                return true;
            }
            // SAFETY: taken, and nobody else's.
            let state = unsafe { &*(std::ptr::addr_of!((*chunk).state) as *const AtomicU32) };
            state.store(p::CHUNK_FREE, Ordering::Release);
        }
        live.fetch_sub(1, Ordering::AcqRel);
        false
    }

    fn describe(&mut self, chunk: *mut Chunk, stream: u32, tid: u32) {
        self.chunk = Some(chunk);
        // SAFETY: OWNED by us. `state` is not written here.
        let chunk = unsafe { &mut *chunk };
        chunk.stream = stream;
        chunk.tid = tid;
        chunk.seq = self.seq;
        chunk.start_pos = self.start_pos;
        chunk.ts_open = sys::now();
        chunk.ts_full = 0;
        chunk.used = 0;
        chunk.regs_valid = 0;
        chunk.image_ts = image_ts();
        // Last: a search for chunks in use goes by the pid.
        chunk.pid = sys::pid();
        self.seq += 1;
    }
}

fn take_free(header: *mut ShmHeader) -> Option<(*mut Chunk, usize)> {
    // SAFETY: descriptors and data lie inside the mapped pool.
    unsafe {
        let first = (header as usize + (*header).descriptor_offset as usize) as *mut Chunk;
        for index in 0..(*header).chunk_count as usize {
            let chunk = first.add(index);
            let state = &*(std::ptr::addr_of!((*chunk).state) as *const AtomicU32);
            if state.load(Ordering::Relaxed) == p::CHUNK_FREE
                && state
                    .compare_exchange(
                        p::CHUNK_FREE,
                        p::CHUNK_OWNED,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                let offset = (*header).data_offset as usize + index * chunk_bytes(header);
                return Some((chunk, header as usize + offset));
            }
        }
    }
    None
}
