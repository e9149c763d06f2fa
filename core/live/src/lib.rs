//! A live process: which threads wait, for what, and what the repeating ones poll.
//!
//! In: a process id. Out: a [`SpinReport`]. Threads that repeat something are
//! single-stepped for a moment (`core/step`), in helper processes; threads that are blocked
//! in the kernel are described from /proc alone and never touched.

mod call;
mod chain;
mod descriptor;
mod futex;
mod helpers;
mod look;
mod memory;
mod order;
mod owners;
mod pick;
mod poke;
mod proc;
mod report;
mod sample;
mod spin;
mod stack;
mod wait;

pub use memory::Memory;
pub use poke::{poke, resolve, Poked};
pub use report::{Class, SpinReport, ThreadReport};
pub use spin::{spin, Progress, SpinOptions};
