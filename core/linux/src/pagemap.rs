// SPDX-License-Identifier: MIT
//! Which pages of a process exist. A look at others would make the kernel give it pages, and may
//! wait for whoever is to fill them.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
/// Bits of a page's entry in /proc/PID/pagemap.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// It is protected by userfaultfd. A mark of that alone looks as if it were swapped out.
const PROTECTED: u64 = 1 << 57;
/// Entries that are read at once.
const AT_ONCE: usize = 512;

/// The table of a process's pages.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
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
        let file = File::open(crate::proc::path(pid, "pagemap"))?;
        Ok(Pagemap { file })
    }

    /// The run that begins with the page of `address`; it ends behind `end` at the latest.
    ///
    /// # Errors
    /// When the process is gone, or has no such addresses.
    pub fn run(&self, address: u64, end: u64) -> Result<Run> {
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
        let mut entry = [0; 8];
        let read = self.file.read_exact_at(&mut entry, address / PAGE * 8);
        read.is_ok() && u64::from_le_bytes(entry) & (PRESENT | PROTECTED) == PRESENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
