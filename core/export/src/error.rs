// SPDX-License-Identifier: MIT
//! What can go wrong: reading the recording, writing the file, understanding another tool's.

use std::io;

use flagfinder_trace::Failure;

/// What kept an export or an import from its end.
#[derive(Debug)]
pub enum ExportError {
    /// The recording, or the other tool's file, can't be read or understood.
    Trace(Failure),
    /// The system refused to read the other tool's file or to write.
    Write(io::Error),
}

impl From<Failure> for ExportError {
    fn from(error: Failure) -> Self {
        ExportError::Trace(error)
    }
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        ExportError::Write(error)
    }
}

/// Input that is not what it is said to be.
pub(crate) fn foreign(what: &str, found: String, fix: &str, still_works: &str) -> ExportError {
    Failure::bad_file(what, found, fix, still_works).into()
}
