// SPDX-License-Identifier: MIT
//! A system call that a thread was seen to make and that came back.

use std::time::Duration;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeCall {
    /// As x86-64 Linux counts them.
    pub number: u32,
    /// All six argument registers, used or not.
    pub args: [u64; 6],
    /// Behind the instruction that made it.
    pub pc: u64,
    /// Negative errno. Of a question for a socket's error (SO_ERROR), that error.
    pub result: i64,
    /// The path, or the address of a socket, that it is about; empty: none, or it is not known.
    pub about: Vec<u8>,
    /// Those that it is about; a long list is cut.
    pub descriptors: Vec<i32>,
    /// How much the thread did of its own before it, in time on a processor.
    pub after: Duration,
    /// How long it took, without the time for which the thread waited for a processor.
    pub took: Duration,
    /// For how long of that the thread was on a processor.
    pub ran: Duration,
}
