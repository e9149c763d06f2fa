// SPDX-License-Identifier: MIT
//! The stepping loop.

use std::time::{Duration, Instant};

use flagfinder_linux::life::executes;
use flagfinder_linux::tracing::needs_own_affinity;
use flagfinder_machine::decoded::is_syscall;
use flagfinder_machine::{Interruption, Window};
use iced_x86::{Code, Instruction, Mnemonic};

use crate::builder::{ReadMemory, WindowBuilder};
use crate::error::Result;
use crate::pause::Pause;
use crate::pin::Pin;
use crate::ptrace::{Stop, Tracee, LONG_MODE};
use crate::registers::TRAP_FLAG;
use crate::{helper, popped, queue};

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
    /// It executes another program, or is about to: that gets the rights of its file's owner
    /// (set-user-ID) only where no tracer without them is there.
    Exec,
    /// Somebody stopped the process meanwhile, or told it to go on.
    Frozen,
    /// A step would change what the process does with SIGTRAP.
    Trap,
    /// It runs 32-bit code, or is about to make a system call as such code does: its bytes, and the
    /// call's number, mean something else.
    Foreign,
}

/// What was seen, and what it cost the thread.
pub struct Stepped {
    /// What it did.
    pub window: Window,
    /// For how long the thread was kept from running.
    pub pause: Duration,
    /// For how much of that this process waited for a processor.
    pub waited: Duration,
    /// Why there is no more.
    pub ended: Ended,
}

