// SPDX-License-Identifier: MIT
//! What can fail, in the four parts that every message has.

use std::io;

/// The request can't be met, or the system refused something.
pub const FAILED: i32 = 2;
/// A file is none of ours, damaged, or too new.
pub const BAD_FILE: i32 = 65;
/// Something that is needed is not there, or does not work here.
pub const UNAVAILABLE: i32 = 69;
/// The system does not permit it.
pub const DENIED: i32 = 77;

/// What failed, what was found, how to fix it, what still works; and the exit code that goes with
/// it. `what` and `found` have no full stop: a colon stands between them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {found}")]
pub struct Failure {
    /// The command's: one of the constants above.
    pub exit_code: i32,
    /// What could not be done.
    pub what: String,
    /// What stood in the way, often the system's own words.
    pub found: String,
    /// What the user can do: whole sentences.
    pub fix: String,
    /// What is not affected: whole sentences.
    pub still_works: String,
}

/// Of all in these crates that can fail for a reason that the user is told.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// The four parts in the order in which they are shown.
    pub fn new(
        exit_code: i32,
        what: impl Into<String>,
        found: impl Into<String>,
        fix: impl Into<String>,
        still_works: impl Into<String>,
    ) -> Self {
        Failure {
            exit_code,
            what: what.into(),
            found: found.into(),
            fix: fix.into(),
            still_works: still_works.into(),
        }
    }

    /// The request can't be met as it stands.
    pub fn usage(
        what: impl Into<String>,
        found: impl Into<String>,
        fix: impl Into<String>,
        still_works: impl Into<String>,
    ) -> Self {
        Self::new(FAILED, what, found, fix, still_works)
    }

    /// A file that can't be read for what is in it.
    pub fn bad_file(
        what: impl Into<String>,
        found: impl Into<String>,
        fix: impl Into<String>,
        still_works: impl Into<String>,
    ) -> Self {
        Self::new(BAD_FILE, what, found, fix, still_works)
    }

    /// Something that this needs is not there or does not work here.
    pub fn unavailable(
        what: impl Into<String>,
        found: impl Into<String>,
        fix: impl Into<String>,
        still_works: impl Into<String>,
    ) -> Self {
        Self::new(UNAVAILABLE, what, found, fix, still_works)
    }

    /// The system refused something.
    pub fn io(
        what: impl Into<String>,
        error: &io::Error,
        fix: impl Into<String>,
        still_works: impl Into<String>,
    ) -> Self {
        let code = match error.kind() {
            io::ErrorKind::PermissionDenied => DENIED,
            _ => FAILED,
        };
        Self::new(code, what, error.to_string(), fix, still_works)
    }

    /// A reader may go on without this file, or without this part of it.
    pub fn is_bad_file(&self) -> bool {
        self.exit_code == BAD_FILE
    }
}
