// SPDX-License-Identifier: MIT
//! The ring into which a watched process puts hits, and which flagfinder empties.
//!
//! It is a file that both have mapped: the configuration, [`State`], then records. A thread
//! takes the next record with one atomic step, fills it in and writes its `sequence` last, which
//! tells the reader that it is whole. Blind spot: a thread that finds the ring full waits, but not
//! for a reader that does not read at all; then hits are counted as lost.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::protocol::{Config, Hit};
use crate::sys;

const PAGE: usize = 4096;
const RECORDS: usize = 1 << 12;
/// Times a millisecond that a thread waits for room.
const PATIENCE: u32 = 200;

/// What both sides tell each other, in the ring's second page. `flagfinder/watch/ring.py` mirrors
/// it.
#[repr(C)]
struct State {
    /// Records taken by threads, and those that were read.
    taken: AtomicU64,
    read: AtomicU64,
    lost: AtomicU64,
}

static RING: AtomicUsize = AtomicUsize::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);
static ENDED: AtomicBool = AtomicBool::new(false);
/// What had been read when a thread waited and got no room.
static STALLED: AtomicU64 = AtomicU64::new(u64::MAX);

fn bytes() -> usize {
    2 * PAGE + (RECORDS * size_of::<Hit>()).next_multiple_of(PAGE)
}

pub fn config() -> &'static Config {
    // SAFETY: mapped before anything asks, never changes.
    unsafe { &*(RING.load(Ordering::Acquire) as *const Config) }
}

fn state() -> &'static State {
    // SAFETY: mapped, and only used as atomics.
    unsafe { &*((RING.load(Ordering::Acquire) + PAGE) as *const State) }
}

/// Whether this process is the one to watch: a forked child has its code and its handlers.
pub fn is_watched() -> bool {
    !ENDED.load(Ordering::Relaxed) && sys::pid() == PROCESS.load(Ordering::Relaxed)
}

/// Hands a hit over.
pub fn send(hit: &Hit) {
    let state = state();
    let Some(number) = take(state) else {
        state.lost.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let place = number as usize % RECORDS * size_of::<Hit>();
    let record = (RING.load(Ordering::Relaxed) + 2 * PAGE + place) as *mut Hit;
    // SAFETY: inside the ring, and nobody else's until `sequence` says that it is whole.
    unsafe {
        let sequence = std::ptr::addr_of_mut!((*record).sequence);
        record.write(Hit {
            sequence: 0,
            ..*hit
        });
        AtomicU64::from_ptr(sequence).store(number + 1, Ordering::Release);
    }
}

/// The number of a record that may be written; `None` without room.
fn take(state: &State) -> Option<u64> {
    let mut waited = 0;
    loop {
        let taken = state.taken.load(Ordering::Relaxed);
        let read = state.read.load(Ordering::Acquire);
        if taken - read < RECORDS as u64 {
            let next = state.taken.compare_exchange_weak(
                taken,
                taken + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if next.is_ok() {
                return Some(taken);
            }
            continue;
        }
        if waited == PATIENCE || STALLED.load(Ordering::Relaxed) == read {
            STALLED.store(read, Ordering::Relaxed);
            return None;
        }
        waited += 1;
        sys::wait(&waited, waited, 1);
    }
}

/// Maps the ring, which is for this process alone. An error says what is wrong.
pub fn open(name: &CStr) -> Result<(), &'static CStr> {
    let fd = sys::open(name).ok_or(c"the ring can't be opened")?;
    let prot = sys::PROT_READ | sys::PROT_WRITE;
    let mapped = sys::map(0, bytes(), prot, sys::MAP_SHARED, fd);
    sys::call3(sys::CLOSE, fd as usize, 0, 0);
    RING.store(
        mapped.ok_or(c"the ring can't be mapped")?,
        Ordering::Release,
    );
    PROCESS.store(sys::pid(), Ordering::Release);
    Ok(())
}

/// Nothing is handed over any more.
pub fn close() {
    ENDED.store(true, Ordering::Release);
}
