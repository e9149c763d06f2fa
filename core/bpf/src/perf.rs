// SPDX-License-Identifier: MIT
//! Perf events that BPF programs hang on: breakpoints on data, probes on instructions, and the
//! clock.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use flagfinder_linux::perf_event::{self, Attributes, BREAKPOINT, CPU_CLOCK, SOFTWARE};

const DISABLED: u64 = 1;
const IOC_ENABLE: u64 = 0x2400;
const IOC_DISABLE: u64 = 0x2401;
const IOC_SET_BPF: u64 = 0x4004_2408;
const UPROBE_TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";

/// What a breakpoint stops at, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// Any write to the place.
    Write = 2,
    /// Any access: x86 has no trap for reads alone.
    ReadWrite = 3,
    /// The beginning of an instruction; the kernel wants a size of 8.
    Execute = 4,
}

/// A place that a debug register covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breakpoint {
    /// In the address space of whichever process runs.
    pub address: u64,
    /// Bytes: 1, 2, 4 or 8, and `address` is a multiple of it.
    pub size: u32,
    /// What it stops at.
    pub trap: Trap,
}

/// A perf event with its program. Closing it detaches.
#[derive(Debug)]
pub struct Attached {
    event: OwnedFd,
}

impl Attached {
    /// Lets the program run or rest. It takes effect at once; closing may take tenths of a second.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn enable(&self, on: bool) -> io::Result<()> {
        let request = if on { IOC_ENABLE } else { IOC_DISABLE };
        control(&self.event, request, 0)
    }
}

fn control(event: &OwnedFd, request: u64, argument: i32) -> io::Result<()> {
    // SAFETY: the requests of this file take an integer.
    match unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn open(attributes: Attributes, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        flags: DISABLED,
        sample_period: attributes.sample_period.max(1),
        wakeup_events: 1,
        ..attributes
    };
    perf_event::open(attributes, pid, cpu)
}

fn attach(event: OwnedFd, program: BorrowedFd<'_>) -> io::Result<Attached> {
    control(&event, IOC_SET_BPF, program.as_raw_fd())?;
    control(&event, IOC_ENABLE, 0)?;
    Ok(Attached { event })
}

/// Runs `program` at a breakpoint on a CPU, by whatever process: after an access, before an
/// instruction.
///
/// # Errors
/// ENOSPC: the CPU's debug registers are taken. ENODEV: the CPU is offline. EINVAL: the size is not
/// 1, 2, 4 or 8, or the address is not aligned to it.
pub fn open_breakpoint(
    cpu: u32,
    place: Breakpoint,
    program: BorrowedFd<'_>,
) -> io::Result<Attached> {
    attach(breakpoint(cpu, place)?, program)
}

/// Takes a debug register of a CPU for writes to the 8 bytes at `address`, without effect.
pub(crate) fn open_unattached_breakpoint(cpu: u32, address: u64) -> io::Result<OwnedFd> {
    let place = Breakpoint {
        address,
        size: 8,
        trap: Trap::Write,
    };
    breakpoint(cpu, place)
}

fn breakpoint(cpu: u32, place: Breakpoint) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: BREAKPOINT,
        breakpoint_kind: place.trap as u32,
        config1: place.address,
        config2: u64::from(place.size),
        ..Attributes::default()
    };
    open(attributes, -1, cpu as i32)
}

/// Runs `program` on a CPU every `period` ns, in whatever it does.
///
/// # Errors
/// ENODEV: the CPU is offline. EACCES, EPERM: not for this user.
pub fn open_clock(cpu: u32, period: u64, program: BorrowedFd<'_>) -> io::Result<Attached> {
    let attributes = Attributes {
        kind: SOFTWARE,
        config: CPU_CLOCK,
        sample_period: period,
        ..Attributes::default()
    };
    attach(open(attributes, -1, cpu as i32)?, program)
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
    let attributes = Attributes {
        kind: kind.trim().parse().map_err(io::Error::other)?,
        config1: path.as_ptr() as u64,
        config2: offset,
        ..Attributes::default()
    };
    attach(open(attributes, pid as i32, -1)?, program)
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
