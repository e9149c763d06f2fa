// SPDX-License-Identifier: MIT
//! One VALUES section in memory: the checkpoint and the slots behind it.

use crate::container::{Section, SectionLoader, Storage};
use crate::error::Result;
use crate::event::Registers;
use crate::protocol::REG_COUNT;

/// Bytes of checkpoint registers in front of a VALUES payload.
pub const CHECKPOINT_BYTES: usize = REG_COUNT * 8;

#[derive(Default)]
pub(crate) struct ValuesBuffer {
    loader: SectionLoader,
    raw: Vec<u8>,
    offset: usize,
    pub checkpoint: Registers,
}

impl ValuesBuffer {
    /// `Ok(false)`: the section is damaged. Errors: I/O.
    pub fn load(&mut self, storage: &Storage, section: &Section) -> Result<bool> {
        self.offset = CHECKPOINT_BYTES;
        match self.loader.load(storage, section, &mut self.raw) {
            Ok(()) if self.raw.len() >= CHECKPOINT_BYTES => {}
            Err(error) if !error.is_bad_file() => return Err(error),
            _ => {
                self.raw.clear();
                return Ok(false);
            }
        }
        self.checkpoint = Registers {
            valid: section.header.regs_valid,
            values: bytemuck::pod_read_unaligned(&self.raw[..CHECKPOINT_BYTES]),
        };
        Ok(true)
    }

    pub fn left(&self) -> usize {
        self.raw.len().saturating_sub(self.offset)
    }

    #[inline]
    pub fn take(&mut self, bytes: usize) -> Option<std::ops::Range<usize>> {
        let range = self.offset..self.offset + bytes;
        (range.end <= self.raw.len()).then(|| {
            self.offset = range.end;
            range
        })
    }

    #[inline]
    pub fn slice(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.raw[range]
    }
}
