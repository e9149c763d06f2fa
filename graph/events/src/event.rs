// SPDX-License-Identifier: MIT
//! One event, as readers see it.

use crate::call::{Call, CallEnd};
use crate::protocol as p;

/// What happened. `a` is the thread that ran, `b` the other one.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `a` gives the CPU to `b`.
    Switch = p::EVENT_SWITCH,
    /// `b` is made runnable.
    Waking = p::EVENT_WAKING,
    /// `a` begins a system call.
    Enter = p::EVENT_ENTER,
    /// The same; `words[1]` is the lower half of the second argument, `words[2]` the third.
    EnterWide = p::EVENT_ENTER_WIDE,
    /// `a`'s system call returns.
    ExitCall = p::EVENT_EXIT_CALL,
    /// `a` starts `b`.
    Fork = p::EVENT_FORK,
    /// `a` runs another program from now on, under a new name.
    Exec = p::EVENT_EXEC,
    /// `a` ends.
    Exit = p::EVENT_EXIT,
    /// `b` gets a name.
    Rename = p::EVENT_RENAME,
    /// A signal for `b`.
    Signal = p::EVENT_SIGNAL,
    /// `a` arms a timer.
    Arm = p::EVENT_ARM,
    /// A timer is about to wake `b`.
    Fire = p::EVENT_FIRE,
    /// `a` hands a request to io_uring.
    Submit = p::EVENT_SUBMIT,
    /// `a` finds that one is done.
    Complete = p::EVENT_COMPLETE,
    /// The clock finds `a` in sched_yield.
    Yield = p::EVENT_YIELD,
    /// The clock finds `a` running.
    Sample = p::EVENT_SAMPLE,
    /// `a` has sent something over TCP or UDP, see [`crate::Exchange`].
    Sent = p::EVENT_SENT,
    /// `a` has received something.
    Received = p::EVENT_RECEIVED,
    /// `a` does not get the lock of a file, as `b` has it, or another thread of `b`'s process.
    Refused = p::EVENT_REFUSED,
    /// Events of this CPU are missing here: `words[0]` of them, since `words[1]`.
    Lost = 200,
}

impl Kind {
    pub(crate) fn from_u8(kind: u8) -> Option<Kind> {
        Some(match kind {
            p::EVENT_SWITCH => Kind::Switch,
            p::EVENT_WAKING => Kind::Waking,
            p::EVENT_ENTER => Kind::Enter,
            p::EVENT_ENTER_WIDE => Kind::EnterWide,
            p::EVENT_EXIT_CALL => Kind::ExitCall,
            p::EVENT_FORK => Kind::Fork,
            p::EVENT_EXEC => Kind::Exec,
            p::EVENT_EXIT => Kind::Exit,
            p::EVENT_RENAME => Kind::Rename,
            p::EVENT_SIGNAL => Kind::Signal,
            p::EVENT_ARM => Kind::Arm,
            p::EVENT_FIRE => Kind::Fire,
            p::EVENT_SUBMIT => Kind::Submit,
            p::EVENT_COMPLETE => Kind::Complete,
            p::EVENT_YIELD => Kind::Yield,
            p::EVENT_SAMPLE => Kind::Sample,
            p::EVENT_SENT => Kind::Sent,
            p::EVENT_RECEIVED => Kind::Received,
            p::EVENT_REFUSED => Kind::Refused,
            200 => Kind::Lost,
            _ => return None,
        })
    }

    /// How many of the event's words mean something.
    pub fn words(self) -> usize {
        match self {
            Kind::Switch | Kind::Waking | Kind::Enter | Kind::ExitCall => 1,
            Kind::Exit | Kind::Signal | Kind::Arm | Kind::Fire => 1,
            Kind::Submit | Kind::Complete | Kind::Refused => 1,
            Kind::Yield => 0,
            Kind::Rename | Kind::Sample | Kind::Lost => 2,
            Kind::EnterWide | Kind::Fork | Kind::Exec | Kind::Sent | Kind::Received => 3,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Switch => "switch",
            Kind::Waking => "waking",
            Kind::Enter | Kind::EnterWide => "enter",
            Kind::ExitCall => "return",
            Kind::Fork => "fork",
            Kind::Exec => "exec",
            Kind::Exit => "exit",
            Kind::Rename => "rename",
            Kind::Signal => "signal",
            Kind::Arm => "arm",
            Kind::Fire => "fire",
            Kind::Submit => "submit",
            Kind::Complete => "complete",
            Kind::Yield => "yield",
            Kind::Sample => "sample",
            Kind::Sent => "sent",
            Kind::Received => "received",
            Kind::Refused => "refused",
            Kind::Lost => "lost",
        }
    }
}

