// SPDX-License-Identifier: MIT
//! Where a thread is, again and again, without stopping it.
//!
//! A timer of the kernel (perf_event_open) interrupts the thread while it runs and notes where it
//! is in its program: for a thread in a system call, the instruction behind it. Unprivileged users
//! may ask only for what runs outside the kernel. Blind spot: a thread that does not run.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flagfinder_linux::perf_event::{self, Attributes, CPU_CLOCK, SOFTWARE};

const USER_REGISTERS: u64 = 1 << 12;
/// Bit of the program counter in a mask of registers.
const PROGRAM_COUNTER: u64 = 1 << 8;
const EXCLUDE_KERNEL: u64 = 1 << 5;
/// A record of a sample: its header, the kind of program, and the one register.
const SAMPLE: u32 = 9;
const HEADER: u64 = 8;
const WORDS_OF_64_BITS: u64 = 2;
/// Where the first page says up to where was written and read (`struct perf_event_mmap_page`).
const WRITTEN: usize = 1024;
const READ: usize = 1032;
const PAGE: usize = 4096;
/// A power of two: 341 samples.
const RING: usize = 2 * PAGE;

/// A timer on one thread; dropping it ends it.
pub struct Sampler {
    pages: NonNull<u8>,
    _event: OwnedFd,
}

impl Sampler {
    /// Notes where the thread is, each time that it has run for `every`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn start(tid: u32, every: Duration) -> Result<Sampler> {
        // With the kernel's own part where we may: a thread is seen in its calls too.
        let event = open(tid, every, 0).or_else(|_| open(tid, every, EXCLUDE_KERNEL))?;
        // SAFETY: a fresh mapping of our descriptor.
        let pages = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE + RING,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(pages) {
            Some(start) if pages != libc::MAP_FAILED => Ok(Sampler {
                pages: start.cast(),
                _event: event,
            }),
            _ => Err(Error::last_os_error()),
        }
    }

    /// Addresses at which the thread was found since the last call.
    pub fn take(&mut self) -> Vec<u64> {
        let written = self.place(WRITTEN).load(Ordering::Acquire);
        let mut at = self.place(READ).load(Ordering::Relaxed);
        let mut places = Vec::new();
        while at < written {
            let head = self.word(at);
            let (kind, size) = (head as u32, head >> 48);
            let of_64_bits = self.word(at + HEADER) == WORDS_OF_64_BITS;
            if kind == SAMPLE && size >= 3 * HEADER && of_64_bits {
                places.push(self.word(at + 2 * HEADER));
            }
            at += size.max(HEADER);
        }
        self.place(READ).store(written, Ordering::Release);
        places
    }

    fn place(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the first page, aligned; the kernel shares it.
        unsafe { AtomicU64::from_ptr(self.pages.as_ptr().add(offset).cast()) }
    }

    /// Records are whole words, which the ring's end does not part.
    fn word(&self, at: u64) -> u64 {
        let offset = PAGE + (at as usize & (RING - 1) & !7);
        self.place(offset).load(Ordering::Relaxed)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // SAFETY: mapped by `start`, and nothing points there any more.
        unsafe { libc::munmap(self.pages.as_ptr().cast(), PAGE + RING) };
    }
}

fn open(tid: u32, every: Duration, flags: u64) -> Result<OwnedFd> {
    let attributes = Attributes {
        kind: SOFTWARE,
        config: CPU_CLOCK,
        sample_period: every.as_nanos() as u64,
        sample_type: USER_REGISTERS,
        user_registers: PROGRAM_COUNTER,
        flags,
        ..Attributes::default()
    };
    perf_event::open(attributes, tid as i32, -1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn spin(time: Duration) {
        let begin = std::time::Instant::now();
        while begin.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_thread_that_runs_is_seen_where_it_runs() {
        // SAFETY: cannot fail.
        let tid = unsafe { libc::gettid() } as u32;
        // A container may forbid it.
        let Ok(mut sampler) = Sampler::start(tid, Duration::from_millis(1)) else {
            return;
        };
        let maps = std::fs::read_to_string("/proc/self/maps").expect("its own");
        let mut seen = 0;
        // More than the ring holds at once.
        for _ in 0..8 {
            spin(Duration::from_millis(100));
            for place in sampler.take() {
                let code = maps.lines().any(|line| {
                    let range = line.split_once(' ').expect("a mapping").0;
                    let (start, end) = range.split_once('-').expect("a range");
                    let number = |text| u64::from_str_radix(text, 16).expect("hex");
                    (number(start)..number(end)).contains(&place) && line.contains("r-x")
                });
                assert!(code, "{place:#x} is no code");
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen} samples");
    }
}
