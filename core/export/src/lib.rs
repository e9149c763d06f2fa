//! Recordings in the formats of other tools, and theirs as recordings.
//!
//! - drcov (DynamoRIO's coverage files: Lighthouse, Cartographer, lcov converters): which blocks ran.
//! - Tenet's text traces (Tenet, Frinet): each instruction's effect on registers and memory, both ways.
//! - Perfetto: the system calls and signals of all threads over time.

mod assemble;
mod drcov;
mod error;
mod image;
mod perfetto;
mod tenet;
mod tenet_import;

pub use drcov::{drcov, Coverage};
pub use error::ExportError;
pub use image::Image;
pub use perfetto::perfetto;
pub use tenet::{tenet, Exported};
pub use tenet_import::{import_tenet, Imported};
