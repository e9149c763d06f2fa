// SPDX-License-Identifier: MIT
//! A thread that stands still for a moment, and for how long.
//!
//! While it does, nobody else may take the processor from us: where we may (CAP_SYS_NICE), we go
//! before all others meanwhile. The time that the thread waits for a processor before it can stop
//! is no pause: it would have waited as well without us.

use std::mem::zeroed;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::ptrace::Tracee;

/// See the module. Dropping it lets the thread go on.
pub struct Pause {
    tracee: Tracee,
    until_stopped: Duration,
    stopped: Instant,
    // Behind the tracee: the thread is let go first.
    _urgent: Option<Urgent>,
}

impl Pause {
    /// Stops the thread; its process is not changed.
    ///
    /// # Errors
    /// As [`Tracee::stop`].
    pub fn of(tid: u32, patience: Duration) -> Result<Pause> {
        let urgent = Urgent::now();
        let before = queued(tid);
        let begin = Instant::now();
        let tracee = Tracee::stop(tid as i32, patience)?;
        let stopped = Instant::now();
        let waited = match (before, queued(tid)) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            _ => Duration::ZERO,
        };
        Ok(Pause {
            tracee,
            until_stopped: (stopped - begin).saturating_sub(waited),
            stopped,
            _urgent: urgent,
        })
    }

    pub fn tracee(&self) -> &Tracee {
        &self.tracee
    }

    /// Lets the thread go on. For how long it was kept from running.
    pub fn end(self) -> Duration {
        let Pause {
            tracee,
            until_stopped,
            stopped,
            _urgent,
        } = self;
        drop(tracee);
        until_stopped + stopped.elapsed()
    }
}

/// How long the thread has waited for processors since its start.
fn queued(tid: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    let queued = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(queued))
}

/// This thread goes before all others until this is dropped.
struct Urgent {
    policy: i32,
    parameters: libc::sched_param,
}

impl Urgent {
    fn now() -> Option<Urgent> {
        const FIRST: libc::sched_param = libc::sched_param { sched_priority: 1 };
        // SAFETY: 0 is this thread; structures of ours.
        unsafe {
            let policy = libc::sched_getscheduler(0);
            let mut parameters: libc::sched_param = zeroed();
            let known = policy >= 0 && libc::sched_getparam(0, &mut parameters) == 0;
            (known && libc::sched_setscheduler(0, libc::SCHED_FIFO, &FIRST) == 0)
                .then_some(Urgent { policy, parameters })
        }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::sched_setscheduler(0, self.policy, &self.parameters) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> i32 {
        // SAFETY: cannot fail.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn who_was_urgent_is_as_before() {
        let before = policy();
        let urgent = Urgent::now();
        let meanwhile = policy();
        assert_eq!(urgent.is_some(), meanwhile != before);
        drop(urgent);
        assert_eq!(policy(), before);
    }

    #[test]
    fn only_the_time_of_the_stop_is_a_pause() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let begin = Instant::now();
        let pause = Pause::of(child.id(), Duration::from_secs(10)).expect("stops");
        let held = Duration::from_millis(30);
        std::thread::sleep(held);
        let paused = pause.end();
        assert!(paused >= held && paused <= begin.elapsed(), "{paused:?}");
        child.kill().expect("its own child");
        child.wait().expect("its own child");
    }
}
