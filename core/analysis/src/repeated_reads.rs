// SPDX-License-Identifier: MIT
//! Reads that find what they found the round before: a status file that is opened, read and closed
//! again and again. They move no data on; what they read is an answer, as a poll's is.
//!
//! Told by what the program looks at in its buffer, since nothing else of the contents is known:
//! the n-th read since the file was opened (or its position was set) gave as much as the n-th read
//! did the time before, or a read at some place of the file as much as the one before at that
//! place, and every word that was then loaded from the buffer is the same. Who counts or copies
//! what changes reads something else, or at many places.

use flagfinder_machine::{Syscall, Window};
use rustc_hash::{FxHashMap, FxHashSet};

/// How much was read, and (place in the buffer, bytes, value) of what was loaded of it.
type Answer = (i64, Vec<(u64, u32, Option<u64>)>);

/// A loop that reads a file at more places walks through it.
const PLACES: usize = 4;

/// Steps of such reads.
pub fn same_again(window: &Window) -> FxHashSet<u32> {
    let mut found = FxHashSet::default();
    // Reads since a descriptor was set to the beginning.
    let mut since: FxHashMap<u64, usize> = FxHashMap::default();
    let mut before: FxHashMap<usize, Answer> = FxHashMap::default();
    // By descriptor and place.
    let mut at_place: FxHashMap<u64, FxHashMap<u64, Answer>> = FxHashMap::default();
    let mut found_at: FxHashMap<u64, Vec<u32>> = FxHashMap::default();
    for call in &window.syscalls {
        let Some(result) = call.result.filter(|result| *result >= 0) else {
            continue;
        };
        match i64::from(call.number) {
            libc::SYS_open | libc::SYS_openat => {
                since.insert(result as u64, 0);
            }
            libc::SYS_lseek if call.args[1..3] == [0, libc::SEEK_SET as u64] => {
                since.insert(call.args[0], 0);
            }
            libc::SYS_close => {
                since.remove(&call.args[0]);
            }
            libc::SYS_read if result > 0 => {
                let Some(number) = since.get_mut(&call.args[0]) else {
                    continue;
                };
                *number += 1;
                let answer = (result, looked_at(window, call, result as u64));
                let is_known = answer.1.iter().any(|word| word.2.is_some());
                if is_known && before.get(number) == Some(&answer) {
                    found.insert(call.step);
                }
                before.insert(*number, answer);
            }
            libc::SYS_pread64 if result > 0 => {
                let answer = (result, looked_at(window, call, result as u64));
                let is_known = answer.1.iter().any(|word| word.2.is_some());
                let (file, place) = (call.args[0], call.args[3]);
                let places = at_place.entry(file).or_default();
                if places.get(&place) == Some(&answer) && is_known {
                    found_at.entry(file).or_default().push(call.step);
                }
                places.insert(place, answer);
            }
            _ => {}
        }
    }
    found_at.retain(|file, _| at_place[file].len() <= PLACES);
    found.extend(found_at.into_values().flatten());
    found
}

/// What is loaded from the buffer before it is filled again or used for something else.
fn looked_at(window: &Window, call: &Syscall, bytes: u64) -> Vec<(u64, u32, Option<u64>)> {
    let buffer = call.args[1]..call.args[1].saturating_add(bytes);
    let calls = window.syscalls.iter();
    let again = calls
        .filter(|other| other.step > call.step && other.number == call.number)
        .map(|other| other.step);
    let end = again.min().unwrap_or(window.len());
    let mut loaded = Vec::new();
    for step in call.step + 1..end {
        for access in window.accesses(step) {
            let Some(address) = access.address.filter(|at| buffer.contains(at)) else {
                continue;
            };
            if access.write {
                return loaded;
            }
            let value = access.value.get((access.bytes * 8).min(64));
            loaded.push((address - buffer.start, access.bytes, value));
        }
    }
    loaded
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::evaluator::Access;
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    const BUFFER: u64 = 0x6000;
    const FILE: u64 = 3;

    fn step(window: &mut Window) -> u32 {
        let mut decoder = Decoder::with_ip(64, &[0x90], 0x1000, DecoderOptions::NONE);
        let index = window.intern(&decoder.decode(), 0, &mut InstructionInfoFactory::new());
        window.push(index, Value::of(0x7000));
        window.len() - 1
    }

    fn call(window: &mut Window, number: libc::c_long, args: [u64; 6], result: i64) {
        let step = step(window);
        window.syscalls.push(Syscall {
            step,
            number: number as u32,
            args,
            result: Some(result),
            written: Vec::new(),
        });
    }

    /// Reads that gave the same, of rounds that open a file, read 9 bytes of it and load a word,
    /// whose values these are.
    fn same(opens: bool, words: &[u64]) -> usize {
        same_by(opens, libc::SYS_read, words)
    }

    fn same_by(opens: bool, read: libc::c_long, words: &[u64]) -> usize {
        same_at(opens, read, 1, words)
    }

    /// The reads are at so many places in turn.
    fn same_at(opens: bool, read: libc::c_long, places: u64, words: &[u64]) -> usize {
        let mut window = Window::default();
        for (number, word) in (0..).zip(words) {
            if opens {
                call(&mut window, libc::SYS_openat, [0; 6], FILE as i64);
            }
            let args = [FILE, BUFFER, 512, 512 * (number % places), 0, 0];
            call(&mut window, read, args, 9);
            step(&mut window);
            window.push_access(Access {
                address: Some(BUFFER + 2),
                bytes: 4,
                write: false,
                value: Value::of(*word),
            });
        }
        same_again(&window).len()
    }

    #[test]
    fn a_place_of_a_file_may_be_read_again() {
        let same = |words: &[u64]| same_by(false, libc::SYS_pread64, words);
        assert_eq!(same(&[7, 7, 7]), 2);
        assert_eq!(same(&[7, 8, 9]), 0);
    }

    #[test]
    fn a_thread_that_reads_at_many_places_walks_through_the_file() {
        let same = |places| same_at(false, libc::SYS_pread64, places, &[7; 40]);
        assert_eq!(same(2), 38);
        assert_eq!(same(16), 0);
    }

    #[test]
    fn a_repeated_read_of_the_same_is_an_answer() {
        assert_eq!(same(true, &[7, 7, 7]), 2);
    }

    #[test]
    fn a_read_that_changes_is_data() {
        assert_eq!(same(true, &[7, 8, 9]), 0);
        assert_eq!(same(false, &[7, 7, 7]), 0, "a pipe");
    }
}
