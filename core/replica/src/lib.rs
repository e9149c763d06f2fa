// SPDX-License-Identifier: MIT
//! A copy of one thread in a process of ours, where things can be tried out.
//!
//! In: a [`Source`] of registers and pages: a live process, or a core file. Out: what the thread
//! does from there, and what it would do if a word held another value ([`Experiment`]).
//!
//! The thread that is copied stands still while its registers are read, and at no other time. Its
//! copy is a process with an empty address space: each page comes in as private memory when it is
//! first touched. The copy's system calls are answered by rules (`calls.rs`) and never made:
//! PTRACE_SYSEMU skips them, and a seccomp filter kills the copy if one is made all the same.
//!
//! The idea of changing one variable of a failing run's state to see whether the failure stays is
//! Zeller's, *Isolating Cause-Effect Chains from Computer Programs* (FSE 2002).
//!
//! Blind spots: memory is read after the thread runs on, so a copy may see a mixture of two
//! moments; a loop that needs other threads to move does not go on in a copy of one thread; the
//! time stamp counter is the processor's.

mod afterwards;
mod ahead;
mod answer;
mod asked;
mod between_looks;
mod calls;
mod child;
mod clock;
mod core_file;
mod core_layout;
mod core_notes;
mod core_write;
mod descriptors;
mod epoll;
mod experiment;
mod guess;
mod guessed;
mod kept;
mod last_call;
mod live;
mod locked;
#[cfg(test)]
mod made_up;
mod native;
mod opened;
mod pages;
mod program;
mod recalled;
mod recheck;
mod replica;
mod rounds;
mod software;
mod source;
mod stretches;
mod suppose;
mod supposition;
mod touched;
mod unpacked;
mod unready;
mod window;

pub use answer::Halt;
pub use core_file::{CoreFile, Files};
pub use core_notes::CoreThread;
pub use core_write::write_core;
pub use experiment::{Experiment, Left, Outcome, Proof, Unfit, Word};
pub use guessed::{Guess, Guessed};
pub use kept::{keep, Keeping};
pub use last_call::Recalled;
pub use live::{Live, Moment, Wanted};
pub use native::{Ran, Watched, MOST_WATCHED};
pub use pages::Pages;
pub use recheck::Rechecks;
pub use replica::{Event, Replica};
pub use rounds::Rounds;
pub use source::{Page, Source, ThreadState, PAGE};
pub use supposition::{MadeCall, Recheck, Supposed, Supposition};
pub use touched::{count_pages_anew, MOST_TOUCHED_MIB};
pub use unready::Unready;
pub use window::{go_round, Round};
