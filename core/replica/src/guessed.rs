// SPDX-License-Identifier: MIT
//! An answer that a call of a dead thread may have got.
//!
//! In: a call. Out: whether an answer is one for it.

use flagfinder_linux::syscalls;

/// An answer for each call of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guess {
    /// As x86-64 Linux counts them.
    pub number: u32,
    /// The descriptor that it is about, if the call has one as first argument.
    pub descriptor: Option<i32>,
    /// Of calls for several things: which.
    pub(crate) command: Option<u64>,
    /// May the loop turn on it? Other calls only say something about the process, or take what
    /// came once.
    pub decides: bool,
    /// What it answers.
    pub answer: Guessed,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guessed {
    /// Negative errno where the call fails. What it fills holds zeroes.
    Result(i64),
    /// A poll finds only this descriptor ready, for these events.
    Ready(i32, i16),
}

pub(crate) fn command(number: u32, a: &[u64; 6]) -> Option<u64> {
    let has = matches!(i64::from(number), libc::SYS_ioctl | libc::SYS_fcntl);
    has.then_some(a[1])
}

impl Guess {
    /// Is it an answer for this call?
    pub fn is_of(&self, number: u32, a: &[u64; 6]) -> bool {
        self.number == number
            && self.descriptor == syscalls::descriptor(number, a)
            && self.command == command(number, a)
    }

    /// Are both answers for the same call?
    pub fn is_of_same_call(&self, other: &Guess) -> bool {
        let call = |guess: &Guess| (guess.number, guess.descriptor, guess.command);
        call(self) == call(other)
    }
}
