// SPDX-License-Identifier: MIT
//! What is done with an input. A target is a function of bytes, which panics where something is
//! wrong; `fuzz_targets` has a program for each, and `tests/short.rs` runs them all.

pub mod built;
pub mod core_file;
pub mod dead;
pub mod engine;
pub mod events;
pub mod graph;
pub mod perf;
pub mod perfetto;
pub mod proc;
pub mod recorded;
pub mod runtimes;
pub mod stacks;
pub mod tenet;
pub mod trace;
pub mod watched;

mod cores;
mod imported;
mod questions;

/// Does with an input what the target is for.
pub type Target = fn(&[u8]);

/// All of them, by name.
pub const ALL: [(&str, Target); 15] = [
    ("trace", trace::run),
    ("engine", engine::run),
    ("recorded", recorded::run),
    ("events", events::run),
    ("built", built::run),
    ("stacks", stacks::run),
    ("graph", graph::run),
    ("perf", perf::run),
    ("perfetto", perfetto::run),
    ("tenet", tenet::run),
    ("core_file", core_file::run),
    ("dead", dead::run),
    ("proc", proc::run),
    ("runtimes", runtimes::run),
    ("watched", watched::run),
];
