// SPDX-License-Identifier: MIT
//! Perf events that BPF programs hang on: breakpoints on data, probes on instructions, and the
//! clock.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

/// perf_event_open(2), PERF_ATTR_SIZE_VER7 of linux/perf_event.h. libc has no struct for it.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    /// Breakpoint: address. Probe: pointer to the path.
    config1: u64,
    /// Breakpoint: bytes. Probe: offset in the file.
    config2: u64,
    rest: [u64; 7],
}

const PERF_TYPE_SOFTWARE: u32 = 1;
const COUNT_CPU_CLOCK: u64 = 0;
const PERF_TYPE_BREAKPOINT: u32 = 5;
const BREAKPOINT_WRITE: u32 = 2;
const BREAKPOINT_READ_WRITE: u32 = 3;
const DISABLED: u64 = 1;
const CLOSE_ON_EXEC: u64 = 8;
const IOC_ENABLE: u64 = 0x2400;
const IOC_SET_BPF: u64 = 0x4004_2408;
const UPROBE_TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";

/// A perf event with its program. Closing it detaches.
#[derive(Debug)]
pub struct Attached {
    _event: OwnedFd,
}

fn open(attributes: &mut Attributes, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    attributes.size = size_of::<Attributes>() as u32;
    attributes.flags = DISABLED;
    attributes.sample_period = attributes.sample_period.max(1);
    attributes.wakeup_events = 1;
    // SAFETY: the attributes live through the call and carry their own size.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const *attributes,
            pid,
            cpu,
            -1,
            CLOSE_ON_EXEC,
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

fn attach(event: OwnedFd, program: BorrowedFd<'_>) -> io::Result<Attached> {
    for (request, argument) in [(IOC_SET_BPF, program.as_raw_fd()), (IOC_ENABLE, 0)] {
        // SAFETY: both requests take an integer.
        if unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(Attached { _event: event })
}

/// Runs `program` after every access to `size` bytes at `address` on a CPU, by whatever process.
///
/// # Errors
/// ENOSPC: the CPU's debug registers are taken. ENODEV: the CPU is offline. EINVAL: `size` is not
/// 1, 2, 4 or 8, or `address` is not aligned to it.
pub fn open_breakpoint(
    cpu: u32,
    address: u64,
    size: u32,
    reads: bool,
    program: BorrowedFd<'_>,
) -> io::Result<Attached> {
    let kind = if reads {
        BREAKPOINT_READ_WRITE
    } else {
        BREAKPOINT_WRITE
    };
    attach(breakpoint(cpu, address, size, kind)?, program)
}

/// Takes a debug register of a CPU for writes to the 8 bytes at `address`, without effect.
pub(crate) fn open_unattached_breakpoint(cpu: u32, address: u64) -> io::Result<OwnedFd> {
    breakpoint(cpu, address, 8, BREAKPOINT_WRITE)
}

fn breakpoint(cpu: u32, address: u64, size: u32, kind: u32) -> io::Result<OwnedFd> {
    let mut attributes = Attributes {
        kind: PERF_TYPE_BREAKPOINT,
        breakpoint_kind: kind,
        config1: address,
        config2: u64::from(size),
        ..Attributes::default()
    };
    open(&mut attributes, -1, cpu as i32)
}

/// Runs `program` on a CPU every `period` ns, in whatever it does.
///
/// # Errors
/// ENODEV: the CPU is offline. EACCES, EPERM: not for this user.
pub fn open_clock(cpu: u32, period: u64, program: BorrowedFd<'_>) -> io::Result<Attached> {
    let mut attributes = Attributes {
        kind: PERF_TYPE_SOFTWARE,
        config: COUNT_CPU_CLOCK,
        sample_period: period,
        ..Attributes::default()
    };
    attach(open(&mut attributes, -1, cpu as i32)?, program)
}

/// Runs `program` before the instruction at `offset` in a file, in every thread of a process.
///
/// # Errors
/// ENOENT or ENODEV: this kernel has no uprobes. EINVAL: there is no instruction that can be
/// hooked.
pub fn open_uprobe(
    pid: u32,
    file: &Path,
    offset: u64,
    program: BorrowedFd<'_>,
) -> io::Result<Attached> {
    let kind = fs::read_to_string(UPROBE_TYPE)?;
    let path = std::ffi::CString::new(file.as_os_str().as_encoded_bytes())?;
    let mut attributes = Attributes {
        kind: kind.trim().parse().map_err(io::Error::other)?,
        config1: path.as_ptr() as u64,
        config2: offset,
        ..Attributes::default()
    };
    attach(open(&mut attributes, pid as i32, -1)?, program)
}

/// Numbers of the CPUs that run now.
///
/// # Errors
/// When sysfs is not there.
pub fn online_cpus() -> io::Result<Vec<u32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    Ok(cpu_list(text.trim()))
}

/// `0-3,5`.
fn cpu_list(text: &str) -> Vec<u32> {
    let ranges = text.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpu_list("0-3,5"), [0, 1, 2, 3, 5]);
        assert_eq!(cpu_list("0"), [0]);
        assert_eq!(cpu_list(""), Vec::<u32>::new());
    }

    #[test]
    fn attributes_have_the_kernel_s_size() {
        // PERF_ATTR_SIZE_VER7
        assert_eq!(size_of::<Attributes>(), 128);
    }
}
