// SPDX-License-Identifier: MIT
//! Whether BPF and breakpoints work here, found out by trying what `watch` and `events` need of
//! them.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use flagfinder_privileges::Capability;

use crate::error::{unavailable, Result};
use crate::object::MINIMUM_KERNEL;
use crate::perf::{online_cpus, open_unattached_breakpoint};
use crate::privileges::require;

const TYPES: &str = "/sys/kernel/btf/vmlinux";

// linux/bpf.h
const COMMAND_LOAD: u64 = 5;
const KIND_TRACEPOINT: u32 = 5;
/// `r0 = 0; exit`.
const PROGRAM: [u64; 2] = [0xb7, 0x95];

/// union bpf_attr as BPF_PROG_LOAD reads it, up to the kernel's version.
#[repr(C)]
struct Load {
    kind: u32,
    instructions: u32,
    program: u64,
    license: u64,
    log: [u64; 2],
    version: [u32; 2],
}

fn load() -> io::Result<OwnedFd> {
    let attributes = Load {
        kind: KIND_TRACEPOINT,
        instructions: PROGRAM.len() as u32,
        program: PROGRAM.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log: [0; 2],
        version: [0; 2],
    };
    let size = size_of::<Load>();
    // SAFETY: the attributes and what they point to live through the call, which gets their size.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_bpf, COMMAND_LOAD, &raw const attributes, size) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// Loads a program that does nothing, and asks for the kernel's type information.
///
/// # Errors
/// The missing capability, or what the kernel has not.
pub fn check_programs() -> Result<()> {
    require(
        "Loading BPF programs",
        &[Capability::Bpf, Capability::Perfmon],
    )?;
    load().map_err(|error| {
        unavailable(
            "BPF programs can't be loaded",
            format!("bpf(BPF_PROG_LOAD): {error}"),
            format!(
                "Use Linux {MINIMUM_KERNEL} or newer, where nothing (lockdown, seccomp of a \
                 container) forbids BPF."
            ),
        )
    })?;
    fs::metadata(TYPES).map_err(|error| {
        unavailable(
            "BPF programs can't look into the kernel",
            format!("{TYPES}: {error}"),
            "Use a kernel with type information (CONFIG_DEBUG_INFO_BTF).",
        )
    })?;
    Ok(())
}

/// Sets a breakpoint for all processes on one CPU, and removes it.
///
/// # Errors
/// The missing capability, or why the kernel refuses it.
pub fn check_breakpoints() -> Result<()> {
    require(
        "Setting breakpoints for all processes",
        &[Capability::Perfmon],
    )?;
    let word: u64 = 0;
    let cpu = online_cpus().ok().and_then(|cpus| cpus.first().copied());
    let opened = open_unattached_breakpoint(cpu.unwrap_or(0), &raw const word as u64);
    opened.map(drop).map_err(|error| {
        unavailable(
            "Breakpoints can't be set",
            format!("perf_event_open: {error}"),
            "They need a CPU with free debug registers: end other tools' watchpoints (`gdb`, `perf \
             record -e mem:..`); some virtual machines hide the registers.",
        )
    })
}
