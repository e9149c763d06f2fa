// SPDX-License-Identifier: MIT
//! The stepping loop.

use std::time::{Duration, Instant};

use flagfinder_linux::tracing::{needs_own_affinity, needs_own_mask};
use flagfinder_machine::decoded::is_syscall;
use flagfinder_machine::{Interruption, Window};
use iced_x86::{Instruction, Mnemonic};

use crate::builder::{ReadMemory, WindowBuilder};
use crate::error::Result;
use crate::pin::Pin;
use crate::ptrace::{Stop, Tracee};
use crate::{helper, popped};

/// When to stop stepping.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most instructions.
    pub steps: u32,
    /// Longest time for which the thread is kept from running; its sleep in system calls does not
    /// count.
    pub pause: Duration,
    /// Wall time for everything.
    pub time: Duration,
    /// The same if the thread sleeps most of the time: a thread that looks once a second is seen to
    /// look only a few times.
    pub time_asleep: Duration,
    /// Longest wait for one system call to return.
    pub syscall: Duration,
    /// Where the thread is stepped; `None`: wherever it runs.
    pub processor: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            steps: 100_000,
            pause: Duration::from_millis(800),
            time: Duration::from_millis(2000),
            time_asleep: Duration::from_millis(4500),
            syscall: Duration::from_millis(1250),
            processor: None,
        }
    }
}

impl Limits {
    /// Wall time for a thread that slept so much of `spent`.
    fn time_for(&self, asleep: Duration, spent: Duration) -> Duration {
        if asleep * 4 > spent * 3 {
            self.time.max(self.time_asleep)
        } else {
            self.time
        }
    }
}

/// Why stepping ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// `enough` said so.
    Enough,
    /// A limit was reached, or this process was asked to end.
    Limit,
    /// A system call did not return in time.
    Blocked,
    /// The thread has ended.
    Gone,
    /// It executed another program.
    Exec,
    /// Somebody stopped the process meanwhile.
    Frozen,
}

/// What was seen, and what it cost the thread.
pub struct Stepped {
    pub window: Window,
    pub pause: Duration,
    pub ended: Ended,
}

/// A call that takes longer than this slept.
const CALL_ITSELF: Duration = Duration::from_micros(200);
/// Steps before `enough` is asked first; later it is asked ever more seldom.
const FIRST_QUESTION: u32 = 1000;

/// Steps thread `tid` and lets it go again. `enough` is asked now and then and may
/// end it before the limits.
///
/// # Errors
/// When the thread cannot be traced; a thread that ends or blocks midway is no error,
/// the window then holds what was seen.
pub fn step_thread(
    tid: u32,
    limits: &Limits,
    mut enough: impl FnMut(&Window) -> bool,
) -> Result<Stepped> {
    let begin = Instant::now();
    let mut tracee = Tracee::seize(tid as i32, Duration::from_millis(500))?;
    let mut stepper = Stepper {
        builder: WindowBuilder::default(),
        asleep: Duration::ZERO,
        next_question: FIRST_QUESTION,
        answer_takes: Duration::ZERO,
    };
    let ended = stepper.run(&mut tracee, limits, begin, &mut enough);
    drop(tracee);
    let time = begin.elapsed();
    let mut window = stepper.builder.window;
    window.duration = time.as_nanos() as u64;
    Ok(Stepped {
        window,
        pause: time.saturating_sub(stepper.asleep),
        ended: ended?,
    })
}

impl ReadMemory for Tracee {
    fn read(&mut self, address: u64, buffer: &mut [u8]) -> usize {
        Tracee::read(self, address, buffer)
    }
}

struct Stepper {
    builder: WindowBuilder,
    /// Time for which the thread slept in system calls by itself.
    asleep: Duration,
    /// Number of steps at which `enough` is asked again.
    next_question: u32,
    /// How long `enough` took the last time; it takes longer for more steps.
    answer_takes: Duration,
}

