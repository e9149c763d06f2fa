// SPDX-License-Identifier: MIT
//! The ring that BPF programs write records into.

use std::os::fd::AsRawFd;
use std::time::Duration;

use aya::maps::{MapData, RingBuf};

/// One ring for all CPUs; the programs drop records when it is full.
pub struct Ring(RingBuf<MapData>);

impl Ring {
    pub(crate) fn new(ring: RingBuf<MapData>) -> Self {
        Ring(ring)
    }

    /// Waits until there is a record, or for `patience`.
    pub fn wait(&self, patience: Duration) {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let milliseconds = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one valid pollfd. EINTR ends the wait early, which callers must expect anyway.
        unsafe { libc::poll(&mut poll, 1, milliseconds) };
    }

    /// Hands the records that are there to `take`, at most `limit`; returns how many.
    pub fn drain(&mut self, limit: usize, mut take: impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        while taken < limit {
            let Some(record) = self.0.next() else { break };
            take(&record);
            taken += 1;
        }
        taken
    }
}
