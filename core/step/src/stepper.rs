//! The stepping loop.

use std::time::{Duration, Instant};

use flagfinder_flags::decoded::is_syscall;
use flagfinder_flags::evaluator::Access;
use flagfinder_flags::value::{mask, Machine, Value};
use flagfinder_flags::{Interruption, Syscall, Window};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;

use crate::error::Result;
use crate::ptrace::{Stop, Tracee};
use crate::registers;
use flagfinder_flags::syscalls::outputs;

/// When to stop stepping.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub steps: u32,
    /// Wall time for everything.
    pub time: Duration,
    /// Longest wait for one system call to return.
    pub syscall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            steps: 20_000,
            time: Duration::from_secs(5),
            syscall: Duration::from_secs(1),
        }
    }
}

/// Steps thread `tid` and lets it go again. `enough` is asked now and then and may
/// end it before the limits. `observe` sees each step's instruction and the registers
/// before and after.
///
/// # Errors
/// When the thread cannot be traced; a thread that ends or blocks midway is no error,
/// the window then holds what was seen.
pub fn step_thread(
    tid: u32,
    limits: &Limits,
    mut enough: impl FnMut(&Window) -> bool,
) -> Result<Window> {
    let mut tracee = Tracee::seize(tid as i32, Duration::from_secs(1))?;
    let mut stepper = Stepper {
        window: Window::default(),
        factory: InstructionInfoFactory::new(),
        cache: FxHashMap::default(),
        machine: Machine::default(),
    };
    let begin = Instant::now();
    let mut before = tracee.registers()?;
    let mut signal = 0;
    while stepper.window.len() < limits.steps && begin.elapsed() < limits.time {
        let step = if restarts_syscall(&before) {
            None // the kernel will first go back to the interrupted call
        } else {
            stepper.begin(&tracee, &before)
        };
        let in_syscall = step.as_ref().is_some_and(is_syscall);
        tracee.step(signal)?;
        signal = 0;
        let patience = if in_syscall {
            limits.syscall
        } else {
            Duration::from_secs(1)
        };
        match tracee.wait(patience) {
            Stop::Trap => {}
            Stop::Signal(number) => {
                // The code's own fault: deliver it with the next step.
                signal = number;
                let at = stepper.window.len();
                stepper.window.interruptions.push((
                    at,
                    Interruption::Signal {
                        number: number as u32,
                    },
                ));
                before = tracee.registers()?;
                continue;
            }
            Stop::Gone | Stop::Timeout => break,
        }
        let after = tracee.registers()?;
        if step.is_some() {
            stepper.finish(&tracee, &before, &after, in_syscall);
        }
        before = after;
        if stepper.window.len().is_multiple_of(4096) && enough(&stepper.window) {
            break;
        }
    }
    drop(tracee);
    let mut window = stepper.window;
    window.duration = begin.elapsed().as_nanos() as u64;
    Ok(window)
}

/// Stopped in a system call that will run again: rip stands behind it.
fn restarts_syscall(registers: &libc::user_regs_struct) -> bool {
    const RESTART: std::ops::RangeInclusive<i64> = -516..=-512;
    registers.orig_rax != u64::MAX && RESTART.contains(&(registers.rax as i64))
}

struct Stepper {
    window: Window,
    factory: InstructionInfoFactory,
    /// By pc: the bytes seen there, and the instruction.
    cache: FxHashMap<u64, ([u8; 15], Instruction)>,
    machine: Machine,
}

impl Stepper {
    /// Opens the step at `before.rip`; `None` when there is no readable code.
    fn begin(&mut self, tracee: &Tracee, before: &libc::user_regs_struct) -> Option<Instruction> {
        let mut bytes = [0u8; 15];
        let got = tracee.read(before.rip, &mut bytes);
        if got == 0 {
            return None;
        }
        let known = self.cache.get(&before.rip).filter(|(old, _)| *old == bytes);
        let instruction = match known {
            Some((_, instruction)) => *instruction,
            None => {
                let code = &bytes[..got];
                let instruction =
                    Decoder::with_ip(64, code, before.rip, DecoderOptions::NONE).decode();
                self.cache.insert(before.rip, (bytes, instruction));
                instruction
            }
        };
        let mut likeness = FxHasher::default();
        likeness.write(&bytes[..instruction.len().clamp(1, got)]);
        let code = self
            .window
            .intern(&instruction, likeness.finish(), &mut self.factory);
        self.window.push(code, Value::of(before.rsp));
        registers::load(&mut self.machine, before);
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
        Some(instruction)
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
