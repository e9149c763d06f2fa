// SPDX-License-Identifier: MIT
//! May a thread be stopped where it is, so that its program does not notice?
//!
//! A stop wakes a thread that sleeps in a call. The kernel restarts most calls (or `restart.rs`
//! does); others end with an error or with a part of what was asked, or tell a server to give up.
//! So a thread that sleeps is stopped only in a call of which it is known that it goes on. Blind
//! spots: it may go to sleep between the look and the stop; a socket with SO_RCVLOWAT; a terminal
//! that hands out at least so many bytes (VMIN).

use std::thread::sleep;
use std::time::{Duration, Instant};

use flagfinder_linux::descriptors::{object, Object};
use flagfinder_linux::futex;
use flagfinder_linux::proc::{self, Stat};
use flagfinder_linux::syscalls;
use flagfinder_linux::tracing::SYS_IO_PGETEVENTS;

use crate::error::{self, Result};

/// A thread that is just in a call which a stop would end gets so long to leave it.
const GRACE: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_millis(1);
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
pub(crate) fn wait(tid: i32, patience: Duration) -> Result<()> {
    let begin = Instant::now();
    loop {
        let (found, grace) = match look(tid) {
            Look::May => return Ok(()),
            Look::MayNot(call) => (error::would_notice(tid, call.as_deref()), GRACE),
            Look::Uninterruptible => (error::does_not_stop(tid, false), Duration::MAX),
        };
        if begin.elapsed() >= patience.min(grace) {
            return Err(found);
        }
        sleep(LOOK);
    }
}

/// A stop would end the call, or may do so, while the thread sleeps in it.
pub(crate) fn may_notice(tid: i32, number: u32, args: &[u64; 6]) -> bool {
    stopped_in(tid, number, args) != Stopped::GoesOn
}

/// Does it sleep just now in a call that a stop would end?
pub(crate) fn would_notice(tid: i32) -> bool {
    matches!(look(tid), Look::MayNot(_))
}

enum Look {
    May,
    /// The call's name; `None`: it sleeps in none.
    MayNot(Option<String>),
    /// No stop wakes it now. One that comes later may find it elsewhere.
    Uninterruptible,
}

fn look(tid: i32) -> Look {
    match Stat::of(tid as u32).map(|stat| stat.state()) {
        Some('S') => {}
        Some('D') => return Look::Uninterruptible,
        // It runs, or stands still; or who asks to stop it hears that it is gone.
        _ => return Look::May,
    }
    let Ok(line) = proc::text_of_thread(tid, "syscall") else {
        return Look::MayNot(None);
    };
    let mut words = line.split_whitespace();
    let number = match words.next().map(str::parse::<i64>) {
        Some(Ok(number)) => u32::try_from(number).ok(),
        // "running"
        _ => return Look::May,
    };
    let mut args = words.map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16));
    let args = [(); 6].map(|()| args.next().and_then(std::result::Result::ok).unwrap_or(0));
    let function = proc::text_of_thread(tid, "wchan").unwrap_or_default();
    let stopped = match number {
        Some(number) => stopped_in(tid, number, &args),
        None => Stopped::GoesOnIn(FAULTING),
    };
    let goes_on = match stopped {
        Stopped::GoesOn => !function.starts_with(ASKS_ANOTHER),
        Stopped::GoesOnIn(functions) => functions.iter().any(|it| function.starts_with(it)),
        Stopped::Notices => false,
    };
    match goes_on {
        true => Look::May,
        false => Look::MayNot(number.map(syscalls::name)),
    }
}

fn stopped_in(tid: i32, number: u32, args: &[u64; 6]) -> Stopped {
    let has = |flags: u64, flag: i32| flags & flag as u64 != 0;
    let goes_on = match i64::from(number) {
        libc::SYS_open | libc::SYS_openat | libc::SYS_openat2 | libc::SYS_creat => {
            return Stopped::GoesOnIn(OPENING);
        }
        libc::SYS_flock | libc::SYS_fcntl => return Stopped::GoesOnIn(LOCKING),
        libc::SYS_futex => futex::command(args) != libc::FUTEX_WAIT_REQUEUE_PI,
        // What it has submitted already would be all that it returns.
        libc::SYS_io_uring_enter => args[1] == 0,
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
            Some(Object::Socket(kind)) => CONNECTING.contains(&&*kind) || kind == UNIX_STREAM,
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
    let from = object(tid as u32, args[0] as i32);
    from.is_some_and(|object| object != Object::Other)
}

/// It waits before the first byte has gone, and then all of them go. `count`: how many, if that is
/// known.
fn gives(tid: i32, args: &[u64; 6], count: Option<u64>) -> bool {
    let are_few = |most| count.is_some_and(|count| count <= most);
    match object(tid as u32, args[0] as i32) {
        Some(Object::Pipe) => are_few(AT_ONCE),
        Some(Object::Events) => true,
        Some(Object::Socket(kind)) if kind == UNIX_STREAM => are_few(AT_ONCE_IN_UNIX),
        Some(Object::Socket(kind)) => MESSAGES.contains(&&*kind),
        _ => false,
    }
}
