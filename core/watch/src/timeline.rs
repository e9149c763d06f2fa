// SPDX-License-Identifier: MIT
//! Puts hits in order of time, and holds back the reads between a reader's first and last before
//! each write.
//!
//! ```text
//! hits      r r r r r r r r W r r r r r r r
//! events    r             R W r           R      R: the last one, with how many it stands for
//! ```
//!
//! BPF holds back by the same rule once it knows that an instruction only reads
//! (`bpf/watch.bpf.c`), and hands over the last one when the reader reads again after a write; a
//! reader that does not is asked for its last one here.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::protocol::{Held, Hit, Reader, HIT_SITE, HIT_WATCH, MARK_LAST, WATCH_MAX};
use crate::seen::Seen;

/// The rule, as it is written into the output.
pub const THINNING: &str = "of the reads of one word by one instruction in one thread the first, \
                            the last before each write and the last of all are events; `reads` \
                            counts those that an event stands for, itself included. The word's \
                            value changing between two reads counts as a write.";

/// Hits are at most so late: CPUs hand over at once, but a thread may be interrupted between its
/// hit and its record.
const LATENESS: u64 = 20_000_000;

/// Time, lane, number and watch of a hit: the order of traps.
pub(crate) type Key = (u64, u64, u64, u16);

/// A packed hit, and its watch.
type Waiting = (Option<u16>, Box<[u8]>);

/// Hits that wait until no earlier one can come.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<Key, Waiting>,
    /// How many of each watch.
    counts: [usize; WATCH_MAX],
}

impl Queue {
    pub fn add(&mut self, hit: &Hit) {
        let place = (hit.kind == HIT_WATCH).then_some(hit.place);
        self.count(place, 1);
        let key = (hit.ts, hit.lane(), hit.sequence, hit.place);
        self.waiting.insert(key, (place, hit.pack()));
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The earliest hit, if it is old enough at `now`.
    pub fn next(&mut self, now: u64) -> Option<Hit> {
        let first = self.waiting.first_entry()?;
        if first.key().0.saturating_add(LATENESS) > now {
            return None;
        }
        let (place, hit) = first.remove();
        self.count(place, -1);
        Some(Hit::unpack(&hit))
    }

    /// Of every other CPU (or thread, where no CPU is known) the next hit within `time` ns after
    /// this one, if it is of the same watch; in order of time.
    pub fn next_of_others(&self, hit: &Hit, time: u64) -> Vec<(Key, Hit)> {
        let mut lanes = vec![hit.lane()];
        let mut found = Vec::new();
        let range = self.waiting.range(..(hit.ts.saturating_add(time), 0, 0, 0));
        for (&key, (place, waiting)) in range {
            if lanes.contains(&key.1) {
                continue;
            }
            if *place != Some(hit.place) {
                lanes.push(key.1);
                continue;
            }
            let other = Hit::unpack(waiting);
            // A reader's held reads are older than what its CPU does next.
            if !other.has(MARK_LAST) {
                lanes.push(key.1);
                found.push((key, other));
            }
        }
        found
    }

    pub fn remove(&mut self, key: &Key) {
        if let Some((place, _)) = self.waiting.remove(key) {
            self.count(place, -1);
        }
    }

    fn count(&mut self, place: Option<u16>, change: isize) {
        let count = place.and_then(|place| self.counts.get_mut(usize::from(place)));
        if let Some(count) = count {
            *count = count.saturating_add_signed(change);
        }
    }

    /// Whether a hit of this watch is waiting.
    pub fn holds(&self, place: u16) -> bool {
        self.counts
            .get(usize::from(place))
            .is_some_and(|&count| count > 0)
    }
}

/// One reader: an instruction in a thread, and the word.
#[derive(Debug, Default)]
struct State {
    /// Of the word when its first read was let through, and what that saw.
    generation: Option<(u64, Seen)>,
    last: Option<Box<Hit>>,
    reads: u64,
    /// Time of the newest read that was taken in.
    taken: u64,
}

impl State {
    fn take(&mut self, hit: Hit) {
        self.taken = hit.ts;
        self.reads += hit.reads;
        self.last = Some(Box::new(hit));
    }

    /// What is held, as one hit.
    fn flush(&mut self) -> Option<Hit> {
        let mut hit = *self.last.take()?;
        hit.reads = std::mem::take(&mut self.reads);
        hit.marks |= MARK_LAST;
        Some(hit)
    }
}

/// Decides which reads become events.
#[derive(Debug, Default)]
pub(crate) struct Thinner {
    readers: FxHashMap<(u8, Reader), State>,
    writes: FxHashMap<u16, u64>,
}

impl std::hash::Hash for Reader {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.ip, self.address, self.tid, self.place).hash(state);
    }
}

