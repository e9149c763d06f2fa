// SPDX-License-Identifier: MIT
//! What is known of a watched word from event to event.

use crate::order::RACE;
use crate::protocol::{Hit, MARK_VALUE};

/// Who wrote last.
#[derive(Clone, Copy, Debug)]
struct Writer {
    tid: u32,
    lane: u64,
    ts: u64,
    /// In its handler, memory still held the value that it had written.
    stood: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub address: u64,
    pub size: u32,
    /// Reads trap, too.
    pub reads: bool,
    /// The object that it is a part of, where a site told of it.
    pub object: Option<u64>,
    /// When the watch began.
    pub first: Option<u64>,
    /// The word had changed by the time that writes trapped: accesses before this time tell no
    /// previous value.
    unsure_until: u64,
    /// What the last event left.
    last: Option<u64>,
    /// Time of the newest event.
    at: u64,
    writer: Option<Writer>,
    /// Threads that have seen what the writer left.
    witnesses: Vec<u32>,
}

impl Word {
    pub fn new((address, size): (u64, u32), reads: bool, first: Option<u64>) -> Word {
        Word {
            address,
            size,
            reads,
            object: None,
            first,
            unsure_until: 0,
            last: first,
            at: 0,
            writer: None,
            witnesses: Vec::new(),
        }
    }

    /// Writes trap now, and this is the value. If it changed before, the first write does not
    /// replace the old value.
    pub fn armed(&mut self, value: Option<u64>, ts: u64) {
        if value != self.first {
            (self.first, self.last) = (value, value);
            self.unsure_until = ts;
        }
    }

    /// An event of that time is next: only one behind the reading of the first value can tell by
    /// it.
    pub fn settle_first(&mut self, ts: u64) {
        if ts < self.unsure_until {
            self.last = None;
        }
        self.unsure_until = 0;
    }

    /// Address and size.
    pub fn place(&self) -> (u64, u32) {
        (self.address, self.size)
    }

    /// What the last event left.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// The value found by an access that does not show it itself; `None` for a read that is
    /// reported late, when the word may have changed.
    pub fn at_read(&self, hit: &Hit) -> Option<u64> {
        self.last.filter(|_| hit.ts >= self.at)
    }

    /// What a store of `stored` replaced: not known when another CPU wrote so shortly before that
    /// the order of the two is not.
    pub fn at_store(&self, hit: &Hit, stored: Option<u64>) -> Option<u64> {
        let Some(writer) = self.writer else {
            return self.last;
        };
        let ordered = writer.tid == hit.tid
            || writer.lane == hit.lane()
            || hit.ts.saturating_sub(writer.ts) > RACE
            || self.witnesses.contains(&hit.tid)
            || (writer.stood && stood(hit, stored));
        self.last.filter(|_| ordered)
    }

    /// Takes in a read that found `value`; `shown`: its instruction proves it.
    pub fn was_read(&mut self, hit: &Hit, value: Option<u64>, shown: bool) {
        if hit.ts < self.at {
            return;
        }
        self.at = hit.ts;
        if value != self.last {
            self.witnesses.clear();
        }
        self.last = value;
        if shown && !self.witnesses.contains(&hit.tid) {
            self.witnesses.push(hit.tid);
        }
    }

    /// Takes in a write that left `value`.
    pub fn was_written(&mut self, hit: &Hit, value: Option<u64>) {
        self.at = self.at.max(hit.ts);
        self.last = value;
        self.witnesses.clear();
        self.writer = Some(Writer {
            tid: hit.tid,
            lane: hit.lane(),
            ts: hit.ts,
            stood: stood(hit, value),
        });
    }
}

/// Whether the handler found in memory what was written: then no other write came in between.
fn stood(hit: &Hit, stored: Option<u64>) -> bool {
    hit.has(MARK_VALUE) && stored == Some(hit.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word() -> Word {
        Word {
            address: 0x1000,
            size: 4,
            reads: false,
            object: None,
            first: Some(0),
            unsure_until: 0,
            last: Some(0),
            at: 0,
            writer: None,
            witnesses: Vec::new(),
        }
    }

    fn hit(cpu: u32, ts: u64, in_handler: Option<u64>) -> Hit {
        Hit {
            ts,
            cpu,
            tid: 100 + cpu,
            value: in_handler.unwrap_or(0),
            marks: in_handler.map_or(0, |_| MARK_VALUE),
            ..Hit::default()
        }
    }

    #[test]
    fn a_store_s_previous_value_is_known_when_the_order_is() {
        let mut word = word();
        assert_eq!(word.at_store(&hit(0, 10, None), Some(5)), Some(0));
        word.was_written(&hit(0, 10, None), Some(5));
        // The same CPU again, another one too shortly after, and later.
        assert_eq!(word.at_store(&hit(0, 20, None), Some(6)), Some(5));
        assert_eq!(word.at_store(&hit(1, 20, None), Some(6)), None);
        assert_eq!(word.at_store(&hit(1, 11 + RACE, None), Some(6)), Some(5));
        // Its thread has read what the other had written.
        word.was_read(&hit(1, 15, None), Some(5), true);
        assert_eq!(word.at_store(&hit(1, 20, None), Some(6)), Some(5));
    }

    #[test]
    fn what_changed_before_writes_trapped_was_not_replaced_by_the_first() {
        let previous = |armed: u64, hit_at: u64| {
            let mut word = word();
            word.armed(Some(armed), 100);
            word.settle_first(hit_at);
            (word.first, word.at_store(&hit(0, hit_at, None), Some(8)))
        };
        assert_eq!(previous(0, 50), (Some(0), Some(0)), "it had not changed");
        assert_eq!(previous(7, 150), (Some(7), Some(7)));
        assert_eq!(previous(7, 50), (Some(7), None), "the hit may have left 7");
    }

    #[test]
    fn memory_proves_the_order_of_stores() {
        let mut word = word();
        word.was_written(&hit(0, 10, Some(5)), Some(5));
        assert_eq!(word.at_store(&hit(1, 12, Some(6)), Some(6)), Some(5));
        assert_eq!(word.at_store(&hit(1, 12, Some(5)), Some(6)), None);
    }

    #[test]
    fn a_read_that_is_told_of_late_changes_nothing() {
        let mut word = word();
        word.was_written(&hit(0, 10, None), Some(5));
        word.was_read(&hit(1, 8, None), Some(0), true);
        assert_eq!(word.last(), Some(5));
        assert_eq!(word.at_read(&hit(1, 8, None)), None);
    }
}
