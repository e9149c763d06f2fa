// SPDX-License-Identifier: MIT
//! Time as a copy sees it: it stands still, but for what the copy's own calls take.

use std::mem::MaybeUninit;

/// How long a question for the time takes, ns.
const QUESTION: i128 = 1_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// ns since the copy began.
    passed: i128,
    /// The kernel's clocks at that moment.
    realtime: i128,
    monotonic: i128,
    boottime: i128,
}

impl Clock {
    pub fn now() -> Clock {
        Clock {
            passed: 0,
            realtime: system(libc::CLOCK_REALTIME),
            monotonic: system(libc::CLOCK_MONOTONIC),
            boottime: system(libc::CLOCK_BOOTTIME),
        }
    }

    /// ns of one of the kernel's clocks; asking takes a moment. `None`: a clock that is not kept
    /// here.
    pub fn read(&mut self, id: i32) -> Option<i128> {
        self.passed += QUESTION;
        let base = match id {
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => self.realtime,
            libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_MONOTONIC_COARSE => {
                self.monotonic
            }
            libc::CLOCK_BOOTTIME => self.boottime,
            libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID => 0,
            _ => return None,
        };
        Some(base + self.passed)
    }

    pub fn sleep(&mut self, nanoseconds: i128) {
        self.passed += nanoseconds.max(0);
    }

    /// Sleeps until a clock shows `at`, in ns.
    pub fn sleep_until(&mut self, id: i32, at: i128) {
        if let Some(now) = self.read(id) {
            self.sleep(at - now);
        }
    }
}

fn system(id: i32) -> i128 {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the kernel fills what it is given; zeroes are a valid timespec.
    let now = unsafe {
        libc::clock_gettime(id, now.as_mut_ptr());
        now.assume_init()
    };
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_by_sleeping_and_by_asking() {
        let mut clock = Clock::now();
        let first = clock.read(libc::CLOCK_MONOTONIC).expect("a clock");
        clock.sleep(5_000_000_000);
        let second = clock.read(libc::CLOCK_MONOTONIC).expect("a clock");
        assert_eq!(second - first, 5_000_000_000 + QUESTION);
        clock.sleep_until(libc::CLOCK_MONOTONIC, second + 7_000);
        let third = clock.read(libc::CLOCK_MONOTONIC).expect("a clock");
        assert_eq!(third - second, 7_000 + QUESTION);
        clock.sleep_until(libc::CLOCK_MONOTONIC, first);
        assert_eq!(
            clock.read(libc::CLOCK_MONOTONIC),
            Some(third + 2 * QUESTION)
        );
    }
}
