// SPDX-License-Identifier: MIT
//! A thread that is let go when its time is over, whatever this process does at that moment.
//!
//! In a helper a timer ticks. While the helper thinks about what it saw, each tick looks at the
//! clock, and lets the thread go from the signal's handler: at the last tick before its time is
//! over, where the next one comes as late as the latest so far. So a pause is longer only where the
//! helper gets no processor for longer than it ever had to wait for one.

use std::mem::size_of;
use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flagfinder_linux::clock;

/// The thread; 0: none.
static THREAD: AtomicI32 = AtomicI32::new(0);
/// Nanoseconds of the monotonic clock.
static UNTIL: AtomicU64 = AtomicU64::new(0);
/// When the last tick came while a thread was held, and the longest time from one to the next.
static TICKED: AtomicU64 = AtomicU64::new(0);
static LATEST: AtomicU64 = AtomicU64::new(0);
static HAS_MASK: AtomicBool = AtomicBool::new(false);
static MASK: AtomicU64 = AtomicU64::new(0);
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// A stopped thread: what it is given when it is let go.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub tid: i32,
    /// Its own signal mask, if it has another one now.
    pub mask: Option<u64>,
    /// The signal that it stopped for; 0: none.
    pub signal: i32,
}

/// Does `work`; the thread is let go at `until` if that takes longer. When it was, if so.
pub(crate) fn at<T>(held: Held, until: Instant, work: impl FnOnce() -> T) -> (T, Option<Instant>) {
    let left = until.saturating_duration_since(Instant::now());
    let now = clock::monotonic();
    TICKED.store(now, Ordering::Relaxed);
    UNTIL.store(
        now.saturating_add(left.as_nanos() as u64),
        Ordering::Relaxed,
    );
    HAS_MASK.store(held.mask.is_some(), Ordering::Relaxed);
    MASK.store(held.mask.unwrap_or(0), Ordering::Relaxed);
    SIGNAL.store(held.signal, Ordering::Relaxed);
    THREAD.store(held.tid, Ordering::Release);
    let done = work();
    let was_let_go = THREAD.swap(0, Ordering::AcqRel) == 0;
    let ago = clock::monotonic().saturating_sub(TICKED.load(Ordering::Relaxed));
    let at = was_let_go.then(|| Instant::now() - Duration::from_nanos(ago));
    (done, at)
}

/// Runs in the handlers of signals, on the thread that may trace. `at_once`: this process ends.
pub(crate) fn tick(at_once: bool) {
    let tid = THREAD.load(Ordering::Acquire);
    if tid == 0 {
        return;
    }
    let now = clock::monotonic();
    let since = now.saturating_sub(TICKED.swap(now, Ordering::Relaxed));
    let latest = LATEST.fetch_max(since, Ordering::Relaxed).max(since);
    if !at_once && now.saturating_add(latest) < UNTIL.load(Ordering::Relaxed) {
        return;
    }
    let mask = MASK.load(Ordering::Relaxed);
    // SAFETY: plain system calls, on a number of ours; errno is as it was before.
    unsafe {
        let error = libc::__errno_location();
        let before = *error;
        if HAS_MASK.load(Ordering::Relaxed) {
            let at = &raw const mask;
            let size = without_provenance_mut::<libc::c_void>(size_of::<u64>());
            libc::ptrace(libc::PTRACE_SETSIGMASK, tid, size, at);
        }
        let signal = SIGNAL.load(Ordering::Relaxed) as usize;
        let signal = without_provenance_mut::<libc::c_void>(signal);
        libc::ptrace(
            libc::PTRACE_DETACH,
            tid,
            without_provenance_mut::<libc::c_void>(0),
            signal,
        );
        *error = before;
    }
    THREAD.store(0, Ordering::Release);
}
