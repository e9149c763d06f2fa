// SPDX-License-Identifier: MIT
//! Memory that can be read by address, whoever holds it.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// A process's memory: of a live one, or of one that left a core file.
pub trait AddressSpace {
    /// Reads what lies at `address`; how many bytes could be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;

    /// A little-endian number of `bytes` (at most 8) bytes; `None` where it is not there as a
    /// whole.
    fn number(&self, address: u64, bytes: usize) -> Option<u64> {
        let mut buffer = [0; 8];
        let wanted = bytes.min(8);
        (self.read(address, &mut buffer[..wanted]) == wanted).then(|| u64::from_le_bytes(buffer))
    }

    /// Eight bytes, little-endian; `None` where not all of them can be read.
    fn word(&self, address: u64) -> Option<u64> {
        self.number(address, 8)
    }
}

/// /proc/PID/mem.
impl AddressSpace for File {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let offset = i64::try_from(address);
        offset.map_or(0, |at| self.read_at(buffer, at as u64).unwrap_or(0))
    }
}
