// SPDX-License-Identifier: MIT
//! A live process: which threads wait, for what, and what the repeating ones poll.
//!
//! In: a process id. Out: what [`spin`] reports. Threads that repeat something are copied and
//! looked at in their copies (`copied.rs`), or single-stepped for a moment (`core/step`), in helper
//! processes; threads that are blocked in the kernel are described from /proc alone. Only where a
//! word is named that somebody should write, the registers of the other threads are read as well
//! (`owed.rs`).

mod candidate;
mod chain;
mod choice;
mod copied;
mod counted;
mod dead;
mod deadline;
mod decided;
mod driver;
mod dry_run;
mod effects;
mod frame;
mod futex;
mod helpers;
mod hot_call;
mod judge;
mod later;
mod look;
mod machine;
mod memory;
mod moments;
mod nearly;
mod order;
mod original;
mod others;
mod owed;
mod owed_look;
mod owed_nobody;
mod owed_proof;
mod owed_text;
mod own_side;
mod pick;
mod poke;
mod prove;
mod report;
mod sample;
mod seen;
mod service;
mod sharers;
mod silent;
mod spin;
mod stack;
mod sure;
mod tried;
mod turns;
mod unchanged;
mod values;
mod wait;
mod whereabouts;
mod why;
mod writer;

pub use dead::{look_at_core, CoreOptions};
pub use deadline::Deadline;
pub use dry_run::try_word;
pub use pick::Told;
pub use poke::{poke, resolve};
pub use spin::{at_a_glance, first_look, spin, Progress, SpinOptions};
pub use why::{
    why, why_at_first, why_each, why_of_core, why_recorded, Answered, Asked, InSource, WhyOptions,
};
