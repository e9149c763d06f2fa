// SPDX-License-Identifier: MIT
//! The process that is watched: whether it may be, and whether it is still there.

use crate::{Failure, NOTHING_CHANGED};

/// Why a process can't be watched.
pub(crate) fn no_process(pid: u32, error: &std::io::Error) -> Failure {
    let mut failed = Failure::usage(
        format!("Process {pid} can't be watched"),
        error.to_string(),
        "Check the process id; to read another user's process, run it as root (sudo).",
        NOTHING_CHANGED,
    );
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        failed.exit_code = 77;
    }
    failed
}
