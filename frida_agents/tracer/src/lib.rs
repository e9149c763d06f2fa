// SPDX-License-Identifier: MIT
//! The Frida tracer's native half: a library that the agent (`frida_agents/tracer.js`) loads into
//! the target.
//!
//! Stalker hands each block to [`ff_transform`], which puts machine code in it that writes the
//! block's number into the shared-memory pool, as the DynamoRIO client does. Of Frida it needs four
//! functions, whose addresses the agent looks up; no header, so it works with every release that
//! has them. For `flagfinder watch` (`watch.rs`) it handles the traps of watchpoints and hooks.
//! Blind spots of recordings: signal handlers run outside Stalker; what a process does after a fork
//! or exec; programs that look at where they were interrupted (JVMs), or whose stacks have no 4 KiB
//! to spare (Go).

mod births;
mod emit;
mod handlers;
#[path = "../../../core/bpf/src/layout.rs"]
#[expect(dead_code, reason = "the engine's tests compare layouts")]
mod layout;
mod memory;
mod meta;
mod modules;
mod pool;
#[path = "../../../core/watch/src/protocol.rs"]
#[expect(dead_code, reason = "the engine's side needs the rest")]
mod protocol;
mod ring;
mod sites;
mod slots;
mod stub;
mod sys;
mod thread;
mod transform;
mod trap;
mod watch;

use std::ffi::{c_char, CStr};
use std::sync::atomic::Ordering;

use handlers::{ARRIVALS, BELL, FOLLOWED, IN_HAND, PATIENCE, WAITS};
use layout::Layout;
use thread::Thread;

/// What the engine requires of the structs that it shares with BPF.
///
/// # Safety
/// Any bytes are one.
unsafe trait Pod: Copy {}

#[global_allocator]
static ALLOCATOR: memory::Allocator = memory::Allocator::new();

const LIMITS: &str = "recorded with Frida's Stalker: signal handlers, heap allocations, children \
                      and what exec starts are not recorded";

/// Begins a recording. `functions`: gum_stalker_iterator_next, gum_stalker_iterator_keep,
/// gum_x86_writer_put_bytes, gum_x86_writer_cur. Returns null, or what is wrong.
///
/// # Safety
/// The functions are those, `path` is the pool's.
#[no_mangle]
pub unsafe extern "C" fn ff_start(functions: *const usize, path: *const c_char) -> *const c_char {
    if !std::is_x86_feature_detected!("xsave") {
        return c"the processor has no XSAVE".as_ptr();
    }
    transform::use_functions(std::slice::from_raw_parts(functions, 4));
    if pool::open(CStr::from_ptr(path)).is_err() {
        return c"the pool cannot be used".as_ptr();
    }
    if !meta::begin() {
        return c"there is no address space for the buffers".as_ptr();
    }
    meta::note(LIMITS);
    std::ptr::null()
}

/// The program's first thread. Null: no memory.
#[no_mangle]
pub extern "C" fn ff_first(tid: u32) -> *mut Thread {
    Thread::create(tid, 0, true)
}

/// The next thread that waits for being followed, null after `milliseconds`. Its tid is written to
/// `tid`.
///
/// # Safety
/// `tid` may be written.
#[no_mangle]
pub unsafe extern "C" fn ff_arrival(milliseconds: u32, tid: *mut u32) -> *mut Thread {
    let seen = BELL.load(Ordering::Acquire);
    loop {
        let next = {
            let mut arrivals = ARRIVALS.hold();
            (!arrivals.0.is_empty()).then(|| arrivals.0.remove(0))
        };
        let Some(next) = next else { break };
        let thread = next as *mut Thread;
        let waits = (*thread).followed.compare_exchange(
            WAITS,
            IN_HAND,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if waits.is_ok() {
            *tid = (*thread).tid;
            return thread;
        }
    }
    sys::wait(BELL.as_ptr(), seen, u64::from(milliseconds));
    std::ptr::null_mut()
}

/// Whether Stalker has the thread in hand: it asks for the first block at once. `Stalker.follow`
/// does not tell when it could not stop the thread.
///
/// # Safety
/// From `ff_first` or `ff_arrival`.
#[no_mangle]
pub unsafe extern "C" fn ff_is_in_hand(thread: *const Thread) -> u32 {
    u32::from((*thread).compiled.load(Ordering::Acquire))
}

/// The thread runs under Stalker and may go on. Returns once it does: Gum lets go of a thread with
/// SIGCONT, which a new thread has blocked. The kernel then sends it anew, and that takes back the
/// SIGSTOP by which Gum stops the next thread, and waits for.
///
/// # Safety
/// From `ff_arrival`.
#[no_mangle]
pub unsafe extern "C" fn ff_followed(thread: *mut Thread) {
    let followed = &(*thread).followed;
    followed.store(FOLLOWED, Ordering::Release);
    sys::wake(followed.as_ptr());
    for _ in 0..PATIENCE {
        if followed.load(Ordering::Acquire) != FOLLOWED {
            break;
        }
        sys::wait(followed.as_ptr(), FOLLOWED, 100);
    }
}

/// The thread goes on without being recorded: Frida could not get hold of it.
///
/// # Safety
/// From `ff_arrival`.
#[no_mangle]
pub unsafe extern "C" fn ff_missed(thread: *mut Thread) {
    let tid = (*thread).tid;
    meta::note(&format!(
        "thread {tid} is not recorded: Frida could not stop it to follow it"
    ));
    ff_followed(thread);
}

extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn setenv(name: *const c_char, value: *const c_char, overwrite: i32) -> i32;
    fn unsetenv(name: *const c_char) -> i32;
}

/// In a program that is started to be recorded this library is preloaded: it waits here until the
/// agent follows its thread.
extern "C" fn gate() {
    // SAFETY: plain libc calls, before the program has threads.
    unsafe {
        let descriptor = getenv(c"FF_FRIDA_GATE".as_ptr());
        if descriptor.is_null() {
            return;
        }
        let text = CStr::from_ptr(descriptor).to_str().unwrap_or_default();
        let Ok(fd) = text.parse::<usize>() else {
            return;
        };
        let before = getenv(c"FF_FRIDA_PRELOAD".as_ptr());
        if before.is_null() {
            unsetenv(c"LD_PRELOAD".as_ptr());
        } else {
            setenv(c"LD_PRELOAD".as_ptr(), before, 1);
        }
        unsetenv(c"FF_FRIDA_PRELOAD".as_ptr());
        unsetenv(c"FF_FRIDA_GATE".as_ptr());
        let mut byte = [0u8];
        sys::call3(sys::WRITE, fd, byte.as_ptr() as usize, 1);
        let got = sys::call3(sys::READ, fd, byte.as_mut_ptr() as usize, 1);
        if got != 1 {
            const EXIT_GROUP: usize = 231;
            sys::call3(EXIT_GROUP, 127, 0, 0);
        }
        sys::call3(sys::CLOSE, fd, 0, 0);
    }
}

#[used]
#[link_section = ".init_array"]
static GATE: extern "C" fn() = gate;
