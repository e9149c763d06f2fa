// SPDX-License-Identifier: MIT
//! A copy that waits for its turn: its thread and others hand one thing to each other.
//!
//! In: what a copy does. Out: whether it only waits until another thread gives it what it waits
//! for, and the word that would say so. That word is found as every flag is: it is what the wait's
//! loop polls. In a copy it is then taken to be given, as it is given to the thread.

use flagfinder_flags::{has_flag, Report};
use flagfinder_linux::futex;
use flagfinder_machine::{Syscall, Window};
use flagfinder_replica::Word;

/// The word that a wait for a turn polls, with the value that ends it.
pub fn given(report: &Report) -> Option<Word> {
    let flag = report.flags.first().filter(|_| has_flag(report))?;
    let bytes = flag.size as usize;
    Some(Word {
        address: flag.address.spin?,
        bytes: (1..=8).contains(&bytes).then_some(bytes)?,
        value: flag.value.exit?,
    })
}

/// Does it do nothing but wait for its turn? Then its last waits for a word timed out, in one lock,
/// and in between it only took locks and read the clock.
pub fn waits_again(window: &Window) -> bool {
    const WAITS: usize = 4;
    const NEAR: u64 = 64;
    const BETWEEN: u32 = 1000;
    let mut waits: Vec<&Syscall> = Vec::new();
    for call in window.syscalls.iter().rev() {
        let word = futex::is_futex(call.number);
        if word && futex::waits_for_word(futex::command(&call.args)) {
            let is_over = call.result == Some(-i64::from(libc::ETIMEDOUT));
            let is_same = |last: &&Syscall| {
                last.args[0].abs_diff(call.args[0]) < NEAR && last.step - call.step < BETWEEN
            };
            if !is_over || !waits.last().is_none_or(is_same) {
                return false;
            }
            waits.push(call);
            if waits.len() == WAITS {
                return true;
            }
        } else if !word && i64::from(call.number) != libc::SYS_clock_gettime {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(step: u32, number: libc::c_long, args: [u64; 6], result: i64) -> Syscall {
        Syscall {
            step,
            number: number as u32,
            args,
            result: Some(result),
            written: Vec::new(),
        }
    }

    /// A wait for a word until some time, which nobody ends.
    fn wait(step: u32, word: u64) -> Syscall {
        let operation = (libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG) as u64;
        let result = -i64::from(libc::ETIMEDOUT);
        call(step, libc::SYS_futex, [word, operation, 0, 1, 0, 0], result)
    }

    fn waits(calls: Vec<Syscall>) -> bool {
        let mut window = Window::default();
        window.syscalls = calls;
        waits_again(&window)
    }

    #[test]
    fn a_copy_that_only_waits_for_its_turn_shows_nothing() {
        let clock = |step| call(step, libc::SYS_clock_gettime, [1, 0, 0, 0, 0, 0], 0);
        let wake = |step| call(step, libc::SYS_futex, [0x5008, 0x81, 1, 0, 0, 0], 0);
        let turn = |step| [clock(step), wake(step + 10), wait(step + 20, 0x5000)];
        let turns = |each: u32| (0..5).flat_map(move |n| turn(n * each)).collect::<Vec<_>>();
        assert!(waits(turns(300)));
        assert!(!waits(turns(1300)), "it does something in between");
        let lock = |n: u32| wait(n * 300, 0x5000 + u64::from(n % 2) * 0x4000);
        let two_locks = (0..5).map(lock).collect();
        assert!(!waits(two_locks));
        let sleeps = |step| call(step, libc::SYS_nanosleep, [0x7000, 0, 0, 0, 0, 0], 0);
        let rounds = |n: u32| [wait(n * 300, 0x5000), sleeps(n * 300 + 50)];
        assert!(!waits((0..5).flat_map(rounds).collect()));
    }
}
