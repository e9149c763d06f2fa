// SPDX-License-Identifier: MIT
//! A block of one CPU's events, column by column: what is alike stands together, which is what zstd
//! needs.
//!
//! ```text
//!     u32 threads, u32 flags (1: stacks) | thread table: u32 each
//!     time since the event before: 4 planes | kind | flags | a: 2 planes | b: 2 planes | stack: 4 planes, when there are any
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
    // Time, kind, flags, a, b, stack, three words; and two new threads.
    const MOST: usize = 4 + 1 + 1 + 2 + 2 + 4 + 3 * 8 + 2 * 4;
    count <= MOST_EVENTS && raw_bytes <= HEADER + count * MOST
}

/// Turns eight rows of eight bytes into their columns (Warren, *Hacker's Delight*, section 7-3).
#[inline(always)]
fn transpose(rows: &mut [u64; 8]) {
    for (apart, mask) in [
        (4, 0x0000_0000_ffff_ffff),
        (2, 0x0000_ffff_0000_ffff),
        (1, 0x00ff_00ff_00ff_00ff),
    ] {
        for row in (0..8).filter(|row| row & apart == 0) {
            let swapped = (rows[row] >> (8 * apart) ^ rows[row + apart]) & mask;
            rows[row + apart] ^= swapped;
            rows[row] ^= swapped << (8 * apart);
        }
    }
}

/// Appends the values of `PLANES` planes of `count` bytes each. Eight at a time: a byte alone costs
/// as much to read as eight.
fn join<const PLANES: usize>(planes: &[u8], count: usize, values: &mut Vec<u64>) {
    const AT_ONCE: usize = 8;
    let plane = |number: usize| &planes[number * count..][..count];
    values.reserve(count);
    let whole = count - count % AT_ONCE;
    for at in (0..whole).step_by(AT_ONCE) {
        let mut rows = [0; AT_ONCE];
        for (number, row) in rows[..PLANES].iter_mut().enumerate() {
            let mut bytes = [0; AT_ONCE];
            bytes.copy_from_slice(&plane(number)[at..at + AT_ONCE]);
            *row = u64::from_le_bytes(bytes);
        }
        transpose(&mut rows);
        values.extend(rows);
    }
    values.extend((whole..count).map(|at| {
        (0..PLANES).fold(0, |value, number| {
            value | u64::from(plane(number)[at]) << (8 * number)
        })
    }));
}

/// What a block is decoded in, used again for the next one.
#[derive(Default)]
pub struct Scratch {
    since: Vec<u64>,
    first: Vec<u64>,
    second: Vec<u64>,
    stacks: Vec<u64>,
    words: Vec<u64>,
}

/// The reverse of [`encode`], into `events`, whose memory is used again. `None`: the bytes are no
/// such block.
pub fn decode(
    raw: &[u8],
    count: usize,
    cpu: u16,
    first_ts: u64,
    scratch: &mut Scratch,
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
    let Scratch {
        since,
        first,
        second,
        stacks,
        words,
    } = scratch;
    for values in [&mut *since, first, second, stacks, words] {
        values.clear();
    }
    join::<4>(cursor.take(count * 4)?, count, since);
    let kinds = cursor.take(count)?;
    let marks = cursor.take(count)?;
    join::<2>(cursor.take(count * 2)?, count, first);
    join::<2>(cursor.take(count * 2)?, count, second);
    if flags & HAS_STACKS != 0 {
        join::<4>(cursor.take(count * 4)?, count, stacks);
    }
    let mut totals = [0usize; KINDS];
    kinds.iter().for_each(|&kind| totals[kind as usize] += 1);
    // Where the next event of each kind has its first word.
    let mut next = [0usize; KINDS];
    for kind in 0..KINDS {
        let Some(known) = Kind::from_u8(kind as u8) else {
            if totals[kind] > 0 {
                return None;
            }
            continue;
        };
        next[kind] = words.len();
        for _ in 0..known.words() {
            join::<8>(cursor.take(totals[kind] * 8)?, totals[kind], words);
        }
    }
    if !cursor.0.is_empty() {
        return None;
    }
    let mut ts = first_ts;
    let mut running = u32::MAX;
    events.clear();
    events.reserve(count);
    let numbers = since.iter().zip(&*first).zip(&*second);
    for (index, (((since, first), second), (&number, &flags))) in
        numbers.zip(kinds.iter().zip(marks)).enumerate()
    {
        let kind = Kind::from_u8(number)?;
        let slot = number as usize;
        ts = ts.checked_add(*since)?;
        let a = match *first as usize {
            0 => running,
            place => *table.get(place - 1)?,
        };
        let b = *table.get((*second as usize).checked_sub(1)?)?;
        if kind == Kind::Switch {
            running = b;
        }
        let (count, at, apart) = (kind.words(), next[slot], totals[slot]);
        let word = |number: usize| match number < count {
            true => words[at + number * apart],
            false => 0,
        };
        let own = [word(0), word(1), word(2)];
        next[slot] += 1;
        events.push(Event {
            ts,
            a,
            b,
            cpu,
            kind,
            flags,
            stack: stacks.get(index).map_or(0, |&stack| stack as u32),
            words: own,
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
        let mut scratch = Scratch::default();
        decode(raw, count, 3, 5, &mut scratch, &mut events).map(|()| events)
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
