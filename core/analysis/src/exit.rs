// SPDX-License-Identifier: MIT
//! A way out of the loop, and what it depends on.

use flagfinder_machine::Window;
use iced_x86::FlowControl;
use rustc_hash::FxHashSet;

/// A branch, or another transfer of control, that would leave what repeats.
#[derive(Clone, Debug)]
pub struct Exit {
    /// Last execution in a whole iteration.
    pub step: u32,
    pub(crate) transfer: Transfer,
    /// If it is a branch: whether it always jumped.
    pub taken: bool,
    /// Where control would go but never went; `None` if that is data, too.
    pub other: Option<u64>,
    /// What decides it.
    pub(crate) sources: Vec<Source>,
    /// Words and system calls that enter it, each once, however often it is read on the way.
    pub words: usize,
    /// The thread itself changes, from iteration to iteration, something that decides it (a
    /// counter, a deadline).
    pub induction: bool,
    /// It ends a scan: the other way leads to the next element.
    pub ends_scan: bool,
}

impl Exit {
    pub(crate) fn count_words(&mut self, window: &Window) {
        let place = |source: &Source| match *source {
            Source::Load { step, access, .. } => window.accesses(step)[usize::from(access)].address,
            Source::Syscall { step } => Some(window.pc(step)),
        };
        let places: FxHashSet<Option<u64>> = self.sources.iter().map(place).collect();
        self.words = places.len();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// Memory read at `step` that this thread does not write in the loop.
    Load {
        step: u32,
        access: u8,
        /// It only forms the address of another load.
        address_only: bool,
    },
    /// Result or output of the system call at `step`.
    Syscall { step: u32 },
}

/// How control goes on at an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// One of two ways, by a condition.
    Branch,
    /// To an address that is data.
    Jump,
    /// To a function whose address is data.
    Call,
}

impl Transfer {
    /// Of an instruction that goes to an address which it computes.
    pub(crate) fn of(flow: FlowControl) -> Option<Transfer> {
        match flow {
            FlowControl::IndirectBranch | FlowControl::Return => Some(Transfer::Jump),
            FlowControl::IndirectCall => Some(Transfer::Call),
            _ => None,
        }
    }
}
