// SPDX-License-Identifier: MIT
//! Writes what the targets begin with into the directory given.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("usage: seeds DIRECTORY")?);
    flagfinder_fuzz::seeds::write(&directory)
}
