// SPDX-License-Identifier: MIT
//! The system calls that a thread makes, seen in the thread itself.
//!
//! In: a thread. Out: its calls in order, each with its answer and what it is about. The thread
//! stops for some microseconds where a call begins and where it ends. It is not stepped, no
//! register is changed, and signals arrive as ever. Where its last call does not come back in time,
//! and would be disturbed by a stop, the thread is let go by the end of this process: so a helper
//! that has watched does nothing else afterwards. Blind spots: what a call wrote, but for a
//! socket's error; other threads; a round that is longer than the look.

use std::time::{Duration, Instant};

use flagfinder_code::ByPages;
use flagfinder_linux::life::executes;
use flagfinder_linux::syscalls;
use flagfinder_machine::MadeCall;
use flagfinder_waits::call::descriptors;

use crate::error::Result;
use crate::pause::Pause;
use crate::ptrace::{Stop, Tracee};
use crate::queue::{Counts, Times};
use crate::{helper, restart};

/// How long a thread is watched that makes few calls, and at most.
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_millis(300);
/// Fewer calls in the shorter time are few.
const FEW: usize = 4;
/// Most calls.
const MOST: usize = 600;
/// Most bytes of a path, or of a socket's address.
const ABOUT: usize = 256;
/// Patience for the first stop.
const STOPS: Duration = Duration::from_millis(500);

/// The same of a thread that waits for a processor meanwhile, or whose watcher does.
const LONGEST: Duration = Duration::from_millis(1500);

/// What was seen.
pub struct Watched {
    /// Those that came back.
    pub calls: Vec<MadeCall>,
    /// For how long it was watched.
    pub time: Duration,
    /// For how long of that the thread stood still.
    pub pause: Duration,
}

/// Watches thread `tid` and lets it go again.
///
/// # Errors
/// When the thread cannot be traced.
pub fn watch_calls(tid: u32) -> Result<Watched> {
    let mut pause = Pause::of(tid, STOPS)?;
    let mut clock = Clock::of(tid);
    let mut calls: Vec<MadeCall> = Vec::new();
    let mut begun: Option<MadeCall> = None;
    while calls.len() < MOST && !helper::is_abandoned() {
        let time = match calls.len() < FEW {
            true => SHORT,
            false => LONG,
        };
        let left = || clock.left(time);
        if left().is_zero() {
            break;
        }
        match pause.on_to_call(left) {
            Ok(Stop::Call) => {}
            Ok(Stop::Signal(_) | Stop::Interrupted | Stop::Step) => continue,
            Ok(Stop::Frozen | Stop::Exec | Stop::Gone | Stop::Timeout) | Err(_) => break,
        }
        let tracee = pause.tracee();
        // Whoever has the registers has waited until the thread was off its processor: only then
        // all its time there is counted.
        let now = tracee.registers()?;
        let passed = clock.passed();
        // Another program gets its file's rights only where no tracer without them is there.
        if begun.is_none() && executes(now.orig_rax as u32) {
            break;
        }
        begun = match begun.take() {
            None if now.rax as i64 == -i64::from(libc::ENOSYS) => {
                Some(begins(tracee, &now, passed.ran))
            }
            // The end of a call whose beginning was not seen, or of one that the kernel runs again.
            None => None,
            Some(_) if restart::is_pending(&now) => None,
            Some(call) => {
                calls.push(MadeCall {
                    result: answer(tracee, &call, now.rax as i64),
                    took: passed.awake,
                    ran: passed.ran,
                    ..call
                });
                None
            }
        };
        clock.begins();
    }
    Ok(Watched {
        calls,
        time: clock.begin.elapsed(),
        pause: pause.end(),
    })
}

/// The time of a thread and of its watcher, one of which may wait for a processor.
struct Clock {
    thread: Counts,
    own: Counts,
    begin: Instant,
    /// For how long both had waited at the beginning.
    waited: Duration,
    /// When the thread went on.
    since: Instant,
    /// What was counted then, of the thread and of both.
    before: (Times, Duration),
}

/// Since the thread went on.
struct Passed {
    /// On a processor.
    ran: Duration,
    /// While neither waited for a processor.
    awake: Duration,
}

impl Clock {
    fn of(tid: u32) -> Clock {
        let mut clock = Clock {
            thread: Counts::of(tid),
            own: Counts::own(),
            begin: Instant::now(),
            waited: Duration::ZERO,
            since: Instant::now(),
            before: Default::default(),
        };
        clock.waited = clock.both_waited();
        clock.begins();
        clock
    }

    fn both_waited(&self) -> Duration {
        self.thread.waited() + self.own.waited()
    }

    /// How much is left of so much time; waits for a processor do not count.
    fn left(&self, time: Duration) -> Duration {
        let spent = self.begin.elapsed();
        match time.checked_sub(spent) {
            Some(left) if !left.is_zero() => left,
            _ => {
                let waited = self.both_waited().saturating_sub(self.waited);
                (time + waited).min(LONGEST).saturating_sub(spent)
            }
        }
    }

