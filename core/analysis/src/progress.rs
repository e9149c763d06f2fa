// SPDX-License-Identifier: MIT
//! Does the loop make progress? A thread that waits does the same in every iteration, is handed
//! nothing and is woken by nobody.

use flagfinder_linux::futex;
use flagfinder_linux::syscalls::{self, Role};
use flagfinder_machine::{Syscall, Window};
use rustc_hash::FxHashSet;

use crate::interpreter::interprets;
use crate::spin_loop::SpinLoop;

/// Iterations that are compared with each other.
const COMPARED: usize = 12;
/// The same of an interpreter that goes round for each piece of its program.
const COMPARED_PIECES: usize = 48;
/// Two iterations go the same way if they share this part of their instructions.
const ALIKE: f64 = 0.8;

/// Signs that the loop makes progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Data was taken from a descriptor in (nearly) every iteration, or most times that some was
    /// ready.
    pub consumes: bool,
    /// In (nearly) every iteration the thread slept until another one woke it, for whatever time.
    pub is_woken: bool,
    /// Most iterations go a way that another iteration goes as well.
    pub repeats: bool,
}

impl Progress {
    /// `same_again`: steps of reads that found nothing new.
    pub fn of(window: &Window, spin: &SpinLoop, same_again: &FxHashSet<u32>) -> Progress {
        Progress {
            consumes: consumes(window, spin, same_again) || takes_what_is_ready(window),
            is_woken: is_woken(window, spin),
            repeats: repeats(window, spin),
        }
    }
}

fn in_loop<'w>(window: &'w Window, spin: &SpinLoop) -> impl Iterator<Item = &'w Syscall> + Clone {
    let first = spin.first_step();
    window
        .syscalls
        .iter()
        .filter(move |call| call.step >= first)
}

fn consumes(window: &Window, spin: &SpinLoop, same_again: &FxHashSet<u32>) -> bool {
    let rounds = spin.starts.len() as u64 - 1;
    let own = in_loop(window, spin);
    let sleeps = own
        .clone()
        .filter(|call| syscalls::role(call.number, &call.args) == Role::Sleep);
    // A loop that lets time pass mostly writes a log, if it is not known where to.
    let pauses = sleeps.count() as u64 * 2 >= rounds;
    // So does one in which a call is refused each time.
    let refused = own.clone().filter(|call| is_refused(call)).count() as u64;
    let logs = pauses || refused * 4 >= rounds * 3;
    let may_log =
        |call: &Syscall| logs && syscalls::gives(call.number) && !syscalls::gives_at(call.number);
    let calls = own.filter(|call| call.moves_data() && !may_log(call));
    let calls: Vec<_> = calls.collect();
    // A loop that wakes itself reads what it has just written: an eventfd's 8 bytes.
    let wakes_itself = |fd: u64| {
        let mut ways = [false; 2];
        let all_words = calls.iter().filter(|c| c.args[0] == fd).all(|call| {
            ways[usize::from(i64::from(call.number) == libc::SYS_write)] = true;
            call.result == Some(8)
        });
        all_words && ways == [true, true]
    };
    let others = calls
        .iter()
        .filter(|call| !wakes_itself(call.args[0]) && !same_again.contains(&call.step));
    others.count() as u64 * 4 >= rounds * 3
}

fn is_refused(call: &Syscall) -> bool {
    is_refusal(call.result.unwrap_or(0))
}

/// Does a call with this result fail for want of something that the thread itself does not get? Not
/// if it only says that nothing is there yet.
pub fn is_refusal(result: i64) -> bool {
    const WANTS: [i32; 5] = [
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOBUFS,
        libc::ENOMEM,
        libc::ECONNREFUSED,
    ];
    WANTS.iter().any(|want| -i64::from(*want) == result)
}

/// Was data taken at least every second time that a poll found some? (An iteration may be less than
/// one request, as in a server's inner loop.) The bytes by which a loop wakes itself are no more
/// than a word.
fn takes_what_is_ready(window: &Window) -> bool {
    let calls = window.syscalls.iter();
    let is_ready = |call: &&Syscall| {
        syscalls::role(call.number, &call.args) == Role::Poll && call.result.is_some_and(|r| r > 0)
    };
    let takes = |call: &&Syscall| {
        call.moves_data() && !syscalls::gives(call.number) && call.result != Some(8)
    };
    let ready = calls.clone().filter(is_ready).count();
    ready > 0 && calls.filter(takes).count() * 2 >= ready
}

/// A lock's waiters sleep until it is given back; a thread that waits for a lock in every round may
/// still poll what the lock guards.
fn is_woken(window: &Window, spin: &SpinLoop) -> bool {
    const CONTENDED_LOCK: u64 = 2;
    let rounds = spin.starts.len() - 1;
    let woken = in_loop(window, spin).filter(|call| {
        futex::is_futex(call.number)
            && futex::waits_for_word(futex::command(&call.args))
            && call.args[3] == 0
            && futex::expected(&call.args) != CONTENDED_LOCK
            && call.result == Some(0)
    });
    woken.count() * 2 >= rounds
}

