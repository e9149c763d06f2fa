// SPDX-License-Identifier: MIT
//! The kernel's clocks, in nanoseconds.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

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

/// What this thread has done since a moment, for limits that a busy machine does not move: there
/// the same work takes longer.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    begin: Instant,
    worked: Duration,
}

impl Effort {
    /// Nobody waits longer than so many times the work that is granted.
    const SLOWEST: u32 = 4;

    /// From now on.
    pub fn begin() -> Effort {
        Effort {
            begin: Instant::now(),
            worked: Effort::work(),
        }
    }

    fn work() -> Duration {
        now(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
    }

    /// Has this thread worked for more than `granted`, or taken too long for that?
    pub fn exceeds(&self, granted: Duration) -> bool {
        Effort::work().saturating_sub(self.worked) > granted
            || self.begin.elapsed() > granted * Effort::SLOWEST
    }

    /// What was done since `before` does not count.
    pub fn leave_out(&mut self, before: Effort) {
        self.begin += before.begin.elapsed();
        self.worked += Effort::work().saturating_sub(before.worked);
    }
}

/// CLOCK_MONOTONIC, the clock of all recordings.
pub fn monotonic() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC)
}

/// How far a time namespace moves CLOCK_MONOTONIC: `monotonic <seconds> <ns>`.
fn moved(offsets: &str) -> i64 {
    let mut lines = offsets.lines().map(str::split_whitespace);
    let mut own = lines.find_map(|mut words| (words.next()? == "monotonic").then_some(words));
    let mut number = || own.as_mut()?.next()?.parse::<i64>().ok();
    let (seconds, rest) = (number().unwrap_or(0), number().unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// The clock of `bpf_ktime_get_ns`: CLOCK_MONOTONIC of the first time namespace.
pub fn kernel() -> u64 {
    static MOVED: OnceLock<i64> = OnceLock::new();
    let moved = MOVED.get_or_init(|| {
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets");
        moved(&offsets.unwrap_or_default())
    });
    monotonic().saturating_add_signed(moved.saturating_neg())
}

/// ns since 1970.
pub fn wall() -> u64 {
    nanoseconds(libc::CLOCK_REALTIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_namespace_s_offset_is_read() {
        let text = "monotonic           7         500\nboottime            9         0\n";
        assert_eq!(moved(text), 7_000_000_500);
        assert_eq!(moved("monotonic -1 0\n"), -1_000_000_000);
        assert_eq!(moved(""), 0);
    }

    #[test]
    fn what_others_do_is_no_effort_until_it_takes_too_long() {
        let granted = Duration::from_millis(200);
        let idle = Effort::begin();
        std::thread::sleep(granted);
        assert!(!idle.exceeds(granted));
        std::thread::sleep(granted * Effort::SLOWEST);
        assert!(idle.exceeds(granted));
        let (begin, mut spared) = (Effort::begin(), Effort::begin());
        while !spared.exceeds(granted) {}
        spared.leave_out(begin);
        assert!(!spared.exceeds(granted));
    }
}
