// SPDX-License-Identifier: MIT
//! What is supposed of the world in which a copy goes on (`suppose.rs`), and what came of it.

use rustc_hash::FxHashSet;

/// What happens in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supposition {
    /// Time passes, and nothing else.
    Nothing,
    /// What the thread waits for comes: a line of text, a connection, the word of a lock at 0.
    Line,
    /// The same, but small binary numbers; the word that it sleeps on counts up.
    Number,
    /// The other end is closed; the thread is woken without a reason.
    End,
    /// The call fails; its time is over.
    Failure,
}

/// A call whose answer was supposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supposed {
    /// As x86-64 Linux counts them.
    pub number: u32,
    /// All six argument registers, used or not.
    pub arguments: [u64; 6],
    /// Of several descriptors, the one that was said to be ready.
    pub descriptor: Option<i32>,
    /// What the copy was answered; negative errno where the call fails.
    pub result: i64,
}

/// A call that a copy made while answers were supposed; none reached the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeCall {
    /// As x86-64 Linux counts them.
    pub number: u32,
    /// All six argument registers, used or not.
    pub arguments: [u64; 6],
    /// How many answers had been supposed before.
    pub supposed: usize,
}

/// A place in the code, and the stack pointer there.
pub(crate) type Place = (u64, u64);

/// A branch by which a woken thread comes back to its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recheck {
    /// Behind the call that waits.
    pub(crate) wait: Place,
    pub(crate) branch: Place,
    /// It comes to the branch so often before it.
    pub(crate) before: u32,
    pub(crate) other: u64,
}

pub(crate) struct Supposing {
    pub how: Supposition,
    pub answered: Vec<Supposed>,
    /// The first calls.
    pub made: Vec<MadeCall>,
    /// Descriptors that were said to be ready, and were not read since.
    pub ready: FxHashSet<i32>,
    /// The thread stands before the call that it waits in.
    pub first: bool,
    /// Bytes of text handed out so far.
    pub handed: usize,
}

impl Supposing {
    /// What the thread waits in comes back.
    pub fn of_wait(how: Supposition, first: bool) -> Supposing {
        Supposing {
            how,
            answered: Vec::new(),
            made: Vec::new(),
            ready: FxHashSet::default(),
            first,
            handed: 0,
        }
    }
}
