// SPDX-License-Identifier: MIT
//! Which pages of a process exist. A look at others would make the kernel give it pages, and may
//! wait for whoever is to fill them.
//!
//! Memory of a device (/dev/uio0, a resource of the PCI bus in /sys) has no pages here: a device
//! may notice that one of its registers is read, and clear it. Blind spots: such memory that is
//! mapped after the first look, and files of devices that lie elsewhere.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use crate::proc::{path, text_of};

const PAGE: u64 = 4096;
/// Bits of a page's entry in /proc/PID/pagemap.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// It is protected by userfaultfd. A mark of that alone looks as if it were swapped out.
const PROTECTED: u64 = 1 << 57;
/// Where the files of devices lie, and what lies beside them and is memory.
const DEVICES: [&str; 2] = ["/dev/", "/sys/"];
const MEMORY: [&str; 3] = ["/dev/shm/", "/dev/zero", "/dev/hugepages"];
/// Entries that are read at once.
const AT_ONCE: usize = 512;

/// The table of a process's pages.
#[derive(Debug)]
pub struct Pagemap {
    pid: u32,
    file: File,
    /// Memory of devices: start and end, by address.
    devices: OnceLock<Vec<(u64, u64)>>,
}

/// Pages in a row of which all exist, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Do they exist?
    pub exists: bool,
    /// Behind its last page; more of the same may follow.
    pub end: u64,
}

impl Pagemap {
    /// # Errors
    /// When the process is gone or may not be looked at.
    pub fn open(pid: u32) -> Result<Pagemap> {
        Ok(Pagemap {
            pid,
            file: File::open(path(pid, "pagemap"))?,
            devices: OnceLock::new(),
        })
    }

    /// The first memory of a device that ends behind this address.
    fn next_of_device(&self, address: u64) -> Option<(u64, u64)> {
        let all = self
            .devices
            .get_or_init(|| devices(&text_of(self.pid, "maps").unwrap_or_default()));
        all.iter().copied().find(|(_, end)| address < *end)
    }

    /// The run that begins with the page of `address`. It ends behind `end` at the latest, or with
    /// the memory of a device.
    ///
    /// # Errors
    /// When the process is gone, or has no such addresses.
    pub fn run(&self, address: u64, end: u64) -> Result<Run> {
        let end = match self.next_of_device(address) {
            Some((start, behind)) if start <= address => {
                return Ok(Run {
                    exists: false,
                    end: behind,
                })
            }
            Some((start, _)) => end.min(start),
            None => end,
        };
        let first = address / PAGE;
        let wanted = (end.saturating_sub(1) / PAGE + 1).saturating_sub(first);
        let mut bytes = [0; AT_ONCE * 8];
        let bytes = &mut bytes[..wanted.clamp(1, AT_ONCE as u64) as usize * 8];
        let got = self.file.read_at(bytes, first * 8)?;
        let mut pages = bytes[..got].chunks_exact(8).map(|entry| {
            let entry = entry.try_into().map_or(0, u64::from_le_bytes);
            entry & PRESENT != 0 || entry & (SWAPPED | PROTECTED) == SWAPPED
        });
        let gone = || Error::from(ErrorKind::UnexpectedEof);
        let exists = pages.next().ok_or_else(gone)?;
        let more = pages.take_while(|next| *next == exists).count() as u64;
        Ok(Run {
            exists,
            end: (first + 1 + more) * PAGE,
        })
    }

    /// The stretches (start, end) of the pages that exist between these addresses, in order.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn there(&self, start: u64, end: u64) -> Result<Vec<(u64, u64)>> {
        let mut found: Vec<(u64, u64)> = Vec::new();
        let mut at = start;
        while at < end {
            let run = self.run(at, end)?;
            let behind = run.end.min(end);
            match found.last_mut().filter(|last| last.1 == at) {
                _ if !run.exists => {}
                Some(last) => last.1 = behind,
                None => found.push((at, behind)),
            }
            at = behind;
        }
        Ok(found)
    }

    /// Do all pages between these addresses exist?
    pub fn are_all_there(&self, start: u64, end: u64) -> bool {
        self.there(start, end)
            .is_ok_and(|found| found == [(start, end)])
    }

    /// Is the page of this address there, and may it be written without asking anybody?
    pub fn is_unprotected(&self, address: u64) -> bool {
        if self
            .next_of_device(address)
            .is_some_and(|(start, _)| start <= address)
        {
            return false;
        }
        let mut entry = [0; 8];
        let read = self.file.read_exact_at(&mut entry, address / PAGE * 8);
        read.is_ok() && u64::from_le_bytes(entry) & (PRESENT | PROTECTED) == PRESENT
    }
}

