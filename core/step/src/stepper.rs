//! The stepping loop.

use std::time::{Duration, Instant};

use flagfinder_flags::decoded::is_syscall;
use flagfinder_flags::evaluator::Access;
use flagfinder_flags::syscalls::outputs;
use flagfinder_flags::value::{mask, Machine, Value};
use flagfinder_flags::{Interruption, Syscall, Window, CLOCK_STEPS};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;

use crate::error::Result;
use crate::pin::{self, Pin};
use crate::ptrace::{Stop, Tracee};
use crate::{helper, popped, registers, restart};

/// When to stop stepping.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub steps: u32,
    /// Longest time in all for which the thread is kept from running: its sleep in system
    /// calls does not count.
    pub pause: Duration,
    /// Wall time for everything.
    pub time: Duration,
    /// The same where the thread sleeps most of the time: who looks once a second is seen to look only a few times.
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
    /// A limit was reached.
    Limit,
    /// A system call did not return in time.
    Blocked,
    /// The thread ended.
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
/// Steps before `enough` is asked first; later ever more seldom.
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
        window: Window::default(),
        factory: InstructionInfoFactory::new(),
        cache: FxHashMap::default(),
        machine: Machine::default(),
        asleep: Duration::ZERO,
        next_question: FIRST_QUESTION,
        answer_takes: Duration::ZERO,
    };
    let ended = stepper.run(&mut tracee, limits, begin, &mut enough);
    drop(tracee);
    let time = begin.elapsed();
    let mut window = stepper.window;
    window.duration = time.as_nanos() as u64;
    Ok(Stepped {
        window,
        pause: time.saturating_sub(stepper.asleep),
        ended: ended?,
    })
}

