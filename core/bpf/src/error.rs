// SPDX-License-Identifier: MIT
//! What can fail with BPF.

pub use flagfinder_failure::{Failure, Result};

/// Something that this needs is not there or does not work here.
pub fn unavailable(
    what: impl Into<String>,
    found: impl Into<String>,
    fix: impl Into<String>,
) -> Failure {
    Failure::unavailable(what, found, fix, "Recording, diff and spin need no BPF.")
}

/// An error with all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}
