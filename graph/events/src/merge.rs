// SPDX-License-Identifier: MIT
//! From blocks of single CPUs to one stream in order of time.
//!
//! ```text
//!     blocks of CPU 0 -> decoder -+- events -----------> reader: follows the order
//!                                 +- times --> merge ----^ order: a CPU's number for each event
//!     blocks of CPU 1 -> decoder -+- ...
//! ```
//!
//! Each box is a thread; where none may be started, all is done by this one. Which CPU comes next
//! cannot be predicted, so a loop that asks it in a branch waits for the processor to guess wrong
//! at every second event. The merge therefore asks by comparison alone, on a thread that sees
//! nothing but times, and the reader follows what it wrote. No box waits for itself: a decoder
//! hands out a block's times before its events, and the merge its order before it asks for more
//! times.

use std::panic::resume_unwind;
use std::thread::{scope, Builder};

use crate::batches::{batches, Reader, Writer};
use crate::columns;
use crate::container::{Block, Loader, Storage};
use crate::error::{damaged, Failure, Result};
use crate::event::Event;

/// Batches that wait for their reader: decoded blocks, by CPU, and pieces of the order.
const AHEAD: usize = 2;

fn decode(loader: &mut Loader, block: &Block, events: &mut Vec<Event>) -> Result<()> {
    let header = &block.header;
    if !columns::may_be(header.raw_bytes as usize, header.count as usize) {
        return Err(damaged(
            block.payload_offset,
            "more bytes or events than a block has",
        ));
    }
    let raw = loader.load(block)?;
    columns::decode(
        raw,
        header.count as usize,
        header.cpu,
        header.first_ts,
        events,
    )
    .ok_or_else(|| damaged(block.payload_offset, "columns that do not fit together"))
}

/// Decodes the blocks of a CPU, which are in order of time. Returns those that were left out.
fn decode_all(
    storage: &Storage,
    blocks: &[Block],
    times: &Writer<u64>,
    events: &Writer<Event>,
) -> Vec<Failure> {
    let mut loader = Loader::new(storage);
    let mut bad = Vec::new();
    for block in blocks {
        let mut decoded = events.room();
        if let Err(error) = decode(&mut loader, block, &mut decoded) {
            bad.push(error);
            continue;
        }
        let mut stamps = times.room();
        stamps.extend(decoded.iter().map(|event| event.ts));
        if !times.send(stamps) || !events.send(decoded) {
            break;
        }
    }
    bad
}

/// A knockout tournament of the streams' next times: a binary tree whose leaves are the streams and
/// whose inner nodes hold the lesser of their two children, so the root is the next of all. Entries
/// are time and stream in one number, so of equal times those of the first stream come first.
struct Tournament {
    /// Node `n` has the children `2n` and `2n + 1`; the last half are the leaves.
    nodes: Vec<u128>,
}

impl Tournament {
    const ENDED: u128 = u128::MAX;

    fn new(streams: usize) -> Tournament {
        Tournament {
            nodes: vec![Self::ENDED; streams.next_power_of_two() * 2],
        }
    }

    /// Enters the next time of a stream, `None` when it has ended. Returns the stream that is then
    /// the next of all, if any is left.
    #[inline]
    fn enter(&mut self, stream: u16, time: Option<u64>) -> Option<u16> {
        let entry = |time| u128::from(time) << 16 | u128::from(stream);
        let mut least = time.map_or(Self::ENDED, entry);
        let mut place = self.nodes.len() / 2 + usize::from(stream);
        self.nodes[place] = least;
        while place > 1 {
            least = least.min(self.nodes[place ^ 1]);
            place /= 2;
            self.nodes[place] = least;
        }
        (least != Self::ENDED).then_some(least as u16)
    }
}

/// Writes down from which of the streams of times the next is, for all of them.
fn merge(mut streams: Vec<Reader<u64>>, orders: &Writer<u16>) {
    let mut tournament = Tournament::new(streams.len());
    let mut next = None;
    for (stream, number) in streams.iter_mut().zip(0..) {
        next = tournament.enter(number, stream.next().copied());
    }
    let mut order = orders.room();
    while let Some(first) = next {
        order.push(first);
        let stream = &mut streams[usize::from(first)];
        if stream.is_used_up() {
            if !orders.send(order) {
                return;
            }
            order = orders.room();
        }
        next = tournament.enter(first, stream.next().copied());
    }
}

