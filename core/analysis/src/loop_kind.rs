// SPDX-License-Identifier: MIT
//! How a loop that waits spends its time: by the calls and instructions in it.

use flagfinder_linux::syscalls::{self, Role};
use flagfinder_machine::Window;
use iced_x86::Mnemonic;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::spin_loop::SpinLoop;

/// What a loop does while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LoopKind {
    /// It only runs.
    Busy,
    /// It runs, with `pause` instructions.
    Pause,
    /// It gives the processor away: to other threads, or to other tasks of its own scheduler.
    Yield,
    /// It sleeps for a time.
    Sleep,
    /// It makes a system call: it asks the kernel, or lets it work.
    Syscall,
    /// It takes a lock and gives it back.
    Lock,
    /// It tries to change its flag by an atomic instruction, as a thread tries a lock in use.
    Rmw,
}

pub fn kind(window: &Window, spin: &SpinLoop) -> LoopKind {
    let in_loop = window
        .syscalls
        .iter()
        .filter(|call| call.step >= spin.first_step());
    let rounds = spin.starts.len() - 1;
    let mut counts: FxHashMap<Role, usize> = FxHashMap::default();
    for call in in_loop {
        *counts
            .entry(syscalls::role(call.number, &call.args))
            .or_default() += 1;
    }
    let often = |role| counts.get(&role).is_some_and(|&n| n * 2 >= rounds);
    if often(Role::Poll) || often(Role::Work) {
        return LoopKind::Syscall;
    }
    if often(Role::Sleep) {
        return LoopKind::Sleep;
    }
    // A scheduler takes locks of its own: its yield is not lock-protected polling.
    if stack_switches(window, spin) >= rounds {
        return LoopKind::Yield;
    }
    if locked_rounds(window, spin) * 2 >= rounds {
        return LoopKind::Lock;
    }
    if often(Role::Yield) {
        return LoopKind::Yield;
    }
    let mut steps = spin.first_step()..spin.end;
    if steps.any(|step| window.code(step).mnemonic == Mnemonic::Pause) {
        LoopKind::Pause
    } else {
        LoopKind::Busy
    }
}

/// Iterations that take a lock and give it back: an atomic changes a word, and a later atomic or
/// store of the same iteration changes it again.
fn locked_rounds(window: &Window, spin: &SpinLoop) -> usize {
    let mut taken: FxHashMap<u64, usize> = FxHashMap::default();
    let mut locked = vec![false; spin.starts.len()];
    for step in spin.first_step()..spin.end {
        if window.is_silent(step) {
            continue;
        }
        let atomic = window.code(step).is_atomic();
        let round = spin.round_of(step);
        for access in window.accesses(step).iter().filter(|access| access.write) {
            let Some(address) = access.address else {
                continue;
            };
            if taken.get(&address) == Some(&round) {
                locked[round] = true;
            } else if atomic {
                taken.insert(address, round);
            }
        }
    }
    locked.into_iter().filter(|&yes| yes).count()
}

/// The stack pointer moves in a way that no frame explains: a scheduler in user space (Go,
/// coroutines) runs something else and comes back. So it yields.
fn stack_switches(window: &Window, spin: &SpinLoop) -> usize {
    const FRAME_MOST: u64 = 64 << 10;
    let mut last = 0;
    let mut switches = 0;
    for step in spin.first_step()..spin.end {
        let rsp = window.rsp(step);
        if rsp != 0 && last != 0 && rsp.abs_diff(last) > FRAME_MOST {
            switches += 1;
        }
        last = if rsp == 0 { last } else { rsp };
    }
    switches
}
