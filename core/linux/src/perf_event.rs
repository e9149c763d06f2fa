// SPDX-License-Identifier: MIT
//! perf_event_open(2), which libc has no wrapper for.

use std::io::{Error, Result};
use std::os::fd::{FromRawFd, OwnedFd};

/// `struct perf_event_attr` of linux/perf_event.h, PERF_ATTR_SIZE_VER7.
#[repr(C)]
#[derive(Default)]
pub struct Attributes {
    pub kind: u32,
    /// [`open`] fills it in.
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub wakeup_events: u32,
    pub breakpoint_kind: u32,
    /// Breakpoint: address. Probe: pointer to the path.
    pub config1: u64,
    /// Breakpoint: bytes. Probe: offset in the file.
    pub config2: u64,
    pub branches: u64,
    pub user_registers: u64,
    pub user_stack: u32,
    pub clock: i32,
    pub rest: [u64; 4],
}

pub const SOFTWARE: u32 = 1;
pub const BREAKPOINT: u32 = 5;
/// The software event that a processor's time is.
pub const CPU_CLOCK: u64 = 0;
const CLOSE_ON_EXEC: u64 = 8;

/// Opens the event of a thread on all CPUs (`cpu` -1), or of all threads on a CPU (`tid` -1).
///
/// # Errors
/// The system's: what this user may not do, and what this kernel or processor does not have.
pub fn open(mut attributes: Attributes, tid: i32, cpu: i32) -> Result<OwnedFd> {
    attributes.size = size_of::<Attributes>() as u32;
    // SAFETY: the attributes live through the call and carry their own size.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            tid,
            cpu,
            -1,
            CLOSE_ON_EXEC,
        )
    };
    if descriptor < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}
