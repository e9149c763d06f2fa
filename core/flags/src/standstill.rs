// SPDX-License-Identifier: MIT
//! Does a thread that was busy run at all any more?
//!
//! A thread that somebody stopped (a debugger, a scheduler with more urgent work, a frozen control
//! group) looks as if it polled what it looked at last. But a thread that never sleeps fills its
//! chunks of flow at a steady pace; one whose last chunk is many times as old as that pace allows
//! has not run since. What it waited for may long be there.

use flagfinder_linux::syscalls::{self, Role};
use flagfinder_trace::{Event, Flow, Process, Thread};

/// Chunks that tell the pace.
const CHUNKS: usize = 8;
/// The last chunk is this many times as old as the slowest of them took.
const TIMES: u64 = 8;
/// A busy machine keeps a thread from running for less than this.
const LEAST_NS: u64 = 1_000_000_000;
/// Bytes of flow looked at for system calls that make a thread wait.
const TAIL: u64 = 64 << 10;

/// For how long it has not run before the recording ended; `None`: it runs, it waits in the kernel,
/// or it is not known.
pub fn seconds(process: &Process, thread: &Thread) -> Option<u64> {
    let end = process
        .threads()
        .iter()
        .flat_map(times)
        .map(|(_, full)| full)
        .max()?;
    let chunks: Vec<(u64, u64)> = times(thread).collect();
    let idle = idle_ns(&chunks, end)?;
    let is_steady = thread.ended_open() && !may_wait(thread);
    is_steady.then_some(idle / 1_000_000_000)
}

/// When its chunks were opened and full, oldest first. Sections of one chunk are one.
fn times(thread: &Thread) -> impl Iterator<Item = (u64, u64)> + '_ {
    let sections = (0..thread.flow_section_count()).map(|index| thread.flow_section_times(index));
    sections.filter(|(open, _)| *open > 0)
}

/// How long the last chunk has been open at `end`, if that is far longer than the ones before took.
fn idle_ns(chunks: &[(u64, u64)], end: u64) -> Option<u64> {
    let mut opened: Vec<u64> = chunks.iter().map(|(open, _)| *open).collect();
    opened.dedup();
    let recent = &opened[opened.len().checked_sub(CHUNKS + 1)?..];
    let slowest = recent
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .max()?;
    let idle = end.saturating_sub(*recent.last()?);
    (idle >= LEAST_NS && idle >= slowest.saturating_mul(TIMES)).then_some(idle)
}

/// Did it make a call lately that takes time of its own?
fn may_wait(thread: &Thread) -> bool {
    let is_wait = |item: flagfinder_trace::Result<Flow>| match item {
        Ok(Flow::Event {
            event: Event::SyscallEnter(call),
            ..
        }) => !matches!(
            syscalls::role(call.number, &call.args),
            Role::Yield | Role::Neutral
        ),
        Ok(_) => false,
        Err(_) => true,
    };
    thread.flow_tail(TAIL).any(is_wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Twenty chunks of 10 ms each, and one that was still open at the recording's end, so much
    /// later.
    fn idle_after(later: u64) -> Option<u64> {
        let chunks: Vec<(u64, u64)> = (1..=20).map(|n| (n * 10 * MS, (n + 1) * 10 * MS)).collect();
        idle_ns(&chunks, 200 * MS + later)
    }

    #[test]
    fn a_chunk_that_never_fills_is_a_thread_that_does_not_run() {
        assert_eq!(idle_after(5000 * MS), Some(5000 * MS));
        assert_eq!(idle_after(9 * MS), None);
        assert_eq!(idle_after(900 * MS), None, "a busy machine");
    }

    #[test]
    fn a_slow_thread_may_be_at_its_pace() {
        let chunks: Vec<(u64, u64)> = (1..=20)
            .map(|n| (n * 500 * MS, (n + 1) * 500 * MS))
            .collect();
        assert_eq!(idle_ns(&chunks, 10_000 * MS + 2000 * MS), None);
        assert_eq!(idle_ns(&chunks[..3], 60_000 * MS), None, "too few chunks");
    }
}
