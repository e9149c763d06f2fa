// SPDX-License-Identifier: MIT
//! What can stop a recording before it begins.

use std::io::{Error, ErrorKind};

use flagfinder_failure::UNAVAILABLE;
pub use flagfinder_failure::{Failure, Result};

pub(crate) fn io(what: impl Into<String>, error: &Error, fix: impl Into<String>) -> Failure {
    let still_works = "Nothing was started; existing traces can be read.";
    let failure = Failure::io(what, error, fix, still_works);
    match error.kind() {
        ErrorKind::NotFound => Failure {
            exit_code: UNAVAILABLE,
            ..failure
        },
        _ => failure,
    }
}
