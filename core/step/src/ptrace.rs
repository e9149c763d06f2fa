// SPDX-License-Identifier: MIT
//! One seized thread: stopping, stepping, and letting go so that it notices nothing.
//!
//! A tracer that dies while it steps leaves the trap flag set in its tracee, which the next
//! instruction then kills (the kernel clears the flag on PTRACE_DETACH only). So this runs in
//! a helper process (`helper.rs`) that outlives the command and detaches when that is gone.

use std::io::Error;
use std::mem::zeroed;
use std::time::{Duration, Instant};

use flagfinder_code::ProcessMemory;
use flagfinder_linux::proc::Status;
use flagfinder_linux::ptrace::request;
use flagfinder_linux::tracing::needs_own_mask;
use flagfinder_waits::proc::Call;

use crate::error::{self, unable_by, Result};
use crate::let_go::Held;
use crate::registers::TRAP_FLAG;
use crate::{helper, restart, stoppable};

/// The kernel's number for stops that are no signal: an interrupt, or a stopped process.
const EVENT_STOP: i32 = 128;
/// The stop at the beginning or the end of a call (PTRACE_O_TRACESYSGOOD).
const CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// What `si_code` says of a SIGTRAP that the code itself raised with int3.
const SI_KERNEL: i32 = 0x80;
/// How often a thread is looked at that should stop and has not.
const QUICK_LOOK: Duration = Duration::from_micros(50);
const SLOW_LOOK: Duration = Duration::from_millis(2);

/// A seized thread. Dropping it restores its signal mask and lets it go.
pub struct Tracee {
    pub(crate) tid: i32,
    /// Opened before it is held. `None`: it can't be read.
    memory: Option<ProcessMemory>,
    /// Its own signal mask, while signals are held.
    pub(crate) mask: Option<u64>,
    /// The thread is stopped, so that requests work.
    stopped: bool,
    /// A step is under way: the trap flag is set.
    steps: bool,
    /// The step under way puts the flags on the stack, and the trap flag with them.
    pushes_flags: bool,
    /// It stands at the beginning of a call.
    begins_call: bool,
    /// The signal that it stopped for, to be delivered when it goes on; 0: none.
    signal: i32,
    /// It ended; nothing is left to let go.
    gone: bool,
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Step,
    /// At the beginning or the end of a system call.
    Call,
    Interrupted,
    /// A signal is about to be delivered.
    Signal(i32),
    /// Somebody stopped the process.
    Frozen,
    /// Another program runs now.
    Exec,
    Gone,
    /// Nothing until the time was over, or nobody waits for the result any more.
    Timeout,
}

impl Tracee {
    /// Seizes and stops the thread and changes nothing: should we be killed now, it runs on.
    ///
    /// # Errors
    /// When the system refuses, the thread does not stop within `patience`, or its program would
    /// notice (`stoppable.rs`).
    pub fn stop(tid: i32, patience: Duration) -> Result<Tracee> {
        let memory = memory_of(tid);
        stoppable::wait(tid, memory.as_ref(), patience)?;
        let (tracee, stop) = Tracee::halted(tid, memory, patience)?;
        if stop == Stop::Frozen {
            return Err(error::frozen(tid));
        }
        tracee.undo_interruption()?;
        Ok(tracee)
    }