/// The events of a CPU, whose blocks are decoded as they are asked for.
struct Stream<'b> {
    loader: Loader<'b>,
    blocks: &'b [Block],
    decoded: Vec<Event>,
    next: usize,
}

impl Stream<'_> {
    /// The next event, which stays the next; `None` at the end.
    fn peek(&mut self, bad: &mut Vec<Failure>) -> Option<&Event> {
        while self.next == self.decoded.len() {
            let (block, rest) = self.blocks.split_first()?;
            self.blocks = rest;
            self.decoded.clear();
            self.next = 0;
            if let Err(error) = decode(&mut self.loader, block, &mut self.decoded) {
                self.decoded.clear();
                bad.push(error);
            }
        }
        self.decoded.get(self.next)
    }
}

/// As [`in_order`], without any other thread.
fn in_order_alone(
    storage: &Storage,
    cpus: &[&[Block]],
    take: &mut impl FnMut(&Event),
) -> Vec<Failure> {
    let mut bad = Vec::new();
    let streams = cpus.iter().map(|blocks| Stream {
        loader: Loader::new(storage),
        blocks,
        decoded: Vec::new(),
        next: 0,
    });
    let mut streams: Vec<_> = streams.collect();
    let mut tournament = Tournament::new(streams.len());
    let mut next = None;
    for (stream, number) in streams.iter_mut().zip(0..) {
        next = tournament.enter(number, stream.peek(&mut bad).map(|event| event.ts));
    }
    while let Some(first) = next {
        let stream = &mut streams[usize::from(first)];
        if let Some(event) = stream.peek(&mut bad) {
            take(event);
        }
        stream.next += 1;
        next = tournament.enter(first, stream.peek(&mut bad).map(|event| event.ts));
    }
    bad
}

