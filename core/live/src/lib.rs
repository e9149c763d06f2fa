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
mod chosen_threads;
mod copied;
mod counted;
mod dead;
mod deadline;
mod driver;
mod dry_run;
mod effects;
mod ends_wait;
mod findings;
mod frame;
mod futex;
mod helpers;
mod hot_call;
mod idle_helpers;
mod later;
mod low_scores;
mod memory;
mod original;
mod others;
mod owed;
mod owed_look;
mod owed_nobody;
mod owed_proof;
mod owed_text;
mod own_side;
mod poke;
mod prove;
mod repeated_copies;
mod report;
mod sample;
mod sharers;
mod silent;
mod spin;
mod stack;
mod standing;
mod stepping_job;
mod task_copies;
mod thread_order;
mod thread_ways;
mod tried;
mod turns;
mod unchanged;
mod values;
mod verdict;
mod vm_words;
mod wait;
mod whereabouts;
mod why;
mod writer;

pub use dead::{look_at_core, CoreOptions};
pub use deadline::Deadline;
pub use dry_run::try_word;
pub use poke::{poke, resolve};
pub use spin::{at_a_glance, first_look, spin, Progress, SpinOptions};
pub use thread_ways::Told;
pub use why::{
    why, why_at_first, why_each, why_of_core, why_recorded, Answered, Asked, InSource, WhyOptions,
};