impl Stepper {
    fn run(
        &mut self,
        tracee: &mut Tracee,
        limits: &Limits,
        begin: Instant,
        enough: &mut dyn FnMut(&Window) -> bool,
    ) -> Result<Ended> {
        // The kernel runs an interrupted call again, within the first step.
        let mut now = tracee.registers_before_call()?;
        let mut processor = limits.processor;
        let mut pin = None;
        loop {
            if let Some(number) = processor.filter(|_| pin.is_none()) {
                pin = Pin::to(number, tracee.tid);
                // If it was refused once, it is refused again.
                processor = pin.is_some().then_some(number);
            }
            let spent = begin.elapsed();
            let held = spent.saturating_sub(self.asleep);
            let time = limits.time_for(self.asleep, spent);
            let over = spent > time || held > limits.pause;
            if over || self.builder.window.len() >= limits.steps || helper::is_abandoned() {
                return Ok(Ended::Limit);
            }
            let here = self.builder.decode(tracee, now.rip);
            if let Some((instruction, code)) = here.filter(|(it, _)| popped::takes_flags(it)) {
                let Some(after) = popped::carry_out(tracee, &now, &instruction)? else {
                    return Ok(Ended::Limit);
                };
                self.builder.begin(tracee, &now, code);
                self.builder.finish(tracee, &now, &after, false);
                now = after;
                continue;
            }
            // With a signal to deliver, the next stop is in its handler: no instruction runs.
            let delivers = tracee.has_signal();
            let step = here.filter(|_| !delivers);
            if let Some((_, code)) = step {
                self.builder.begin(tracee, &now, code);
            }
            let is = |what: fn(&Instruction) -> bool| step.as_ref().is_some_and(|(it, _)| what(it));
            let in_syscall = is(is_syscall);
            if delivers || (in_syscall && needs_own_mask(now.rax as u32)) {
                tracee.release_signals();
            }
            if in_syscall && needs_own_affinity(now.rax as u32) {
                pin = None;
            }
            tracee.step(is(pushes_flags))?;
            let called = Instant::now();
            let stop = tracee.wait(if in_syscall {
                limits.syscall.min(time.saturating_sub(spent))
            } else {
                Duration::from_secs(1)
            });
            if in_syscall {
                self.asleep += called.elapsed().saturating_sub(CALL_ITSELF);
            }
            match stop {
                Stop::Step => {}
                Stop::Signal(number) => {
                    // A signal of the code itself, or one that its call let in, is delivered with
                    // the next step.
                    let number = number as u32;
                    let at = self.builder.window.len();
                    let interruption = Interruption::Signal { number };
                    self.builder.window.interruptions.push((at, interruption));
                }
                Stop::Gone => return Ok(Ended::Gone),
                Stop::Exec => return Ok(Ended::Exec),
                Stop::Frozen => return Ok(Ended::Frozen),
                Stop::Timeout | Stop::Interrupted => return Ok(Ended::Blocked),
            }
            if !tracee.holds_signals() && !tracee.has_signal() {
                tracee.hold_signals();
            }
            let after = tracee.registers()?;
            if step.is_some() && !tracee.has_signal() {
                self.builder.finish(tracee, &now, &after, in_syscall);
            }
            now = after;
            // If its time is over, a thread that sleeps is asked after each sleep.
            let overtime = in_syscall && begin.elapsed() > limits.time;
            // An answer that comes only when the budget is spent is of no use: the thread waits for
            // it, too.
            let in_time = held + 2 * self.answer_takes <= limits.pause;
            if in_time && (overtime || self.builder.window.len() >= self.next_question) {
                self.next_question = self.next_question.max(self.builder.window.len() * 3 / 2);
                let asked = Instant::now();
                if enough(&self.builder.window) {
                    return Ok(Ended::Enough);
                }
                self.answer_takes = asked.elapsed();
            }
        }
    }
}

fn pushes_flags(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfq)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_mostly_sleeps_gets_more_time() {
        let limits = Limits::default();
        let spent = Duration::from_secs(2);
        assert_eq!(limits.time_for(spent / 2, spent), limits.time);
        assert_eq!(limits.time_for(spent, spent), limits.time_asleep);
        let long = Limits {
            time: Duration::from_secs(20),
            ..limits
        };
        assert_eq!(long.time_for(spent, spent), long.time);
    }
}
