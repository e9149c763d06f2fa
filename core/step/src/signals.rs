// SPDX-License-Identifier: MIT
//! The signal mask of a thread while it is held.
//!
//! Asynchronous signals wait until it is let go. SIGTRAP may never be blocked nor ignored while a
//! thread is stepped: the kernel ends a step with a SIGTRAP that it forces on the thread, and
//! where that is blocked or ignored, it takes it out of the mask and puts the default action in
//! the place of the program's handler (`force_sig_info_to_task` in kernel/signal.c), for all
//! threads and for good. So a thread is stepped without SIGTRAP in its mask, calls are not stepped
//! ([`Tracee::call`]), and a process that ignores SIGTRAP is not stepped at all. A SIGTRAP that
//! was sent to a thread that blocks it goes back to those that wait, and the stepping ends.
//! Blind spot: another thread that begins to ignore SIGTRAP meanwhile.

use std::mem::size_of;

use flagfinder_linux::proc::Status;
use flagfinder_linux::ptrace::{request, FAULTS};

use crate::error::{self, Result};
use crate::ptrace::Tracee;

const TRAP: u64 = 1 << (libc::SIGTRAP - 1);

impl Tracee {
    fn mask_now(&self) -> Option<u64> {
        let mut mask = 0u64;
        let at = &raw mut mask as usize;
        request(libc::PTRACE_GETSIGMASK, self.tid, size_of::<u64>(), at).ok()?;
        Some(mask)
    }

    fn set_mask(&self, mask: u64) -> bool {
        let at = &raw const mask as usize;
        request(libc::PTRACE_SETSIGMASK, self.tid, size_of::<u64>(), at).is_ok()
    }

    /// Fails if a step would change what the process does with SIGTRAP.
    ///
    /// # Errors
    /// Four parts: it ignores SIGTRAP, or one waits.
    pub(crate) fn check_traps(&self) -> Result<()> {
        let status =
            Status::of(self.tid as u32).ok_or_else(|| error::does_not_stop(self.tid, true))?;
        let has = |field: &str| status.mask(field) & TRAP != 0;
        if has("SigIgn:") {
            return Err(error::ignores_traps(self.tid));
        }
        match has("SigPnd:") || has("ShdPnd:") {
            true => Err(error::trap_waits(self.tid)),
            false => Ok(()),
        }
    }

    /// Does the thread block SIGTRAP itself?
    pub(crate) fn blocks_traps(&self) -> bool {
        let own = self.mask.or_else(|| self.mask_now());
        own.is_some_and(|own| own & TRAP != 0)
    }

    /// Blocks what is asynchronous. Faults of the code itself stay deliverable, unless the thread
    /// blocks them.
    pub(crate) fn hold_signals(&mut self) {
        let Some(own) = self.mask.or_else(|| self.mask_now()) else {
            return;
        };
        if self.set_mask(held(own)) {
            self.mask = Some(own);
        }
    }

    /// For a step: holds signals, and lets SIGTRAP in.
    pub(crate) fn let_traps_in(&mut self) -> Result<()> {
        if self.mask.is_none() {
            self.hold_signals();
        }
        let Some(own) = self.mask else {
            return Err(error::keeps_its_mask(self.tid));
        };
        match own & TRAP == 0 || self.set_mask(held(own) & !TRAP) {
            true => Ok(()),
            false => Err(error::keeps_its_mask(self.tid)),
        }
    }

    /// Gives the thread its own mask back: for a call that reads, changes or inherits it,
    /// and for a handler, whose return restores it.
    pub(crate) fn release_signals(&mut self) {
        if let Some(own) = self.mask.take() {
            self.set_mask(own);
        }
    }
}

/// The mask of a thread that is held, from its own.
fn held(own: u64) -> u64 {
    let deliverable = FAULTS.iter().fold(0u64, |all, s| all | 1 << (s - 1));
    !deliverable | own
}
