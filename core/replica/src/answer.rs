// SPDX-License-Identifier: MIT
//! What a copy's system call is answered with, or why the copy halts there.

/// Why a copy can't go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// It would make a call whose answer is not known, or one that acts on the world.
    Call {
        /// As x86-64 Linux counts them.
        number: u32,
        /// All six argument registers, used or not.
        arguments: [u64; 6],
    },
    /// It would wait in this call for something that the copy can't bring.
    Blocks {
        /// As x86-64 Linux counts them.
        number: u32,
        /// All six argument registers, used or not.
        arguments: [u64; 6],
    },
    /// The thread or the process would end.
    Exits,
    /// Its code raised a signal.
    Fault {
        /// Of the signal, as Linux counts them.
        number: i32,
        /// What the signal tells as its place (`si_addr`).
        address: u64,
    },
    /// It needs memory that can't be read without giving the process that it is copied from pages.
    Untouched {
        /// Where it lies.
        address: u64,
    },
    /// It runs code of 32-bit programs, or makes a call as they do.
    Short,
    /// It touched more memory than copies may.
    TooLarge,
    /// The process that it ran in was ended.
    Gone,
}

pub(crate) enum Answer {
    Result(i64),
    Halt(Halt),
}

pub(crate) fn error(number: i32) -> Answer {
    Answer::Result(-i64::from(number))
}
