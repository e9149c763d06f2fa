//! Passing through a round of blocks that repeats for long without following every turn.
//!
//! A thread that spins without system calls runs a billion blocks a second, all alike. Once a round
//! leaves a scan as it found it - the same calls and loops open, none of them begun in that round -
//! the next ones do the same again: one more is followed, counting for all of them, and the index
//! jumps behind the last.

use crate::call_stack::CallStack;
use crate::input::Sink;

/// A scan whose counts can stand for several rounds.
pub trait Cyclic<'a>: Sink {
    /// Its shadow stack.
    fn stack(&mut self) -> &mut CallStack<'a>;
    /// What happens from here on counts `times` times.
    fn weigh(&mut self, times: u64);
    /// Nothing that is open (besides frames) began at this index or later.
    fn is_settled(&self, since: u64) -> bool;
}

/// Rounds followed besides the one that counts for many.
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
            // One round is left to be followed, for the last time that each thing happened.
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

fn is_settled<'a, S: Cyclic<'a>>(sink: &mut S, since: u64) -> bool {
    let top = sink
        .stack()
        .frames()
        .last()
        .map_or(0, |frame| frame.entered);
    top < since && sink.is_settled(since)
}
