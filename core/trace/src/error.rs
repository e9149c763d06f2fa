// SPDX-License-Identifier: MIT
//! The trace crate's one error type. It always has four parts, so that whoever
//! shows it (CLI, Python) need not invent any of them.

use std::fmt;

/// Which failure it was; decides the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceErrorKind {
    /// The operating system refused (missing file, permission, disk full).
    Io,
    /// The file is no trace, is newer than this reader, or is damaged.
    BadTrace,
}

/// What failed, what was found, how to fix it, and what still works.
#[derive(Clone, Debug)]
pub struct TraceError(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    kind: TraceErrorKind,
    what: String,
    found: String,
    fix: String,
    still_works: String,
}

pub type Result<T> = std::result::Result<T, TraceError>;

impl TraceError {
    pub fn new(
        kind: TraceErrorKind,
        what: impl Into<String>,
        found: impl Into<String>,
        fix: impl Into<String>,
        still_works: impl Into<String>,
    ) -> Self {
        TraceError(Box::new(Parts {
            kind,
            what: what.into(),
            found: found.into(),
            fix: fix.into(),
            still_works: still_works.into(),
        }))
    }

    pub(crate) fn io(
        what: impl Into<String>,
        error: &std::io::Error,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(
            TraceErrorKind::Io,
            what,
            error.to_string(),
            fix,
            "Other trace files are unaffected.",
        )
    }

    pub fn kind(&self) -> TraceErrorKind {
        self.0.kind
    }
    /// What failed.
    pub fn what(&self) -> &str {
        &self.0.what
    }
    /// What was found instead.
    pub fn found(&self) -> &str {
        &self.0.found
    }
    /// How to fix it.
    pub fn fix(&self) -> &str {
        &self.0.fix
    }
    /// What still works.
    pub fn still_works(&self) -> &str {
        &self.0.still_works
    }
    /// 65 for a bad trace, 2 for a failure of the system.
    pub fn exit_code(&self) -> i32 {
        match self.0.kind {
            TraceErrorKind::Io => 2,
            TraceErrorKind::BadTrace => 65,
        }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\n  found: {}\n  fix: {}\n  still works: {}",
            self.what(),
            self.found(),
            self.fix(),
            self.still_works()
        )
    }
}

impl std::error::Error for TraceError {}
