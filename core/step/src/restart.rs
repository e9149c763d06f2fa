// SPDX-License-Identifier: MIT
//! System calls that our interrupt cut short must go on as if nothing had happened.
//!
//! The kernel restarts most of them by itself. A few answer EINTR to any interruption (see
//! "Interruption of system calls and library functions by stop signals" in signal(7)): those
//! are put back to their `syscall` instruction. A timeout then counts from the start again.

use flagfinder_linux::tracing::{answers_eintr, is_restart};
use flagfinder_waits::proc::Call;

/// ERESTART_RESTARTBLOCK.
const GOES_ON_BY_ANOTHER: i64 = -516;

pub const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Stopped in a call that the kernel will run again: rip stands behind it.
pub fn is_pending(registers: &libc::user_regs_struct) -> bool {
    registers.orig_rax != u64::MAX && is_restart(registers.rax as i64)
}

/// The call that it is in: rip stands behind it.
pub(crate) fn call(registers: &libc::user_regs_struct) -> Call {
    let r = registers;
    Call {
        number: r.orig_rax as u32,
        args: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9],
        sp: r.rsp,
        pc: r.rip,
    }
}

/// The registers as they were before such a call.
pub fn before_call(registers: &libc::user_regs_struct) -> libc::user_regs_struct {
    let mut before = *registers;
    before.rip -= SYSCALL.len() as u64;
    before.rax = registers.orig_rax;
    before
}

/// Stopped in a call that our interrupt, and nothing else, has cut short.
pub fn is_cut_short(tid: i32, registers: &libc::user_regs_struct) -> bool {
    if registers.orig_rax == u64::MAX {
        return false;
    }
    let is_eintr =
        registers.rax as i64 == -i64::from(libc::EINTR) && answers_eintr(registers.orig_rax as u32);
    let goes_on_by_another = registers.rax as i64 == GOES_ON_BY_ANOTHER
        && i64::from(registers.orig_rax as u32) != libc::SYS_restart_syscall;
    is_eintr && !has_signal(tid) || goes_on_by_another && is_filtered(tid)
}

/// Are its calls filtered (seccomp)? What can't be asked is.
pub(crate) fn is_filtered(tid: i32) -> bool {
    let status = flagfinder_linux::proc::text(format!("/proc/{tid}/status"));
    let mode = |text: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Seccomp:"))?;
        line.trim().parse::<u32>().ok()
    };
    status.is_ok_and(|text| mode(&text).is_none_or(|mode| mode != 0))
}

/// A set of signals in /proc/TID/status.
fn signals(tid: i32, names: &[&str]) -> Option<u64> {
    let status = flagfinder_linux::proc::text(format!("/proc/{tid}/status")).ok()?;
    let set = |name: &&str| {
        let line = status.lines().find_map(|line| line.strip_prefix(*name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    names
        .iter()
        .map(set)
        .try_fold(0, |all, set| Some(all | set?))
}

/// A signal is about to be delivered: the EINTR may be its doing.
fn has_signal(tid: i32) -> bool {
    let pending = signals(tid, &["SigPnd:", "ShdPnd:"]);
    let blocked = signals(tid, &["SigBlk:"]);
    pending
        .zip(blocked)
        .is_none_or(|(pending, blocked)| pending & !blocked != 0)
}

/// A SIGTRAP for this very thread waits to be delivered.
pub fn is_trap_pending(tid: i32) -> bool {
    let pending = signals(tid, &["SigPnd:"]);
    pending.is_some_and(|set| set >> (libc::SIGTRAP - 1) & 1 == 1)
}
