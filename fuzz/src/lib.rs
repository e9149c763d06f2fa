// SPDX-License-Identifier: MIT
//! The targets, the files they begin with, and what they share: inputs that get past the checksums,
//! files in memory, limits for memory.
//!
//! `make fuzz SECONDS=3600` feeds changed input to everything that reads files, recordings, cores,
//! sources and texts of /proc, at the lowest priority, on all CPUs. It fails when an input crashes
//! a target, keeps it busy for 25 s or makes it need more than 1 GiB (256 MiB at once), and says
//! where that input is, in `artifacts/TARGET/`. `fuzz/run SECONDS TARGET...` takes some targets
//! only. Inputs have at most 64 KiB. Targets repair magic numbers and checksums first; in `trace`,
//! `events` and `graph` every eighth input stays as it is. `corpus/` has what the targets begin
//! with, and inputs that were found since. `make test` runs each target for two seconds at most, on
//! the same inputs each time; of such a run a failing input is `target/tmp/TARGET.failed`.
//!
//! `fuzz/one TARGET FILE [-minimize_crash=1 -runs=10000]` and `fuzz/sources.py FILE` try one input.
//! Each that fails becomes a unit test beside the code that is cured.
//!
//! A new target:
//! 1. `targets/NAME.rs` has `pub fn run(data: &[u8])`, which panics where something is wrong. Give
//!    it what the command gives to the engine, not a parser alone. An answer must not depend on the
//!    machine: paths lead nowhere, ids belong to nobody.
//! 2. Name it in `targets/mod.rs`, and in `run`; add `fuzz_targets/NAME.rs` and its `[[bin]]`.
//! 3. `seeds` writes sound inputs into a folder of its name. Where a format is packed, let the
//!    input be what is packed (`built`): a change is to reach the logic.
//! 4. `cargo test --release -p flagfinder-fuzz --test short -- NAME`, then `fuzz/run 600 NAME`.
//!    Look into `artifacts/NAME/log`: `cov` is to grow.

mod core_writer;
mod image;
mod limit;
mod memory_file;
mod mutate;
mod repair;
pub mod seeds;
pub mod targets;

pub use image::{image, CODE_BASE, CODE_BYTES};
pub use memory_file::MemoryFile;
pub use mutate::mutate;
pub use repair::{repair, repair_events, repair_graph};

#[global_allocator]
static LIMITED: limit::Limited = limit::Limited;