    fn begins(&mut self) {
        let times = self.thread.now().unwrap_or_default();
        self.before = (times, times.waited + self.own.waited());
        self.since = Instant::now();
    }

    fn passed(&self) -> Passed {
        let (times, waited) = self.before;
        let now = self.thread.now();
        let both = now.unwrap_or_default().waited + self.own.waited();
        let awake = self
            .since
            .elapsed()
            .saturating_sub(both.saturating_sub(waited));
        Passed {
            ran: now.map_or(awake, |now| now.ran.saturating_sub(times.ran)),
            awake,
        }
    }
}

fn begins(tracee: &Tracee, now: &libc::user_regs_struct, after: Duration) -> MadeCall {
    let call = restart::call(now);
    MadeCall {
        number: call.number,
        args: call.args,
        pc: call.pc,
        result: 0,
        about: about(tracee, call.number, &call.args),
        descriptors: descriptors(&call, &ByPages::new(|at, bytes| tracee.read(at, bytes))),
        after,
        took: Duration::ZERO,
        ran: Duration::ZERO,
    }
}

fn about(tracee: &Tracee, number: u32, args: &[u64; 6]) -> Vec<u8> {
    let is_connect = i64::from(number) == libc::SYS_connect;
    let (at, most) = match syscalls::path(number, args) {
        Some(path) => (path, ABOUT),
        None if is_connect => (args[1], ABOUT.min(args[2] as usize)),
        None => return Vec::new(),
    };
    let mut bytes = vec![0; most];
    // No text reaches into a page that is not there.
    let in_page = 4096 - (at % 4096) as usize;
    let got = match tracee.read(at, &mut bytes[..most.min(in_page)]) {
        got if got == in_page => got + tracee.read(at + got as u64, &mut bytes[got..]),
        got => got,
    };
    bytes.truncate(got);
    if let Some(end) = bytes.iter().position(|byte| *byte == 0 && !is_connect) {
        bytes.truncate(end);
    }
    bytes
}

/// What the call answered; of a question for the error of a socket that is not yet connected, that.
fn answer(tracee: &Tracee, call: &MadeCall, result: i64) -> i64 {
    let asks = [libc::SOL_SOCKET as u64, libc::SO_ERROR as u64];
    let asks_error = i64::from(call.number) == libc::SYS_getsockopt && call.args[1..3] == asks;
    let mut error = [0; 4];
    if asks_error && result == 0 && tracee.read(call.args[3], &mut error) == error.len() {
        return -i64::from(i32::from_ne_bytes(error));
    }
    result
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// What a helper sees of the calls of a child: number, answer and what it is about.
    fn watched(mut child: Child) -> Vec<(u32, i64, Vec<u8>)> {
        let pid = child.id();
        std::thread::sleep(Duration::from_millis(300));
        let watch = helper::Helper::start("watches a child of a test", || {
            let watched = watch_calls(pid).expect("our own child");
            let calls = watched.calls.iter();
            let seen: Vec<_> = calls
                .map(|call| (call.number, call.result, call.about.clone()))
                .collect();
            serde_json::to_vec(&seen).expect("plain data")
        });
        let seen = watch.expect("a process").result(Duration::from_secs(20));
        let status = flagfinder_linux::proc::Status::of(pid).expect("it lives");
        assert_eq!(status.number("TracerPid:"), Some(0), "it was let go");
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        serde_json::from_slice(&seen.expect("a result")).expect("what it wrote")
    }

    fn shell(script: &str) -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).spawn().expect("a shell")
    }

    #[test]
    fn calls_are_seen_with_their_answers_and_paths() {
        let seen = watched(shell("while ! [ -e /never/there ]; do :; done"));
        let missing = |(_, result, about): &&(u32, i64, Vec<u8>)| {
            *result == -i64::from(libc::ENOENT) && about == b"/never/there"
        };
        assert!(seen.len() > 100, "{}", seen.len());
        assert_eq!(seen.iter().filter(missing).count(), seen.len());
    }

    #[test]
    fn a_thread_that_computes_or_sleeps_is_let_go() {
        assert!(watched(shell("while :; do :; done")).is_empty());
        let mut sleeper = Command::new("sleep");
        assert!(watched(sleeper.arg("60").spawn().expect("sleep")).is_empty());
    }

    /// epoll_wait with a limit of time is one of the calls that a stop disturbs: its limit begins
    /// anew.
    #[test]
    fn a_call_that_may_not_be_disturbed_goes_on() {
        let script = "import select\ne = select.epoll()\nprint(flush=True)\n\
                      while True:\n e.poll(0.0001)\n";
        let mut python = Command::new("python3");
        let waits = python.args(["-c", script]).stdout(Stdio::piped()).spawn();
        let mut waits = waits.expect("a Python");
        let mut line = String::new();
        let output = waits.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let seen = watched(waits);
        let polls = seen.iter().filter(|(number, result, _)| {
            i64::from(*number) == libc::SYS_epoll_wait && *result == 0
        });
        assert!(polls.count() >= FEW, "{seen:?}");
    }
}
