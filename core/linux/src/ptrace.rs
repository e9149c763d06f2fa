// SPDX-License-Identifier: MIT
//! ptrace(2), with an error where it has one.

use std::io::{Error, Result};
use std::ptr::without_provenance_mut;

/// What the call returns. `data` is a number, or the address of a live buffer of ours.
///
/// # Errors
/// When the kernel refuses.
pub fn request(request: libc::c_uint, tid: i32, address: usize, data: usize) -> Result<i64> {
    // SAFETY: ptrace checks its arguments.
    let result = unsafe {
        libc::ptrace(
            request,
            tid,
            without_provenance_mut::<libc::c_void>(address),
            without_provenance_mut::<libc::c_void>(data),
        )
    };
    match result {
        -1 => Err(Error::last_os_error()),
        value => Ok(value),
    }
}

/// Signals by which a thread's own code fails. They may not be held back: a thread that blocks one
/// that it causes is killed.
pub const FAULTS: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];
