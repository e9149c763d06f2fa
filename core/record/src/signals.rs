// SPDX-License-Identifier: MIT
//! Signals to the recorder while it records.
//!
//! Ctrl-C reaches the whole foreground process group, the target included, so the
//! first one is for the target: the recording ends when the target does. Sent
//! by `kill`, the signal is passed on. A second one ends the recording itself.
//!
//! The process that started us may pass on what it gets. What was sent to its whole group is one
//! signal then, though it comes twice.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use flagfinder_linux::clock;

static ACTIVE: AtomicBool = AtomicBool::new(false);
static RECEIVED: AtomicU32 = AtomicU32::new(0);
/// Number of the last signal that a process sent; 0: none. The kernel's own
/// (terminal) signals have reached the target already.
static TO_FORWARD: AtomicI32 = AtomicI32::new(0);

/// When the last one came, and from whom.
static LAST: AtomicU64 = AtomicU64::new(0);
static SENDER: AtomicI32 = AtomicI32::new(0);
/// For so long after another one a signal of our parent's is the same one.
const PASSED_ON_NS: u64 = 500_000_000;

/// SIGXFSZ is caught only so that a file size limit becomes a failed write.
const CAUGHT: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGXFSZ];

/// Catches signals until dropped. One at a time in a process.
pub struct Signals {
    previous: Vec<(i32, libc::sigaction)>,
}

extern "C" fn on_signal(number: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    if number == libc::SIGXFSZ {
        return;
    }
    // SAFETY: the kernel passes a valid siginfo with SA_SIGINFO.
    let was_sent = !info.is_null() && unsafe { (*info).si_code } <= 0;
    let of_kernel = 0;
    // SAFETY: what a process sent tells that process.
    let sender = was_sent.then(|| unsafe { (*info).si_pid() });
    let sender = sender.unwrap_or(of_kernel);
    let now = clock::monotonic();
    let passed = now.saturating_sub(LAST.swap(now, Ordering::Relaxed));
    let by_another = SENDER.swap(sender, Ordering::Relaxed) != sender;
    // SAFETY: no arguments, cannot fail.
    if sender == unsafe { libc::getppid() } && by_another && passed < PASSED_ON_NS {
        return;
    }
    RECEIVED.fetch_add(1, Ordering::Relaxed);
    if was_sent {
        TO_FORWARD.store(number, Ordering::Relaxed);
    }
}

impl Signals {
    /// `None`: another recording of this process has them.
    pub fn catch() -> Option<Signals> {
        if ACTIVE.swap(true, Ordering::SeqCst) {
            return None;
        }
        RECEIVED.store(0, Ordering::Relaxed);
        TO_FORWARD.store(0, Ordering::Relaxed);
        let mut previous = Vec::new();
        for number in CAUGHT {
            // SAFETY: the handler only touches atomics.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                libc::sigaction(number, std::ptr::null(), &mut old);
                // nohup's choice stays.
                if old.sa_sigaction == libc::SIG_IGN {
                    continue;
                }
                let mut new: libc::sigaction = std::mem::zeroed();
                new.sa_sigaction = on_signal as *const () as usize;
                new.sa_flags = libc::SA_SIGINFO;
                libc::sigaction(number, &new, std::ptr::null_mut());
                previous.push((number, old));
            }
        }
        Some(Signals { previous })
    }

    pub fn received(&self) -> u32 {
        RECEIVED.load(Ordering::Relaxed)
    }

    /// A signal to pass on to the target, once.
    pub fn take_forward(&self) -> Option<i32> {
        let number = TO_FORWARD.swap(0, Ordering::Relaxed);
        (number != 0).then_some(number)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (number, old) in &self.previous {
            // SAFETY: puts back what `catch` found.
            unsafe { libc::sigaction(*number, old, std::ptr::null_mut()) };
        }
        ACTIVE.store(false, Ordering::SeqCst);
    }
}
