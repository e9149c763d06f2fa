// SPDX-License-Identifier: MIT
//! Calls that ask for something and fail each time, though no branch shows it: a script that waits
//! for a file.
//!
//! What the answer decides lies in data that an interpreter moves about, or in a loop around the
//! one that was found. So the calls alone are looked at. Blind spots: a search for a file in many
//! places, caught while it finds none; questions whose negative answer is no failure (`stat` of a
//! lock file, `kill` with signal 0).

use flagfinder_linux::syscalls::{self, Role};
use flagfinder_machine::{Syscall, Window};
use rustc_hash::{FxHashMap, FxHashSet};

/// Fewer failed questions may be chance.
const LEAST: usize = 4;

/// Arguments that tell one question from another; those behind them may be left from earlier calls.
const TOLD_APART: usize = 2;

/// The last step of a question that fails in the same way each time, when all that is asked beside
/// it is answered as before. `same_again`: steps of reads that found what they found before.
pub fn asked_in_vain(window: &Window, same_again: &FxHashSet<u32>) -> Option<u32> {
    let fails = |call: &&Syscall| match syscalls::role(call.number, &call.args) {
        Role::Poll => call.result.is_some_and(|result| result <= 0),
        _ => call.result.is_some_and(|result| result < 0),
    };
    let asked = window.syscalls.iter().filter(|call| {
        let role = syscalls::role(call.number, &call.args);
        matches!(role, Role::Poll | Role::Work) && call.result.is_some()
    });
    let failing: Vec<&Syscall> = asked.clone().filter(fails).collect();
    let last = failing.last()?;
    let mut answers: FxHashMap<(u32, &[u64]), Option<i64>> = FxHashMap::default();
    let mut others = asked.filter(|call| !fails(call));
    let nothing_new = others.all(|call| {
        let question = (call.number, &call.args[..TOLD_APART]);
        let known = *answers.entry(question).or_insert(call.result);
        known == call.result && (!call.moves_data() || same_again.contains(&call.step))
    });
    let alike = failing
        .iter()
        .all(|call| call.number == last.number && call.result == last.result);
    // A thread whose questions differ from round to round makes progress.
    let is_vain = failing.len() >= LEAST && alike && nothing_new && answers.len() <= failing.len();
    is_vain.then_some(last.step)
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    type Call = (libc::c_long, i64);

    const MISSING: Call = (libc::SYS_newfstatat, -(libc::ENOENT as i64));
    const NAP: Call = (libc::SYS_nanosleep, 0);

    /// Do rounds of these calls ask for something and never get it?
    fn is_vain(calls: impl Fn(u64) -> Vec<Call>) -> bool {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for (number, result) in (0..6).flat_map(calls) {
            let mut decoder = Decoder::with_ip(64, &[0x90], 0x1000, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(0x7000));
            window.syscalls.push(Syscall {
                step: window.len() - 1,
                number: number as u32,
                args: [3; 6],
                result: Some(result),
                written: Vec::new(),
            });
        }
        asked_in_vain(&window, &FxHashSet::default()).is_some()
    }

    #[test]
    fn the_same_failure_over_and_over() {
        assert!(is_vain(|_| vec![MISSING]));
        assert!(is_vain(|_| vec![MISSING, NAP]));
        assert!(is_vain(|_| vec![(libc::SYS_poll, 0)]));
        assert!(is_vain(|_| vec![
            (libc::SYS_socket, 4),
            (libc::SYS_connect, -111)
        ]));
        assert!(!is_vain(|_| vec![NAP]), "nothing is asked");
        assert!(
            !is_vain(|round| vec![MISSING; usize::from(round < 3)]),
            "too few"
        );
    }

    #[test]
    fn a_thread_that_finds_something_makes_progress() {
        let found = (libc::SYS_newfstatat, 0);
        assert!(!is_vain(|round| vec![
            if round % 2 == 0 { MISSING } else { found },
            (libc::SYS_fstat, round as i64)
        ]));
        assert!(
            !is_vain(|_| vec![(libc::SYS_read, 90), (libc::SYS_read, -11)]),
            "data"
        );
        assert!(!is_vain(|_| vec![(libc::SYS_write, 90), MISSING]), "data");
        assert!(!is_vain(|round| vec![
            MISSING,
            (libc::SYS_lseek, round as i64)
        ]));
        let other = (libc::SYS_connect, -111);
        assert!(!is_vain(|round| vec![if round == 0 {
            other
        } else {
            MISSING
        }]));
    }
}
