// SPDX-License-Identifier: MIT
//! The targets, the files they begin with, and what they share: inputs that get past the checksums,
//! files in memory, limits for memory.

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
