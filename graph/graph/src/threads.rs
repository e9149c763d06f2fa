// SPDX-License-Identifier: MIT
//! Threads by number: what the builder knows of each, found without a search.

use rustc_hash::FxHashMap;

use crate::items::Item;

/// The kernel's own limit of thread ids (PID_MAX_LIMIT); a greater id stands only in a damaged
/// file.
const MOST: usize = 1 << 22;
const NONE: u32 = u32::MAX;

/// What goes on in a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thread {
    /// The vertex that goes on now.
    pub open: Option<u32>,
    pub last: Option<u32>,
    /// The call that it blocked in last, packed. `last` has it too, but in memory that is further
    /// away.
    pub waits_in: u64,
    pub on_cpu: Option<u64>,
    /// The vertex that began when it was woken last, by which thread, and when.
    pub woken: Option<(u32, u32, u64)>,
    pub item: Item,
    /// When it exited; it may still wake others.
    pub ended: Option<u64>,
    /// Nothing more comes of it.
    pub is_over: bool,
    /// It is one of those that were to be recorded.
    pub is_followed: bool,
    /// A switch to it or away from it was recorded.
    pub is_switched: bool,
}

/// From thread ids to numbers from 0, in the order in which they are met.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// By thread id, as far as one was met.
    near: Vec<u32>,
    far: FxHashMap<u32, u32>,
}

impl Numbers {
    pub fn get(&self, tid: u32) -> Option<u32> {
        let near = self.near.get(tid as usize);
        near.copied()
            .filter(|&number| number != NONE)
            .or_else(|| self.far.get(&tid).copied())
    }

    /// From now on the thread has this number.
    pub fn set(&mut self, tid: u32, number: u32) {
        let place = tid as usize;
        if place >= MOST {
            self.far.insert(tid, number);
            return;
        }
        if place >= self.near.len() {
            self.near.resize(place + 1, NONE);
        }
        self.near[place] = number;
    }
}

/// Something for each CPU.
#[derive(Debug)]
pub(crate) struct ByCpu<T>(Vec<Option<T>>);

impl<T> Default for ByCpu<T> {
    fn default() -> Self {
        ByCpu(Vec::new())
    }
}

impl<T> ByCpu<T> {
    /// A CPU's entry, if it ever had one.
    pub fn known(&mut self, cpu: u16) -> Option<&mut Option<T>> {
        self.0.get_mut(usize::from(cpu))
    }

    /// A CPU's entry.
    pub fn of(&mut self, cpu: u16) -> &mut Option<T> {
        let place = usize::from(cpu);
        if place >= self.0.len() {
            self.0.resize_with(place + 1, || None);
        }
        &mut self.0[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_id_leads_to_its_newest_number() {
        let mut numbers = Numbers::default();
        for (tid, number) in [(7, 0), (u32::MAX, 1), (3, 2), (7, 3)] {
            numbers.set(tid, number);
        }
        let found = [7, 3, u32::MAX, 4, 1 << 30].map(|tid| numbers.get(tid));
        assert_eq!(found, [Some(3), Some(2), Some(1), None, None]);
    }
}