impl Thinner {
    /// Takes in a read; `emit` gets what becomes an event.
    pub fn read(&mut self, hit: Hit, seen: Seen, mut emit: impl FnMut(Hit)) {
        let generation = match hit.kind {
            HIT_SITE => hit.value,
            _ => self.writes.get(&hit.place).copied().unwrap_or(0),
        };
        let generation = (generation, seen);
        let state = self.readers.entry((hit.kind, hit.reader())).or_default();
        if hit.has(MARK_LAST) {
            if hit.ts > state.taken {
                state.take(hit);
            }
            return;
        }
        if state.generation == Some(generation) {
            state.take(hit);
            return;
        }
        if let Some(last) = state.flush() {
            emit(last);
        }
        state.generation = Some(generation);
        state.taken = hit.ts;
        emit(hit);
    }

    /// Before a write to the watch at `ts`: its readers' last reads. `held` looks up what BPF holds
    /// back for a reader.
    pub fn write(
        &mut self,
        place: u16,
        ts: u64,
        held: impl Fn(&Reader) -> Option<Held>,
        mut emit: impl FnMut(Hit),
    ) {
        let of_place = self
            .readers
            .iter_mut()
            .filter(|((kind, reader), _)| *kind == HIT_WATCH && reader.place == u32::from(place));
        for ((kind, reader), state) in of_place {
            if let Some(held) =
                held(reader).filter(|h| h.reads > 0 && h.ts < ts && h.ts > state.taken)
            {
                state.take(Hit::from_held(reader, &held, *kind));
            }
            if let Some(last) = state.flush() {
                emit(last);
            }
        }
        *self.writes.entry(place).or_default() += 1;
    }

    /// At the end: everybody's last reads, in order of time.
    pub fn finish(&mut self, held: impl Fn(&Reader) -> Option<Held>, mut emit: impl FnMut(Hit)) {
        let mut last: Vec<Hit> = Vec::new();
        for ((kind, reader), state) in &mut self.readers {
            if let Some(held) = held(reader).filter(|h| h.reads > 0 && h.ts > state.taken) {
                state.take(Hit::from_held(reader, &held, *kind));
            }
            last.extend(state.flush());
        }
        last.sort_by_key(|hit| hit.ts);
        last.into_iter().for_each(&mut emit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(ts: u64, marks: u8, reads: u64) -> Hit {
        Hit {
            ts,
            ip: 0x10,
            tid: 7,
            reads,
            marks,
            ..Hit::default()
        }
    }

    /// Time and reads of what is emitted.
    struct Emitted(Vec<(u64, u64)>);

    impl Emitted {
        fn add(&mut self, hit: &Hit) {
            self.0.push((hit.ts, hit.reads));
        }
    }

    #[test]
    fn first_and_last_reads_around_writes_become_events() {
        let mut thinner = Thinner::default();
        let mut out = Emitted(Vec::new());
        for ts in 1..=5 {
            thinner.read(hit(ts, 0, 1), Seen::default(), |h| out.add(&h));
        }
        thinner.write(0, 10, |_| None, |h| out.add(&h));
        for ts in 11..=13 {
            thinner.read(hit(ts, 0, 1), Seen::default(), |h| out.add(&h));
        }
        thinner.finish(|_| None, |h| out.add(&h));
        assert_eq!(out.0, [(1, 1), (5, 4), (11, 1), (13, 2)]);
    }

    #[test]
    fn what_bpf_holds_is_taken_once() {
        let mut thinner = Thinner::default();
        let mut out = Emitted(Vec::new());
        thinner.read(hit(1, 0, 1), Seen::default(), |h| out.add(&h));
        let held = |_: &Reader| {
            let mut held = Held::default();
            (held.ts, held.reads) = (8, 7);
            Some(held)
        };
        thinner.write(0, 10, held, |h| out.add(&h));
        // The reader read again after all, and BPF handed over the same reads.
        thinner.read(hit(8, MARK_LAST, 7), Seen::default(), |h| out.add(&h));
        thinner.finish(|_| None, |h| out.add(&h));
        assert_eq!(out.0, [(1, 1), (8, 7)]);
    }

    #[test]
    fn hits_leave_the_queue_in_order_of_time() {
        let mut queue = Queue::default();
        for ts in [5, 3, 9] {
            queue.add(&hit(ts, 0, 1));
        }
        assert!(queue.next(LATENESS).is_none());
        let all: Vec<u64> = std::iter::from_fn(|| queue.next(LATENESS + 5))
            .map(|h| h.ts)
            .collect();
        assert_eq!(all, [3, 5]);
        assert!(queue.holds(0));
    }
}
