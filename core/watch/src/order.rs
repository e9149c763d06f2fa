// SPDX-License-Identifier: MIT
//! The order of accesses by several CPUs, where their traps came in another order.
//!
//! A hit's time is taken in the handler, some microseconds after the access. Meanwhile another CPU
//! can read what was written, trap, and have its time first; or it has read the old value and is
//! late. The values that instructions prove tell:
//!
//! ```text
//! CPU 0   store 1 ............ hit      traps:  load 1, store 1     accesses: store 1, load 1
//! CPU 1             load 1 . hit
//! ```
//!
//! A CPU handles its hits one by one, so of each other CPU only the next hit can have been made
//! before this one. A hit that goes before another gets the earlier one's time: the access was not
//! later than that. Blind spot: accesses whose instructions prove nothing, and writes that none
//! read in between, stay in the order of their traps.

use crate::event::EventKind;
use crate::protocol::{Hit, HIT_WATCH, MARK_LAST};
use crate::seen::Look;
use crate::timeline::Queue;

/// Most ns by which a handler is late. Beyond that an order by values would be chance.
pub(crate) const RACE: u64 = 1_000_000;

/// Takes those hits out of the queue that were made before `hit`, the next in time; none for most.
/// `before` is the word's value so far, `look` tells what a hit shows.
pub(crate) fn made_before(
    hit: &Hit,
    before: Option<u64>,
    queue: &mut Queue,
    mut look: impl FnMut(&Hit) -> Look,
) -> Vec<Hit> {
    let Some(before) = before.filter(|_| hit.kind == HIT_WATCH && !hit.has(MARK_LAST)) else {
        return Vec::new();
    };
    let this = look(hit);
    let mut found = Vec::new();
    match (this.kind, this.left) {
        // A write whose value was seen, but that has not been reported.
        (EventKind::Read, _) if !this.seen.allows(before) => {
            let mut rivals = queue.next_of_others(hit, RACE).into_iter();
            let write = rivals.find(|(_, rival)| {
                let rival = look(rival);
                rival.kind == EventKind::Write && rival.left.is_some_and(|v| this.seen.allows(v))
            });
            found.extend(write);
        }
        // Somebody read the value that this one replaced.
        (EventKind::Write, Some(left)) if left != before => {
            for (key, rival) in queue.next_of_others(hit, RACE) {
                let shown = look(&rival);
                if shown.kind != EventKind::Read {
                    break;
                }
                if shown.seen.allows(before) && !shown.seen.allows(left) {
                    found.push((key, rival));
                }
            }
        }
        _ => {}
    }
    let taken = found.into_iter().map(|(key, rival)| {
        queue.remove(&key);
        Hit {
            ts: hit.ts,
            ..rival
        }
    });
    taken.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::Seen;

    const STORE: u64 = 0x10;
    const LOAD: u64 = 0x20;

    fn hit(ts: u64, cpu: u32, ip: u64, value: u64) -> Hit {
        Hit {
            ts,
            cpu,
            ip,
            value,
            ..Hit::default()
        }
    }

    /// A load shows what it found, a store what it left.
    fn look(hit: &Hit) -> Look {
        let (kind, seen, left) = match hit.ip {
            STORE => (EventKind::Write, Seen::default(), Some(hit.value)),
            _ => (EventKind::Read, Seen::value(hit.value, 8), None),
        };
        Look { kind, seen, left }
    }

    /// CPU and time of those before the first hit, when the word was 0.
    fn before(first: &Hit, waiting: &[Hit]) -> Vec<(u32, u64)> {
        let mut queue = Queue::default();
        waiting.iter().for_each(|hit| queue.add(hit));
        let found = made_before(first, Some(0), &mut queue, look);
        assert_eq!(queue.len() + found.len(), waiting.len());
        found.iter().map(|hit| (hit.cpu, hit.ts)).collect()
    }

    #[test]
    fn the_store_goes_before_the_load_that_saw_it() {
        let load = hit(10, 1, LOAD, 1);
        assert_eq!(before(&load, &[hit(14, 0, STORE, 1)]), [(0, 10)]);
        // Another value; the load's own CPU, which was there later; too late.
        assert_eq!(before(&load, &[hit(14, 0, STORE, 2)]), []);
        assert_eq!(before(&load, &[hit(14, 1, STORE, 1)]), []);
        assert_eq!(before(&load, &[hit(11 + RACE, 0, STORE, 1)]), []);
        // Its CPU has done something else in between, which the store can't have been before.
        let others = [hit(12, 0, LOAD, 0), hit(14, 0, STORE, 1)];
        assert_eq!(before(&load, &others), []);
    }

    #[test]
    fn the_load_goes_before_the_store_that_it_did_not_see() {
        let store = hit(10, 0, STORE, 1);
        assert_eq!(before(&store, &[hit(12, 1, LOAD, 0)]), [(1, 10)]);
        assert_eq!(before(&store, &[hit(12, 1, LOAD, 1)]), []);
        // A third CPU may have stored the old value again.
        let others = [hit(11, 2, STORE, 0), hit(12, 1, LOAD, 0)];
        assert_eq!(before(&store, &others), []);
    }
}
