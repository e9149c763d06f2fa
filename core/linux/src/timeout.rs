// SPDX-License-Identifier: MIT
//! Where a system call that waits is told for how long.

use std::time::Duration;

use crate::futex;
use crate::tracing::SYS_IO_PGETEVENTS;

/// The argument that limits the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The milliseconds themselves; negative: for ever.
    Milliseconds(i32),
    /// The address of seconds and of a part of one, two words; 0: for ever.
    Time {
        /// Address of the first word.
        address: u64,
        /// Nanoseconds in one of the second word.
        unit: u64,
        /// A point in time rather than a span.
        is_absolute: bool,
    },
}

/// For people: `1.5ms`, `9.7s`, `5 min`, `27 h 46 min`, `11 days`.
pub fn shown(time: Duration) -> String {
    let two = |number: u64, unit: &str, rest: u64, below: &str| match rest {
        0 => format!("{number} {unit}"),
        _ => format!("{number} {unit} {rest} {below}"),
    };
    match time.as_secs() {
        0..120 => format!("{time:.1?}").replace(".0", ""),
        seconds @ ..7200 => two(seconds / 60, "min", seconds % 60, "s"),
        seconds @ ..172_800 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        seconds => format!("{} days", seconds / 86400),
    }
}

/// `None`: the call has no such argument.
pub fn limit(number: u32, args: &[u64; 6]) -> Option<Limit> {
    let at = |address, unit, is_absolute| {
        Some(Limit::Time {
            address,
            unit,
            is_absolute,
        })
    };
    let milliseconds = |argument: u64| Some(Limit::Milliseconds(argument as i32));
    match i64::from(number) {
        libc::SYS_nanosleep => at(args[0], 1, false),
        libc::SYS_clock_nanosleep => at(args[2], 1, args[1] & 1 == 1),
        libc::SYS_poll => milliseconds(args[2]),
        libc::SYS_ppoll => at(args[2], 1, false),
        libc::SYS_select => at(args[4], 1000, false),
        libc::SYS_pselect6 => at(args[4], 1, false),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => milliseconds(args[3]),
        libc::SYS_epoll_pwait2 => at(args[3], 1, false),
        libc::SYS_rt_sigtimedwait => at(args[2], 1, false),
        libc::SYS_semtimedop => at(args[3], 1, false),
        libc::SYS_io_getevents | SYS_IO_PGETEVENTS => at(args[4], 1, false),
        libc::SYS_futex => at(args[3], 1, futex::has_deadline(futex::command(args))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_for_people_have_a_tenth_at_most() {
        assert_eq!(shown(Duration::from_secs(100_000)), "27 h 46 min");
        assert_eq!(shown(Duration::from_secs(300)), "5 min");
        assert_eq!(shown(Duration::from_secs(1_000_000)), "11 days");
        assert_eq!(shown(Duration::new(9, 727_293_668)), "9.7s");
        assert_eq!(shown(Duration::from_micros(1500)), "1.5ms");
    }
}
