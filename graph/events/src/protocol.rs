// SPDX-License-Identifier: MIT
//! The Rust mirror of `bpf/ff_events.h`, which explains the fields. `tests/unit/test_protocol.py`
//! compares every offset.

use flagfinder_bpf::{shared_struct, Layout, Pod};

/// Of a thread's name, its zero included.
pub const NAME_BYTES: usize = 16;
/// Words of a stack that are kept at most.
pub const STACK_MOST: usize = 32;
/// Bytes of a stack that can be copied.
pub const COPY_MOST: usize = 16384;

/// See [`crate::Kind::Switch`].
pub const EVENT_SWITCH: u8 = 1;
/// See [`crate::Kind::Waking`]; its word is a [`Waking`].
pub const EVENT_WAKING: u8 = 2;
/// See [`crate::Kind::Enter`].
pub const EVENT_ENTER: u8 = 3;
/// See [`crate::Kind::EnterWide`].
pub const EVENT_ENTER_WIDE: u8 = 4;
/// See [`crate::Kind::ExitCall`].
pub const EVENT_EXIT_CALL: u8 = 5;
/// See [`crate::Kind::Fork`].
pub const EVENT_FORK: u8 = 6;
/// See [`crate::Kind::Exec`].
pub const EVENT_EXEC: u8 = 7;
/// See [`crate::Kind::Exit`].
pub const EVENT_EXIT: u8 = 8;
/// See [`crate::Kind::Rename`].
pub const EVENT_RENAME: u8 = 9;
/// See [`crate::Kind::Signal`].
pub const EVENT_SIGNAL: u8 = 10;
/// See [`crate::Kind::Arm`].
pub const EVENT_ARM: u8 = 11;
/// See [`crate::Kind::Fire`].
pub const EVENT_FIRE: u8 = 12;
/// The stack of the event before; `b` counts its words.
pub const EVENT_STACK: u8 = 13;
/// See [`crate::Kind::Submit`].
pub const EVENT_SUBMIT: u8 = 14;
/// See [`crate::Kind::Complete`].
pub const EVENT_COMPLETE: u8 = 15;
/// See [`crate::Kind::Yield`].
pub const EVENT_YIELD: u8 = 16;
/// See [`crate::Kind::Sample`].
pub const EVENT_SAMPLE: u8 = 19;
/// A copy of the stack of the event before; `b` counts its bytes.
pub const EVENT_STACK_COPY: u8 = 20;
/// [`EVENT_ENTER`] of an argument that fits into the record's own fields.
pub const EVENT_ENTER_SHORT: u8 = 17;
/// [`EVENT_EXIT_CALL`] of a result that fits into the record's own fields.
pub const EVENT_EXIT_CALL_SHORT: u8 = 18;
/// Python frames of the event before, ahead of its stack.
pub const EVENT_PYTHON: u8 = 21;

/// Bit of ids that the recorder's pid namespace does not show.
pub const ELSEWHERE: u32 = 0x4000_0000;
/// Flag of a fork: of the new process nothing more is recorded.
pub const FORK_NOT_FOLLOWED: u8 = 1;

/// See [`crate::State::Preempted`].
pub const STATE_PREEMPTED: u8 = 0;
/// See [`crate::State::Sleeps`].
pub const STATE_SLEEPS: u8 = 1;
/// See [`crate::State::Disk`].
pub const STATE_DISK: u8 = 2;
/// See [`crate::State::Stopped`].
pub const STATE_STOPPED: u8 = 3;
/// See [`crate::State::Dead`].
pub const STATE_DEAD: u8 = 4;
/// See [`crate::State::Other`].
pub const STATE_OTHER: u8 = 5;

/// See [`crate::Context::Unknown`].
pub const CONTEXT_UNKNOWN: u8 = 0;
/// See [`crate::Context::Task`].
pub const CONTEXT_TASK: u8 = 1;
/// See [`crate::Context::SoftIrq`].
pub const CONTEXT_SOFTIRQ: u8 = 2;
/// See [`crate::Context::HardIrq`].
pub const CONTEXT_HARDIRQ: u8 = 3;
/// See [`crate::Context::Timer`].
pub const CONTEXT_TIMER: u8 = 4;
/// See [`crate::Context::Nmi`].
pub const CONTEXT_NMI: u8 = 5;
/// See [`crate::Context::Timeout`].
pub const CONTEXT_TIMEOUT: u8 = 6;

