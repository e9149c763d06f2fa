// SPDX-License-Identifier: MIT
//! The clock of the events: CLOCK_MONOTONIC, as `bpf_ktime_get_ns`.

fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid timespec to fill; both clocks exist everywhere.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds of that clock.
pub fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970.
pub fn wall() -> u64 {
    read(libc::CLOCK_REALTIME)
}
