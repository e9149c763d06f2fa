// SPDX-License-Identifier: MIT
//! What can stop a recording, in the four parts that every message has.

use std::fmt;

use flagfinder_trace::TraceError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordErrorKind {
    /// The system refused something.
    Failed,
    /// Something the recording needs is not there.
    Unavailable,
    /// Permission was denied.
    Permission,
}

/// What failed, what was found, how to fix it, and what still works.
#[derive(Clone, Debug)]
pub struct RecordError {
    pub kind: RecordErrorKind,
    pub what: String,
    pub found: String,
    pub fix: String,
    pub still_works: String,
}

pub type Result<T> = std::result::Result<T, RecordError>;

impl RecordError {
    pub(crate) fn io(
        what: impl Into<String>,
        error: &std::io::Error,
        fix: impl Into<String>,
    ) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::PermissionDenied => RecordErrorKind::Permission,
            std::io::ErrorKind::NotFound => RecordErrorKind::Unavailable,
            _ => RecordErrorKind::Failed,
        };
        RecordError {
            kind,
            what: what.into(),
            found: error.to_string(),
            fix: fix.into(),
            still_works: "Nothing was started; existing traces can be read.".into(),
        }
    }

    /// 2 failed, 69 unavailable, 77 no permission.
    pub fn exit_code(&self) -> i32 {
        match self.kind {
            RecordErrorKind::Failed => 2,
            RecordErrorKind::Unavailable => 69,
            RecordErrorKind::Permission => 77,
        }
    }
}

impl From<TraceError> for RecordError {
    fn from(error: TraceError) -> Self {
        RecordError {
            kind: RecordErrorKind::Failed,
            what: error.what().into(),
            found: error.found().into(),
            fix: error.fix().into(),
            still_works: error.still_works().into(),
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\n  found: {}\n  fix: {}\n  still works: {}",
            self.what, self.found, self.fix, self.still_works
        )
    }
}

impl std::error::Error for RecordError {}
