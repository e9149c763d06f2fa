//! Single-stepping one thread of a live process into a [`Window`].
//!
//! In: a process and a thread id. Out: what the thread executed, instruction by
//! instruction. Only that thread stops; asynchronous signals wait until it is let go.
//! Blind spots: about 30 us a step; a thread that never leaves a system call yields
//! nothing; loaded values are read just before the instruction and may race.

mod error;
mod ptrace;
mod registers;
mod stepper;

pub use error::StepError;
pub use stepper::{step_thread, Limits};