/// Bars of a histogram: powers of two of microseconds, the first below one.
pub const TOP_SLOTS: usize = 32;
/// How many of those that had a CPU are remembered.
pub const TOP_TURNS: usize = 16;
/// Calls with numbers below this can be asked for.
pub const TOP_CALLS: usize = 512;

/// Where in a word a call's number + 1 stands; 0: none.
pub const CALL_SHIFT: u32 = 48;
/// Where in `b` of a short record the upper bits of the call's number stand.
pub const SHORT_SHIFT: u32 = 30;

/// `Config::syscalls`: none.
pub const SYSCALLS_OFF: u32 = 0;
/// `Config::syscalls`: the call that a thread blocks in or wakes another from.
pub const SYSCALLS_LAZY: u32 = 1;
/// `Config::syscalls`: also every call of the recorded processes.
pub const SYSCALLS_TARGET: u32 = 2;

shared_struct!(Record = "ff_event" {
    ts: u64, sequence: u32, cpu: u16, kind: u8, flags: u8, a: u32, b: u32,
});
shared_struct!(Waking = "ff_event_waking" {
    call: u16, cpu: u16, priority: u8, waker_priority: u8, reserved: u16,
});
shared_struct!(Member = "ff_event_process" {
    program: u64, program_bytes: u64, libraries: u64, libraries_bytes: u64, keeps: u64,
    python: u64,
});
shared_struct!(Python = "ff_python" {
    interpreter: u64, threads: u32, next: u32, thread: u32, current: u32, held: u32, frame: u32, code: u32,
    previous: u32, name: u32, reserved: u32,
});
shared_struct!(Config = "ff_events_config" {
    runqueues: u64, preempt_count: u64, everything: u32, syscalls: u32, stack_words: u32, program_only: u32,
    copy_bytes: u64, name_begins: u64, name_repeats: u64, name_ends: u64,
});
shared_struct!(Cpu = "ff_events_cpu" { sequence: u64, lost: u64, timer: u64, not_followed: u64, stacks_dropped: u64 });
shared_struct!(TopConfig = "ff_top_config" {
    least: u64, calls: [u64; TOP_CALLS / 64], some_calls: u32, tid: u32, results: u32, error: u32,
});
shared_struct!(TopWait = "ff_top_wait" { stack: u64, tid: u32, process: u32, call: u32, error: u32 });
shared_struct!(TopSums = "ff_top_sums" { count: u64, total: u64, longest: u64, slots: [u64; TOP_SLOTS] });
shared_struct!(TopPair = "ff_top_pair" { tid: u32, other: u32 });
shared_struct!(TopName = "ff_top_name" { process: u32, name: [u8; NAME_BYTES] });
shared_struct!(TopThread = "ff_top_thread" {
    since: u64, ready: u64, blocked: u64, stack: u64, call: u32, tid: u32, process: u32, name: [u8; NAME_BYTES],
    reserved: u32,
});
shared_struct!(TopBefore = "ff_top_before" { until: u64, process: u32, call: u32, name: [u8; NAME_BYTES] });
shared_struct!(TopCopy = "ff_top_copy" { stack: u64, ip: u64, sp: u64, bp: u64, process: u32, bytes: u32 });
shared_struct!(TopStack = "ff_top_stack" { words: [u64; STACK_MOST], process: u32, count: u32 });

/// From a ring record, with what stands behind it; `None` when it is too short.
pub fn read<T: Pod>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let (head, rest) = bytes.split_at_checked(size_of::<T>())?;
    // SAFETY: long enough, any bytes are a T, and unaligned reads are asked for.
    Some((
        unsafe { std::ptr::read_unaligned(head.as_ptr().cast()) },
        rest,
    ))
}

/// Every shared struct's layout, in the header's order.
pub fn layouts() -> Vec<Layout> {
    vec![
        Record::layout(),
        Waking::layout(),
        Member::layout(),
        Python::layout(),
        Config::layout(),
        Cpu::layout(),
        TopConfig::layout(),
        TopWait::layout(),
        TopSums::layout(),
        TopPair::layout(),
        TopName::layout(),
        TopThread::layout(),
        TopBefore::layout(),
        TopCopy::layout(),
        TopStack::layout(),
    ]
}
