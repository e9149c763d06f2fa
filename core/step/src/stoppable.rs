// SPDX-License-Identifier: MIT
//! May a thread be stopped where it is, so that its program does not notice?
//!
//! A stop wakes a thread that sleeps in a call. The kernel restarts most calls (or `restart.rs`
//! does); others end with an error or with a part of what was asked, or tell a server to give up.
//! So a thread that sleeps is stopped only in a call of which it is known that it goes on. Of some
//! calls a limit of time begins anew: in these it is stopped only if the limit is a short one. In
//! calls as 32-bit programs make them (`int 0x80`) it is never stopped. Blind spots: it may go to
//! sleep between the look and the stop; a terminal that hands out at least so many bytes (VMIN); a
//! limit of time in memory that the kernel may not write.

use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use flagfinder_code::{AddressSpace, ProcessMemory};
use flagfinder_linux::descriptors::{duplicate, object, Object};
use flagfinder_linux::proc::{self, Stat, Status};
use flagfinder_linux::timeout::{limit, Limit};
use flagfinder_linux::tracing::SYS_IO_PGETEVENTS;
use flagfinder_linux::{futex, syscalls};
use flagfinder_waits::call::{timeout, SOON};
use flagfinder_waits::proc::{parse_call, Call};

use crate::error::{self, Result};
use crate::restart;

/// A thread that is just in a call which a stop would end gets so long to leave it.
const GRACE: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_millis(1);
/// So many looks in turn have to find it elsewhere then: one that comes back to such a call would
/// sleep in it again before it is stopped.
const LEFT: u32 = 8;
/// Of a thread that was not seen in such a call, so many looks, without a pause.
const FIRST: u32 = 3;
/// Whatever call it is: who answers for it would hear of the interruption.
const ASKS_ANOTHER: &str = "seccomp_";
/// Functions of the kernel that wait for another to open the other end of a FIFO, or to give up a
/// lease.
const OPENING: &[&str] = &["wait_for_partner", "__break_lease"];
/// The same for locks that this kernel keeps itself; those of servers and of other machines wait
/// elsewhere.
const LOCKING: &[&str] = &[
    "locks_lock_inode_wait",
    "flock_lock_inode_wait",
    "posix_lock_inode_wait",
    "do_lock_file_wait",
    "fcntl_setlk",
];
/// A page that another thread is to bring (userfaultfd).
const FAULTING: &[&str] = &["handle_userfault"];
/// A pipe takes so many bytes at once or none (PIPE_BUF), a Unix socket at least so many.
const AT_ONCE: u64 = 4096;
const AT_ONCE_IN_UNIX: u64 = 2048;
/// Of these each message goes as a whole.
const MESSAGES: [&str; 6] = ["UNIX", "UDP", "UDPv6", "NETLINK", "RAW", "PACKET"];
/// Sockets that go on connecting when the call is made again.
const CONNECTING: [&str; 5] = ["TCP", "TCPv6", "UDP", "UDPv6", "UNIX"];
const UNIX_STREAM: &str = "UNIX-STREAM";
const SYS_FUTEX_WAIT: i64 = 455;
/// io_uring_enter is given a limit of time, or a set of signals.
const IORING_ENTER_EXT_ARG: u64 = 1 << 3;

/// What a stop does to a thread that sleeps in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    GoesOn,
    /// Where it sleeps in one of these functions of the kernel.
    GoesOnIn(&'static [&'static str]),
    Notices,
}

/// Waits until the thread is where it may be stopped.
///
/// # Errors
/// Four parts: it sleeps where it may not be, and goes on doing so.
pub(crate) fn wait(tid: i32, memory: Option<&ProcessMemory>, patience: Duration) -> Result<()> {
    let begin = Instant::now();
    let mut refused = None;
    let mut left = LEFT - FIRST;
    loop {
        let grace = match look(tid, memory) {
            Look::May => {
                left += 1;
                GRACE
            }
            Look::MayNot(call) => {
                refused = Some(error::would_notice(tid, call.as_deref()));
                left = 0;
                GRACE
            }
            Look::Uninterruptible => {
                refused.get_or_insert_with(|| error::does_not_stop(tid, false));
                Duration::MAX
            }
        };
        if left > LEFT {
            return Ok(());
        }
        if let Some(found) = refused.take_if(|_| begin.elapsed() >= patience.min(grace)) {
            return Err(found);
        }
        if refused.is_some() {
            sleep(LOOK);
        }
    }
}

