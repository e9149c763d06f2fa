// SPDX-License-Identifier: MIT
//! Puts the programs in place: breakpoints on each CPU, a probe for each site.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use flagfinder_bpf::{online_cpus, open_breakpoint, open_uprobe, Attached, Breakpoint};

use crate::protocol::WATCH_MAX;
use crate::site::Site;
use crate::{unavailable, Failure, Result};

pub(crate) fn duplicate(descriptor: BorrowedFd<'_>) -> Result<OwnedFd> {
    descriptor.try_clone_to_owned().map_err(|error| {
        let fix = "Raise the limit of open files (ulimit -n).";
        unavailable("A descriptor can't be duplicated", error.to_string(), fix)
    })
}

/// The breakpoints, by CPU. CPUs that come online later get theirs from `renew`.
pub(crate) struct Breakpoints {
    program: OwnedFd,
    places: Vec<Breakpoint>,
    cpus: Vec<(u32, Vec<Attached>)>,
}

impl Breakpoints {
    /// # Errors
    /// When the kernel refuses one.
    pub fn open(program: OwnedFd, places: Vec<Breakpoint>) -> Result<Breakpoints> {
        let mut breakpoints = Breakpoints {
            program,
            places,
            cpus: Vec::new(),
        };
        breakpoints.renew()?;
        Ok(breakpoints)
    }

    /// Covers one more place.
    ///
    /// # Errors
    /// When the kernel refuses one.
    pub fn add(&mut self, place: Breakpoint) -> Result<()> {
        let program = self.program.as_fd();
        let cpus = self.cpus.iter();
        let opened = cpus.map(|(cpu, _)| breakpoint(*cpu, place, program));
        let opened = opened.collect::<Result<Vec<_>>>()?;
        for ((_, attached), event) in self.cpus.iter_mut().zip(opened) {
            attached.extend(event);
        }
        self.places.push(place);
        Ok(())
    }

    /// Lets them trap or rest, all of them at once.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn enable(&self, on: bool) -> io::Result<()> {
        let mut all = self.cpus.iter().flat_map(|(_, attached)| attached);
        all.try_for_each(|event| event.enable(on))
    }

    /// Covers the CPUs that run now and are not covered.
    ///
    /// # Errors
    /// When the kernel refuses one.
    pub fn renew(&mut self) -> Result<()> {
        let online = online_cpus().map_err(|error| failed(&error))?;
        // An offlined CPU has lost its breakpoints.
        self.cpus.retain(|(cpu, _)| online.contains(cpu));
        for cpu in online {
            if self.cpus.iter().any(|(known, _)| *known == cpu) {
                continue;
            }
            let program = self.program.as_fd();
            let places = self.places.iter();
            let opened = places.map(|place| breakpoint(cpu, *place, program));
            let opened = opened.collect::<Result<Vec<_>>>()?;
            self.cpus
                .push((cpu, opened.into_iter().flatten().collect()));
        }
        Ok(())
    }
}

/// `None`: the CPU is offline.
fn breakpoint(cpu: u32, place: Breakpoint, program: BorrowedFd<'_>) -> Result<Option<Attached>> {
    match open_breakpoint(cpu, place, program) {
        Ok(event) => Ok(Some(event)),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(failed(&error)),
    }
}

/// Refuses what can't fit before anything is tried.
pub(crate) fn check_count(words: usize) -> Result<()> {
    if words <= WATCH_MAX {
        return Ok(());
    }
    Err(full(format!("{words} words were asked for")))
}

fn full(found: String) -> Failure {
    Failure::usage(
        "There are not enough debug registers",
        format!(
            "{found}; an x86 CPU has {WATCH_MAX}, and other tools (gdb, perf) use the same ones"
        ),
        "Watch fewer words at once, or end the other tools' watchpoints (`gdb`, `perf record -e \
         mem:..`, another `flagfinder watch`).",
        "--site MODULE+OFFSET hooks instructions and needs no debug register.",
    )
}

fn failed(error: &io::Error) -> Failure {
    if error.raw_os_error() == Some(libc::ENOSPC) {
        return full("a CPU has none left".into());
    }
    unavailable(
        "The breakpoints can't be set",
        format!("perf_event_open: {error}"),
        "Hardware breakpoints need a CPU with debug registers; some virtual machines hide them.",
    )
}

/// Hooks the sites by probes. Removing them takes the kernel tenths of a second, in which they
/// still trap.
///
/// # Errors
/// When the kernel refuses one.
pub(crate) fn probes(pid: u32, sites: &[Site], program: &OwnedFd) -> Result<Vec<Attached>> {
    let opened = sites.iter().map(|site| {
        let opened = open_uprobe(pid, &site.file, site.file_offset, program.as_fd());
        opened.map_err(|error| {
            unavailable(
                format!("{} can't be hooked", site.code),
                format!("perf_event_open(uprobe): {error}"),
                "It needs a kernel with CONFIG_UPROBE_EVENTS and a file system with the file still \
                 in place.",
            )
        })
    });
    opened.collect()
}