fn repeats(window: &Window, spin: &SpinLoop) -> bool {
    let compared = match interprets(window, spin) {
        true => COMPARED_PIECES,
        false => COMPARED,
    };
    let starts = &spin.starts[spin.starts.len().saturating_sub(compared + 1)..];
    let ways: Vec<FxHashSet<u32>> = starts
        .windows(2)
        .map(|pair| (pair[0]..pair[1]).map(|s| window.code_index(s)).collect())
        .collect();
    let alike = |a: &FxHashSet<u32>, b: &FxHashSet<u32>| {
        let common = a.intersection(b).count();
        let all = a.len() + b.len() - common;
        common as f64 >= ALIKE * all as f64
    };
    let has_twin = |&index: &usize| {
        let mut others = (0..ways.len()).filter(|&other| other != index);
        others.any(|other| alike(&ways[index], &ways[other]))
    };
    (0..ways.len()).filter(has_twin).count() * 2 >= ways.len()
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    type Call = (libc::c_long, [u64; 6], i64);

    const WAIT_BITSET: u64 = 0x189;

    fn woken(expected: u64, timeout: u64, result: i64) -> Call {
        let args = [0x5000, WAIT_BITSET, expected, timeout, 0, 0];
        (libc::SYS_futex, args, result)
    }

    fn poll(result: i64) -> Call {
        (libc::SYS_poll, [0x5000, 1, 0, 0, 0, 0], result)
    }

    fn read(result: i64) -> Call {
        (libc::SYS_read, [3, 0x6000, 512, 0, 0, 0], result)
    }

    /// Six iterations of ten instructions, of which the last `own` lie elsewhere in each, with
    /// these calls.
    fn progress(own: u64, calls: impl Fn(u64) -> Vec<Call>) -> Progress {
        const LENGTH: u64 = 10;
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        let mut starts = Vec::new();
        for round in 0..6 {
            starts.push(window.len());
            for at in 0..LENGTH {
                let elsewhere = if at + own < LENGTH { 0 } else { round << 8 };
                let pc = 0x1000 + at + elsewhere;
                let mut decoder = Decoder::with_ip(64, &[0x90], pc, DecoderOptions::NONE);
                let index = window.intern(&decoder.decode(), 0, &mut factory);
                window.push(index, Value::of(0x7000));
            }
            for (number, args, result) in calls(round) {
                window.syscalls.push(Syscall {
                    step: window.len() - 1,
                    number: number as u32,
                    args,
                    result: Some(result),
                    written: Vec::new(),
                });
            }
        }
        starts.push(window.len());
        let spin = SpinLoop {
            marker: 0,
            starts,
            iterations: 6,
            end: window.len(),
        };
        Progress::of(&window, &spin, &FxHashSet::default())
    }

    #[test]
    fn a_waiting_thread_repeats_the_same() {
        assert!(progress(0, |_| Vec::new()).repeats);
        assert!(progress(1, |_| Vec::new()).repeats);
        assert!(!progress(4, |_| Vec::new()).repeats);
    }

    /// Does a loop repeat itself that jumps to one of so many places in turn?
    fn repeats_pieces(pieces: u64) -> bool {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        let mut starts = Vec::new();
        for round in 0..60 {
            starts.push(window.len());
            // nop; jmp rax; and what stands there
            let piece = 0x2000 + 0x100 * (round % pieces);
            let mut code: Vec<(u64, &[u8])> = vec![(0x1000, &[0x90]), (0x1001, &[0xff, 0xe0])];
            code.extend((0..20).map(|at| (piece + at, &[0x90][..])));
            for (pc, bytes) in code {
                let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
                let index = window.intern(&decoder.decode(), 0, &mut factory);
                window.push(index, Value::of(0x7000));
            }
        }
        let spin = SpinLoop {
            marker: 0,
            iterations: starts.len() as u64 - 1,
            starts,
            end: window.len(),
        };
        repeats(&window, &spin)
    }

    #[test]
    fn an_interpreter_repeats_itself_after_all_pieces_of_its_program() {
        assert!(repeats_pieces(20));
        assert!(!repeats_pieces(50));
    }

    #[test]
    fn a_wait_without_end_is_served_by_whoever_ends_it() {
        assert!(progress(0, |_| vec![woken(0, 0, 0)]).is_woken);
        assert!(!progress(0, |_| vec![woken(0, 0x8000, -110)]).is_woken);
        assert!(!progress(0, |_| vec![woken(0, 0, -11)]).is_woken);
        assert!(!progress(0, |_| vec![woken(2, 0, 0)]).is_woken, "a lock");
    }

    #[test]
    fn data_is_taken_when_there_is_some() {
        let write = (libc::SYS_write, [2, 0x6000, 14, 0, 0, 0], 14);
        let two_of_six = |round: u64, call: Call| (round < 2).then_some(call);
        let ready = |round| [poll(1)].into_iter().chain(two_of_six(round, read(90)));
        let asked = |round| {
            two_of_six(round, poll(1))
                .into_iter()
                .chain(two_of_six(round, read(90)))
        };
        assert!(progress(0, |_| vec![poll(1), read(90)]).consumes);
        let accept = |error: i32| (libc::SYS_accept, [3; 6], -i64::from(error));
        let logs = |error| progress(0, |_| vec![poll(1), accept(error), write]).consumes;
        assert!(!logs(libc::EMFILE), "it writes that it has no descriptor");
        assert!(logs(libc::EAGAIN), "it may write what it made");
        assert!(!progress(0, |_| vec![poll(1)]).consumes);
        assert!(!progress(0, |_| vec![poll(0), read(-11)]).consumes);
        assert!(!progress(0, |round| ready(round).collect()).consumes);
        assert!(progress(0, |round| asked(round).collect()).consumes);
    }
}
