// SPDX-License-Identifier: MIT
//! A block of one CPU's events, column by column: what is alike stands together, which is what zstd
//! needs.
//!
//! ```text
//!     u32 threads, u32 flags (1: stacks) | thread table: u32 each
//!     time since the event before: 4 planes | kind | flags | a: 2 planes | b: 2 planes
//!     stack: 4 planes, if there are any
//!     for each kind in order of number, for each of its words: the words of its events in 8 planes
//! ```
//!
//! A *plane* is the first (second, ..) bytes of all values. Times count from the header's first_ts.
//! Threads are numbers in the table plus 1, and 0 for `a` that is the thread to which the CPU was
//! switched last: that is so for nearly all events.

use rustc_hash::FxHashMap;

use crate::event::{Event, Kind};

/// Indices plus one must fit two planes.
pub const MOST_EVENTS: usize = 32_000;
/// Longest time between two events of a block, which four planes can hold.
pub const LONGEST: u64 = u32::MAX as u64;
const HAS_STACKS: u32 = 1;
const KINDS: usize = 256;

fn put_planes(values: impl Iterator<Item = u64> + Clone, planes: usize, output: &mut Vec<u8>) {
    for plane in 0..planes {
        output.extend(values.clone().map(|value| (value >> (8 * plane)) as u8));
    }
}

/// Encodes events of one CPU in order of time, at most [`MOST_EVENTS`], no two further than
/// [`LONGEST`] apart.
pub fn encode(events: &[Event]) -> Vec<u8> {
    let mut table: Vec<u32> = Vec::new();
    let mut numbers: FxHashMap<u32, u16> = FxHashMap::default();
    let mut number = |tid: u32| {
        *numbers.entry(tid).or_insert_with(|| {
            table.push(tid);
            table.len() as u16
        })
    };
    let mut first = Vec::with_capacity(events.len());
    let mut second = Vec::with_capacity(events.len());
    let mut words: Vec<Vec<[u64; 3]>> = vec![Vec::new(); KINDS];
    let mut running = u32::MAX;
    for event in events {
        first.push(if event.a == running {
            0
        } else {
            number(event.a)
        });
        second.push(number(event.b));
        if event.kind == Kind::Switch {
            running = event.b;
        }
        words[event.kind as usize].push(event.words);
    }
    let has_stacks = events.iter().any(|event| event.stack != 0);
    let mut output = Vec::with_capacity(events.len() * 24 + table.len() * 4);
    output.extend((table.len() as u32).to_le_bytes());
    output.extend(if has_stacks { HAS_STACKS } else { 0 }.to_le_bytes());
    table
        .iter()
        .for_each(|tid| output.extend(tid.to_le_bytes()));
    let mut before = events.first().map_or(0, |event| event.ts);
    let since: Vec<u64> = events
        .iter()
        .map(|event| event.ts - std::mem::replace(&mut before, event.ts))
        .collect();
    put_planes(since.iter().copied(), 4, &mut output);
    output.extend(events.iter().map(|event| event.kind as u8));
    output.extend(events.iter().map(|event| event.flags));
    put_planes(first.iter().map(|&n| u64::from(n)), 2, &mut output);
    put_planes(second.iter().map(|&n| u64::from(n)), 2, &mut output);
    if has_stacks {
        put_planes(events.iter().map(|e| u64::from(e.stack)), 4, &mut output);
    }
    for (kind, list) in words.iter().enumerate() {
        let count = Kind::from_u8(kind as u8).map_or(0, Kind::words);
        for word in 0..count {
            put_planes(list.iter().map(|words| words[word]), 8, &mut output);
        }
    }
    output
}

struct Cursor<'d>(&'d [u8]);

