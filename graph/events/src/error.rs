// SPDX-License-Identifier: MIT
//! What can fail with event files.

use std::io;
use std::path::Path;

pub use flagfinder_failure::{Failure, Result};

use crate::format::FORMAT;

pub(crate) fn damaged(offset: u64, found: impl Into<String>) -> Failure {
    Failure::bad_file(
        format!("The block at file offset {offset:#x} is damaged"),
        found,
        "Record again, or copy the file again from where it came; `flagfinder events check FILE` \
         lists all damage.",
        "`flagfinder events info FILE` shows what is known from the other blocks.",
    )
}

pub(crate) fn io(what: impl Into<String>, error: &io::Error, fix: &str) -> Failure {
    Failure::io(what, error, fix, FORMAT.still_works)
}

pub(crate) fn cant_read(path: &Path, error: &io::Error) -> Failure {
    FORMAT.cant_read(Some(path), error)
}
