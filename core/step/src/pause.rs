// SPDX-License-Identifier: MIT
//! A thread that stands still for a moment, and for how long.
//!
//! Meanwhile no other thread may take the processor from us: if we may (CAP_SYS_NICE), we go before
//! all others. The time for which the thread waits for a processor before it can stop is no pause:
//! it would have waited without us as well.

use std::mem::zeroed;
use std::time::{Duration, Instant};

use flagfinder_linux::futex;

use crate::error::Result;
use crate::helper::is_abandoned;
use crate::let_go;
use crate::ptrace::{Stop, Tracee};
use crate::queue;
use crate::restart;

/// Most calls at which a thread is stopped on its way to a wake.
const MOST_CALLS: u32 = 100;

/// See the module. Dropping it lets the thread go on.
pub struct Pause {
    tracee: Tracee,
    /// For how long it was kept from running before this stop.
    until_stopped: Duration,
    stopped: Instant,
    /// It was let go already, and when.
    let_go: Option<Instant>,
    // Behind the tracee: the thread is let go first.
    urgent: Option<Urgent>,
}

impl Pause {
    /// Stops the thread; its process is not changed.
    ///
    /// # Errors
    /// As [`Tracee::stop`].
    pub fn of(tid: u32, patience: Duration) -> Result<Pause> {
        let urgent = Urgent::now();
        let before = queue::of(tid);
        let begin = Instant::now();
        let tracee = Tracee::stop(tid as i32, patience)?;
        let stopped = Instant::now();
        let waited = match (before, queue::of(tid)) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            _ => Duration::ZERO,
        };
        Ok(Pause {
            tracee,
            until_stopped: (stopped - begin).saturating_sub(waited),
            stopped,
            let_go: None,
            urgent,
        })
    }

    /// The thread that stands still.
    pub fn tracee(&self) -> &Tracee {
        &self.tracee
    }

    /// The same, to step it.
    pub(crate) fn tracee_mut(&mut self) -> &mut Tracee {
        &mut self.tracee
    }

    /// For how long it has been kept from running by now.
    pub(crate) fn so_far(&self) -> Duration {
        self.until_stopped
            + self
                .let_go
                .unwrap_or_else(Instant::now)
                .duration_since(self.stopped)
    }

    /// Thinks while the thread stands still, without haste, and for at most `time`: before that is
    /// over the thread is let go. Whether it was.
    pub(crate) fn think<T>(&mut self, time: Duration, work: impl FnOnce() -> T) -> (T, bool) {
        let until = Instant::now() + time;
        let held = self.tracee.held();
        self.urgent = None;
        let (done, let_go) = let_go::at(held, until, work);
        self.let_go = let_go;
        match let_go {
            Some(_) => self.tracee.forget(),
            None => self.urgent = Urgent::now(),
        }
        (done, let_go.is_some())
    }

    /// Lets the thread go on until another thread has woken it from a wait for a futex's word: then
    /// it has its turn. `timed`: from a wait with a time limit. `false`: that did not come within
    /// `patience`, and the thread stands where it is now. In between it stops at its calls for a
    /// moment.
    ///
    /// # Errors
    /// As [`Tracee::stop`].
    pub fn until_woken(&mut self, patience: Duration, timed: bool) -> Result<bool> {
        let begin = Instant::now();
        for _ in 0..MOST_CALLS {
            self.until_stopped += self.stopped.elapsed();
            let arrived = self
                .tracee
                .go_to_call(patience.saturating_sub(begin.elapsed()))?;
            self.stopped = Instant::now();
            if !arrived {
                return Ok(false);
            }
            if is_woken(&self.tracee.registers()?, timed) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets the thread go on to the beginning or the end of a system call, where it stands still
    /// again. `left`: for how long that may still take.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn on_to_call(&mut self, left: impl Fn() -> Duration) -> Result<Stop> {
        self.until_stopped += self.stopped.elapsed();
        let mut stop = self.tracee.on_to_call(left());
        while matches!(stop, Ok(Stop::Timeout)) && !left().is_zero() && !is_abandoned() {
            stop = Ok(self.tracee.wait(left()));
        }
        self.stopped = Instant::now();
        stop
    }

    /// Lets the thread go on. Returns for how long it was kept from running.
    pub fn end(self) -> Duration {
        let Pause {
            tracee,
            until_stopped,
            stopped,
            let_go,
            urgent: _urgent,
        } = self;
        drop(tracee);
        until_stopped + let_go.unwrap_or_else(Instant::now).duration_since(stopped)
    }
}

/// At the end of a wait: another thread woke it, or had changed the word before it slept.
fn is_woken(registers: &libc::user_regs_struct, timed: bool) -> bool {
    const CHANGED: i64 = -(libc::EAGAIN as i64);
    let r = registers;
    let arguments = restart::call(r).args;
    u32::try_from(r.orig_rax).is_ok_and(futex::is_futex)
        && futex::waits_for_word(futex::command(&arguments))
        && matches!(r.rax as i64, 0 | CHANGED)
        && (r.r10 != 0 || !timed)
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn policy() -> i32 {
        // SAFETY: cannot fail.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn a_threads_urgency_is_restored() {
        let before = policy();
        let urgent = Urgent::now();
        let meanwhile = policy();
        assert_eq!(urgent.is_some(), meanwhile != before);
        drop(urgent);
        assert_eq!(policy(), before);
    }

    /// A word that processes share.
    fn shared_word() -> *mut u32 {
        let (read_write, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a fresh mapping.
        let word = unsafe { libc::mmap(std::ptr::null_mut(), 4, read_write, flags, -1, 0) };
        assert_ne!(word, libc::MAP_FAILED);
        word.cast()
    }

    #[test]
    fn a_thread_that_waits_its_turn_stops_behind_the_wait_that_another_ended() {
        static SOON: libc::timespec = libc::timespec {
            tv_sec: 0,
            tv_nsec: 3_000_000,
        };
        let word = shared_word();
        // SAFETY: the child only makes plain system calls, on memory that both have.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: as above.
                unsafe {
                    libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, 0, &raw const SOON)
                };
            }
        }
        let mut pause = Pause::of(child as u32, Duration::from_secs(10)).expect("stops");
        let patience = Duration::from_millis(50);
        assert!(
            !pause.until_woken(patience, false).expect("stops"),
            "nobody wakes"
        );
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let address = word.expose_provenance();
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: numbers only.
                    unsafe { libc::syscall(libc::SYS_futex, address, libc::FUTEX_WAKE, 1) };
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let woken = pause.until_woken(Duration::from_secs(60), true);
            over.store(true, Ordering::Relaxed);
            assert!(woken.expect("stops"));
        });
        let registers = pause.tracee().registers().expect("stopped");
        assert_eq!(
            (registers.orig_rax as i64, registers.rax),
            (libc::SYS_futex, 0)
        );
        pause.end();
        // SAFETY: our own child; nobody uses the mapping any more.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
            libc::munmap(word.cast(), 4);
        }
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
