// SPDX-License-Identifier: MIT
//! perf_event_open(2), which libc has no wrapper for.

use std::io::{Error, Result};
use std::os::fd::{FromRawFd, OwnedFd};

/// `struct perf_event_attr` of linux/perf_event.h, PERF_ATTR_SIZE_VER7.
#[repr(C)]
#[derive(Default)]
pub struct Attributes {
    /// `type`: [`SOFTWARE`], [`BREAKPOINT`], or what sysfs has for uprobes.
    pub kind: u32,
    /// [`open`] fills it in.
    pub size: u32,
    /// Which event of that kind.
    pub config: u64,
    /// Events from one sample to the next; of [`CPU_CLOCK`] they are ns.
    pub sample_period: u64,
    /// PERF_SAMPLE_*: what a sample holds.
    pub sample_type: u64,
    /// PERF_FORMAT_*: what read(2) gives beside the count.
    pub read_format: u64,
    /// The bits from `disabled` (1) on.
    pub flags: u64,
    /// Samples until a poll of the descriptor wakes.
    pub wakeup_events: u32,
    /// `bp_type`: 1 reads, 2 writes, 3 both, 4 execution.
    pub breakpoint_kind: u32,
    /// Breakpoint: address. Probe: pointer to the path.
    pub config1: u64,
    /// Breakpoint: bytes. Probe: offset in the file.
    pub config2: u64,
    /// `branch_sample_type`: which branches a sample holds.
    pub branches: u64,
    /// `sample_regs_user`: a bit for each register that a sample holds.
    pub user_registers: u64,
    /// `sample_stack_user`: bytes of stack that a sample holds.
    pub user_stack: u32,
    /// `clockid`; counts only with the bit `use_clockid` of `flags`.
    pub clock: i32,
    /// What stands behind it in version 7.
    pub rest: [u64; 4],
}

/// PERF_TYPE_SOFTWARE.
pub const SOFTWARE: u32 = 1;
/// PERF_TYPE_BREAKPOINT.
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
