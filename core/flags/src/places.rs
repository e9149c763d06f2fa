// SPDX-License-Identifier: MIT
//! Where a thread's loop has its code.
//!
//! In: a window and its analysis. Out: stretches of addresses ([`Places`]), by which a later stage
//! sees whether the thread left the loop. Blind spot: what the loop does seldom.

use std::collections::BTreeMap;

use flagfinder_analysis::Analysis;
use flagfinder_machine::decoded::is_syscall;
use flagfinder_machine::Window;
use serde::{Deserialize, Serialize};

/// Stretches of run-time addresses, each with its end, which is not part of it; in order, and apart
/// from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Places(Vec<(u64, u64)>);

impl Places {
    /// All that the thread executed since it came to its loop. Empty for a task that goes from
    /// thread to thread: there the thread leaves the loop and the task does not.
    pub(crate) fn of(window: &Window, analysis: &Analysis) -> Places {
        if analysis.of_task {
            return Places::default();
        }
        let marker = analysis.spin.marker;
        let first = (0..window.len()).find(|step| window.code_index(*step) == marker);
        let steps = first.map_or(0..0, |first| first..window.len());
        let mut known = vec![false; window.code_count()];
        for step in steps {
            known[window.code_index(step) as usize] = true;
        }
        let codes = (0..window.code_count() as u32).filter(|index| known[*index as usize]);
        Places::from_iter(codes.map(|index| {
            let instruction = &window.code_at(index).instruction;
            // In a call a thread is behind the instruction that made it.
            let end = instruction.next_ip() + u64::from(is_syscall(instruction));
            (instruction.ip(), end)
        }))
    }

    /// Is nothing known of where it is?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Is this address of it?
    pub fn hold(&self, address: u64) -> bool {
        let behind = self.0.partition_point(|(start, _)| *start <= address);
        let last = behind.checked_sub(1).map(|at| self.0[at]);
        last.is_some_and(|(_, end)| address < end)
    }

    /// The beginnings of its stretches.
    pub fn starts(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|(start, _)| *start)
    }
}

impl FromIterator<(u64, u64)> for Places {
    /// In any order.
    fn from_iter<All: IntoIterator<Item = (u64, u64)>>(all: All) -> Places {
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        for (start, end) in all {
            let known = ends.entry(start).or_default();
            *known = end.max(*known);
        }
        let mut places: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ends {
            match places.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => places.push((start, end)),
            }
        }
        Places(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_follow_each_other_are_one_stretch() {
        let places = Places::from_iter([(0x20, 0x22), (0x10, 0x15), (0x15, 0x16), (0x20, 0x23)]);
        assert_eq!(places.0, [(0x10, 0x16), (0x20, 0x23)]);
        assert_eq!(places.starts().collect::<Vec<_>>(), [0x10, 0x20]);
        let held: Vec<u64> = (0..0x30).filter(|at| places.hold(*at)).collect();
        assert_eq!(held, (0x10..0x16).chain(0x20..0x23).collect::<Vec<_>>());
        assert!(Places::default().is_empty() && !places.is_empty());
    }
}