    /// The same, of a stopped process too, and its registers at the stop: what call it is in. Of a
    /// program that is ended next, so that whatever call may be cut short.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub fn hold(tid: i32, patience: Duration) -> Result<(Tracee, libc::user_regs_struct)> {
        let (tracee, stop) = Tracee::halted(tid, memory_of(tid), patience)?;
        let registers = tracee.registers()?;
        // The call of a thread that was stopped before is interrupted by that, not by us.
        if stop != Stop::Frozen {
            tracee.undo_interruption()?;
        }
        Ok((tracee, registers))
    }

    fn halted(
        tid: i32,
        memory: Option<ProcessMemory>,
        patience: Duration,
    ) -> Result<(Tracee, Stop)> {
        let options = (libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESYSGOOD) as usize;
        seize(tid, options)?;
        let mut tracee = Tracee {
            tid,
            memory,
            mask: None,
            stopped: false,
            steps: false,
            pushes_flags: false,
            begins_call: false,
            signal: 0,
            gone: false,
        };
        let stop = tracee.halt(patience);
        if !matches!(stop, Stop::Interrupted | Stop::Frozen) {
            return Err(error::does_not_stop(tid, stop == Stop::Gone));
        }
        if tracee.registers()?.cs != LONG_MODE {
            return Err(error::not_64_bit(tid));
        }
        Ok((tracee, stop))
    }

    /// Stops a running thread, wherever it is.
    fn halt(&mut self, patience: Duration) -> Stop {
        if request(libc::PTRACE_INTERRUPT, self.tid, 0, 0).is_err() {
            self.gone = true;
            return Stop::Gone;
        }
        // A step or a signal that was under way may come first; the interrupt still comes.
        let begin = Instant::now();
        loop {
            match self.wait_even_if_unwanted(patience.saturating_sub(begin.elapsed())) {
                Stop::Step | Stop::Call => return Stop::Interrupted,
                Stop::Exec => {
                    // It is about to become another program, and stops at the beginning of that.
                    // Any trap takes an interrupt that has not arrived.
                    let goes_on = request(libc::PTRACE_CONT, self.tid, 0, 0)
                        .and_then(|_| request(libc::PTRACE_INTERRUPT, self.tid, 0, 0));
                    if goes_on.is_err() {
                        return Stop::Gone;
                    }
                    self.stopped = false;
                }
                Stop::Signal(number) => {
                    if self.begin_delivery(number).is_err() {
                        return Stop::Gone;
                    }
                }
                other => return other,
            }
        }
    }

    /// Takes the trap of a step that is done, where the thread stands still for something else that
    /// came first (SIGCONT, SIGSTOP, our interrupt). Else it kills the program once we are gone.
    fn take_trap(&mut self) {
        while self.stopped && self.steps && restart::is_trap_pending(self.tid) {
            if request(libc::PTRACE_CONT, self.tid, 0, 0).is_err() {
                self.gone = true;
                return;
            }
            self.stopped = false;
            self.wait_even_if_unwanted(Duration::MAX);
        }
    }

    /// What it is given when it is let go.
    pub(crate) fn held(&self) -> Held {
        Held {
            tid: self.tid,
            mask: self.mask,
            signal: self.signal,
        }
    }

    /// It was let go already.
    pub(crate) fn forget(&mut self) {
        self.gone = true;
    }

    /// Lets one instruction run that is no system call. `pushes_flags`: it is a `pushf`.
    pub fn step(&mut self, pushes_flags: bool) -> Result<()> {
        self.let_traps_in()?;
        request(libc::PTRACE_SINGLESTEP, self.tid, 0, 0)
            .map_err(|e| unable_by(format!("Thread {} cannot be stepped", self.tid), &e))?;
        self.pushes_flags = pushes_flags;
        self.stopped = false;
        self.steps = true;
        Ok(())
    }

    /// Lets the system call run that comes next. It is not stepped: a step ends it with a SIGTRAP
    /// under whatever mask the call sets.
    pub fn call(&mut self, number: u32, patience: Duration) -> Result<Stop> {
        // Where it may not be stopped within the call, it is let go there with what it has.
        let mut within = restart::call(&self.registers()?);
        within.number = number;
        within.pc += restart::SYSCALL.len() as u64;
        match needs_own_mask(number) || self.may_notice(&within) {
            true => self.release_signals(),
            false => self.hold_signals(),
        }
        let begin = Instant::now();
        let mut is_within = false;
        loop {
            request(libc::PTRACE_SYSCALL, self.tid, 0, 0)
                .map_err(|e| unable_by(format!("Thread {}", self.tid), &e))?;
            self.stopped = false;
            match self.wait(patience.saturating_sub(begin.elapsed())) {
                Stop::Call if !is_within => is_within = true,
                // The kernel runs it again, or a handler comes first.
                Stop::Call if restart::is_pending(&self.registers()?) => is_within = false,
                other => return Ok(other),
            }
        }
    }

    /// Delivers the signal that it stopped for: it stops before the first instruction of the
    /// handler. One that it blocks goes back to those that wait.
    pub fn deliver(&mut self, patience: Duration) -> Result<Stop> {
        let signal = self.signal;
        self.begin_delivery(signal)
            .map_err(|e| unable_by(format!("Thread {}", self.tid), &e))?;
        Ok(self.wait(patience))
    }

    /// The interrupt comes before the first instruction of the handler.
    fn begin_delivery(&mut self, signal: i32) -> std::io::Result<()> {
        self.release_signals();
        request(libc::PTRACE_INTERRUPT, self.tid, 0, 0)?;
        request(libc::PTRACE_CONT, self.tid, 0, signal as usize)?;
        self.signal = 0;
        self.stopped = false;
        Ok(())
    }

    /// Lets it go on until it begins or ends a system call. `false`: it did not within `patience`,
    /// or has begun one in which it might not be stopped, and stands where it was then.
    ///
    /// # Errors
    /// When it ends, executes another program, or somebody stops its process.
    pub(crate) fn go_to_call(&mut self, patience: Duration) -> Result<bool> {
        let begin = Instant::now();
        loop {
            match self.on_to_call(patience.saturating_sub(begin.elapsed()))? {
                Stop::Call => {
                    let now = self.registers()?;
                    self.begins_call = now.rax as i64 == -i64::from(libc::ENOSYS)
                        && self.may_notice(&restart::call(&now));
                    return Ok(!self.begins_call);
                }
                Stop::Step | Stop::Signal(_) => {}
                Stop::Timeout => match self.halt(UNSTEPPED) {
                    Stop::Interrupted => {
                        self.undo_interruption()?;
                        return Ok(false);
                    }
                    other => return Err(error::does_not_stop(self.tid, other == Stop::Gone)),
                },
                Stop::Interrupted => return Ok(false),
                Stop::Frozen => return Err(error::frozen(self.tid)),
                Stop::Exec | Stop::Gone => return Err(error::does_not_stop(self.tid, true)),
            }
        }
    }

    /// Lets it go on, with the signal that it stopped for, until it begins or ends a system call,
    /// or something else stops it.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn on_to_call(&mut self, patience: Duration) -> Result<Stop> {
        let signal = std::mem::take(&mut self.signal) as usize;
        request(libc::PTRACE_SYSCALL, self.tid, 0, signal)
            .map_err(|e| unable_by(format!("Thread {}", self.tid), &e))?;
        self.stopped = false;
        Ok(self.wait(patience))
    }

    fn may_notice(&self, call: &Call) -> bool {
        stoppable::may_notice(self.tid, self.memory.as_ref(), call)
    }

    /// Waits for the next stop, at most `patience`; gives up early if nobody wants the result any
    /// more.
    pub fn wait(&mut self, patience: Duration) -> Stop {
        self.wait_for(patience, true)
    }

    fn wait_even_if_unwanted(&mut self, patience: Duration) -> Stop {
        self.wait_for(patience, false)
    }

    fn wait_for(&mut self, patience: Duration, may_give_up: bool) -> Stop {
        let begin = Instant::now();
        let mut looks = 0u32;
        loop {
            let mut status = 0;
            // In a helper a timer breaks the wait; waiting in earnest hands the processor to
            // the thread at once, where others compete for it.
            let way = if helper::has_timer() {
                0
            } else {
                libc::WNOHANG
            };
            // SAFETY: status is ours.
            let pid = unsafe { libc::waitpid(self.tid, &mut status, libc::__WALL | way) };
            if pid == self.tid {
                return self.understand(status);
            }
            let broken = pid == -1 && Error::last_os_error().raw_os_error() == Some(libc::EINTR);
            if pid == -1 && !broken {
                self.gone = true;
                return Stop::Gone;
            }
            if broken && begin.elapsed() <= patience && !(may_give_up && helper::is_abandoned()) {
                continue;
            }
            if broken {
                return Stop::Timeout;
            }
            looks += 1;
            if looks > 200 {
                if begin.elapsed() > patience || (may_give_up && helper::is_abandoned()) {
                    return Stop::Timeout;
                }
                let quick = begin.elapsed() < Duration::from_millis(20);
                std::thread::sleep(if quick { QUICK_LOOK } else { SLOW_LOOK });
            } else {
                std::thread::yield_now();
            }
        }
    }

    fn understand(&mut self, status: i32) -> Stop {
        if !libc::WIFSTOPPED(status) {
            self.gone = true;
            return Stop::Gone;
        }
        self.stopped = true;
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            EVENT_STOP if signal == libc::SIGTRAP => Stop::Interrupted,
            EVENT_STOP => Stop::Frozen,
            libc::PTRACE_EVENT_EXEC => Stop::Exec,
            _ if signal == CALL_STOP => Stop::Call,
            _ if signal == libc::SIGTRAP && self.steps && !self.is_sent_trap() => {
                self.steps = false;
                if std::mem::take(&mut self.pushes_flags) {
                    self.clean_pushed_flags();
                }
                Stop::Step
            }
            _ => {
                // It came in place of the step.
                self.steps = false;
                self.signal = signal;
                Stop::Signal(signal)
            }
        }
    }

    /// A SIGTRAP that somebody sent or that int3 raised, not our step.
    fn is_sent_trap(&self) -> bool {
        // SAFETY: plain data, filled by the kernel.
        let mut info: libc::siginfo_t = unsafe { zeroed() };
        let at = &raw mut info as usize;
        let known = request(libc::PTRACE_GETSIGINFO, self.tid, 0, at).is_ok();
        known && (info.si_code <= 0 || info.si_code == SI_KERNEL)
    }

    /// Its general registers now.
    pub fn registers(&self) -> Result<libc::user_regs_struct> {
        // SAFETY: plain data, filled by the kernel.
        let mut registers: libc::user_regs_struct = unsafe { zeroed() };
        let at = &raw mut registers as usize;
        request(libc::PTRACE_GETREGS, self.tid, 0, at)
            .map_err(|e| unable_by(format!("Registers of {}", self.tid), &e))?;
        Ok(registers)
    }

    /// The registers with a call that we interrupted not yet begun, as the kernel will begin it
    /// again.
    pub fn registers_before_call(&self) -> Result<libc::user_regs_struct> {
        let registers = self.registers()?;
        if self.begins_call || restart::is_pending(&registers) {
            return Ok(restart::before_call(&registers));
        }
        Ok(registers)
    }

    /// Puts a call that our interrupt cut short back to its instruction. Call at an interrupt stop.
    fn undo_interruption(&self) -> Result<()> {
        let registers = self.registers()?;
        if !restart::is_cut_short(self.tid, &registers) {
            return Ok(());
        }
        let mut before = restart::before_call(&registers);
        let mut code = [0u8; 2];
        if self.read(before.rip, &mut code) != 2 || code != restart::SYSCALL {
            return Ok(());
        }
        before.orig_rax = u64::MAX;
        self.set_registers(&before)
    }

    /// Its general registers from now on.
    pub fn set_registers(&self, registers: &libc::user_regs_struct) -> Result<()> {
        let at = &raw const *registers as usize;
        request(libc::PTRACE_SETREGS, self.tid, 0, at)
            .map(drop)
            .map_err(|e| unable_by(format!("Registers of {}", self.tid), &e))
    }

    /// Reads memory of the process; as many bytes as could be read without waiting for anybody.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let memory = self.memory.as_ref();
        memory.map_or(0, |memory| memory.read_held(address, buffer))
    }

    fn would_notice(&self) -> bool {
        stoppable::would_notice(self.tid, self.memory.as_ref())
    }

    /// Takes the trap flag out of the flags that a stepped `pushf` put on the stack: popped
    /// after we are gone it would kill the program.
    fn clean_pushed_flags(&self) {
        let Ok(libc::user_regs_struct { rsp, .. }) = self.registers() else {
            return;
        };
        let mut word = [0u8; 8];
        if self.read(rsp, &mut word) == 8 {
            let flags = u64::from_le_bytes(word) & !TRAP_FLAG;
            // If it fails, the flag stays as a plain debugger leaves it.
            let _ = request(
                libc::PTRACE_POKEDATA,
                self.tid,
                rsp as usize,
                flags as usize,
            );
        }
    }
}