/// A stop would end the call, or may do so, while the thread sleeps in it.
pub(crate) fn may_notice(tid: i32, memory: Option<&ProcessMemory>, call: &Call) -> bool {
    stopped_in(tid, memory, call) != Stopped::GoesOn
}

/// Does it sleep just now in a call that a stop would end?
pub(crate) fn would_notice(tid: i32, memory: Option<&ProcessMemory>) -> bool {
    matches!(look(tid, memory), Look::MayNot(_))
}

enum Look {
    May,
    /// The call's name; `None`: it sleeps in none.
    MayNot(Option<String>),
    /// No stop wakes it now. One that comes later may find it elsewhere.
    Uninterruptible,
}

fn look(tid: i32, memory: Option<&ProcessMemory>) -> Look {
    match Stat::of(tid as u32).map(|stat| stat.state()) {
        Some('S') => {}
        Some('D') => return Look::Uninterruptible,
        // It runs, or stands still; or who asks to stop it hears that it is gone.
        _ => return Look::May,
    }
    let Ok(line) = proc::text_of_thread(tid, "syscall") else {
        return Look::MayNot(None);
    };
    if line.starts_with("running") {
        return Look::May;
    }
    let call = parse_call(&line);
    let function = proc::text_of_thread(tid, "wchan").unwrap_or_default();
    let stopped = match &call {
        Some(call) => stopped_in(tid, memory, call),
        None => Stopped::GoesOnIn(FAULTING),
    };
    let goes_on = match stopped {
        Stopped::GoesOn => !function.starts_with(ASKS_ANOTHER),
        Stopped::GoesOnIn(functions) => functions.iter().any(|it| function.starts_with(it)),
        Stopped::Notices => false,
    };
    match goes_on {
        true => Look::May,
        false => Look::MayNot(call.map(|call| match is_native(memory, &call) {
            true => syscalls::name(call.number),
            false => AS_32_BIT.to_owned(),
        })),
    }
}

const AS_32_BIT: &str = "a call as 32-bit programs make it, or one that is not known";

/// Does its number mean what it does in 64-bit programs? The instruction says so.
fn is_native(memory: Option<&ProcessMemory>, call: &Call) -> bool {
    let mut code = [0; restart::SYSCALL.len()];
    let at = call.pc.wrapping_sub(code.len() as u64);
    let got = memory.map(|memory| memory.read_held(at, &mut code));
    got == Some(code.len()) && code == restart::SYSCALL
}

fn stopped_in(tid: i32, memory: Option<&ProcessMemory>, call: &Call) -> Stopped {
    let Some(memory) = memory.filter(|_| is_native(memory, call)) else {
        return Stopped::Notices;
    };
    if begins_anew(tid, call) && !is_short(memory, call) {
        return Stopped::Notices;
    }
    let args = &call.args;
    let has = |flags: u64, flag: i32| flags & flag as u64 != 0;
    let goes_on = match i64::from(call.number) {
        libc::SYS_open | libc::SYS_openat | libc::SYS_openat2 | libc::SYS_creat => {
            return Stopped::GoesOnIn(OPENING);
        }
        libc::SYS_flock | libc::SYS_fcntl => return Stopped::GoesOnIn(LOCKING),
        libc::SYS_futex => futex::command(args) != libc::FUTEX_WAIT_REQUEUE_PI,
        // What it has submitted already would be all that it returns.
        libc::SYS_io_uring_enter => args[1] == 0 && args[3] & IORING_ENTER_EXT_ARG == 0,
        libc::SYS_read | libc::SYS_readv | libc::SYS_accept | libc::SYS_accept4 => takes(tid, args),
        libc::SYS_recvfrom => !has(args[3], libc::MSG_WAITALL) && takes(tid, args),
        libc::SYS_recvmsg => !has(args[2], libc::MSG_WAITALL) && takes(tid, args),
        libc::SYS_recvmmsg => {
            let is_one = args[2] == 1 || has(args[3], libc::MSG_WAITFORONE);
            is_one && !has(args[3], libc::MSG_WAITALL) && takes(tid, args)
        }
        libc::SYS_write | libc::SYS_sendto => gives(tid, args, Some(args[2])),
        libc::SYS_writev | libc::SYS_sendmsg => gives(tid, args, None),
        libc::SYS_connect => match object(tid as u32, args[0] as i32) {
            Some(Object::Socket(kind)) => {
                (CONNECTING.contains(&&*kind) || kind == UNIX_STREAM)
                    && is_unlimited(tid, args[0] as i32, libc::SO_SNDTIMEO)
            }
            _ => false,
        },
        libc::SYS_restart_syscall
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_pause
        | libc::SYS_rt_sigsuspend
        | libc::SYS_rt_sigtimedwait
        | libc::SYS_wait4
        | libc::SYS_waitid
        | libc::SYS_semop
        | libc::SYS_semtimedop
        | libc::SYS_msgrcv
        | libc::SYS_msgsnd
        | libc::SYS_mq_timedreceive
        | libc::SYS_mq_timedsend
        | libc::SYS_io_getevents
        | SYS_IO_PGETEVENTS
        | libc::SYS_futex_waitv
        | SYS_FUTEX_WAIT => true,
        _ => false,
    };
    match goes_on {
        true => Stopped::GoesOn,
        false => Stopped::Notices,
    }
}

