// SPDX-License-Identifier: MIT
//! Which pages of a process exist. A look at others would make the kernel give it pages.

use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
/// Bits of a page's entry in /proc/PID/pagemap: it is in memory, or swapped out.
const PRESENT_OR_SWAPPED: u64 = 3 << 62;

/// The table of a process's pages.
pub struct Pagemap {
    file: File,
}

impl Pagemap {
    /// # Errors
    /// When the process is gone or may not be looked at.
    pub fn open(pid: u32) -> Result<Pagemap> {
        let file = File::open(crate::proc::path(pid, "pagemap"))?;
        Ok(Pagemap { file })
    }

    /// The stretches (start, end) of the pages that exist between these addresses, in order.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn there(&self, start: u64, end: u64) -> Result<Vec<(u64, u64)>> {
        let mut entries = vec![0; ((end - start) / PAGE) as usize * 8];
        self.file.read_exact_at(&mut entries, start / PAGE * 8)?;
        let mut found: Vec<(u64, u64)> = Vec::new();
        for (entry, at) in entries
            .chunks_exact(8)
            .zip((start..).step_by(PAGE as usize))
        {
            let entry = entry.try_into().map_or(0, u64::from_le_bytes);
            if entry & PRESENT_OR_SWAPPED == 0 {
                continue;
            }
            match found.last_mut().filter(|(_, end)| *end == at) {
                Some((_, end)) => *end = at + PAGE,
                None => found.push((at, at + PAGE)),
            }
        }
        Ok(found)
    }
}
