// SPDX-License-Identifier: MIT
//! SIGTRAP of watchpoints and hooks. What is neither goes on to the handler before, Frida's, which
//! hands it to the program's.
//!
//! The kernel kills a process that traps while SIGTRAP is blocked, so the program's threads never
//! block it: see [`ff_sigmask`] and [`ff_on_sigaction`]. Blind spot: a mask that is set by a system
//! call of the program's own.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::protocol::{
    Hit, Site, HIT_SITE, MARK_VALUE, NO_CPU, NO_PLACE, NO_REGISTER, REGISTERS, STACK_WORDS,
};
use crate::{ring, sites, sys};

const SIGTRAP: usize = 5;
const TRAP_BIT: u64 = 1 << (SIGTRAP - 1);
/// Signals of glibc's own, which nobody may block.
const OWN_BITS: u64 = 3 << 31;
const SA_SIGINFO: usize = 4;
const SA_ONSTACK: usize = 0x0800_0000;
const SA_RESTORER: usize = 0x0400_0000;
/// si_code of int3 and of a debug register.
const SI_KERNEL: c_int = 0x80;
const TRAP_HWBKPT: c_int = 4;
const PR_GET_NAME: usize = 16;
/// Of struct ucontext: gregs, in the order r8..r15 rdi rsi rbp rbx rdx rax rcx rsp rip eflags.
const GREGS: usize = 5;
const RIP: usize = GREGS + 16;
const FLAGS: usize = GREGS + 17;
/// rax rcx rdx rbx rsp rbp rsi rdi r8..r15
const NUMBERED: [usize; REGISTERS] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];
const RSP: usize = 4;

/// As the kernel has it.
#[repr(C)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

static BEFORE: AtomicUsize = AtomicUsize::new(0);

std::arch::global_asm!(
    ".globl ff_restore",
    ".hidden ff_restore",
    "ff_restore:",
    "mov eax, 15",
    "syscall",
);

extern "C" {
    fn ff_restore();
}

fn action(new: *const Action, old: *mut Action) -> bool {
    let (new, old) = (new as usize, old as usize);
    // SAFETY: both are null or a struct of the kernel's.
    unsafe { sys::call(sys::SIGACTION, [SIGTRAP, new, old, 8, 0, 0]) == 0 }
}