struct Stepper {
    window: Window,
    factory: InstructionInfoFactory,
    /// By pc: the bytes seen there, and the instruction.
    cache: FxHashMap<u64, ([u8; 15], Instruction)>,
    machine: Machine,
    /// Time that the thread spent in system calls by its own wish.
    asleep: Duration,
    /// Number of steps at which `enough` is asked again.
    next_question: u32,
    /// How long `enough` thought about it the last time; it takes longer for more steps.
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
        let mut now = tracee.registers()?;
        // The kernel runs an interrupted call again, within the first step.
        if restart::is_pending(&now) {
            now = restart::before_call(&now);
        }
        let mut processor = limits.processor;
        let mut pin = None;
        loop {
            if let Some(number) = processor.filter(|_| pin.is_none()) {
                pin = Pin::to(number, tracee.tid);
                // Refused once, refused again.
                processor = pin.is_some().then_some(number);
            }
            let spent = begin.elapsed();
            let held = spent.saturating_sub(self.asleep);
            let time = limits.time_for(self.asleep, spent);
            let over = spent > time || held > limits.pause;
            if over || self.window.len() >= limits.steps || helper::is_abandoned() {
                return Ok(Ended::Limit);
            }
            let here = self.decode(tracee, now.rip);
            if let Some((instruction, code)) = here.filter(|(it, _)| popped::takes_flags(it)) {
                let Some(after) = popped::carry_out(tracee, &now, &instruction)? else {
                    return Ok(Ended::Limit);
                };
                self.begin(tracee, &now, code);
                self.finish(tracee, &now, &after, false);
                now = after;
                continue;
            }
            // With a signal to deliver, the next stop is in its handler: no instruction runs.
            let delivers = tracee.has_signal();
            let step = here.filter(|_| !delivers);
            if let Some((_, code)) = step {
                self.begin(tracee, &now, code);
            }
            let is = |what: fn(&Instruction) -> bool| step.as_ref().is_some_and(|(it, _)| what(it));
            let in_syscall = is(is_syscall);
            if delivers || (in_syscall && restart::needs_own_mask(now.rax)) {
                tracee.release_signals();
            }
            if in_syscall && pin::is_seen_by(now.rax) {
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
                    // The code's own fault, or one that its call let in: deliver it with
                    // the next step.
                    let number = number as u32;
                    let at = self.window.len();
                    let interruption = Interruption::Signal { number };
                    self.window.interruptions.push((at, interruption));
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
                self.finish(tracee, &now, &after, in_syscall);
            }
            now = after;
            // Past its time, whoever sleeps is asked after each sleep.
            let overtime = in_syscall && begin.elapsed() > limits.time;
            // An answer that would come when the budget is spent is of no use: the thread waits for it, too.
            let in_time = held + 2 * self.answer_takes <= limits.pause;
            if in_time && (overtime || self.window.len() >= self.next_question) {
                self.next_question = self.next_question.max(self.window.len() * 3 / 2);
                let asked = Instant::now();
                if enough(&self.window) {
                    return Ok(Ended::Enough);
                }
                self.answer_takes = asked.elapsed();
            }
        }
    }

    /// The instruction at `pc` and its number in the window; `None` when there is no readable code.
    fn decode(&mut self, tracee: &Tracee, pc: u64) -> Option<(Instruction, u32)> {
        let mut bytes = [0u8; 15];
        let got = tracee.read(pc, &mut bytes);
        if got == 0 {
            return None;
        }
        let known = self.cache.get(&pc).filter(|(old, _)| *old == bytes);
        let instruction = match known {
            Some((_, instruction)) => *instruction,
            None => {
                let code = &bytes[..got];
                let instruction = Decoder::with_ip(64, code, pc, DecoderOptions::NONE).decode();
                self.cache.insert(pc, (bytes, instruction));
                instruction
            }
        };
        let mut likeness = FxHasher::default();
        likeness.write(&bytes[..instruction.len().clamp(1, got)]);
        let code = self
            .window
            .intern(&instruction, likeness.finish(), &mut self.factory);
        Some((instruction, code))
    }

    /// Opens the step at `before.rip`.
    fn begin(&mut self, tracee: &Tracee, before: &libc::user_regs_struct, code: u32) {
        if self.window.len() % CLOCK_STEPS == 0 {
            self.window.clock.push(monotonic());
        }
        self.window.push(code, Value::of(before.rsp));
        registers::load(&mut self.machine, before);
        self.window.registers = self.machine.registers;
        let decoded = self.window.code_at(code);
        let mut accesses = Vec::with_capacity(2);
        for memory in decoded.memory.iter().filter(|m| m.read) {
            let address = memory.address(&self.machine);
            let bits = u32::from(memory.bytes) * 8;
            let mut buffer = [0u8; 8];
            let wanted = usize::from(memory.bytes).min(8);
            let value = match address {
                Some(at) if tracee.read(at, &mut buffer[..wanted]) == wanted => Value {
                    bits: u64::from_le_bytes(buffer),
                    known: mask(bits),
                },
                _ => Value::UNKNOWN,
            };
            accesses.push(Access {
                address,
                bytes: u32::from(memory.bytes),
                write: false,
                value,
            });
        }
        for access in accesses {
            self.window.push_access(access);
        }
    }

    /// Closes the step with what it changed.
    fn finish(
        &mut self,
        tracee: &Tracee,
        before: &libc::user_regs_struct,
        after: &libc::user_regs_struct,
        in_syscall: bool,
    ) {
        let step = self.window.len() - 1;
        let code = self.window.code(step);
        let written = code.registers_written;
        let stores: Vec<_> = code.memory.iter().filter(|m| m.write).copied().collect();
        let now = registers::general(after);
        for number in (0..16).filter(|n| written >> n & 1 == 1 || (*n == 0 && in_syscall)) {
            self.window
                .push_result(number, Value::of(now[number as usize]));
        }
        for memory in stores {
            let address = memory.address(&self.machine);
            let mut buffer = [0u8; 8];
            let wanted = usize::from(memory.bytes).min(8);
            let value = match address {
                Some(at) if tracee.read(at, &mut buffer[..wanted]) == wanted => Value {
                    bits: u64::from_le_bytes(buffer),
                    known: mask(wanted as u32 * 8),
                },
                _ => Value::UNKNOWN,
            };
            self.window.push_access(Access {
                address,
                bytes: u32::from(memory.bytes),
                write: true,
                value,
            });
        }
        if in_syscall {
            self.syscall(step, before, after);
        }
    }

    fn syscall(
        &mut self,
        step: u32,
        before: &libc::user_regs_struct,
        after: &libc::user_regs_struct,
    ) {
        let b = before;
        let args = [b.rdi, b.rsi, b.rdx, b.r10, b.r8, b.r9];
        let number = b.rax as u32;
        let result = after.rax as i64;
        let written = outputs(number, &args, result);
        self.window.syscalls.push(Syscall {
            step,
            number,
            args,
            result: Some(result),
            written,
        });
    }
}

/// CLOCK_MONOTONIC, ns: the same for all helpers.
fn monotonic() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills what it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn pushes_flags(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfq)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_most_of_the_time_is_given_more_of_it() {
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