/// Whoever may trace it may read it; what refuses says why.
fn memory_of(tid: i32) -> Option<ProcessMemory> {
    ProcessMemory::open(tid as u32).ok()
}

/// Becomes its tracer. A thread has one at most.
fn seize(tid: i32, options: usize) -> Result<()> {
    let seize = || request(libc::PTRACE_SEIZE, tid, 0, options);
    let is_refused = |e: &Error| e.raw_os_error() == Some(libc::EPERM);
    let seized = seize().or_else(|error| {
        let refused = Some(error).filter(is_refused);
        match refused.map(|_| Status::of(tid as u32).and_then(|s| s.number("TracerPid:"))) {
            Some(Some(tracer)) if tracer != 0 => Err(error::is_held(tid, tracer)),
            // Whoever held it has let go by now; or it is not permitted.
            _ => seize().map_err(|e| unable_by(format!("Thread {tid} cannot be traced"), &e)),
        }
    });
    seized.map(drop)
}

/// Code segment of 64-bit programs.
pub const LONG_MODE: u64 = 0x33;
/// Wait for a thread that never stopped: our end detaches it as well.
const UNSTEPPED: Duration = Duration::from_secs(1);

impl Drop for Tracee {
    fn drop(&mut self) {
        if self.gone {
            return;
        }
        if !self.stopped {
            // Our end lets it go as well.
            if !self.steps && self.mask.is_none() && self.would_notice() {
                return;
            }
            // It runs, or waits in a system call: stop it once more to restore the mask. A
            // step under way must end first, however long that takes: see the module.
            let patience = if self.steps { Duration::MAX } else { UNSTEPPED };
            match self.halt(patience) {
                Stop::Gone | Stop::Timeout => return,
                Stop::Interrupted => {
                    let _ = self.undo_interruption();
                }
                _ => {}
            }
        }
        self.take_trap();
        self.release_signals();
        let _ = request(libc::PTRACE_DETACH, self.tid, 0, self.signal as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn one_that_another_process_traces_is_held_by_it() {
        const PATIENCE: Duration = Duration::from_secs(10);
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let tid = child.id() as i32;
        let holder = helper::Helper::start("holds a thread for a test", || {
            let _held = Tracee::stop(tid, PATIENCE);
            while !helper::is_abandoned() {
                std::thread::sleep(SLOW_LOOK);
            }
            Vec::new()
        });
        let holder = holder.expect("a process");
        let tracer = || Status::of(tid as u32).and_then(|s| s.number("TracerPid:"));
        let begin = Instant::now();
        while tracer() == Some(0) && begin.elapsed() < PATIENCE {
            std::thread::sleep(SLOW_LOOK);
        }
        let tracer = tracer().expect("it lives");
        let refused = Tracee::stop(tid, PATIENCE).err().expect("it has a tracer");
        holder.ask_to_end();
        holder.result(PATIENCE).expect("it lets go");
        assert_eq!(
            refused.found,
            format!("It is held by its tracer, process {tracer} (ff-step)")
        );
        assert!(!refused.fix.contains("yama"), "{}", refused.fix);
        assert!(Tracee::stop(tid, PATIENCE).is_ok(), "nobody holds it now");
        child.kill().expect("our own child");
        child.wait().expect("our own child");
    }
}