/// Hands out the events of all CPUs, whose blocks are each in order of time. Returns the blocks
/// that were left out.
pub(crate) fn in_order<'b>(
    storage: &Storage,
    cpus: impl Iterator<Item = &'b [Block]>,
    take: &mut impl FnMut(&Event),
) -> Vec<Failure> {
    let cpus: Vec<_> = cpus.collect();
    let done = scope(|scope| {
        let mut decoders = Vec::new();
        let (mut events, mut times) = (Vec::new(), Vec::new());
        for &blocks in &cpus {
            let (event_writer, event_reader) = batches(AHEAD);
            let (time_writer, time_reader) = batches(AHEAD);
            let decoder = Builder::new().spawn_scoped(scope, move || {
                decode_all(storage, blocks, &time_writer, &event_writer)
            });
            decoders.push(decoder.ok()?); // those that were started find their readers gone
            events.push(event_reader);
            times.push(time_reader);
        }
        let (order_writer, mut order) = batches(AHEAD);
        let merger = move || merge(times, &order_writer);
        Builder::new().spawn_scoped(scope, merger).ok()?;
        while let Some(&stream) = order.next() {
            let Some(event) = events[usize::from(stream)].next() else {
                break; // its decoder died, which is told below
            };
            take(event);
        }
        // A thread that still waits to hand something over learns that nobody wants it.
        drop((order, events));
        let bad = decoders.into_iter().map(|decoder| decoder.join());
        let bad = bad.flat_map(|bad| bad.unwrap_or_else(|panic| resume_unwind(panic)));
        Some(bad.collect())
    });
    done.unwrap_or_else(|| in_order_alone(storage, &cpus, take))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Kind;
    use crate::facts::Info;
    use crate::reader::EventFile;
    use crate::writer::EventWriter;

    /// The order that the merge writes down for these streams of times, each of them in batches.
    fn merged(streams: &[Vec<Vec<u64>>]) -> Vec<u16> {
        scope(|scope| {
            let mut readers = Vec::new();
            for stream in streams {
                let (writer, reader) = batches(1);
                readers.push(reader);
                scope.spawn(move || stream.iter().all(|batch| writer.send(batch.clone())));
            }
            let (writer, mut order) = batches(1);
            scope.spawn(move || merge(readers, &writer));
            std::iter::from_fn(|| order.next().copied()).collect()
        })
    }

    /// Numbers that are the same in every run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            let product = self.0.wrapping_mul(6_364_136_223_846_793_005);
            self.0 = product.wrapping_add(1);
            (self.0 >> 33) % limit
        }
    }

    #[test]
    fn of_equal_times_those_of_the_first_stream_come_first() {
        let streams = [
            vec![vec![2, 2], vec![3]],
            vec![vec![1, 2, 3]],
            vec![vec![2], vec![2, u64::MAX]],
        ];
        assert_eq!(merged(&streams), [1, 0, 0, 1, 2, 2, 0, 1, 2]);
    }

    #[test]
    fn none_one_and_empty_streams() {
        assert!(merged(&[]).is_empty());
        assert!(merged(&[vec![]]).is_empty());
        assert_eq!(merged(&[vec![vec![5], vec![], vec![6]]]), [0, 0]);
        assert_eq!(merged(&[vec![], vec![vec![]], vec![vec![5]]]), [2]);
    }

    #[test]
    fn a_stream_in_which_time_goes_back_loses_nothing() {
        let streams = [vec![vec![5, 1, 9]], vec![vec![4, 6]]];
        assert_eq!(merged(&streams), [1, 0, 0, 1, 0]);
    }

    #[test]
    fn any_number_of_streams_is_merged_like_a_stable_sort() {
        let mut random = Random(7);
        for count in [1, 2, 3, 4, 5, 7, 16, 33, 255, 256] {
            let mut streams = Vec::new();
            let mut sorted: Vec<(u64, u16)> = Vec::new();
            for number in 0..count {
                let mut ts = random.below(20);
                let mut stream = vec![Vec::new()];
                for _ in 0..random.below(60) {
                    if random.below(9) == 0 {
                        stream.push(Vec::new());
                    }
                    stream.last_mut().unwrap().push(ts);
                    sorted.push((ts, number));
                    ts += random.below(4); // often the same again
                }
                streams.push(stream);
            }
            sorted.sort();
            let expected: Vec<u16> = sorted.iter().map(|&(_, number)| number).collect();
            assert_eq!(merged(&streams), expected, "{count} streams");
        }
    }

    #[test]
    fn a_damaged_block_is_left_out_and_told() {
        let name = format!("flagfinder-merge-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut writer = EventWriter::create(&path, &Info::default()).unwrap();
        let mut ends = Vec::new();
        for (cpu, times) in [(0, [1, 4]), (1, [2, 3]), (0, [5, 8]), (1, [6, 7])] {
            let events = times.map(|ts| Event {
                ts,
                a: 1,
                b: 2,
                cpu,
                kind: Kind::Switch,
                flags: 0,
                stack: 0,
                words: [0; 3],
            });
            writer.events(cpu, &events).unwrap();
            ends.push(writer.bytes());
        }
        writer.finish().unwrap();
        let read = || {
            let (mut found, mut found_alone) = (Vec::new(), Vec::new());
            let file = EventFile::open(&path).unwrap();
            let bad = file.events(|event| found.push((event.ts, event.cpu)));
            let cpus: Vec<_> = file.cpus.values().map(Vec::as_slice).collect();
            let mut take = |event: &Event| found_alone.push((event.ts, event.cpu));
            let bad_alone = in_order_alone(&file.storage, &cpus, &mut take);
            assert_eq!((&found_alone, bad_alone.len()), (&found, bad.len()));
            (found, bad.len())
        };
        let all = [1, 2, 3, 4, 5, 6, 7, 8].map(|ts| (ts, u16::from([2, 3, 6, 7].contains(&ts))));
        assert_eq!(read(), (all.to_vec(), 0));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[ends[1] as usize - 1] ^= 0x55;
        std::fs::write(&path, bytes).unwrap();
        let left = [all[0], all[3], all[4], all[5], all[6], all[7]];
        assert_eq!(read(), (left.to_vec(), 1));
        std::fs::remove_file(path).unwrap();
    }
}