impl<'d> Cursor<'d> {
    fn take(&mut self, bytes: usize) -> Option<&'d [u8]> {
        let (head, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(head)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
}

/// Whether a block of so many events can have so many bytes.
pub fn may_be(raw_bytes: usize, count: usize) -> bool {
    const HEADER: usize = 8;
    // Bytes of one event: time, kind, flags, a, b, stack, three words, and two new threads.
    const MOST: usize = 4 + 1 + 1 + 2 + 2 + 4 + 3 * 8 + 2 * 4;
    count <= MOST_EVENTS && raw_bytes <= HEADER + count * MOST
}

/// One value out of planes of `count` bytes each.
fn join<const PLANES: usize>(planes: &[u8], count: usize, index: usize) -> u64 {
    let mut value = 0;
    for plane in 0..PLANES {
        value |= u64::from(planes[plane * count + index]) << (8 * plane);
    }
    value
}

/// The reverse of [`encode`], into `events`, whose memory is used again. `None`: the bytes are no
/// such block.
pub fn decode(
    raw: &[u8],
    count: usize,
    cpu: u16,
    first_ts: u64,
    events: &mut Vec<Event>,
) -> Option<()> {
    let mut cursor = Cursor(raw);
    let threads = cursor.number()? as usize;
    let flags = cursor.number()?;
    let table: Vec<u32> = cursor
        .take(threads.checked_mul(4)?)?
        .chunks_exact(4)
        .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    let since = cursor.take(count * 4)?;
    let kinds = cursor.take(count)?;
    let marks = cursor.take(count)?;
    let first = cursor.take(count * 2)?;
    let second = cursor.take(count * 2)?;
    let stacks = if flags & HAS_STACKS != 0 {
        Some(cursor.take(count * 4)?)
    } else {
        None
    };
    let mut totals = [0usize; KINDS];
    kinds.iter().for_each(|&kind| totals[kind as usize] += 1);
    let mut columns: [[&[u8]; 3]; KINDS] = [[&[]; 3]; KINDS];
    for kind in 0..KINDS {
        let Some(known) = Kind::from_u8(kind as u8) else {
            if totals[kind] > 0 {
                return None;
            }
            continue;
        };
        for column in &mut columns[kind][..known.words()] {
            *column = cursor.take(totals[kind] * 8)?;
        }
    }
    if !cursor.0.is_empty() {
        return None;
    }
    let mut used = [0usize; KINDS];
    let mut ts = first_ts;
    let mut running = u32::MAX;
    events.clear();
    events.reserve(count);
    for index in 0..count {
        let number = kinds[index];
        let kind = Kind::from_u8(number)?;
        let slot = number as usize;
        ts = ts.checked_add(join::<4>(since, count, index))?;
        let a = match join::<2>(first, count, index) as usize {
            0 => running,
            place => *table.get(place - 1)?,
        };
        let b = *table.get((join::<2>(second, count, index) as usize).checked_sub(1)?)?;
        if kind == Kind::Switch {
            running = b;
        }
        let mut words = [0u64; 3];
        for (word, column) in words.iter_mut().zip(&columns[slot][..kind.words()]) {
            *word = join::<8>(column, totals[slot], used[slot]);
        }
        used[slot] += 1;
        events.push(Event {
            ts,
            a,
            b,
            cpu,
            kind,
            flags: marks[index],
            stack: stacks.map_or(0, |planes| join::<4>(planes, count, index) as u32),
            words,
        });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(ts: u64, kind: Kind, a: u32, b: u32, words: [u64; 3]) -> Event {
        Event {
            ts,
            a,
            b,
            cpu: 3,
            kind,
            flags: 1,
            stack: 0,
            words,
        }
    }

    fn sample() -> Vec<Event> {
        vec![
            event(5, Kind::Switch, 7, 9, [1, 0, 0]),
            event(5, Kind::Waking, 9, 7, [u64::MAX, 0, 0]),
            event(900, Kind::Fork, 9, 11, [1, 2, 3]),
            Event {
                stack: 70_000,
                ..event(1 << 31, Kind::Switch, 9, 0, [1 << 48, 0, 0])
            },
        ]
    }

    fn decoded(raw: &[u8], count: usize) -> Option<Vec<Event>> {
        let mut events = sample(); // of another block, whose memory is used again
        decode(raw, count, 3, 5, &mut events).map(|()| events)
    }

    #[test]
    fn events_survive_encoding() {
        let events = sample();
        let raw = encode(&events);
        assert_eq!(decoded(&raw, events.len()), Some(events));
    }

    #[test]
    fn cut_and_changed_bytes_are_refused_or_read_but_never_panic() {
        let events = sample();
        let raw = encode(&events);
        for length in 0..raw.len() {
            assert_eq!(decoded(&raw[..length], events.len()), None);
        }
        for place in 0..raw.len() {
            let mut changed = raw.clone();
            changed[place] ^= 0xff;
            let _ = decoded(&changed, events.len());
        }
    }
}
