// SPDX-License-Identifier: MIT
//! Did a thread whose last polls found nothing take data shortly before? Then it is served, though
//! not at the moment: the window is too short to show it.

use flagfinder_linux::syscalls;
use flagfinder_trace::{Event, Flow, Result, Thread};

/// How far to look back, ns.
const LATELY: u64 = 300_000_000;
/// Flow looked at, at most.
const BYTES: u64 = 64 << 20;
/// A thread that takes data less often may have been woken by a timer or a signal.
const OFTEN: usize = 8;

/// # Errors
/// When the trace cannot be read.
pub fn takes_data(thread: &Thread) -> Result<bool> {
    let count = thread.flow_section_count();
    let opened = |index: usize| thread.flow_section_times(index).0;
    let Some(last) = count.checked_sub(1).map(opened).filter(|&ts| ts > 0) else {
        return Ok(false);
    };
    let recent = (0..count)
        .rev()
        .take_while(|&index| opened(index) + LATELY >= last);
    let from = recent
        .last()
        .and_then(|index| thread.flow_section_extents().nth(index));
    let from = from.map_or(0, |(start, _)| start);
    let bytes = thread.flow_end().saturating_sub(from).min(BYTES);
    let mut taken = 0;
    for item in thread.flow_tail(bytes) {
        if let Flow::Event {
            event: Event::SyscallExit { number, result, .. },
            ..
        } = item?
        {
            let takes = syscalls::consumes(number) && !syscalls::gives(number);
            taken += usize::from(takes && result > 0);
            if taken >= OFTEN {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