/// In a text of /proc/PID/maps.
fn devices(maps: &str) -> Vec<(u64, u64)> {
    let begins = |path: &str, with: &[&str]| with.iter().any(|start| path.starts_with(start));
    let of_device = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let path = words.nth(4)?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let range = (hex(start)?, hex(end)?);
        (begins(path, &DEVICES) && !begins(path, &MEMORY)).then_some(range)
    };
    maps.lines().filter_map(of_device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_device_is_told_by_its_file() {
        let maps = "\
1000-3000 rw-s 00000000 00:06 7                          /dev/uio0\n\
3000-4000 rw-p 00000000 00:00 0 \n\
4000-5000 rw-s 00000000 00:16 9                          /sys/devices/pci0/0:1/resource0\n\
5000-6000 rw-s 00000000 00:19 9                          /dev/shm/name\n\
6000-7000 rw-s 00000000 00:01 9                          /dev/zero (deleted)\n\
7000-8000 r--p 00000000 08:01 9                          /home/dev/a\n";
        assert_eq!(devices(maps), [(0x1000, 0x3000), (0x4000, 0x5000)]);
    }

    /// A file that may be mapped and lies where those of devices do; Linux has it since 6.16.
    #[test]
    fn memory_of_a_device_has_no_pages() {
        use std::os::fd::AsRawFd;
        const TWO: usize = 2 * PAGE as usize;
        let Ok(file) = File::open("/sys/kernel/btf/vmlinux") else {
            return;
        };
        // SAFETY: fresh mappings, the second in the place of a part of the first.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let (all, none) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::null_mut());
            let memory = libc::mmap(none, 2 * TWO, all, flags, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            memory.cast::<u8>().write_bytes(1, 2 * TWO);
            let second = memory.cast::<u8>().add(TWO / 2).cast();
            let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_POPULATE;
            let fd = file.as_raw_fd();
            if libc::mmap(second, TWO, libc::PROT_READ, flags, fd, 0) == libc::MAP_FAILED {
                return;
            }
            memory.expose_provenance() as u64
        };
        let pages = Pagemap::open(std::process::id()).expect("its own");
        let there = pages.there(start, start + 4 * PAGE).expect("it lives");
        let (second, last) = (start + PAGE, start + 3 * PAGE);
        assert_eq!(there, [(start, second), (last, last + PAGE)]);
        assert!(!pages.is_unprotected(second) && pages.is_unprotected(start));
        // SAFETY: our own mappings, which nobody uses any more.
        unsafe {
            libc::munmap(
                std::ptr::with_exposed_provenance_mut(start as usize),
                2 * TWO,
            )
        };
    }

    #[test]
    fn runs_of_pages_are_told_and_those_that_nobody_touched() {
        const PAGES: usize = 600;
        // SAFETY: a fresh mapping.
        let memory = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let size = PAGES * PAGE as usize;
            let memory = libc::mmap(std::ptr::null_mut(), size, rights, flags, -1, 0);
            libc::madvise(memory, size, libc::MADV_NOHUGEPAGE);
            memory
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let start = memory.expose_provenance() as u64;
        for page in [1, 2] {
            // SAFETY: within the mapping.
            unsafe { memory.cast::<u8>().add(page * PAGE as usize).write(1) };
        }
        let pages = Pagemap::open(std::process::id()).expect("its own");
        let run = |from: u64, to: u64| {
            let run = pages.run(start + from, start + to).expect("it lives");
            (run.exists, (run.end - start) / PAGE)
        };
        assert_eq!(run(0, 4 * PAGE), (false, 1));
        assert_eq!(run(PAGE + 7, 4 * PAGE), (true, 3));
        assert_eq!(run(PAGE, PAGE + 1), (true, 2));
        assert_eq!(
            run(3 * PAGE, PAGES as u64 * PAGE),
            (false, 3 + AT_ONCE as u64)
        );
        let there = pages.there(start, start + 9 * PAGE).expect("it lives");
        assert_eq!(there, [(start + PAGE, start + 3 * PAGE)]);
        assert!(pages.is_unprotected(start + PAGE) && !pages.is_unprotected(start));
        assert!(pages.run(u64::MAX - PAGE, u64::MAX).is_err());
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { libc::munmap(memory, PAGES * PAGE as usize) };
    }
}
