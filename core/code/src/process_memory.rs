// SPDX-License-Identifier: MIT
//! The memory of a running process; nothing is stopped, and it gets no pages by it.
//!
//! Through /proc only those pages are read that the process has. For another one the kernel would
//! ask whoever is to fill it: a server of FUSE, another machine, or the process's own handler
//! (userfaultfd). That may hold the reader for ever, and the process with it. What lies in pages
//! that it does not have is known by other means ([`Absent`]), or it can't be read. Blind spot: a
//! page that goes away between the look for it and the read.

use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::ptr::without_provenance_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flagfinder_linux::pagemap::Pagemap;
use flagfinder_linux::proc::path;

use crate::absent::Absent;
use crate::address_space::AddressSpace;

const PAGE: u64 = 4096;
/// UIO_MAXIOV.
const AT_ONCE: usize = 1024;

/// What a page of a process was when it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The process had it.
    Read,
    /// The process did not have it.
    Absent,
    /// It may not be read, or the process is gone.
    Unreadable,
}

/// The memory of a process.
#[derive(Debug)]
pub struct ProcessMemory {
    memory: File,
    pages: Pagemap,
    absent: Mutex<Absent>,
}

impl ProcessMemory {
    /// `pid` may be that of a thread.
    ///
    /// # Errors
    /// When the process is gone or may not be looked at.
    pub fn open(pid: u32) -> Result<ProcessMemory> {
        flagfinder_files::heard_of(pid);
        Ok(ProcessMemory {
            memory: File::open(path(pid, "mem"))?,
            pages: Pagemap::open(pid)?,
            absent: Mutex::new(Absent::of(pid)),
        })
    }

    fn absent(&self) -> MutexGuard<'_, Absent> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`AddressSpace::read`], while a thread of the process is held: no file is asked for whose
    /// file system may be silent.
    pub fn read_held(&self, address: u64, buffer: &mut [u8]) -> usize {
        self.read_parts(address, buffer, true)
    }

    fn read_parts(&self, address: u64, buffer: &mut [u8], is_held: bool) -> usize {
        let Some(end) = address.checked_add(buffer.len() as u64) else {
            return 0;
        };
        let mut done = 0;
        while done < buffer.len() {
            let at = address + done as u64;
            let Ok(run) = self.pages.run(at, end) else {
                break;
            };
            let part = &mut buffer[done..(run.end.min(end) - address) as usize];
            let got = match run.exists {
                true => self.memory.read_at(part, at).unwrap_or(0),
                false => self.absent().read(at, part, is_held),
            };
            done += got;
            if got < part.len() {
                break;
            }
        }
        done
    }

    /// Reads those of many pages that the process has, in as few calls as it takes, and tells what
    /// each was. A page that was not read is left as it was given.
    pub fn read_there(
        &self,
        tid: u32,
        addresses: &[u64],
        pages: &mut [Box<[u8; 4096]>],
    ) -> Vec<Found> {
        let look = |at: u64| match self.pages.run(at, at + PAGE) {
            Ok(run) if run.exists => Found::Read,
            Ok(_) => Found::Absent,
            Err(_) => Found::Unreadable,
        };
        let mut found = Vec::with_capacity(addresses.len());
        for part in addresses.chunks(AT_ONCE) {
            let first = found.len();
            found.extend(part.iter().map(|at| look(*at)));
            let numbers = first..found.len();
            let numbers: Vec<usize> = numbers.filter(|n| found[*n] == Found::Read).collect();
            if numbers.is_empty() {
                continue;
            }
            let vector = |base: usize| libc::iovec {
                iov_base: without_provenance_mut(base),
                iov_len: PAGE as usize,
            };
            let remote: Vec<_> = numbers
                .iter()
                .map(|n| vector(addresses[*n] as usize))
                .collect();
            let local = numbers
                .iter()
                .map(|n| vector(pages[*n].as_mut_ptr().expose_provenance()));
            let local: Vec<_> = local.collect();
            let (from, count) = (local.as_ptr(), numbers.len() as libc::c_ulong);
            // SAFETY: the local vectors are the caller's pages; the kernel checks the remote ones.
            let got = unsafe {
                libc::process_vm_readv(tid as i32, from, count, remote.as_ptr(), count, 0)
            };
            let whole = usize::try_from(got).unwrap_or(0) / PAGE as usize;
            // The call ends at a page without rights; debuggers may read it all the same.
            for number in &numbers[whole..] {
                let (at, page) = (addresses[*number], &mut pages[*number][..]);
                found[*number] = match look(at) {
                    Found::Read if self.memory.read_exact_at(page, at).is_err() => {
                        Found::Unreadable
                    }
                    now => now,
                };
            }
        }
        found
    }

