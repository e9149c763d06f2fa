// SPDX-License-Identifier: MIT
//! What the targets share: inputs that get past the checksums, files in memory, a limit for
//! allocations.

mod image;
mod limit;
mod memory_file;
mod repair;

pub use image::{image, CODE_BASE, CODE_BYTES};
pub use memory_file::MemoryFile;
pub use repair::{repair, repair_events, repair_graph};

#[global_allocator]
static LIMITED: limit::Limited = limit::Limited;