/// Takes SIGTRAP. Below libc, whose function Frida has replaced, so that the program's own handler
/// stays where Frida keeps it.
pub fn install() -> bool {
    let mut old = Action {
        handler: 0,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    if !action(std::ptr::null(), &mut old) || old.flags & SA_SIGINFO == 0 {
        return false;
    }
    BEFORE.store(old.handler, Ordering::Release);
    let ours = Action {
        handler: on_trap as *const () as usize,
        flags: SA_SIGINFO | SA_ONSTACK | SA_RESTORER,
        restorer: ff_restore as *const () as usize,
        // Nothing interrupts a thread that fills in a record.
        mask: u64::MAX,
    };
    action(&ours, std::ptr::null_mut())
}

extern "C" fn on_trap(signal: c_int, info: *mut c_int, context: *mut c_void) {
    let words = context.cast::<u64>();
    // SAFETY: the kernel hands over a siginfo, whose third int is si_code, and a ucontext.
    let (code, ip) = unsafe { (*info.add(2), *words.add(RIP)) };
    if code == TRAP_HWBKPT {
        if ring::is_watched() {
            // SAFETY: a ucontext.
            ring::send(&unsafe { hit(words, ip) });
        }
        return;
    }
    let site = (code == SI_KERNEL).then(|| sites::at(ip - 1)).flatten();
    let Some((place, copy)) = site else {
        let before = BEFORE.load(Ordering::Acquire);
        // SAFETY: what was installed with SA_SIGINFO.
        let before: extern "C" fn(c_int, *mut c_int, *mut c_void) =
            unsafe { std::mem::transmute(before) };
        return before(signal, info, context);
    };
    if ring::is_watched() {
        // SAFETY: a ucontext.
        ring::send(&unsafe { site_hit(words, place, ip - 1) });
    }
    // SAFETY: the thread goes on in the copy.
    unsafe { *words.add(RIP) = copy };
}

/// The hit that a debug register reported.
unsafe fn hit(context: *const u64, ip: u64) -> Hit {
    let config = ring::config();
    let mut hit = whole(context, ip);
    hit.place = if config.size == 0 { NO_PLACE } else { 0 };
    hit.address = config.address;
    // With reads a value that the instruction does not prove comes from the next access.
    if config.size != 0 && config.reads == 0 {
        read(&mut hit, config.size as usize);
    }
    hit
}

unsafe fn site_hit(context: *const u64, place: usize, ip: u64) -> Hit {
    let site = &ring::config().site[place];
    let mut hit = whole(context, ip);
    (hit.place, hit.kind) = (place as u16, HIT_SITE);
    if site.known != 0 {
        hit.address = operand(site, &hit.registers);
        read(&mut hit, usize::from(site.size));
    }
    hit
}

fn operand(site: &Site, registers: &[u64; REGISTERS]) -> u64 {
    let value = |number: u8| match number {
        NO_REGISTER => 0,
        _ => registers[usize::from(number) % REGISTERS],
    };
    let scaled = value(site.index).wrapping_mul(u64::from(site.scale));
    let base = value(site.base).wrapping_add(scaled);
    base.wrapping_add(site.displacement)
}

/// Through the kernel: no debug register notices.
fn read(hit: &mut Hit, size: usize) {
    let mut bytes = [0; 8];
    if size <= 8 && sys::peek(hit.address, &mut bytes[..size]) == size {
        hit.value = u64::from_le_bytes(bytes);
        hit.marks |= MARK_VALUE;
    }
}

/// What all hits hold.
unsafe fn whole(context: *const u64, ip: u64) -> Hit {
    let mut hit = Hit {
        ts: sys::now(),
        reads: 1,
        ip,
        rflags: *context.add(FLAGS),
        registers: NUMBERED.map(|number| *context.add(GREGS + number)),
        tid: sys::tid(),
        cpu: NO_CPU,
        ..Hit::default()
    };
    sys::call3(sys::PRCTL, PR_GET_NAME, hit.thread.as_mut_ptr() as usize, 0);
    let sp = hit.registers[RSP];
    let mut stack = [0u8; STACK_WORDS * 8];
    let got = sys::peek(sp, &mut stack);
    hit.words = (got / 8) as u32;
    for (word, bytes) in hit.stack.iter_mut().zip(stack[..got].chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    hit
}

thread_local! {
    /// Whether the program believes SIGTRAP blocked in this thread.
    static BLOCKED: Cell<bool> = const { Cell::new(false) };
    /// libc's struct sigaction.
    static COPY: UnsafeCell<[u64; 19]> = const { UnsafeCell::new([0; 19]) };
}

/// In place of libc's pthread_sigmask: as it, but SIGTRAP stays unblocked.
///
/// # Safety
/// As libc's.
#[no_mangle]
pub unsafe extern "C" fn ff_sigmask(how: c_int, set: *const u64, old: *mut u64) -> c_int {
    const BLOCK: c_int = 0;
    const UNBLOCK: c_int = 1;
    let believed = BLOCKED.get();
    let mut wanted = 0;
    let mut given = std::ptr::null();
    if !set.is_null() {
        wanted = *set & !OWN_BITS & !TRAP_BIT;
        given = &raw const wanted;
    }
    let args = [how as usize, given as usize, old as usize, 8, 0, 0];
    let failed = sys::call(sys::SIGPROCMASK, args);
    if failed != 0 {
        return -failed as c_int;
    }
    let _ = wanted;
    if !set.is_null() {
        let named = *set & TRAP_BIT != 0;
        BLOCKED.set(match how {
            BLOCK => believed || named,
            UNBLOCK => believed && !named,
            _ => named,
        });
    }
    if !old.is_null() && believed {
        *old |= TRAP_BIT;
    }
    0
}

/// Gum's get_nth_argument and replace_nth_argument of an invocation.
static ARGUMENTS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// # Safety
/// `functions` are the two of [`ARGUMENTS`].
pub unsafe fn use_functions(functions: *const usize) {
    for (place, function) in ARGUMENTS.iter().enumerate() {
        function.store(*functions.add(place), Ordering::Release);
    }
}

/// Before libc's sigaction: takes SIGTRAP out of the mask that it sets.
///
/// # Safety
/// Gum calls it, as a listener.
#[no_mangle]
pub unsafe extern "C" fn ff_on_sigaction(invocation: *mut c_void) {
    let functions = ARGUMENTS.each_ref().map(|at| at.load(Ordering::Acquire));
    let get: extern "C" fn(*mut c_void, u32) -> *const u64 = std::mem::transmute(functions[0]);
    let replace: extern "C" fn(*mut c_void, u32, *const u64) = std::mem::transmute(functions[1]);
    let action = get(invocation, 1);
    if action.is_null() || *action.add(1) & TRAP_BIT == 0 {
        return;
    }
    COPY.with(|copy| {
        let copy = copy.get().cast::<u64>();
        std::ptr::copy_nonoverlapping(action, copy, 19);
        *copy.add(1) &= !TRAP_BIT;
        replace(invocation, 1, copy);
    });
}
