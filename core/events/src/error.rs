// SPDX-License-Identifier: MIT
//! What can fail, in the four parts that every message has.

use std::io;
use std::path::Path;

pub use flagfinder_bpf::{BpfError as EventsError, Result};

/// Exit code of a file that is none of ours, damaged or too new.
pub(crate) const BAD_FILE: i32 = 65;

pub(crate) fn bad_file(found: impl Into<String>, fix: &str) -> EventsError {
    EventsError {
        exit_code: BAD_FILE,
        what: "This is not an event file that can be read".into(),
        found: found.into(),
        fix: fix.into(),
        still_works: "Other event files are unaffected.".into(),
    }
}

pub(crate) fn damaged(offset: u64, found: impl Into<String>) -> EventsError {
    EventsError {
        exit_code: BAD_FILE,
        what: format!("The block at file offset {offset:#x} is damaged"),
        found: found.into(),
        fix: "Record again, or copy the file again from where it came; `flagfinder events check FILE` lists all damage.".into(),
        still_works: "`flagfinder events info FILE` shows what is known from the other blocks.".into(),
    }
}

pub(crate) fn io(what: String, error: &io::Error, fix: &str) -> EventsError {
    EventsError {
        exit_code: if error.kind() == io::ErrorKind::PermissionDenied {
            77
        } else {
            2
        },
        what,
        found: error.to_string(),
        fix: fix.into(),
        still_works: "Other event files are unaffected.".into(),
    }
}

pub(crate) fn cant_read(path: &Path, error: &io::Error) -> EventsError {
    io(
        format!("The event file {} can't be read", path.display()),
        error,
        "Check the path, its permissions and the disk.",
    )
}
