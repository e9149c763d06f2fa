// SPDX-License-Identifier: MIT
//! The process that is watched: whether it may be, and whether it is still there.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

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

/// A descriptor that tells when the process ends.
pub(crate) fn open_pid(pid: u32) -> std::io::Result<OwnedFd> {
    // SAFETY: takes integers, returns a descriptor.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if descriptor < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// Whether it is over with the process.
pub(crate) fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: process.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 }
}
