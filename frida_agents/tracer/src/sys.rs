// SPDX-License-Identifier: MIT
//! System calls without libc: nothing here touches errno or thread-local storage of the program
//! whose threads we run on.

use std::arch::asm;
use std::ffi::CStr;

pub const READ: usize = 0;
pub const WRITE: usize = 1;
pub const CLOSE: usize = 3;
pub const MMAP: usize = 9;
pub const MPROTECT: usize = 10;
pub const MUNMAP: usize = 11;
pub const SIGACTION: usize = 13;
pub const SIGPROCMASK: usize = 14;
pub const PWRITE: usize = 18;
pub const MREMAP: usize = 25;
pub const GETPID: usize = 39;
pub const READLINK: usize = 89;
pub const GETPPID: usize = 110;
pub const PRCTL: usize = 157;
pub const ARCH_PRCTL: usize = 158;
pub const GETTID: usize = 186;
pub const FUTEX: usize = 202;
pub const CLOCK_GETTIME: usize = 228;
pub const TGKILL: usize = 234;
pub const OPENAT: usize = 257;
pub const PROCESS_VM_READV: usize = 310;

pub const PROT_READ: usize = 1;
pub const PROT_WRITE: usize = 2;
pub const PROT_EXEC: usize = 4;
pub const MAP_SHARED: usize = 1;
pub const MAP_PRIVATE: usize = 2;
pub const MAP_FIXED: usize = 0x10;
pub const MAP_ANONYMOUS: usize = 0x20;
pub const MAP_NORESERVE: usize = 0x4000;
pub const MAP_FIXED_NOREPLACE: usize = 0x10_0000;
pub const MREMAP_MAYMOVE_FIXED: usize = 3;
pub const ESRCH: isize = 3;

/// A system call; the result as the kernel gives it (-errno on failure).
///
/// # Safety
/// As the call itself.
pub unsafe fn call(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    asm!("syscall", inlateout("rax") number as isize => result,
        in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
        in("r10") args[3], in("r8") args[4], in("r9") args[5],
        lateout("rcx") _, lateout("r11") _, options(nostack));
    result
}

pub fn call3(number: usize, a: usize, b: usize, c: usize) -> isize {
    // SAFETY: callers pass calls that touch only what they own.
    unsafe { call(number, [a, b, c, 0, 0, 0]) }
}

/// For reading and writing, closed at an exec. `None` when the kernel refuses.
pub fn open(path: &CStr) -> Option<isize> {
    // AT_FDCWD, O_RDWR | O_CLOEXEC
    let fd = call3(
        OPENAT,
        -100isize as usize,
        path.as_ptr() as usize,
        0o2000002,
    );
    (fd >= 0).then_some(fd)
}

/// `None` when the kernel refuses.
pub fn map(at: usize, bytes: usize, prot: usize, flags: usize, fd: isize) -> Option<usize> {
    // SAFETY: MAP_FIXED is only used over memory of ours.
    let result = unsafe { call(MMAP, [at, bytes, prot, flags, fd as usize, 0]) };
    (!(-4095..0).contains(&result)).then_some(result as usize)
}

pub fn unmap(at: usize, bytes: usize) {
    call3(MUNMAP, at, bytes, 0);
}

pub fn tid() -> u32 {
    call3(GETTID, 0, 0, 0) as u32
}

pub fn pid() -> u32 {
    call3(GETPID, 0, 0, 0) as u32
}

/// CLOCK_MONOTONIC in ns.
pub fn now() -> u64 {
    let mut time = [0u64; 2];
    call3(CLOCK_GETTIME, 1, time.as_mut_ptr() as usize, 0);
    time[0] * 1_000_000_000 + time[1]
}

/// The same as events carry it (FF_EVENT_GRAIN).
pub fn event_now() -> u64 {
    now() & !63
}

/// Sleeps while `*word` is `seen`, at most so many milliseconds.
pub fn wait(word: *const u32, seen: u32, milliseconds: u64) {
    let time = [milliseconds / 1000, milliseconds % 1000 * 1_000_000];
    // SAFETY: FUTEX_WAIT reads the word and the time.
    unsafe {
        call(
            FUTEX,
            [
                word as usize,
                0,
                seen as usize,
                time.as_ptr() as usize,
                0,
                0,
            ],
        )
    };
}

pub fn wake(word: *const u32) {
    call3(FUTEX, word as usize, 1, i32::MAX as usize);
}

/// Reads the program's memory; how many bytes could be read.
pub fn peek(address: u64, into: &mut [u8]) -> usize {
    let local = [into.as_mut_ptr() as usize, into.len()];
    let remote = [address as usize, into.len()];
    // SAFETY: the kernel checks the remote side; the local is `into`.
    let result = unsafe {
        call(
            PROCESS_VM_READV,
            [
                pid() as usize,
                local.as_ptr() as usize,
                1,
                remote.as_ptr() as usize,
                1,
                0,
            ],
        )
    };
    usize::try_from(result).unwrap_or(0)
}

/// A word of the program's memory; 0 where there is none.
pub fn peek_word(address: u64) -> u64 {
    let mut bytes = [0; 8];
    if peek(address, &mut bytes) == 8 {
        u64::from_le_bytes(bytes)
    } else {
        0
    }
}

/// A text in the program's memory, up to its NUL.
pub fn peek_text(address: u64, into: &mut [u8]) -> &[u8] {
    let got = peek(address, into);
    let end = into[..got]
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(got);
    &into[..end]
}

/// A whole file of /proc. `path` ends in NUL.
pub fn read_file(path: &str) -> Vec<u8> {
    debug_assert!(path.ends_with('\0'));
    let mut text = Vec::new();
    // AT_FDCWD, O_RDONLY | O_CLOEXEC
    let fd = call3(
        OPENAT,
        -100isize as usize,
        path.as_ptr() as usize,
        0o2000000,
    );
    if fd < 0 {
        return text;
    }
    loop {
        let at = text.len();
        text.resize(at + (1 << 16), 0);
        let got = call3(READ, fd as usize, text[at..].as_mut_ptr() as usize, 1 << 16);
        text.truncate(at + usize::try_from(got).unwrap_or(0));
        if got <= 0 {
            break;
        }
    }
    call3(CLOSE, fd as usize, 0, 0);
    text
}
