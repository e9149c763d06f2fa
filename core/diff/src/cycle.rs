// SPDX-License-Identifier: MIT
//! Passes over a round of blocks that repeats for long, without following each repetition.
//!
//! A thread that spins without system calls runs a billion blocks a second, all alike. If a round
//! leaves a scan as it found it (the same calls and loops open, none of them begun in that round),
//! the next rounds do the same. One more is followed and counts for all of them, and the index
//! jumps behind the last.

use crate::call_stack::CallStack;
use crate::input::Sink;

/// A scan whose counts can stand for several rounds.
pub trait Cyclic<'a>: Sink {
    fn stack(&mut self) -> &mut CallStack<'a>;
    /// What happens from here on counts `times` times.
    fn weigh(&mut self, _times: u64) {}
    /// Nothing that is open (besides frames) began at this index or later.
    fn is_settled(&self, _since: u64) -> bool {
        true
    }
}

/// Rounds that are followed besides the one that counts for many.
const FOLLOWED: u64 = 8;

/// Feeds `count` blocks that go through `round` over and over.
pub fn feed<'a, S: Cyclic<'a>>(sink: &mut S, round: &[u32], count: u64) {
    let length = round.len() as u64;
    let mut done = 0;
    let mut step = |sink: &mut S| {
        sink.block(round[(done % length) as usize]);
        done += 1;
        done
    };
    if count >= FOLLOWED * length {
        let mut fed = 0;
        while fed < length {
            fed = step(sink);
        }
        let since = sink.stack().index();
        while fed < 2 * length || fed < 3 * length && !is_settled(sink, since) {
            fed = step(sink);
        }
        let before = (sink.stack().frames().len(), sink.stack().mended());
        let stop = fed + length;
        while fed < stop {
            fed = step(sink);
        }
        let after = (sink.stack().frames().len(), sink.stack().mended());
        if before == after && is_settled(sink, since) {
            // One round is left to follow, for the last time that each thing happened.
            let times = (count - fed) / length - 1;
            let opened = sink.stack().opened();
            sink.weigh(times);
            let stop = fed + length;
            while fed < stop {
                fed = step(sink);
            }
            sink.weigh(1);
            let skipped = times - 1;
            let opened = sink.stack().opened() - opened;
            sink.stack().jump(skipped * length, skipped * opened);
            done += skipped * length;
        }
    }
    while done < count {
        sink.block(round[(done % length) as usize]);
        done += 1;
    }
}

/// Longest round looked for within flow, in blocks.
const LONGEST: usize = 16;
/// Blocks that are looked at together: a whole number of rounds, and more than [`FOLLOWED`] of a
/// short one.
const STRIDE: usize = 64;

/// Feeds blocks one by one, and stretches in which few of them repeat as cycles: inner loops are
/// most of what a long computation executes.
pub fn feed_flow<S: Sink>(sink: &mut S, blocks: &[u32]) {
    let mut rest = blocks;
    while let Some((window, _)) = rest.split_at_checked(STRIDE) {
        let repeats = |&round: &usize| {
            window[round] == window[0] && window[round..] == window[..STRIDE - round]
        };
        let taken = match (1..=LONGEST).find(repeats) {
            Some(round) => {
                let count = round + in_common(&rest[round..], rest);
                sink.cycle(&rest[..round], count as u64);
                count
            }
            None => {
                feed_each(sink, window);
                STRIDE
            }
        };
        rest = &rest[taken..];
    }
    feed_each(sink, rest);
}

/// With how many equal blocks both begin.
fn in_common(one: &[u32], other: &[u32]) -> usize {
    let strides = one.chunks_exact(STRIDE).zip(other.chunks_exact(STRIDE));
    let whole = strides.take_while(|(a, b)| a == b).count() * STRIDE;
    let rest = one[whole..].iter().zip(&other[whole..]);
    whole + rest.take_while(|(a, b)| a == b).count()
}

#[inline]
fn feed_each<S: Sink>(sink: &mut S, blocks: &[u32]) {
    for &id in blocks {
        sink.block(id);
    }
}

fn is_settled<'a, S: Cyclic<'a>>(sink: &mut S, since: u64) -> bool {
    let top = sink
        .stack()
        .frames()
        .last()
        .map_or(0, |frame| frame.entered);
    top < since && sink.is_settled(since)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Event;

    #[derive(Default)]
    struct Written {
        blocks: Vec<u32>,
        cycled: u64,
    }

    impl Sink for Written {
        fn block(&mut self, id: u32) {
            self.blocks.push(id);
        }

        fn cycle(&mut self, round: &[u32], count: u64) {
            self.cycled += count;
            let blocks = round.iter().copied().cycle();
            self.blocks.extend(blocks.take(count as usize));
        }

        fn event(&mut self, _: Event) {}
    }

    /// Whatever repeats in it, for however long, the flow stays the same.
    #[test]
    fn flow_stays_the_same() {
        let mut state = 7u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        let mut flow = Vec::new();
        for _ in 0..200 {
            let round: Vec<u32> = (0..=random(20)).map(|_| random(4)).collect();
            let length = random(500) as usize;
            flow.extend(round.iter().copied().cycle().take(length));
        }
        let mut written = Written::default();
        feed_flow(&mut written, &flow);
        assert_eq!(written.blocks, flow);
        assert!(written.cycled > flow.len() as u64 / 4, "{}", written.cycled);
    }
}
