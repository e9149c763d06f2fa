// SPDX-License-Identifier: MIT
//! Writes small sound files into the directory given, a folder for each target, as a start for
//! fuzzing.

mod core_file;
mod recordings;
mod tenet;
mod traces;

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("usage: seeds DIRECTORY")?);
    traces::write(&directory)?;
    recordings::write(&directory)?;
    tenet::write(&directory)?;
    core_file::write(&directory)
}
