// SPDX-License-Identifier: MIT
//! The kernel's clocks, in nanoseconds.

use std::time::Duration;

/// What a clock says; `None`: there is no such clock.
pub fn now(clock: libc::clockid_t) -> Option<Duration> {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a timespec of ours to fill.
    let known = unsafe { libc::clock_gettime(clock, &mut now) } == 0;
    known.then(|| Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
}

fn nanoseconds(clock: libc::clockid_t) -> u64 {
    now(clock).map_or(0, |now| now.as_nanos() as u64)
}

/// CLOCK_MONOTONIC, the clock of all recordings and of `bpf_ktime_get_ns`.
pub fn monotonic() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC)
}

/// ns since 1970.
pub fn wall() -> u64 {
    nanoseconds(libc::CLOCK_REALTIME)
}
