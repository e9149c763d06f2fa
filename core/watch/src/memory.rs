// SPDX-License-Identifier: MIT
//! Memory of the target, read through /proc: nothing stops for it, and debug registers do not see
//! it (the kernel reads through its own mapping).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

#[derive(Debug)]
pub(crate) struct Memory(File);

impl Memory {
    /// # Errors
    /// When the process is gone, or its memory may not be read.
    pub fn open(pid: u32) -> io::Result<Memory> {
        File::open(flagfinder_linux::proc::path(pid, "mem")).map(Memory)
    }

    /// As many bytes as are mapped from `address` on, at most `bytes.len()`; returns how many.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        self.0.read_at(bytes, address).unwrap_or(0)
    }

    /// A little-endian number of up to 8 bytes.
    pub fn number(&self, address: u64, size: u32) -> Option<u64> {
        let mut bytes = [0; 8];
        let wanted = size.min(8) as usize;
        (self.read(address, &mut bytes[..wanted]) == wanted).then(|| u64::from_le_bytes(bytes))
    }
}
