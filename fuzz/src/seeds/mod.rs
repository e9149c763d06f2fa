// SPDX-License-Identifier: MIT
//! Small sound files for the targets to begin with, a folder for each target.

mod built;
mod core_file;
mod proc;
mod recordings;
mod runtimes;
mod stacks;
mod tenet;
mod traces;
mod watched;

use std::error::Error;
use std::path::Path;

/// Writes them into the folder.
///
/// # Errors
/// When a file can't be written, or a program that makes one fails.
pub fn write(directory: &Path) -> Result<(), Box<dyn Error>> {
    traces::write(directory)?;
    recordings::write(directory)?;
    built::write(directory)?;
    stacks::write(directory)?;
    tenet::write(directory)?;
    core_file::write(directory)?;
    proc::write(directory)?;
    runtimes::write(directory)?;
    watched::write(directory)
}
