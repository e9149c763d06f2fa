// SPDX-License-Identifier: MIT
//! Calls about descriptors by which a process's threads wake each other: an eventfd, a pipe to
//! itself.
//!
//! A virtual machine whose program sleeps waits at one for as long, so that a signal or another of
//! its threads can cut the sleep short, and empties it first; its event loop asks there between the
//! program's callbacks. That it is empty says nothing about what the program waits for. Blind
//! spots: a program that polls such a descriptor of its own; of `select`'s sets only the highest
//! descriptor is looked at.

use flagfinder_linux::descriptors::{named, Named};
use flagfinder_machine::{Syscall, Window};
use rustc_hash::FxHashSet;

/// Steps within which the entries of a poll were filled in.
const NEAR: u32 = 2000;
/// A poll with more entries is a server's.
const ENTRIES: u64 = 8;

/// Steps of calls that ask about nothing but the own wake-up; `is_own` tells whether a descriptor
/// is one.
pub fn steps(window: &Window, is_own: &dyn Fn(i32) -> bool) -> FxHashSet<u32> {
    let asks = |call: &&Syscall| {
        asked(window, call)
            .is_some_and(|asked| !asked.is_empty() && asked.iter().all(|&fd| is_own(fd)))
    };
    let calls = window.syscalls.iter().filter(asks);
    calls.map(|call| call.step).collect()
}

/// The descriptors that a call is about; `None`: not known.
fn asked(window: &Window, call: &Syscall) -> Option<Vec<i32>> {
    match named(call.number, &call.args)? {
        Named::Entries { address, count } if count <= ENTRIES => {
            let entries = (0..count).map(|entry| address.wrapping_add(8 * entry));
            entries
                .map(|at| descriptor_at(window, call.step, at))
                .collect()
        }
        Named::Entries { .. } => None,
        Named::Sets { count, .. } => Some(vec![count as i32 - 1]),
        Named::One(fd) => Some(vec![fd]),
    }
}

/// What was last written or read there before the step.
fn descriptor_at(window: &Window, before: u32, address: u64) -> Option<i32> {
    let steps = (before.saturating_sub(NEAR)..before).rev();
    let mut touched = steps.flat_map(|step| window.accesses(step));
    touched.find_map(|access| {
        let whole = access.address == Some(address) && matches!(access.bytes, 4 | 8);
        let fd = access.value.get(32).filter(|_| whole)?;
        Some(fd as u32 as i32)
    })
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::evaluator::Access;
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    const SET: u64 = 0x6000;
    const OWN: i32 = 3;
    const SOCKET: i32 = 5;

    /// Does a call ask about the own wake-up alone, when these descriptors stand in the set it
    /// gets?
    fn is_own(number: libc::c_long, args: [u64; 6], set: &[i32]) -> bool {
        let mut window = Window::default();
        let mut decoder = Decoder::with_ip(64, &[0x90], 0x1000, DecoderOptions::NONE);
        let index = window.intern(&decoder.decode(), 0, &mut InstructionInfoFactory::new());
        for (entry, fd) in (0..).zip(set) {
            window.push(index, Value::of(0x7000));
            window.push_access(Access {
                address: Some(SET + 8 * entry),
                bytes: 4,
                write: true,
                value: Value::of(*fd as u64),
            });
        }
        window.push(index, Value::of(0x7000));
        window.syscalls.push(Syscall {
            step: window.len() - 1,
            number: number as u32,
            args,
            result: Some(0),
            written: Vec::new(),
        });
        !steps(&window, &|fd| fd == OWN).is_empty()
    }

    #[test]
    fn a_poll_for_the_own_wake_up_is_a_sleep() {
        let poll = |set: &[i32]| is_own(libc::SYS_poll, [SET, set.len() as u64, 1, 0, 0, 0], set);
        assert!(poll(&[OWN]));
        assert!(!poll(&[OWN, SOCKET]));
        assert!(!poll(&[SOCKET]));
        assert!(!poll(&[]));
        assert!(
            !is_own(libc::SYS_poll, [SET, 1, 1, 0, 0, 0], &[]),
            "unknown"
        );
    }

    #[test]
    fn so_are_a_read_and_a_select() {
        let select = |highest: i32| {
            is_own(
                libc::SYS_pselect6,
                [highest as u64 + 1, SET, 0, 0, 0, 0],
                &[],
            )
        };
        assert!(select(OWN) && !select(SOCKET));
        let read = |fd: i32| is_own(libc::SYS_read, [fd as u64, 0x5000, 8, 0, 0, 0], &[]);
        assert!(read(OWN) && !read(SOCKET));
    }
}
