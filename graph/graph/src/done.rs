// SPDX-License-Identifier: MIT
//! Calls that ran, counted by kind and descriptor in slices of time, of threads that make many.
//!
//! In: calls with their times, where all were recorded. Out: [`Done`]. A call that blocks is a
//! wait, and counted as one. A slice with fewer than [`FEWEST`] calls grows while the next one has
//! calls as well: a busy machine makes work slower, not less. Else it has none.

use flagfinder_events::Call;
use serde::{Deserialize, Serialize};

/// Fewer calls in a slice say little of what a thread did in it.
const FEWEST: u32 = 50;
/// Slices are no shorter, ns, and so many at most.
const SHORTEST: u64 = 50_000_000;
const MOST: u64 = 500;

/// Calls of one kind by one thread in one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Index of the thread.
    pub thread: u32,
    /// When the slice began and ended.
    pub start: u64,
    pub end: u64,
    pub number: u16,
    pub fd: Option<i32>,
    pub count: u32,
    /// ns from entry to return.
    pub total: u64,
}

/// All of a recording, by thread, and then by time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AllDone(Vec<Done>);

impl AllDone {
    /// What a thread called from `from` to `to`. Of a slice that is partly outside, a part counts.
    pub fn within(&self, thread: u32, from: u64, to: u64) -> impl Iterator<Item = Done> + '_ {
        let first = self
            .0
            .partition_point(|one| (one.thread, one.end) <= (thread, from));
        let own = self.0[first..].iter();
        let own = own.take_while(move |one| one.thread == thread && one.start < to);
        own.map(move |one| {
            let inside = to.min(one.end).saturating_sub(from.max(one.start));
            let slice = (one.end - one.start).max(1);
            let part =
                |whole: u64| (u128::from(whole) * u128::from(inside) / u128::from(slice)) as u64;
            Done {
                count: part(one.count.into()) as u32,
                total: part(one.total),
                ..*one
            }
        })
    }

    /// Adds those of another host, whose threads have higher numbers, with its times as `of` has
    /// them. `threads`: what is added to its numbers of threads.
    pub fn join(&mut self, other: &AllDone, threads: u32, of: impl Fn(u64) -> u64) {
        self.0.extend(other.0.iter().map(|one| Done {
            thread: one.thread + threads,
            start: of(one.start),
            end: of(one.end),
            ..*one
        }));
    }
}

/// Counts them while the graph is built.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    first: u64,
    /// How long a slice is, ns.
    slice: u64,
    all: Vec<Done>,
    /// By number of the thread: its newest slice.
    open: Vec<Vec<Done>>,
}

impl Counting {
    pub fn new(first: u64, last: u64) -> Counting {
        Counting {
            first,
            slice: SHORTEST.max((last - first) / MOST),
            ..Counting::default()
        }
    }

    /// A call of a thread returns at `ts`, which it began at `since`.
    pub fn add(&mut self, thread: usize, call: Call, since: u64, ts: u64) {
        let slice = self.slice;
        let mut start = self.first + ts.saturating_sub(self.first) / slice * slice;
        let end = start + slice;
        if thread >= self.open.len() {
            self.open.resize_with(thread + 1, Vec::new);
        }
        let open = &mut self.open[thread];
        if let Some(before) = open.first().copied().filter(|one| one.end != end) {
            if before.end == start && Counting::sum(open) < FEWEST {
                open.iter_mut().for_each(|one| one.end = end);
                start = before.start;
            } else {
                self.close(thread);
            }
        } else if let Some(now) = open.first() {
            start = now.start;
        }
        let open = &mut self.open[thread];
        let (number, fd) = (call.number, call.descriptor());
        let total = ts.saturating_sub(since);
        match open
            .iter_mut()
            .find(|one| (one.number, one.fd) == (number, fd))
        {
            Some(one) => (one.count, one.total) = (one.count + 1, one.total + total),
            None => open.push(Done {
                thread: thread as u32,
                start,
                end,
                number,
                fd,
                count: 1,
                total,
            }),
        }
    }

    fn sum(calls: &[Done]) -> u32 {
        calls.iter().map(|one| one.count).sum()
    }

    fn close(&mut self, thread: usize) {
        let calls = std::mem::take(&mut self.open[thread]);
        if Counting::sum(&calls) >= FEWEST {
            self.all.extend(calls);
        }
    }

    pub fn finish(mut self) -> AllDone {
        (0..self.open.len()).for_each(|thread| self.close(thread));
        self.all.sort_by_key(|one| (one.thread, one.start));
        AllDone(self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Call = Call {
        number: libc::SYS_pread64 as u16,
        first: 5,
    };

    #[test]
    fn many_calls_are_counted_and_few_are_not() {
        let mut counting = Counting::new(1000, 1000 + SHORTEST * 4);
        for call in 0..FEWEST as u64 * 2 {
            let ts = 1000 + call * SHORTEST / u64::from(FEWEST);
            counting.add(7, READ, ts - 300, ts);
        }
        counting.add(8, READ, 1000, 1300);
        let all = counting.finish();
        let whole: Vec<Done> = all.within(7, 0, u64::MAX).collect();
        let counts: Vec<u32> = whole.iter().map(|one| one.count).collect();
        assert_eq!(counts, [FEWEST; 2]);
        assert_eq!(
            (whole[0].fd, whole[0].total),
            (Some(5), 300 * u64::from(FEWEST))
        );
        assert_eq!(all.within(8, 0, u64::MAX).count(), 0);
        // A half of the second slice.
        let half = all.within(7, 1000 + SHORTEST, 1000 + SHORTEST * 3 / 2);
        assert_eq!(half.map(|one| one.count).sum::<u32>(), FEWEST / 2);
    }

    #[test]
    fn slow_calls_are_counted_over_more_slices_and_a_gap_ends_that() {
        let mut counting = Counting::new(0, SHORTEST * 40);
        let few = u64::from(FEWEST) / 5;
        let mut make = |slices: std::ops::Range<u64>| {
            for ts in slices.flat_map(|slice| (0..few).map(move |call| slice * SHORTEST + call)) {
                counting.add(0, READ, ts, ts + 1);
            }
        };
        make(0..10);
        make(12..14);
        make(20..22);
        let all = counting.finish();
        let counted: Vec<(u64, u64, u32)> = all
            .within(0, 0, u64::MAX)
            .map(|one| (one.start / SHORTEST, one.end / SHORTEST, one.count))
            .collect();
        assert_eq!(counted, [(0, 5, FEWEST), (5, 10, FEWEST)]);
    }
}