/// Who makes a wake or sends a signal. But for `Task`, the thread that ran was merely interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Context {
    /// This kernel's preemption count can't be read.
    Unknown,
    /// A thread by itself, in a call or a fault.
    Task,
    /// What the kernel puts off in interrupts: network packets, timers.
    SoftIrq,
    /// A device's interrupt, or another CPU's.
    HardIrq,
    /// A timer's function, in whichever interrupt.
    Timer,
    /// An interrupt that nothing holds off.
    Nmi,
    /// The timer of the call that the woken thread waits in.
    Timeout,
}

impl Context {
    pub(crate) fn from_u8(context: u8) -> Context {
        match context {
            p::CONTEXT_TASK => Context::Task,
            p::CONTEXT_SOFTIRQ => Context::SoftIrq,
            p::CONTEXT_HARDIRQ => Context::HardIrq,
            p::CONTEXT_TIMER => Context::Timer,
            p::CONTEXT_NMI => Context::Nmi,
            p::CONTEXT_TIMEOUT => Context::Timeout,
            _ => Context::Unknown,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Context::Unknown => "unknown",
            Context::Task => "task",
            Context::SoftIrq => "softirq",
            Context::HardIrq => "hardirq",
            Context::Timer => "timer",
            Context::Nmi => "nmi",
            Context::Timeout => "timeout",
        }
    }
}

/// In which state a thread gives up the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It could go on.
    Preempted,
    /// Until it is woken or gets a signal.
    Sleeps,
    /// Until it is woken; signals do not count.
    Disk,
    /// By SIGSTOP or a tracer.
    Stopped,
    /// It has ended.
    Dead,
    /// One that this version does not know, or that the kernel does not tell.
    Other,
}

impl State {
    pub(crate) fn from_u8(state: u8) -> State {
        match state {
            p::STATE_PREEMPTED => State::Preempted,
            p::STATE_SLEEPS => State::Sleeps,
            p::STATE_DISK => State::Disk,
            p::STATE_STOPPED => State::Stopped,
            p::STATE_DEAD => State::Dead,
            _ => State::Other,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Preempted => "preempted",
            State::Sleeps => "sleeps",
            State::Disk => "disk",
            State::Stopped => "stopped",
            State::Dead => "dead",
            State::Other => "other",
        }
    }
}

/// See [`Kind`] for the meaning of `a`, `b`; `bpf/ff_events.h` for `words`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// CLOCK_MONOTONIC, ns.
    pub ts: u64,
    /// Thread ids; 0 is a CPU's idle task, or nobody.
    pub a: u32,
    /// The other thread; 0 where there is none.
    pub b: u32,
    /// Number of the CPU on which it happened.
    pub cpu: u16,
    /// Says what the other fields mean.
    pub kind: Kind,
    /// Of switches a [`State`], of wakes and signals a [`Context`], of forks a bit; else 0.
    pub flags: u8,
    /// Number in [`crate::EventFile::stack`]; 0: none was taken.
    pub stack: u32,
    /// By kind; those that mean nothing are 0.
    pub words: [u64; 3],
}

impl Event {
    /// Of a waking or signal.
    pub fn context(&self) -> Context {
        Context::from_u8(self.flags)
    }

    /// Of a switch.
    pub fn state(&self) -> State {
        State::from_u8(self.flags)
    }

    /// The call that a thread begins, or in which it blocks. `None`: in none, or not recorded.
    pub fn call(&self) -> Option<Call> {
        Call::unpack(self.words[0])
    }

    /// Of an ExitCall.
    pub fn call_end(&self) -> Option<CallEnd> {
        CallEnd::unpack(self.words[0])
    }

    /// The number of the call that the waker is in.
    pub fn waker_call(&self) -> Option<u16> {
        (self.words[0] as u16).checked_sub(1)
    }

    /// Kernel priorities of the woken thread and of the waker: below 100 real time, 120 ordinary,
    /// lower is more urgent.
    pub fn priorities(&self) -> (u8, u8) {
        ((self.words[0] >> 32) as u8, (self.words[0] >> 40) as u8)
    }

    /// Low and high half of a word.
    pub fn halves(&self, word: usize) -> (u32, u32) {
        (self.words[word] as u32, (self.words[word] >> 32) as u32)
    }

    /// The name in two words, from the first one on.
    pub fn name(&self, first: usize) -> String {
        let mut bytes = [0u8; p::NAME_BYTES];
        bytes[..8].copy_from_slice(&self.words[first].to_le_bytes());
        bytes[8..].copy_from_slice(&self.words[first + 1].to_le_bytes());
        let end = bytes.iter().position(|&b| b == 0);
        String::from_utf8_lossy(&bytes[..end.unwrap_or(p::NAME_BYTES)]).into_owned()
    }
}