/// It waits for the first bytes, and the kernel itself brings them.
fn takes(tid: i32, args: &[u64; 6]) -> bool {
    let fd = args[0] as i32;
    match object(tid as u32, fd) {
        Some(Object::Socket(_)) => is_unlimited(tid, fd, libc::SO_RCVTIMEO),
        Some(object) => object != Object::Other,
        None => false,
    }
}

/// It waits before the first byte has gone, and then all of them go. `count`: how many, if that is
/// known.
fn gives(tid: i32, args: &[u64; 6], count: Option<u64>) -> bool {
    let are_few = |most| count.is_some_and(|count| count <= most);
    let fd = args[0] as i32;
    match object(tid as u32, fd) {
        Some(Object::Pipe) => are_few(AT_ONCE),
        Some(Object::Events) => true,
        Some(Object::Socket(kind)) => {
            let is_whole = match kind == UNIX_STREAM {
                true => are_few(AT_ONCE_IN_UNIX),
                false => MESSAGES.contains(&&*kind),
            };
            is_whole && is_unlimited(tid, fd, libc::SO_SNDTIMEO)
        }
        _ => false,
    }
}

/// Does the limit of time, if the call has one, begin anew after a stop? Otherwise the kernel notes
/// how much of it is left. Where calls are filtered, it may not (`restart.rs`).
fn begins_anew(tid: i32, call: &Call) -> bool {
    match i64::from(call.number) {
        libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_rt_sigtimedwait
        | libc::SYS_semtimedop
        | libc::SYS_io_getevents
        | SYS_IO_PGETEVENTS => true,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep | libc::SYS_poll | libc::SYS_futex => {
            restart::is_filtered(tid)
        }
        _ => false,
    }
}

/// The thread may be held while its memory is asked.
struct Held<'a>(&'a ProcessMemory);

impl AddressSpace for Held<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        self.0.read_held(address, buffer)
    }
}

/// Has it no limit of time, or one that may begin anew: a point in time, or so short a span that
/// the thread polls?
fn is_short(memory: &ProcessMemory, call: &Call) -> bool {
    match limit(call.number, &call.args) {
        None | Some(Limit::Milliseconds(..0) | Limit::Time { address: 0, .. }) => true,
        Some(_) => timeout(call, &Held(memory)).is_some_and(|it| it.absolute || it.time <= SOON),
    }
}

/// Such a socket gives the first bytes that come, and waits without a limit of time, or a short one
/// (`option`).
fn is_unlimited(tid: i32, fd: i32, option: i32) -> bool {
    let process = Status::of(tid as u32).and_then(|status| status.number("Tgid:"));
    let Some(Ok(socket)) = process.map(|process| duplicate(process, fd)) else {
        return false;
    };
    fn asked<T>(socket: i32, option: i32) -> Option<T> {
        // SAFETY: plain numbers, which the kernel fills.
        unsafe {
            let mut value: T = zeroed();
            let mut size = size_of::<T>() as libc::socklen_t;
            let to = (&raw mut value).cast();
            let got = libc::getsockopt(socket, libc::SOL_SOCKET, option, to, &raw mut size);
            (got == 0).then_some(value)
        }
    }
    let socket = socket.as_raw_fd();
    let least: Option<i32> = asked(socket, libc::SO_RCVLOWAT);
    let time: Option<libc::timeval> = asked(socket, option);
    let short = i64::try_from(SOON.as_micros()).unwrap_or(0);
    least.is_some_and(|least| least <= 1)
        && time.is_some_and(|it| it.tv_sec * 1_000_000 + it.tv_usec <= short)
}
