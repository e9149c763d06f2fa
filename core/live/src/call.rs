//! What the arguments of a blocking system call say: how long, on which descriptors.

use std::time::Duration;

use crate::memory::Memory;
use crate::proc::Call;

/// How long a call waits at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    pub time: Duration,
    /// A point in time rather than a span.
    pub absolute: bool,
}

const FUTEX_COMMAND: u64 = 0x7f;
const FUTEX_WAIT: u64 = 0;

/// `None`: it waits for ever, or is no call that has a timeout.
pub fn timeout(call: &Call, memory: &Memory) -> Option<Timeout> {
    let a = &call.args;
    let span = |time| {
        Some(Timeout {
            time,
            absolute: false,
        })
    };
    let milliseconds = |argument: u64| match argument as i32 {
        0.. => span(Duration::from_millis(u64::from(argument as u32))),
        _ => None,
    };
    // struct timespec, or timeval with `unit` ns in its second word.
    let at = |address: u64, unit: u64, absolute: bool| {
        if address == 0 {
            return None;
        }
        let (seconds, part) = (memory.word(address)?, memory.word(address + 8)?);
        let time = Duration::from_secs(seconds.min(1 << 40))
            + Duration::from_nanos(part.checked_mul(unit)?);
        Some(Timeout { time, absolute })
    };
    match i64::from(call.number) {
        libc::SYS_nanosleep => at(a[0], 1, false),
        libc::SYS_clock_nanosleep => at(a[2], 1, a[1] & 1 == 1),
        libc::SYS_poll => milliseconds(a[2]),
        libc::SYS_ppoll => at(a[2], 1, false),
        libc::SYS_select => at(a[4], 1000, false),
        libc::SYS_pselect6 => at(a[4], 1, false),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => milliseconds(a[3]),
        libc::SYS_epoll_pwait2 => at(a[3], 1, false),
        libc::SYS_rt_sigtimedwait => at(a[2], 1, false),
        libc::SYS_futex => at(a[3], 1, a[1] & FUTEX_COMMAND != FUTEX_WAIT),
        _ => None,
    }
}

/// Descriptors that the call waits for; many are cut.
pub fn descriptors(call: &Call, memory: &Memory) -> Vec<i32> {
    const MOST: u64 = 64;
    let a = &call.args;
    match i64::from(call.number) {
        libc::SYS_poll | libc::SYS_ppoll => (0..a[1].min(MOST))
            .filter_map(|index| memory.number(a[0] + index * 8, 4))
            .map(|fd| fd as u32 as i32)
            .filter(|fd| *fd >= 0)
            .collect(),
        libc::SYS_select | libc::SYS_pselect6 => {
            let sets: Vec<u64> = a[1..4].iter().copied().filter(|set| *set != 0).collect();
            let is_set = |fd: u64| {
                let mut words = sets.iter().filter_map(|set| memory.word(set + fd / 64 * 8));
                words.any(|word| word >> (fd % 64) & 1 == 1)
            };
            (0..a[0].min(1024))
                .filter(|fd| is_set(*fd))
                .map(|fd| fd as i32)
                .collect()
        }
        libc::SYS_io_uring_enter => vec![a[0] as i32],
        _ => flagfinder_flags::syscalls::descriptor(call.number, a)
            .into_iter()
            .collect(),
    }
}
