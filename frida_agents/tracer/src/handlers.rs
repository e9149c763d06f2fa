// SPDX-License-Identifier: MIT
//! What compiled code calls: full chunks, system calls, and new threads on their arrival.

use std::arch::global_asm;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytemuck::bytes_of;
use flagfinder_trace::protocol as p;

use crate::memory::Lock;
use crate::stub::{Context, RAX, RCX, RSP};
use crate::thread::Thread;
use crate::{meta, pool, sys};

const EXEC_PROT: u64 = 4;
const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x10000;
const PR_SET_NAME: u64 = 15;
/// rdi rsi rdx r10 r8 r9
const ARGUMENTS: [usize; 6] = [7, 6, 2, 10, 8, 9];

mod number {
    pub const MMAP: u64 = 9;
    pub const MPROTECT: u64 = 10;
    pub const MUNMAP: u64 = 11;
    pub const MREMAP: u64 = 25;
    pub const CLONE: u64 = 56;
    pub const FORK: u64 = 57;
    pub const VFORK: u64 = 58;
    pub const EXECVE: u64 = 59;
    pub const EXIT: u64 = 60;
    pub const PRCTL: u64 = 157;
    pub const EXIT_GROUP: u64 = 231;
    pub const EXECVEAT: u64 = 322;
    pub const CLONE3: u64 = 435;
}

/// A thread or process that was asked for and has not arrived, by its stack pointer. Lock-free: a
/// forked child must not find a lock that a thread of its parent held.
struct Expected {
    sp: AtomicU64,
    pc: AtomicU64,
    /// The creator's tid; 0: not to be followed.
    creator: AtomicU32,
}

#[expect(clippy::declare_interior_mutable_const, reason = "fills an array")]
const NOBODY: Expected = Expected {
    sp: AtomicU64::new(0),
    pc: AtomicU64::new(0),
    creator: AtomicU32::new(0),
};
static EXPECTED: [Expected; 128] = [NOBODY; 128];
/// In use, but not described yet.
const TAKEN: u64 = u64::MAX;

fn expect(sp: u64, pc: u64, creator: u32) {
    forget(sp);
    loop {
        for place in &EXPECTED {
            let free = place
                .sp
                .compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
            if free.is_ok() {
                place.pc.store(pc, Ordering::Relaxed);
                place.creator.store(creator, Ordering::Relaxed);
                place.sp.store(sp, Ordering::Release);
                return;
            }
        }
        // More at once than ever seen: one of them arrives soon.
        sys::wait(EXPECTED[0].creator.as_ptr(), u32::MAX - 1, 1);
    }
}

/// (pc, creator)
fn forget(sp: u64) -> Option<(u64, u32)> {
    let place = EXPECTED
        .iter()
        .find(|place| place.sp.load(Ordering::Acquire) == sp)?;
    let found = (
        place.pc.load(Ordering::Relaxed),
        place.creator.load(Ordering::Relaxed),
    );
    place.sp.store(0, Ordering::Release);
    Some(found)
}

/// The states of [`Thread::followed`].
pub const WAITS: u32 = 0;
pub const FOLLOWED: u32 = 1;
const GAVE_UP: u32 = 2;
pub const IN_HAND: u32 = 3;
pub const GOES_ON: u32 = 4;

pub struct Arrivals(pub Vec<usize>);
/// Threads that wait for being followed (addresses of [`Thread`]).
pub static ARRIVALS: Lock<Arrivals> = Lock::new(Arrivals(Vec::new()));
pub static BELL: AtomicU32 = AtomicU32::new(0);
/// How long a new thread waits for the agent, in tenths of a second.
pub const PATIENCE: u32 = 50;

fn thread_of(data: u64) -> &'static mut Thread {
    // SAFETY: compiled code passes its own thread, which outlives it, and runs on that thread.
    unsafe { &mut *(data as *mut Thread) }
}

/// A chunk of flow is full.
pub extern "C" fn full(context: &mut Context, data: u64) {
    thread_of(data).next_flow(context.regs[RSP]);
}

/// Frida's own code runs in between: the program goes on elsewhere.
pub extern "C" fn away(context: &mut Context, data: u64) {
    thread_of(data).is_away(context.regs[RSP]);
}

/// What a block has in VALUES.
pub struct Share {
    pub thread: *mut Thread,
    pub bytes: usize,
    /// Bytes of its unit of flow.
    pub unit: usize,
}

/// A chunk of values is full; `data` is a [`Share`].
pub extern "C" fn values_full(context: &mut Context, data: u64) {
    // SAFETY: compiled code passes the share that was made for it, which is never freed.
    let share = unsafe { &*(data as *const Share) };
    thread_of(share.thread as u64).next_values(share.bytes, share.unit, context);
}

/// Where a system call stands in the program.
pub struct Site {
    pub thread: *mut Thread,
    /// The address behind it.
    pub next: u64,
}

