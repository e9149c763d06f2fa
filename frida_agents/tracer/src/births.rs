// SPDX-License-Identifier: MIT
//! New threads of a watched program wait until the agent has set their watchpoints. No JavaScript
//! runs in them: a forked child, where the agent is gone, must not wait for it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::memory::Lock;
use crate::{ring, sys};

/// Milliseconds that a thread waits at most: the agent may be gone.
const PATIENCE: u64 = 5000;
const TURN: u64 = 20;

type Routine = usize;
type Create = extern "C" fn(*mut c_void, *const c_void, Routine, *mut c_void) -> c_int;

/// What a thread is to run, until it does.
struct Birth {
    routine: Routine,
    argument: *mut c_void,
}

/// libc's pthread_create, as it can still be called.
static CREATE: AtomicUsize = AtomicUsize::new(0);
static WAITING: Lock<Vec<u32>> = Lock::new(Vec::new());
/// Count threads that came, and those that may go on.
static CAME: AtomicU32 = AtomicU32::new(0);
static SERVED: AtomicU32 = AtomicU32::new(0);

// Jumps to the routine, so that no frame of ours stands below it when a thread is cancelled.
std::arch::global_asm!(
    ".globl ff_born",
    ".hidden ff_born",
    "ff_born:",
    "push rdi",
    "call {arrive}",
    "pop rdi",
    "mov rdi, rdx",
    "jmp rax",
    arrive = sym arrive,
);

extern "C" {
    fn ff_born(birth: *mut c_void) -> *mut c_void;
}

/// A pair that comes back in rax and rdx.
#[repr(C)]
struct Start {
    routine: Routine,
    argument: *mut c_void,
}

extern "C" fn arrive(birth: *mut Birth) -> Start {
    // SAFETY: made by `ff_create` for this thread alone.
    let Birth { routine, argument } = *unsafe { Box::from_raw(birth) };
    if ring::is_watched() {
        let tid = sys::tid();
        WAITING.hold().push(tid);
        CAME.fetch_add(1, Ordering::Release);
        sys::wake(CAME.as_ptr());
        let until = sys::now() + PATIENCE * 1_000_000;
        loop {
            let served = SERVED.load(Ordering::Acquire);
            let waits = WAITING.hold().contains(&tid);
            if !waits || !ring::is_watched() || sys::now() > until {
                break;
            }
            sys::wait(SERVED.as_ptr(), served, TURN);
        }
    }
    Start { routine, argument }
}

/// In place of libc's pthread_create.
///
/// # Safety
/// As libc's.
#[no_mangle]
pub unsafe extern "C" fn ff_create(
    thread: *mut c_void,
    attributes: *const c_void,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    let create: Create = std::mem::transmute(CREATE.load(Ordering::Acquire));
    if !ring::is_watched() {
        return create(thread, attributes, routine, argument);
    }
    let birth = Box::into_raw(Box::new(Birth { routine, argument }));
    let born = ff_born as *const () as Routine;
    let failed = create(thread, attributes, born, birth.cast());
    if failed != 0 {
        drop(Box::from_raw(birth));
    }
    failed
}

/// How libc's pthread_create can still be called.
#[no_mangle]
pub extern "C" fn ff_created_by(create: usize) {
    CREATE.store(create, Ordering::Release);
}

/// A thread that waits for its watchpoints, 0 after some milliseconds.
#[no_mangle]
pub extern "C" fn ff_newborn() -> u32 {
    let came = CAME.load(Ordering::Acquire);
    if let Some(&first) = WAITING.hold().first() {
        return first;
    }
    sys::wait(CAME.as_ptr(), came, TURN);
    0
}

/// It may go on.
#[no_mangle]
pub extern "C" fn ff_may_live(tid: u32) {
    WAITING.hold().retain(|&waiting| waiting != tid);
    SERVED.fetch_add(1, Ordering::Release);
    sys::wake(SERVED.as_ptr());
}