    /// Is memory mapped there that holds zeroes until it is written, and that nobody else fills?
    pub fn begins_as_zeroes(&self, address: u64) -> bool {
        self.absent().begins_as_zeroes(address)
    }

    /// The stretches (start, end) of the pages that the process has between these addresses; none
    /// when it is gone.
    pub fn there(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.pages.there(start, end).unwrap_or_default()
    }

    /// Is a page of this address mapped that the process does not have, and of which nobody can
    /// tell what it holds without asking for it? Of memory that is zero until it is written,
    /// somebody can.
    pub fn withholds(&self, address: u64) -> bool {
        let exists = self.pages.run(address, address.saturating_add(1));
        exists.is_ok_and(|run| !run.exists) && self.absent().withholds(address)
    }

    /// May a write there wait for somebody?
    pub fn may_hold_a_writer(&self, address: u64) -> bool {
        let mut absent = self.absent();
        absent.is_watched(address)
            || !self.pages.is_unprotected(address) && absent.withholds(address)
    }
}

impl AddressSpace for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        self.read_parts(address, buffer, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_this_process_is_read() {
        let memory = ProcessMemory::open(std::process::id()).expect("it lives");
        let word = 0x1234_5678_9abc_def0u64;
        let address = std::ptr::from_ref(&word) as u64;
        assert_eq!(memory.word(address), Some(word));
        assert!(!memory.withholds(address) && !memory.may_hold_a_writer(address));
        assert_eq!(memory.word(0x10), None);
        assert_eq!(memory.word(u64::MAX - 2), None);
    }

    /// Maps three pages, has them looked at, and takes them away.
    fn with_mapping(flags: i32, file: i32, look: impl FnOnce(&ProcessMemory, u64)) {
        let size = 3 * PAGE as usize;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, rights, flags, file, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        // SAFETY: within the mapping, which is private to this test.
        unsafe { memory.cast::<u8>().add(PAGE as usize).write(7) };
        let read = ProcessMemory::open(std::process::id()).expect("it lives");
        look(&read, memory.expose_provenance() as u64);
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { libc::munmap(memory, size) };
    }

    #[test]
    fn pages_that_nobody_touched_are_zero_and_are_not_made() {
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let shared = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        for flags in [private, shared] {
            with_mapping(flags, -1, |memory, start| {
                let there = [(start + PAGE, start + 2 * PAGE)];
                let end = start + 3 * PAGE;
                if memory.there(start, end) != there {
                    // Huge pages: all were made at once.
                    return;
                }
                let mut bytes = vec![1; 3 * PAGE as usize];
                match memory.read(start, &mut bytes) {
                    // Only some users may open memory that is shared.
                    0 if flags == shared => assert!(memory.withholds(start)),
                    got => assert_eq!(got, bytes.len()),
                }
                assert_eq!(memory.number(start + PAGE, 1), Some(7));
                assert_eq!(memory.there(start, end), there);
                let pages = &mut [Box::new([1; 4096]), Box::new([1; 4096])];
                let read = memory.read_there(std::process::id(), &[start, start + PAGE], pages);
                assert_eq!(read, [Found::Absent, Found::Read]);
                assert_eq!(memory.begins_as_zeroes(start), flags == private);
                assert_eq!(pages[1][0], 7);
            });
        }
    }

    #[test]
    fn a_page_of_a_file_that_the_process_lacks_is_read_from_the_file() {
        use std::os::fd::AsRawFd;
        let path = std::env::temp_dir().join(format!("ff-lacks-{}", std::process::id()));
        std::fs::write(&path, [9; 2 * PAGE as usize + 100]).expect("written");
        let file = File::open(&path).expect("opened");
        with_mapping(libc::MAP_PRIVATE, file.as_raw_fd(), |memory, start| {
            // SAFETY: our own mapping; a page that is given back is the file's again.
            unsafe {
                let third = without_provenance_mut((start + 2 * PAGE) as usize);
                libc::madvise(third, PAGE as usize, libc::MADV_DONTNEED);
            }
            assert_eq!(memory.number(start + 2 * PAGE, 2), Some(0x0909));
            assert_eq!(memory.number(start + 2 * PAGE + 99, 2), Some(9));
            let there = memory.there(start + 2 * PAGE, start + 3 * PAGE);
            assert_eq!(there, []);
        });
        std::fs::remove_file(&path).expect("removed");
    }
}
