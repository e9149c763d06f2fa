// SPDX-License-Identifier: MIT
//! The call that a dead thread was in last, and what it was answered there.
//!
//! In: its registers and memory. Out: the answer with the memory that the kernel filled, and what
//! it said of descriptors.

use std::sync::Arc;

use flagfinder_code::AddressSpace;
use flagfinder_linux::syscalls;
use rustc_hash::FxHashMap;

use crate::guessed::Guess;

/// What is known of the calls of a thread that is no more.
#[derive(Clone, Debug, Default)]
pub struct Recalled {
    pub(crate) last: Option<Arc<LastCall>>,
    /// How calls are answered of which nothing is known.
    pub guesses: Vec<Guess>,
}

/// A call that a thread was in.
#[derive(Debug)]
pub(crate) struct LastCall {
    pub number: u32,
    pub arguments: [u64; 6],
    /// `None`: it waits in it.
    pub result: Option<i64>,
    /// Memory that the kernel filled.
    pub filled: Vec<(u64, Vec<u8>)>,
    /// Events that were found, by descriptor.
    pub ready: FxHashMap<i32, i16>,
}

/// Entries of an array that are looked at.
const MOST: u64 = 1024;
impl LastCall {
    pub fn of(
        memory: &dyn AddressSpace,
        number: u32,
        arguments: [u64; 6],
        result: Option<i64>,
    ) -> LastCall {
        let outputs = result.map(|result| syscalls::outputs(number, &arguments, result));
        let filled = outputs.into_iter().flatten().map(|(address, bytes)| {
            let mut content = vec![0; bytes as usize];
            let read = memory.read(address, &mut content);
            content.truncate(read);
            (address, content)
        });
        LastCall {
            number,
            arguments,
            result,
            filled: filled.collect(),
            ready: ready(memory, number, &arguments, result),
        }
    }

    /// Is it the same call? Data may go to another place.
    pub fn is(&self, number: u32, a: &[u64; 6]) -> bool {
        let mine = &self.arguments;
        let moves = syscalls::consumes(number);
        self.number == number && mine[0] == a[0] && (moves || mine[1] == a[1])
    }
}

/// What the answer says of descriptors.
fn ready(
    memory: &dyn AddressSpace,
    number: u32,
    a: &[u64; 6],
    result: Option<i64>,
) -> FxHashMap<i32, i16> {
    let mut ready = FxHashMap::default();
    match i64::from(number) {
        libc::SYS_poll | libc::SYS_ppoll => {
            for at in 0..a[1].min(MOST) {
                let mut entry = [0; 8];
                if memory.read(a[0].wrapping_add(at * 8), &mut entry) == entry.len() {
                    let [fd, _] = halves(&entry);
                    let found = i16::from_le_bytes([entry[6], entry[7]]);
                    ready.insert(fd, result.map_or(0, |_| found));
                }
            }
        }
        libc::SYS_select | libc::SYS_pselect6 => {
            const EVENTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
            for (set, events) in a[1..4].iter().zip(EVENTS).filter(|(set, _)| **set != 0) {
                let mut bits = vec![0; a[0].min(MOST).div_ceil(64) as usize * 8];
                let read = memory.read(*set, &mut bits);
                for fd in (0..read * 8).filter(|fd| bits[fd / 8] >> (fd % 8) & 1 == 1) {
                    *ready.entry(fd as i32).or_default() |= result.map_or(0, |_| events);
                }
            }
        }
        _ if syscalls::consumes(number) && !syscalls::gives(number) => match result {
            // The end stays where it is.
            Some(0) => drop(ready.insert(a[0] as i32, libc::POLLIN)),
            None => drop(ready.insert(a[0] as i32, 0)),
            _ => {}
        },
        _ => {}
    }
    ready
}

pub(crate) fn halves(entry: &[u8; 8]) -> [i32; 2] {
    let [a, b, c, d, e, f, g, h] = *entry;
    [[a, b, c, d], [e, f, g, h]].map(i32::from_le_bytes)
}
