//! The few ptrace requests that stepping needs, and letting go safely.

use std::io::Error;
use std::mem::{size_of, zeroed};
use std::ptr::{null_mut, without_provenance_mut};
use std::time::{Duration, Instant};

use crate::error::{Result, StepError};

/// A seized thread. Dropping it restores its signal mask and lets it go.
pub struct Tracee {
    pub tid: i32,
    /// Signal mask to restore; set while signals are held.
    mask: Option<u64>,
    /// The thread is stopped, so that requests work.
    stopped: bool,
}

/// What a wait brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The step is done (or the interrupt arrived).
    Trap,
    /// A signal is about to be delivered.
    Signal(i32),
    /// The thread ended.
    Gone,
    /// Nothing until the time was over.
    Timeout,
}

fn request(request: libc::c_uint, tid: i32, address: usize, data: usize) -> std::io::Result<()> {
    // SAFETY: ptrace checks its arguments; `data` is a number or a live buffer of ours.
    let result = unsafe {
        libc::ptrace(
            request,
            tid,
            without_provenance_mut::<libc::c_void>(address),
            without_provenance_mut::<libc::c_void>(data),
        )
    };
    if result == -1 {
        Err(Error::last_os_error())
    } else {
        Ok(())
    }
}

impl Tracee {
    /// Seizes and stops the thread; signals that would run handlers wait from now on.
    pub fn seize(tid: i32, patience: Duration) -> Result<Tracee> {
        request(libc::PTRACE_SEIZE, tid, 0, 0)
            .map_err(|e| StepError::system(format!("Thread {tid} cannot be traced."), &e))?;
        let mut tracee = Tracee {
            tid,
            mask: None,
            stopped: false,
        };
        tracee.interrupt()?;
        match tracee.wait(patience) {
            Stop::Trap | Stop::Signal(_) => {}
            Stop::Gone | Stop::Timeout => {
                return Err(StepError {
                    what: format!("Thread {tid} did not stop."),
                    found: "It ended, or is in an uninterruptible state (D in ps).".into(),
                    fix: "Try again, or choose another thread.".into(),
                    still_works: "The process goes on undisturbed.".into(),
                    errno: None,
                })
            }
        }
        tracee.hold_signals();
        Ok(tracee)
    }

    fn interrupt(&self) -> Result<()> {
        request(libc::PTRACE_INTERRUPT, self.tid, 0, 0).map_err(|e| {
            StepError::system(format!("Thread {} cannot be interrupted.", self.tid), &e)
        })
    }

    /// Blocks what is asynchronous; faults of the code itself stay deliverable.
    fn hold_signals(&mut self) {
        let mut old = 0u64;
        let at = &raw mut old as usize;
        if request(libc::PTRACE_GETSIGMASK, self.tid, size_of::<u64>(), at).is_err() {
            return;
        }
        let faults = [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGTRAP,
        ];
        let deliverable = faults.iter().fold(0u64, |all, s| all | 1 << (s - 1));
        let held = !deliverable | old;
        let at = &raw const held as usize;
        if request(libc::PTRACE_SETSIGMASK, self.tid, size_of::<u64>(), at).is_ok() {
            self.mask = Some(old);
        }
    }

    /// Lets one instruction run, delivering `signal` (0: none).
    pub fn step(&mut self, signal: i32) -> Result<()> {
        request(libc::PTRACE_SINGLESTEP, self.tid, 0, signal as usize).map_err(|e| {
            StepError::system(format!("Thread {} cannot be stepped.", self.tid), &e)
        })?;
        self.stopped = false;
        Ok(())
    }

    /// Waits for the next stop, at most `patience`.
    pub fn wait(&mut self, patience: Duration) -> Stop {
        let begin = Instant::now();
        let mut spins = 0u32;
        loop {
            let mut status = 0;
            // SAFETY: status is ours.
            let pid = unsafe { libc::waitpid(self.tid, &mut status, libc::__WALL | libc::WNOHANG) };
            if pid == self.tid {
                if libc::WIFSTOPPED(status) {
                    self.stopped = true;
                    let signal = libc::WSTOPSIG(status);
                    return if signal == libc::SIGTRAP || status >> 16 != 0 {
                        Stop::Trap
                    } else {
                        Stop::Signal(signal)
                    };
                }
                return Stop::Gone;
            }
            if pid == -1 && Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                return Stop::Gone;
            }
            spins += 1;
            if spins > 200 {
                if begin.elapsed() > patience {
                    return Stop::Timeout;
                }
                std::thread::sleep(Duration::from_micros(50));
            } else {
                std::thread::yield_now();
            }
        }
    }

    pub fn registers(&self) -> Result<libc::user_regs_struct> {
        // SAFETY: plain data, filled by the kernel.
        let mut registers: libc::user_regs_struct = unsafe { zeroed() };
        let at = &raw mut registers as usize;
        request(libc::PTRACE_GETREGS, self.tid, 0, at)
            .map_err(|e| StepError::system(format!("Registers of {}.", self.tid), &e))?;
        Ok(registers)
    }

    /// Reads memory of the process; as many bytes as could be read.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let local = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let remote = libc::iovec {
            iov_base: without_provenance_mut(address as usize),
            iov_len: buffer.len(),
        };
        // SAFETY: the local vector is our buffer; the remote one is checked by the kernel.
        let read = unsafe { libc::process_vm_readv(self.tid, &local, 1, &remote, 1, 0) };
        usize::try_from(read).unwrap_or(0)
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if !self.stopped {
            // It runs, or waits in a system call: stop it once more to restore the mask.
            let _ = self.interrupt();
            if matches!(
                self.wait(Duration::from_secs(2)),
                Stop::Gone | Stop::Timeout
            ) {
                // Our exit detaches it; nothing else can be done from here.
                return;
            }
        }
        if let Some(mask) = self.mask {
            let at = &raw const mask as usize;
            let _ = request(libc::PTRACE_SETSIGMASK, self.tid, size_of::<u64>(), at);
        }
        // SAFETY: no pointers are passed.
        unsafe {
            libc::ptrace(
                libc::PTRACE_DETACH,
                self.tid,
                null_mut::<libc::c_void>(),
                null_mut::<libc::c_void>(),
            );
        }
    }
}
