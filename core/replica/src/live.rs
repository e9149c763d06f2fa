// SPDX-License-Identifier: MIT
//! A live process as a source.

use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use flagfinder_code::{Mapping, Maps};
use flagfinder_step::{StepError, Tracee};

use crate::child::extended;
use crate::descriptors::Descriptors;
use crate::source::{Identity, Page, Region, Source, ThreadState, PAGE};

/// Pages of the stack that are read while the thread stands still: the frames that it returns to
/// soon.
const STACK_PAGES: u64 = 16;
/// Bytes below the stack pointer that code may use (System V ABI, 3.2.2).
const RED_ZONE: u64 = 128;

/// See the module.
pub struct Live {
    pid: u32,
    memory: File,
    regions: Vec<Region>,
    /// Where the kernel's own code for programs lies.
    vdso: Option<Region>,
    descriptors: Option<Descriptors>,
}

impl Live {
    /// Reads the address space; nothing is stopped.
    ///
    /// # Errors
    /// Four parts: the process is gone, or may not be read.
    pub fn open(pid: u32) -> Result<Live, StepError> {
        let refused = |e: Error| StepError::system(format!("Process {pid} can't be copied."), &e);
        let memory = File::open(format!("/proc/{pid}/mem")).map_err(refused)?;
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(refused)?;
        let maps = Maps::parse(&maps);
        let vdso = maps.all().iter().find(|mapping| mapping.path == "[vdso]");
        Ok(Live {
            pid,
            memory,
            regions: maps.all().iter().filter_map(region).collect(),
            vdso: vdso.and_then(region),
            descriptors: Descriptors::open(pid).ok(),
        })
    }

    /// Is it the kernel's own code for programs, which asks clocks that a copy can't read?
    pub fn is_vdso(&self, address: u64) -> bool {
        self.vdso.is_some_and(|region| region.holds(address))
    }

    /// The registers and the top of the stack of one thread, and for how long it stood still.
    ///
    /// # Errors
    /// Four parts: the thread is gone, may not be traced, or does not stop within `patience`.
    pub fn capture(
        &self,
        tid: u32,
        patience: Duration,
    ) -> Result<(ThreadState, Duration), StepError> {
        self.capture_with(tid, patience, &mut [].iter())
    }

    /// The same with these pages, as they are at that moment too.
    ///
    /// # Errors
    /// As [`Self::capture`].
    pub fn capture_with(
        &self,
        tid: u32,
        patience: Duration,
        pages: &mut dyn Iterator<Item = &u64>,
    ) -> Result<(ThreadState, Duration), StepError> {
        let identity = identity(self.pid, tid).map_err(|e| {
            StepError::system(format!("Thread {tid} of process {} is gone.", self.pid), &e)
        })?;
        let begin = Instant::now();
        let tracee = Tracee::stop(tid as i32, patience)?;
        let registers = tracee.registers_before_call()?;
        let extended = extended(tid as i32);
        let mut stack = self.stack(registers.rsp);
        stack.extend(pages.filter_map(|page| self.page(*page)));
        drop(tracee);
        let pause = begin.elapsed();
        let extended = extended
            .map_err(|e| StepError::system(format!("Vector registers of thread {tid}."), &e))?;
        let state = ThreadState {
            registers,
            extended,
            stack,
            identity,
        };
        Ok((state, pause))
    }

    fn stack(&self, pointer: u64) -> Vec<(u64, Page)> {
        let Some(region) = self.regions.iter().find(|region| region.holds(pointer)) else {
            return Vec::new();
        };
        let first = (pointer.saturating_sub(RED_ZONE) & !(PAGE - 1)).max(region.start);
        let last = region.end.min(first + STACK_PAGES * PAGE);
        let addresses = (first..last).step_by(PAGE as usize);
        addresses.filter_map(|address| self.page(address)).collect()
    }

    fn page(&self, address: u64) -> Option<(u64, Page)> {
        let mut page = Box::new([0; PAGE as usize]);
        self.read_page(address, &mut page)
            .then_some((address, page))
    }
}

impl Source for Live {
    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn read_page(&self, address: u64, page: &mut [u8; PAGE as usize]) -> bool {
        self.memory.read_exact_at(page, address).is_ok()
    }

    fn descriptors(&self) -> Option<&Descriptors> {
        self.descriptors.as_ref()
    }
}

/// The kernel's own page at the top of the address space can't be mapped.
fn region(mapping: &Mapping) -> Option<Region> {
    let right = |given: bool, right: i32| if given { right } else { 0 };
    let region = Region {
        start: mapping.start,
        end: mapping.end,
        protection: right(mapping.readable, libc::PROT_READ)
            | right(mapping.writable, libc::PROT_WRITE)
            | right(mapping.executable, libc::PROT_EXEC),
        fresh: false,
    };
    i64::try_from(region.end).is_ok().then_some(region)
}

/// The ids as the thread itself sees them, in the innermost pid namespace.
pub(crate) fn identity(pid: u32, tid: u32) -> Result<Identity, Error> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"))?;
    let numbers = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let numbers = line.unwrap_or_default().split_whitespace();
        let numbers: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
        numbers
    };
    let last = |name| numbers(name).last().copied();
    let pair = |name| match numbers(name)[..] {
        [real, effective, ..] => Some([real, effective]),
        _ => None,
    };
    let missing = || Error::from(ErrorKind::InvalidData);
    Ok(Identity {
        pid: last("NStgid:").ok_or_else(missing)?,
        tid: last("NSpid:").ok_or_else(missing)?,
        parent: last("PPid:").ok_or_else(missing)?,
        user: pair("Uid:").ok_or_else(missing)?,
        group: pair("Gid:").ok_or_else(missing)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_regions_and_the_kernels_page_is_none() {
        let text = "7f00-8000 r-xp 00000000 08:01 1 /lib/x y\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]";
        let maps = Maps::parse(text);
        let [code, kernels] = maps.all() else {
            panic!("two mappings")
        };
        let found = region(code).expect("a region");
        assert_eq!((found.start, found.end), (0x7f00, 0x8000));
        assert_eq!(found.protection, libc::PROT_READ | libc::PROT_EXEC);
        assert_eq!(region(kernels), None);
    }

    #[test]
    fn a_thread_knows_its_own_ids() {
        let pid = std::process::id();
        let known = identity(pid, pid).expect("this process");
        assert_eq!(known.pid, pid);
        // SAFETY: these calls cannot fail.
        let (parent, user) = unsafe { (libc::getppid() as u32, libc::getuid()) };
        assert_eq!((known.parent, known.user[0]), (parent, user));
    }
}
