// SPDX-License-Identifier: MIT
//! What can fail, in the four parts that every message has.

use std::fmt;

/// What failed, what was found, how to fix it, what still works; and the exit code that goes with
/// it.
#[derive(Clone, Debug)]
pub struct BpfError {
    /// 2 failed, 69 unavailable, 77 no permission.
    pub exit_code: i32,
    pub what: String,
    pub found: String,
    pub fix: String,
    pub still_works: String,
}

pub type Result<T> = std::result::Result<T, BpfError>;

impl BpfError {
    /// Something that this needs is not there or does not work here.
    pub fn unavailable(
        what: impl Into<String>,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        BpfError {
            exit_code: 69,
            what: what.into(),
            found: found.into(),
            fix: fix.into(),
            still_works: "Recording, diff and spin need no BPF.".into(),
        }
    }

    /// The request can't be met as it stands.
    pub fn usage(
        what: impl Into<String>,
        found: impl Into<String>,
        fix: impl Into<String>,
        still_works: impl Into<String>,
    ) -> Self {
        BpfError {
            exit_code: 2,
            what: what.into(),
            found: found.into(),
            fix: fix.into(),
            still_works: still_works.into(),
        }
    }
}

impl fmt::Display for BpfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.found)
    }
}

impl std::error::Error for BpfError {}

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
