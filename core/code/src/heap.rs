// SPDX-License-Identifier: MIT
//! Heap objects: which allocation an address belongs to, by site and ordinal.

use std::collections::BTreeMap;

use flagfinder_trace::{DecodedFlow, Event, Process};
use rustc_hash::FxHashMap;

/// An object that the program allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Run-time address of its first byte, as the allocator returned it.
    pub address: u64,
    /// Bytes asked for.
    pub size: u64,
    /// Run-time address in the caller, behind the call.
    pub caller: u64,
    /// 1 for the first allocation by this caller, and so on.
    pub ordinal: u64,
    /// It had been freed when the log ended.
    pub freed: bool,
    /// Where the trace tells of it.
    pub moment: Moment,
}

/// A moment in a process's flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Index among the process's threads.
    pub thread: u32,
    /// Section of the thread's flow.
    pub section: u32,
    /// Blocks of the section that came before.
    pub block: u32,
}

/// What was allocated, by address: later allocations hide earlier ones at the same address.
///
/// Blind spot: events carry no times, so the order between threads is only as good as the timed
/// events around them. A free by one thread and a malloc by another within that gap may be put in
/// the wrong order.
#[derive(Clone, Debug, Default)]
pub struct AllocationLog {
    live: BTreeMap<u64, Allocation>,
    counts: FxHashMap<u64, u64>,
    longest: u64,
}

impl AllocationLog {
    /// Reads a whole process's events (one pass over every thread's flow).
    ///
    /// # Errors
    /// I/O only; damaged stretches are passed over.
    pub fn from_process(process: &Process) -> flagfinder_trace::Result<Self> {
        let mut timed: Vec<(u64, Moment, Event)> = Vec::new();
        let mut flow = DecodedFlow::default();
        for (index, thread) in process.threads().iter().enumerate() {
            let mut ts = thread.opened().map_or(0, |(first, _)| first);
            let mut decoder = thread.flow_decoder();
            for section in 0..thread.flow_section_count() {
                decoder.decode_folded(section, &mut flow)?;
                for (block, _, event) in flow.events.drain(..) {
                    ts = event.ts().unwrap_or(ts).max(ts);
                    if matches!(event, Event::Alloc { .. } | Event::Free { .. }) {
                        let moment = Moment {
                            thread: index as u32,
                            section: section as u32,
                            block: block as u32,
                        };
                        timed.push((ts, moment, event));
                    }
                }
            }
        }
        // Stable: the order within a thread stays.
        timed.sort_by_key(|(ts, ..)| *ts);
        let mut log = AllocationLog::default();
        for (_, moment, event) in &timed {
            log.take(event, *moment);
        }
        Ok(log)
    }

    /// Takes in the next event; others than allocations and frees do nothing.
    fn take(&mut self, event: &Event, moment: Moment) {
        match *event {
            Event::Alloc {
                addr,
                size,
                caller_pc,
                old_addr,
                ..
            } => {
                if old_addr != 0 && old_addr != addr {
                    self.free(old_addr);
                }
                if addr != 0 {
                    self.allocate(addr, size, caller_pc, moment);
                }
            }
            Event::Free { addr, .. } => self.free(addr),
            _ => {}
        }
    }

    fn allocate(&mut self, address: u64, size: u64, caller: u64, moment: Moment) {
        let count = self.counts.entry(caller).or_insert(0);
        *count += 1;
        self.longest = self.longest.max(size);
        let allocation = Allocation {
            address,
            size,
            caller,
            ordinal: *count,
            freed: false,
            moment,
        };
        self.live.insert(address, allocation);
    }

    fn free(&mut self, address: u64) {
        if let Some(allocation) = self.live.get_mut(&address) {
            allocation.freed = true;
        }
    }

    /// The allocation that holds the address: a live one if there is one, else the
    /// last that was freed there.
    pub fn at(&self, address: u64) -> Option<&Allocation> {
        let lowest = address.saturating_sub(self.longest);
        let mut freed = None;
        // Freed objects of another size may stand between; a bounded look back.
        for (_, allocation) in self.live.range(lowest..=address).rev().take(256) {
            // A zero-sized object still is somebody's.
            if address - allocation.address < allocation.size.max(1) {
                if !allocation.freed {
                    return Some(allocation);
                }
                freed = freed.or(Some(allocation));
            }
        }
        freed
    }

    /// The address of byte 0 of the `ordinal`-th allocation by `caller`.
    pub fn find(&self, caller: u64, ordinal: u64) -> Option<&Allocation> {
        self.live
            .values()
            .find(|a| a.caller == caller && a.ordinal == ordinal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alloc(addr: u64, size: u64, caller_pc: u64, old_addr: u64) -> Event {
        Event::Alloc {
            addr,
            size,
            caller_pc,
            old_addr,
            kind: 1,
        }
    }

    #[test]
    fn reuse_and_ordinals() {
        let mut log = AllocationLog::default();
        log.take(&alloc(0x1000, 256, 0x77, 0), Moment::default());
        let free = Event::Free {
            addr: 0x1000,
            caller_pc: 0,
        };
        log.take(&free, Moment::default());
        assert!(log.at(0x1080).is_some_and(|a| a.freed));
        log.take(&alloc(0x1040, 32, 0x77, 0), Moment::default());
        let found = log.at(0x1044).expect("live");
        assert_eq!(
            (found.address, found.ordinal, found.freed),
            (0x1040, 2, false)
        );
        assert_eq!(log.at(0x1060).map(|a| a.address), Some(0x1000), "freed one");
        assert_eq!(log.at(0x1100), None);
        log.take(&alloc(0x2000, 64, 0x99, 0x1040), Moment::default());
        assert!(log.at(0x1044).is_some_and(|a| a.freed), "realloc moved it");
        assert_eq!(log.find(0x99, 1).map(|a| a.address), Some(0x2000));
    }
}
