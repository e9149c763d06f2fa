// SPDX-License-Identifier: MIT
//! What `epoll_wait` would find ready, asked of each descriptor that it watches.
//!
//! What the copy has read of a descriptor nobody has taken out of it: that one counts as not ready
//! any more. Blind spot: a descriptor that tells each event only once (EPOLLET) does not say which
//! it has told; the answer is then not known.

use std::io::Result;

use flagfinder_linux::descriptors::Watch;

use crate::replica::Replica;

/// `struct epoll_event` on x86-64.
const ENTRY: u64 = 12;
/// Events that epoll reports though nobody asked for them.
const UNASKED: u32 = (libc::EPOLLHUP | libc::EPOLLERR) as u32;

impl Replica<'_> {
    /// How many entries are ready, once they are written; `None`: not known.
    pub(crate) fn ready_in_epoll(&mut self, a: &[u64; 6]) -> Result<Option<i64>> {
        let descriptor = a[0] as i32;
        if self.ready(descriptor, libc::POLLIN, None) == Some(0) {
            return Ok(Some(0));
        }
        let Some(Ok(watched)) = self.descriptors().map(|d| d.watched(descriptor)) else {
            return Ok(None);
        };
        let mut found = Vec::new();
        for watch in watched {
            let Some(events) = self.ready_of(&watch) else {
                return Ok(None);
            };
            if events != 0 && watch.events & libc::EPOLLET as u32 != 0 {
                return Ok(None);
            }
            if events != 0 {
                found.push((events, watch.data));
            }
        }
        found.truncate(usize::try_from(a[2]).unwrap_or(0));
        self.tell_events(a[1], &found)?;
        Ok(Some(found.len() as i64))
    }

    fn ready_of(&mut self, watch: &Watch) -> Option<u32> {
        let asked = watch.events & u32::from(u16::MAX >> 1);
        let mut now = self.ready(watch.descriptor, asked as i16, None)? as u16 as u32;
        if now & libc::POLLNVAL as u32 != 0 {
            // A closed descriptor is watched no more.
            return Some(0);
        }
        if self
            .moved
            .get(&watch.descriptor)
            .is_some_and(|bytes| *bytes > 0)
        {
            now &= !(libc::EPOLLIN as u32);
        }
        Some(now & (asked | UNASKED))
    }

    /// Writes the events that `epoll_wait` hands back: what happened, and what the watch is known
    /// by.
    pub(crate) fn tell_events(&mut self, entries: u64, found: &[(u32, u64)]) -> Result<()> {
        for (number, (events, data)) in found.iter().enumerate() {
            let mut entry = Vec::with_capacity(ENTRY as usize);
            entry.extend(events.to_le_bytes());
            entry.extend(data.to_le_bytes());
            self.write(entries.wrapping_add(number as u64 * ENTRY), &entry)?;
        }
        Ok(())
    }
}
