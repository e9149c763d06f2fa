// SPDX-License-Identifier: MIT
//! The Rust mirror of `bpf/ff_events.h`, which explains the fields. `tests/unit/test_protocol.py`
//! compares every offset.

use flagfinder_bpf::{shared_struct, Layout, Pod};

pub const NAME_BYTES: usize = 16;
pub const STACK_MOST: usize = 32;
pub const COPY_MOST: usize = 16384;

pub const EVENT_SWITCH: u8 = 1;
pub const EVENT_WAKING: u8 = 2;
pub const EVENT_ENTER: u8 = 3;
pub const EVENT_ENTER_WIDE: u8 = 4;
pub const EVENT_EXIT_CALL: u8 = 5;
pub const EVENT_FORK: u8 = 6;
pub const EVENT_EXEC: u8 = 7;
pub const EVENT_EXIT: u8 = 8;
pub const EVENT_RENAME: u8 = 9;
pub const EVENT_SIGNAL: u8 = 10;
pub const EVENT_ARM: u8 = 11;
pub const EVENT_FIRE: u8 = 12;
pub const EVENT_STACK: u8 = 13;
pub const EVENT_SUBMIT: u8 = 14;
pub const EVENT_COMPLETE: u8 = 15;
pub const EVENT_YIELD: u8 = 16;
pub const EVENT_SAMPLE: u8 = 19;
pub const EVENT_STACK_COPY: u8 = 20;
pub const EVENT_ENTER_SHORT: u8 = 17;
pub const EVENT_EXIT_CALL_SHORT: u8 = 18;
pub const EVENT_PYTHON: u8 = 21;
pub const EVENT_SENT: u8 = 22;
pub const EVENT_KERNEL: u8 = 24;
pub const EVENT_RECEIVED: u8 = 23;
pub const EVENT_REFUSED: u8 = 25;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

pub const ELSEWHERE: u32 = 0x4000_0000;
/// Bit of [`crate::Event::flags`] of a fork: of the new process nothing more is recorded.
pub const FORK_NOT_FOLLOWED: u8 = 1;

pub const STATE_PREEMPTED: u8 = 0;
pub const STATE_SLEEPS: u8 = 1;
pub const STATE_DISK: u8 = 2;
pub const STATE_STOPPED: u8 = 3;
pub const STATE_DEAD: u8 = 4;
pub const STATE_OTHER: u8 = 5;

pub const CONTEXT_UNKNOWN: u8 = 0;
pub const CONTEXT_TASK: u8 = 1;
pub const CONTEXT_SOFTIRQ: u8 = 2;
pub const CONTEXT_HARDIRQ: u8 = 3;
pub const CONTEXT_TIMER: u8 = 4;
pub const CONTEXT_NMI: u8 = 5;
pub const CONTEXT_TIMEOUT: u8 = 6;

pub const TOP_SLOTS: usize = 32;
pub const TOP_TURNS: usize = 16;
pub const TOP_CALLS: usize = 512;

pub const CALL_SHIFT: u32 = 48;
pub const SHORT_SHIFT: u32 = 30;

pub const SYSCALLS_OFF: u32 = 0;
pub const SYSCALLS_LAZY: u32 = 1;
pub const SYSCALLS_TARGET: u32 = 2;

shared_struct!(Record = "ff_event" {
    ts: u64, sequence: u32, cpu: u16, kind: u8, flags: u8, a: u32, b: u32,
});
shared_struct!(Waking = "ff_event_waking" {
    call: u16, cpu: u16, priority: u8, waker_priority: u8, reserved: u16,
});
shared_struct!(Exchanged = "ff_event_exchange" {
    socket: u64, began: u64, position: u64, bytes: u32, local_port: u16, remote_port: u16,
    protocol: u8, is_v6: u8, reserved: [u8; 6], local: [u8; 16], remote: [u8; 16],
});
shared_struct!(Member = "ff_event_process" {
    program: u64, program_bytes: u64, libraries: u64, libraries_bytes: u64, keeps: u64,
    python: u64,
});
shared_struct!(Python = "ff_python" {
    interpreter: u64, threads: u32, next: u32, thread: u32, current: u32, held: u32, frame: u32,
    code: u32, previous: u32, name: u32, reserved: u32,
});
shared_struct!(Config = "ff_events_config" {
    runqueues: u64, preempt_count: u64, everything: u32, syscalls: u32, stack_words: u32,
    program_only: u32, copy_bytes: u64, name_begins: u64, name_repeats: u64, name_ends: u64,
});
shared_struct!(Cpu = "ff_events_cpu" {
    sequence: u64, lost: u64, timer: u64, not_followed: u64, stacks_dropped: u64,
    refused: u64,
});
shared_struct!(TopConfig = "ff_top_config" {
    least: u64, calls: [u64; TOP_CALLS / 64], some_calls: u32, tid: u32, results: u32, error: u32,
});
shared_struct!(TopWait = "ff_top_wait" {
    stack: u64, tid: u32, process: u32, call: u32, error: u32,
});
shared_struct!(TopSums = "ff_top_sums" {
    count: u64, total: u64, longest: u64, slots: [u64; TOP_SLOTS],
});
shared_struct!(TopPair = "ff_top_pair" { tid: u32, other: u32 });
shared_struct!(TopName = "ff_top_name" { process: u32, name: [u8; NAME_BYTES] });
shared_struct!(TopThread = "ff_top_thread" {
    since: u64, ready: u64, blocked: u64, stack: u64, call: u32, tid: u32, process: u32,
    name: [u8; NAME_BYTES], reserved: u32,
});
shared_struct!(TopBefore = "ff_top_before" {
    until: u64, process: u32, call: u32, name: [u8; NAME_BYTES],
});
shared_struct!(TopCopy = "ff_top_copy" {
    stack: u64, ip: u64, sp: u64, bp: u64, process: u32, bytes: u32,
});
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
        Exchanged::layout(),
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
