// SPDX-License-Identifier: MIT
//! Does a thread that was busy run at all any more?
//!
//! A thread that somebody stopped (a debugger, a scheduler with more urgent work, a frozen control
//! group) looks as if it polled what it looked at last. But a thread that never sleeps fills its
//! chunks of flow at a steady pace; one whose last chunk is many times as old as that pace allows
//! has not run since. What it waited for may long be there.

use flagfinder_linux::syscalls::{self, Role};
use flagfinder_trace::{Event, Flow, Process, Thread};

/// How many chunks show the pace.
const CHUNKS: usize = 8;
/// The last chunk is so many times as old as the slowest of these took.
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
    // Most threads can be judged without reading their flow.
    idle_ns(&chunks, 0, end)?;
    let last_call = last_call_if_steady(thread)?;
    let idle = idle_ns(&chunks, last_call, end)?;
    thread.ended_open().then_some(idle / 1_000_000_000)
}

/// When its chunks were opened and full, oldest first. Sections of one chunk are one.
fn times(thread: &Thread) -> impl Iterator<Item = (u64, u64)> + '_ {
    let sections = (0..thread.flow_section_count()).map(|index| thread.flow_section_times(index));
    sections.filter(|(open, _)| *open > 0)
}

/// How long the last chunk has been open at `end`, if that is far longer than the ones before took.
/// A thread that made a call since then ran until that one: it yields where it computed before.
fn idle_ns(chunks: &[(u64, u64)], last_call: u64, end: u64) -> Option<u64> {
    let mut opened: Vec<u64> = chunks.iter().map(|(open, _)| *open).collect();
    opened.dedup();
    let recent = &opened[opened.len().checked_sub(CHUNKS + 1)?..];
    let slowest = recent
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .max()?;
    let idle = end.saturating_sub(last_call.max(*recent.last()?));
    (idle >= LEAST_NS && idle >= slowest.saturating_mul(TIMES)).then_some(idle)
}

/// When it began or ended its last call, 0 if it made none in the last part of its flow. `None`: it
/// makes calls that take time of their own.
fn last_call_if_steady(thread: &Thread) -> Option<u64> {
    let mut last = 0;
    for item in thread.flow_tail(TAIL) {
        let Flow::Event { event, .. } = item.ok()? else {
            continue;
        };
        match event {
            Event::SyscallEnter(call) => {
                let role = syscalls::role(call.number, &call.args);
                if !matches!(role, Role::Yield | Role::Neutral) {
                    return None;
                }
                last = call.ts;
            }
            Event::SyscallExit { ts, .. } => last = ts,
            _ => {}
        }
    }
    Some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Twenty chunks of 10 ms each, and one that was still open at the recording's end, so much
    /// later.
    fn idle_after(later: u64) -> Option<u64> {
        let chunks: Vec<(u64, u64)> = (1..=20).map(|n| (n * 10 * MS, (n + 1) * 10 * MS)).collect();
        idle_ns(&chunks, 0, 200 * MS + later)
    }

    #[test]
    fn a_chunk_that_never_fills_is_a_thread_that_does_not_run() {
        assert_eq!(idle_after(5000 * MS), Some(5000 * MS));
        assert_eq!(idle_after(9 * MS), None);
        assert_eq!(idle_after(900 * MS), None, "a busy machine");
    }

    #[test]
    fn a_thread_that_now_yields_still_runs() {
        let chunks: Vec<(u64, u64)> = (1..=20).map(|n| (n * 10 * MS, (n + 1) * 10 * MS)).collect();
        let idle = |last_call| idle_ns(&chunks, last_call, 5000 * MS);
        assert_eq!(idle(4900 * MS), None);
        assert_eq!(idle(1000 * MS), Some(4000 * MS), "it was stopped then");
    }

    #[test]
    fn a_slow_thread_may_be_at_its_pace() {
        let chunks: Vec<(u64, u64)> = (1..=20)
            .map(|n| (n * 500 * MS, (n + 1) * 500 * MS))
            .collect();
        assert_eq!(idle_ns(&chunks, 0, 10_000 * MS + 2000 * MS), None);
        assert_eq!(
            idle_ns(&chunks[..3], 0, 60_000 * MS),
            None,
            "too few chunks"
        );
    }
}
