// SPDX-License-Identifier: MIT
//! What can fail with traces.

pub use flagfinder_failure::{Failure, Result};

pub(crate) const STILL_WORKS: &str = "Other traces are unaffected.";

pub(crate) fn io(what: impl Into<String>, error: &std::io::Error, fix: &str) -> Failure {
    Failure::io(what, error, fix, STILL_WORKS)
}

pub(crate) fn cant_read(error: &std::io::Error) -> Failure {
    let fix = "Check the disk; copy the file and try again.";
    io("The trace can't be read", error, fix)
}

pub(crate) fn damaged(offset: u64, found: &std::io::Error) -> Failure {
    Failure::bad_file(
        format!("The section at file offset {offset:#x} is damaged"),
        found.to_string(),
        "Record again, or copy the file again from where it came.",
        "All other sections are read; this one is reported as a gap.",
    )
}
