// SPDX-License-Identifier: MIT
//! What the arguments of a blocking system call say: how long, on which descriptors.

use std::time::Duration;

use flagfinder_code::AddressSpace;
use flagfinder_linux::descriptors::{named, Named};
use flagfinder_linux::timeout::{limit, Limit};

use crate::proc::Call;

/// A thread that waits for longer waits; it does not poll.
pub const SOON: Duration = Duration::from_millis(1100);

/// How long a call waits at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// Since the clock's beginning where it is absolute, else from the call on.
    pub time: Duration,
    /// A point in time rather than a span.
    pub absolute: bool,
}

/// `None`: it waits for ever, or is no call that has a timeout.
pub fn timeout(call: &Call, memory: &dyn AddressSpace) -> Option<Timeout> {
    match limit(call.number, &call.args)? {
        Limit::Milliseconds(count) => Some(Timeout {
            time: Duration::from_millis(u64::try_from(count).ok()?),
            absolute: false,
        }),
        Limit::Time { address: 0, .. } => None,
        Limit::Time {
            address,
            unit,
            is_absolute,
        } => {
            let (seconds, part) = (memory.word(address)?, memory.word(address + 8)?);
            let time = Duration::from_secs(seconds.min(1 << 40))
                + Duration::from_nanos(part.checked_mul(unit)?);
            Some(Timeout {
                time,
                absolute: is_absolute,
            })
        }
    }
}

/// Descriptors that the call waits for; a long list is cut.
pub fn descriptors(call: &Call, memory: &dyn AddressSpace) -> Vec<i32> {
    const MOST: u64 = 64;
    match named(call.number, &call.args) {
        Some(Named::Entries { address, count }) => (0..count.min(MOST))
            .filter_map(|index| memory.number(address + index * 8, 4))
            .map(|fd| fd as u32 as i32)
            .filter(|fd| *fd >= 0)
            .collect(),
        Some(Named::Sets { addresses, count }) => {
            let sets: Vec<u64> = addresses.into_iter().filter(|set| *set != 0).collect();
            let is_set = |fd: u64| {
                let mut words = sets.iter().filter_map(|set| memory.word(set + fd / 64 * 8));
                words.any(|word| word >> (fd % 64) & 1 == 1)
            };
            (0..count.min(1024))
                .filter(|fd| is_set(*fd))
                .map(|fd| fd as i32)
                .collect()
        }
        Some(Named::One(fd)) => vec![fd],
        None => Vec::new(),
    }
}