/// A call that takes longer than this slept.
const CALL_ITSELF: Duration = Duration::from_micros(200);
/// Longest wait for one step.
const STEP: Duration = Duration::from_secs(1);
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
    let mut pause = Pause::of(tid, Duration::from_millis(500))?;
    pause.tracee().check_traps()?;
    let queue = queue::Counts::own();
    let waited_before = queue.waited();
    let mut stepper = Stepper {
        builder: WindowBuilder::default(),
        asleep: Duration::ZERO,
        queue,
        slowest: Duration::ZERO,
        next_question: FIRST_QUESTION,
        answer_takes: Duration::ZERO,
    };
    let ended = stepper.run(&mut pause, limits, begin, &mut enough);
    let pause = pause.end().saturating_sub(stepper.asleep);
    let waited = stepper.queue.waited() - waited_before;
    let mut window = stepper.builder.window;
    window.duration = begin.elapsed().as_nanos() as u64;
    Ok(Stepped {
        window,
        pause,
        waited,
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
    queue: queue::Counts,
    /// The longest that one step kept the thread.
    slowest: Duration,
    /// Number of steps at which `enough` is asked again.
    next_question: u32,
    /// How long `enough` took the last time; it takes longer for more steps.
    answer_takes: Duration,
}

impl Stepper {
    fn run(
        &mut self,
        pause: &mut Pause,
        limits: &Limits,
        begin: Instant,
        enough: &mut dyn FnMut(&Window) -> bool,
    ) -> Result<Ended> {
        // The kernel runs an interrupted call again.
        let mut now = pause.tracee().registers_before_call()?;
        let mut held_before = pause.so_far();
        let mut processor = limits.processor;
        let mut pin = None;
        loop {
            let held = pause.so_far().saturating_sub(self.asleep);
            self.slowest = self.slowest.max(held.saturating_sub(held_before));
            held_before = held;
            let tracee = pause.tracee_mut();
            if let Some(number) = processor.filter(|_| pin.is_none()) {
                pin = Pin::to(number, tracee.tid);
                // If it was refused once, it is refused again.
                processor = pin.is_some().then_some(number);
            }
            let spent = begin.elapsed();
            let time = limits.time_for(self.asleep, spent);
            // The next step may take as long as the slowest one.
            let over = spent > time || held + self.slowest > limits.pause;
            if over || self.builder.window.len() >= limits.steps || helper::is_abandoned() {
                return Ok(Ended::Limit);
            }
            // It steps itself: nobody could tell its traps from ours, and ours hide its flag.
            if now.eflags & TRAP_FLAG != 0 {
                return Ok(Ended::Trap);
            }
            let here = self.builder.decode(tracee, now.rip);
            if begins_to_ignore_traps(tracee, &now, here.as_ref()) {
                return Ok(Ended::Trap);
            }
            let is = |what: fn(&Instruction) -> bool| here.as_ref().is_some_and(|(it, _)| what(it));
            let in_syscall = is(is_syscall);
            if in_syscall && !is(|it| it.code() == Code::Syscall) {
                return Ok(Ended::Foreign);
            }
            if in_syscall && executes(now.rax as u32) {
                return Ok(Ended::Exec);
            }
            if let Some((instruction, code)) = here.filter(|(it, _)| popped::takes_flags(it)) {
                let Some(after) = popped::carry_out(tracee, &now, &instruction)? else {
                    return Ok(Ended::Limit);
                };
                self.builder.begin(tracee, &now, code);
                self.builder.finish(tracee, &now, &after, false);
                now = after;
                continue;
            }
            if let Some((_, code)) = here {
                self.builder.begin(tracee, &now, code);
            }
            let stop = if in_syscall {
                if needs_own_affinity(now.rax as u32) {
                    pin = None;
                }
                let patience = limits.syscall.min(time.saturating_sub(spent));
                self.call(tracee, now.rax as u32, patience)?
            } else {
                tracee.step(is(pushes_flags))?;
                tracee.wait(STEP)
            };
            match stop {
                Stop::Step | Stop::Call => {
                    let after = tracee.registers()?;
                    if here.is_some() {
                        self.builder.finish(tracee, &now, &after, in_syscall);
                    }
                    if after.cs != LONG_MODE {
                        return Ok(Ended::Foreign);
                    }
                    now = after;
                }
                Stop::Signal(number) => {
                    // A signal of the code itself, or one that its call let in.
                    if let Some(ended) = self.deliver(tracee, number)? {
                        return Ok(ended);
                    }
                    now = tracee.registers_before_call()?;
                }
                Stop::Gone => return Ok(Ended::Gone),
                Stop::Exec => return Ok(Ended::Exec),
                Stop::Frozen | Stop::Interrupted => return Ok(Ended::Frozen),
                Stop::Timeout => return Ok(Ended::Blocked),
            }
            // If its time is over, a thread that sleeps is asked after each sleep.
            let overtime = in_syscall && begin.elapsed() > limits.time;
            // An answer that comes only when the budget is spent is of no use: the thread waits for
            // it, too.
            let left = limits.pause.saturating_sub(held);
            let in_time = 2 * self.answer_takes <= left;
            if in_time && (overtime || self.builder.window.len() >= self.next_question) {
                self.next_question = self.next_question.max(self.builder.window.len() * 3 / 2);
                let asked = Instant::now();
                let (is_enough, let_go) = pause.think(left, || enough(&self.builder.window));
                if is_enough {
                    return Ok(Ended::Enough);
                }
                if let_go {
                    return Ok(Ended::Limit);
                }
                self.answer_takes = asked.elapsed();
                held_before += self.answer_takes;
            }
        }
    }

    /// Makes a system call, and notes for how long the thread slept in it: not while it stood
    /// still again, and this process waited for a processor.
    fn call(&mut self, tracee: &mut Tracee, number: u32, patience: Duration) -> Result<Stop> {
        let (called, waited) = (Instant::now(), self.queue.waited());
        let stop = tracee.call(number, patience)?;
        let took = called.elapsed().saturating_sub(CALL_ITSELF);
        if !took.is_zero() {
            let waited = self.queue.waited().saturating_sub(waited);
            self.asleep += took.saturating_sub(waited);
        }
        Ok(stop)
    }

    /// Lets the thread begin the handler of the signal that it stopped for. Why stepping ends, if
    /// it does.
    fn deliver(&mut self, tracee: &mut Tracee, number: i32) -> Result<Option<Ended>> {
        let at = self.builder.window.len();
        let interruption = Interruption::Signal {
            number: number as u32,
        };
        self.builder.window.interruptions.push((at, interruption));
        let is_put_back = number == libc::SIGTRAP && tracee.blocks_traps();
        Ok(match tracee.deliver(STEP)? {
            Stop::Interrupted if is_put_back => Some(Ended::Trap),
            Stop::Interrupted => None,
            Stop::Gone => Some(Ended::Gone),
            Stop::Exec => Some(Ended::Exec),
            Stop::Frozen => Some(Ended::Frozen),
            Stop::Step | Stop::Call | Stop::Signal(_) | Stop::Timeout => Some(Ended::Blocked),
        })
    }
}

/// Is it about to make the call after which it may not be stepped any more?
fn begins_to_ignore_traps(
    tracee: &Tracee,
    now: &libc::user_regs_struct,
    here: Option<&(Instruction, u32)>,
) -> bool {
    let sets = now.rax == libc::SYS_rt_sigaction as u64 && now.rdi == libc::SIGTRAP as u64;
    if !sets || !here.is_some_and(|(it, _)| is_syscall(it)) {
        return false;
    }
    let mut handler = [0; size_of::<usize>()];
    let is_known = tracee.read(now.rsi, &mut handler) == handler.len();
    is_known && usize::from_le_bytes(handler) == libc::SIG_IGN
}

fn pushes_flags(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfq)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer(pid: u32) -> Option<u32> {
        flagfinder_linux::proc::Status::of(pid)?.number("TracerPid:")
    }

    /// Is the thread that a helper holds free when `thinks` comes back? That is asked once.
    fn is_let_go(pause: Duration, thinks: impl Fn(u32)) -> bool {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("a shell");
        let pid = child.id();
        let limits = Limits {
            pause,
            time: Duration::from_secs(60),
            ..Limits::default()
        };
        let helper = helper::Helper::start("thinks for long", || {
            let mut is_free = false;
            let stepped = step_thread(pid, &limits, |_| {
                thinks(pid);
                is_free = tracer(pid) == Some(0);
                true
            });
            let ended = stepped.is_ok_and(|stepped| stepped.ended == Ended::Enough);
            vec![u8::from(is_free), u8::from(ended)]
        });
        let found = helper.expect("a process").result(Duration::from_secs(90));
        let status = flagfinder_linux::proc::Status::of(pid).expect("it lives");
        assert_eq!((tracer(pid), status.mask("SigBlk:")), (Some(0), 0));
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        found.expect("a result") == [1, 1]
    }

    #[test]
    fn a_thread_is_let_go_in_time_though_its_helper_still_thinks() {
        assert!(is_let_go(Duration::from_secs(3), |pid| {
            let begin = Instant::now();
            while tracer(pid) != Some(0) && begin.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
    }

    /// Where others take the processor, the helper hears of its timer late.
    #[test]
    fn a_thread_is_let_go_before_a_tick_that_would_come_too_late() {
        let block = |how: i32| {
            // SAFETY: plain data, which the kernel reads.
            unsafe {
                let mut alarm: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&mut alarm, libc::SIGALRM);
                libc::sigprocmask(how, &alarm, std::ptr::null_mut());
            }
        };
        assert!(is_let_go(Duration::from_secs(8), |_| {
            block(libc::SIG_BLOCK);
            std::thread::sleep(Duration::from_secs(5));
            block(libc::SIG_UNBLOCK);
        }));
    }

    /// The stop that SIGCONT makes of a traced thread may come before the trap of its step.
    #[test]
    fn a_thread_outlives_that_its_process_is_told_to_go_on_while_it_is_stepped() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("a shell");
        let pid = child.id();
        let limits = Limits {
            pause: Duration::from_millis(200),
            ..Limits::default()
        };
        let mut was_told = 0;
        for round in 0..60 {
            let helper = helper::Helper::start("steps a child of a test", || {
                let stepped = step_thread(pid, &limits, |_| false);
                let told = stepped.is_ok_and(|stepped| stepped.ended == Ended::Frozen);
                vec![u8::from(told)]
            });
            let helper = helper.expect("a process");
            while tracer(pid) == Some(0) && !helper.is_done() {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_micros(150 * round));
            // SAFETY: our own child.
            unsafe { libc::kill(pid as i32, libc::SIGCONT) };
            was_told += usize::from(helper.result(Duration::from_secs(60)).expect("a result")[0]);
            let ended = child.try_wait().expect("our own child");
            assert_eq!(ended, None, "round {round}");
        }
        assert!(was_told > 0, "none was told while it was stepped");
        child.kill().expect("our own child");
        child.wait().expect("our own child");
    }

    /// Code at `base` that counts down in 64-bit mode, then in 32-bit mode, for ever. Its stack is
    /// the rest of its page: 32-bit code has no room for a higher address.
    fn changing_modes(base: u32) -> Vec<u8> {
        const COUNT_DOWN: &[u8] = b"\xb9\xe8\x03\x00\x00\xff\xc9\x75\xfc";
        let there = (base + 5 + COUNT_DOWN.len() as u32 + 9).to_le_bytes();
        let (back, stack) = (base.to_le_bytes(), (base + 4096).to_le_bytes());
        let take_stack: [&[u8]; 2] = [b"\xbc", &stack];
        let push_and_return: [&[u8]; 3] = [b"\x6a\x23\x68", &there, b"\x48\xcb"];
        let jump_back: [&[u8]; 3] = [b"\xea", &back, b"\x33\x00"];
        let long = [
            take_stack.concat(),
            COUNT_DOWN.into(),
            push_and_return.concat(),
        ];
        let short = [COUNT_DOWN.into(), jump_back.concat()];
        [long.concat(), short.concat()].concat()
    }

    #[test]
    fn stepping_ends_where_32_bit_code_begins() {
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let low = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
        // SAFETY: a fresh mapping of a page, which the code fits into; the child runs nothing else.
        let child = unsafe {
            let page = libc::mmap(std::ptr::null_mut(), 4096, all, low, -1, 0).cast::<u8>();
            let code = changing_modes(page.expose_provenance() as u32);
            std::ptr::copy_nonoverlapping(code.as_ptr(), page, code.len());
            match libc::fork() {
                0 => std::mem::transmute::<*mut u8, extern "C" fn() -> !>(page)(),
                child => child,
            }
        };
        // Half of the time it can't be stepped at all.
        let limits = Limits {
            pause: Duration::from_secs(10),
            time: Duration::from_secs(20),
            ..Limits::default()
        };
        let stepped = (0..1000).find_map(|_| {
            std::thread::sleep(Duration::from_micros(300));
            step_thread(child as u32, &limits, |_| false).ok()
        });
        let ended = stepped.map(|it| (it.ended, it.window.len() < 4000));
        // SAFETY: our own child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert_eq!(ended, Some((Ended::Foreign, true)));
    }

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
