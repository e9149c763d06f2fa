// SPDX-License-Identifier: MIT
//! Recordings in the formats of other tools, and theirs as recordings.
//!
//! - drcov (DynamoRIO's coverage files: Lighthouse, Cartographer, lcov converters): which blocks
//!   ran.
//! - Tenet's text traces (Tenet, Frinet): each instruction's effect on registers and memory, both
//!   ways.
//! - Perfetto: the system calls and signals of all threads over time.
//!
//! And recordings of a thread that a debugger steps (`stepping.rs`): like a text trace they are
//! assembled from single instructions.

mod assemble;
mod drcov;
mod error;
mod image;
mod perfetto;
mod plan;
mod stepping;
mod tenet;
mod tenet_import;

pub use assemble::Start;
pub use drcov::{drcov, Coverage};
pub use error::ExportError;
pub use image::Image;
pub use perfetto::perfetto;
pub use plan::{Kind, Operand, Plan};
pub use stepping::{Mapped, Stepping};
pub use tenet::{tenet, Exported};
pub use tenet_import::{import_tenet, Imported};