/// In front of a system call; `data` is a [`Site`].
pub extern "C" fn enter(context: &mut Context, data: u64) {
    // SAFETY: compiled code passes the site that was made for it, which is never freed.
    let site = unsafe { &*(data as *const Site) };
    let thread = thread_of(site.thread as u64);
    let number = context.regs[RAX];
    let args = ARGUMENTS.map(|register| context.regs[register]);
    let with_registers = pool::with_values();
    let mut event = p::SyscallEnter {
        ts: sys::event_now(),
        number: number as u32,
        regs_valid: 0,
        args,
        regs: [0; p::REG_COUNT],
    };
    let mut bytes = p::SYSCALL_ENTER_SHORT;
    if with_registers {
        event.regs_valid = 0x2ffff;
        event.regs[..16].copy_from_slice(&context.regs);
        event.regs[17] = context.flags;
        bytes = std::mem::size_of_val(&event);
    }
    thread.event(p::EVENT_SYSCALL_ENTER, &bytes_of(&event)[..bytes], &[]);
    thread.number = number as u32;
    thread.clones = 0;
    prepare_clone(thread, context, site.next);
    match number {
        number::MMAP | number::MPROTECT if args[2] & EXEC_PROT != 0 => meta::mark_stale(),
        number::MUNMAP | number::MREMAP if meta::touches_module(args[0], args[1]) => {
            meta::mark_stale();
        }
        number::PRCTL if args[0] == PR_SET_NAME => {
            let mut name = [0; 15];
            let name = sys::peek_text(args[1], &mut name);
            thread.event(p::EVENT_THREAD_NAME, name, &[]);
        }
        number::EXECVE | number::EXECVEAT => {
            let mut path = [0; 1024];
            let path = sys::peek_text(args[usize::from(number == number::EXECVEAT)], &mut path);
            let exec = p::Exec {
                ts: sys::event_now(),
            };
            thread.event(p::EVENT_EXEC, bytes_of(&exec), path);
            meta::flush();
            thread.flush();
        }
        number::EXIT => {
            thread.end(i64::from(args[0] as i32));
            thread.retire();
        }
        number::EXIT_GROUP => thread.end(i64::from(args[0] as i32)),
        _ => {}
    }
}

/// If the call creates a thread or process: `next` is where the child goes on.
fn prepare_clone(thread: &mut Thread, context: &Context, next: u64) {
    let args = ARGUMENTS.map(|register| context.regs[register]);
    let (flags, stack) = match context.regs[RAX] {
        number::CLONE => (args[0], args[1]),
        number::CLONE3 => {
            let word = |index: u64| sys::peek_word(args[0].wrapping_add(8 * index));
            let stack = word(5);
            (
                word(0),
                if stack == 0 {
                    0
                } else {
                    stack.wrapping_add(word(6))
                },
            )
        }
        number::FORK | number::VFORK => (0, 0),
        _ => return,
    };
    let own = context.regs[RSP];
    let creator = if flags & CLONE_VM != 0 && flags & CLONE_THREAD != 0 {
        thread.tid
    } else {
        0
    };
    expect(if stack == 0 { own } else { stack }, next, creator);
    thread.clones = if stack == 0 { own } else { stack };
}

/// Runs behind a system call.
pub extern "C" fn leave(context: &mut Context, data: u64) {
    let thread = thread_of(data);
    let result = context.regs[RAX] as i64;
    let cloned = std::mem::take(&mut thread.clones);
    if cloned != 0 && result < 0 {
        forget(cloned);
    }
    let event = p::SyscallExit {
        ts: sys::event_now(),
        result,
        number: thread.number,
        reserved: 0,
    };
    thread.event_of(p::EVENT_SYSCALL_EXIT, &event);
    // A process of its own, or one that borrows this one's memory until it calls exec.
    if cloned == context.regs[RSP] && result > 0 {
        let fork = p::Fork {
            ts: event.ts,
            child_pid: result as u32,
            reserved: 0,
        };
        thread.event_of(p::EVENT_FORK, &fork);
    }
}

extern "C" {
    /// Where a new thread or process goes from its system call. Only rcx and r11 may be used there.
    pub fn ff_child();
}

global_asm!(
    ".globl ff_child",
    ".hidden ff_child",
    "ff_child:",
    "lea rsp, [rsp - 128]",
    "push rax",
    "push 0",
    "lea rcx, [rip + {arrive}]",
    "push rcx",
    "call ff_stub",
    "lea rsp, [rsp + 16]",
    "pop rax",
    "lea rsp, [rsp + 128]",
    "jmp rcx",
    arrive = sym arrive,
);

/// A child, on its own stack. A thread waits here until Stalker has it; what happens then, it no
/// longer knows of.
pub extern "C" fn arrive(context: &mut Context, _data: u64) {
    let Some((pc, creator)) = forget(context.regs[RSP]) else {
        // Not reached: a child is announced before it is made.
        return;
    };
    context.regs[RCX] = pc;
    if creator == 0 || !pool::is_anyone_reading() {
        return;
    }
    let thread = Thread::create(sys::tid(), creator, false);
    if thread.is_null() {
        meta::note("a thread is not recorded: there is no address space for its buffers");
        return;
    }
    ARRIVALS.hold().0.push(thread as usize);
    BELL.fetch_add(1, Ordering::Release);
    sys::wake(BELL.as_ptr());
    // SAFETY: ours until it is retired.
    let followed = unsafe { &(*thread).followed };
    for _ in 0..PATIENCE {
        let seen = followed.load(Ordering::Acquire);
        if seen == FOLLOWED {
            break;
        }
        sys::wait(followed.as_ptr(), seen, 100);
    }
    let _ = followed.compare_exchange(WAITS, GAVE_UP, Ordering::AcqRel, Ordering::Acquire);
    if followed.load(Ordering::Acquire) == FOLLOWED {
        followed.store(GOES_ON, Ordering::Release);
        sys::wake(followed.as_ptr());
    } else {
        meta::note("a thread is not recorded: the agent did not answer in time");
    }
}
