// SPDX-License-Identifier: MIT
//! Single-stepping one thread of a live process into a [`Window`](flagfinder_machine::Window).
//!
//! In: a process and a thread id. Out: what the thread executed, instruction by
//! instruction. Only that thread stops; asynchronous signals wait until it is let go.
//! Blind spots: about 30 us a step; a thread that never leaves a system call yields
//! nothing; loaded values are read just before the instruction and may race; a restartable
//! sequence (rseq) never gets through while it is stepped.

mod builder;
mod calls;
mod entry;
mod error;
mod helper;
mod let_go;
mod pause;
mod pin;
mod popped;
mod ptrace;
mod queue;
pub mod registers;
mod restart;
mod sampler;
mod signals;
mod stepper;
mod stoppable;

pub use builder::{ReadMemory, WindowBuilder};
pub use calls::{watch_calls, Watched};
pub use entry::Entry;
pub use error::{unable, unable_by};
pub use helper::{is_abandoned, is_hurried, Helper};
pub use pause::Pause;
pub use pin::{places, Pin};
pub use ptrace::Tracee;
pub use restart::{before_call, is_pending};
pub use sampler::Sampler;
pub use stepper::{step_thread, Ended, Limits, Stepped};
