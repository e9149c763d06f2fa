// SPDX-License-Identifier: MIT
//! No stop makes a thread wait for longer than it asked for, nor ends its wait.

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use flagfinder_step::Pause;

const LIMIT: libc::timespec = seconds(4);
const STOPPED_AT: Duration = Duration::from_secs(3);
/// Begun anew at the stop, a wait ends a second later.
const AT_MOST: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(300);

const fn seconds(count: i64) -> libc::timespec {
    libc::timespec {
        tv_sec: count,
        tv_nsec: 0,
    }
}

/// A wait that nothing but its limit ends.
struct Wait {
    name: &'static str,
    /// Its calls pass a filter, which lets all of them through.
    is_filtered: bool,
    call: i64,
    args: [usize; 6],
}

fn wait(name: &'static str, call: i64, args: [usize; 6]) -> Wait {
    Wait {
        name,
        is_filtered: false,
        call,
        args,
    }
}

fn filtered(name: &'static str, call: i64, args: [usize; 6]) -> Wait {
    Wait {
        is_filtered: true,
        ..wait(name, call, args)
    }
}

fn at<T>(value: T) -> usize {
    let place: *mut T = Box::leak(Box::new(value));
    place.expose_provenance()
}

fn socket(kind: i32) -> usize {
    let mut ends = [0; 2];
    // SAFETY: two numbers of ours.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) };
    assert_eq!(made, 0);
    ends[0] as usize
}

fn limited(option: i32) -> usize {
    let fd = socket(libc::SOCK_DGRAM);
    let limit = libc::timeval {
        tv_sec: LIMIT.tv_sec,
        tv_usec: 0,
    };
    let size = size_of_val(&limit) as libc::socklen_t;
    // SAFETY: a structure of ours, and its size.
    let set = unsafe {
        libc::setsockopt(
            fd as i32,
            libc::SOL_SOCKET,
            option,
            (&raw const limit).cast(),
            size,
        )
    };
    assert_eq!(set, 0);
    fd
}

fn full(fd: usize) -> usize {
    let byte = [0u8; 512];
    // SAFETY: bytes of ours.
    while unsafe { libc::send(fd as i32, byte.as_ptr().cast(), 512, libc::MSG_DONTWAIT) } > 0 {}
    fd
}

fn waits() -> Vec<Wait> {
    let limit = || at(LIMIT);
    let milliseconds = LIMIT.tv_sec as usize * 1000;
    // SAFETY: plain numbers, and structures of ours.
    let (epoll, semaphores) = unsafe {
        let epoll = libc::epoll_create1(0);
        let semaphores = libc::semget(libc::IPC_PRIVATE, 1, 0o600);
        (epoll as usize, semaphores as usize)
    };
    let event = at(libc::epoll_event { events: 0, u64: 0 });
    let take = at(libc::sembuf {
        sem_num: 0,
        sem_op: -1,
        sem_flg: 0,
    });
    let word = at(0u32);
    let wait_word = libc::FUTEX_WAIT as usize;
    let signals = at(1u64 << (libc::SIGUSR1 - 1));
    let context = at(0usize);
    // SAFETY: a word of ours.
    let queue = unsafe {
        libc::syscall(libc::SYS_io_setup, 1, context);
        *std::ptr::with_exposed_provenance::<usize>(context)
    };
    let nobody = at(libc::pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    });
    let set = at(0u64);
    vec![
        wait("nanosleep", libc::SYS_nanosleep, [limit(), 0, 0, 0, 0, 0]),
        wait(
            "clock_nanosleep",
            libc::SYS_clock_nanosleep,
            [1, 0, limit(), 0, 0, 0],
        ),
        wait("poll", libc::SYS_poll, [nobody, 1, milliseconds, 0, 0, 0]),
        wait("ppoll", libc::SYS_ppoll, [nobody, 1, limit(), 0, 8, 0]),
        wait("pselect6", libc::SYS_pselect6, [0, set, 0, 0, limit(), 0]),
        wait("select", libc::SYS_select, [0, set, 0, 0, limit(), 0]),
        wait(
            "epoll_wait",
            libc::SYS_epoll_wait,
            [epoll, event, 1, milliseconds, 0, 0],
        ),
        wait(
            "epoll_pwait",
            libc::SYS_epoll_pwait,
            [epoll, event, 1, milliseconds, 0, 8],
        ),
        wait(
            "epoll_pwait2",
            libc::SYS_epoll_pwait2,
            [epoll, event, 1, limit(), 0, 8],
        ),
        wait(
            "futex",
            libc::SYS_futex,
            [word, wait_word, 0, limit(), 0, 0],
        ),
        wait(
            "rt_sigtimedwait",
            libc::SYS_rt_sigtimedwait,
            [signals, 0, limit(), 8, 0, 0],
        ),
        wait(
            "semtimedop",
            libc::SYS_semtimedop,
            [semaphores, take, 1, limit(), 0, 0],
        ),
        wait(
            "io_getevents",
            libc::SYS_io_getevents,
            [queue, 1, 1, at([0u64; 4]), limit(), 0],
        ),
        wait(
            "recv",
            libc::SYS_recvfrom,
            [limited(libc::SO_RCVTIMEO), at(0u64), 8, 0, 0, 0],
        ),
        wait(
            "read",
            libc::SYS_read,
            [limited(libc::SO_RCVTIMEO), at(0u64), 8, 0, 0, 0],
        ),
        wait(
            "send",
            libc::SYS_sendto,
            [full(limited(libc::SO_SNDTIMEO)), at(0u64), 8, 0, 0, 0],
        ),
        filtered("nanosleep", libc::SYS_nanosleep, [limit(), 0, 0, 0, 0, 0]),
        filtered(
            "clock_nanosleep",
            libc::SYS_clock_nanosleep,
            [1, 0, limit(), 0, 0, 0],
        ),
        filtered("poll", libc::SYS_poll, [nobody, 1, milliseconds, 0, 0, 0]),
        filtered("ppoll", libc::SYS_ppoll, [nobody, 1, limit(), 0, 8, 0]),
        filtered(
            "futex",
            libc::SYS_futex,
            [word, wait_word, 0, limit(), 0, 0],
        ),
    ]
}

/// Does this in a process of its own.
fn child(work: impl FnOnce()) -> i32 {
    // SAFETY: the child makes plain system calls on memory that the test keeps.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            work();
            libc::_exit(0);
        }
        child
    }
}

fn has_ended(child: i32) -> bool {
    // SAFETY: our own child; no status is asked for.
    unsafe { libc::waitpid(child, null_mut(), libc::WNOHANG) != 0 }
}

fn end(child: i32) {
    // SAFETY: our own child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, null_mut(), 0);
    }
}

/// Makes the call in a process of its own.
fn begin(wait: &Wait) -> i32 {
    let allow = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: (&raw const allow).cast_mut(),
    };
    let [a, b, c, d, e, f] = wait.args;
    // SAFETY: as in `child`.
    child(|| unsafe {
        let blocked = 1u64 << (libc::SIGUSR1 - 1);
        let none = null_mut::<u64>();
        libc::syscall(libc::SYS_rt_sigprocmask, 0, &raw const blocked, none, 8);
        if wait.is_filtered {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program);
        }
        libc::syscall(wait.call, a, b, c, d, e, f);
    })
}

#[test]
fn no_stop_prolongs_a_wait() {
    let begun = Instant::now();
    let waits = waits();
    let mut left: Vec<(i32, String)> = waits
        .iter()
        .map(|wait| {
            let of = if wait.is_filtered {
                " with a filter"
            } else {
                ""
            };
            (begin(wait), format!("{}{of}", wait.name))
        })
        .collect();
    std::thread::sleep(STOPPED_AT.saturating_sub(begun.elapsed()));
    let stopped = left
        .iter()
        .filter(|it| Pause::of(it.0 as u32, PATIENCE).is_ok());
    let stopped: Vec<String> = stopped.map(|it| it.1.clone()).collect();
    while !left.is_empty() && begun.elapsed() < AT_MOST {
        left.retain(|(child, _)| !has_ended(*child));
        std::thread::sleep(Duration::from_millis(10));
    }
    left.iter().for_each(|(child, _)| end(*child));
    let semaphores = waits
        .iter()
        .filter(|wait| wait.call == libc::SYS_semtimedop);
    // SAFETY: plain numbers.
    semaphores.for_each(|wait| unsafe {
        libc::semctl(wait.args[0] as i32, 0, libc::IPC_RMID);
    });
    let late: Vec<&str> = left.iter().map(|(_, name)| &**name).collect();
    assert!(late.is_empty(), "{late:?}");
    // Of these the kernel notes how much of the limit is left.
    let known = [
        "nanosleep",
        "clock_nanosleep",
        "poll",
        "ppoll",
        "pselect6",
        "select",
        "futex",
    ];
    assert_eq!(stopped[..known.len()], known);
    assert_eq!(stopped[known.len()..], ["ppoll with a filter"]);
}

#[test]
fn a_thread_that_polls_is_stopped() {
    // SAFETY: plain numbers, and a structure of ours.
    let child = child(|| unsafe {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let epoll = libc::epoll_create1(0);
        loop {
            libc::epoll_wait(epoll, &raw mut event, 1, 1000);
        }
    });
    std::thread::sleep(SOON);
    let stopped = Pause::of(child as u32, PATIENCE).is_ok();
    end(child);
    assert!(stopped);
}

/// epoll_pwait2 has the same number in both ways, and a stop ends it.
#[test]
fn a_call_as_32_bit_programs_make_it_goes_on() {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let low = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
    // SAFETY: a fresh mapping, and a number.
    let (event, epoll) = unsafe {
        let event = libc::mmap(null_mut(), 4096, rights, low, -1, 0);
        (event.expose_provenance(), libc::epoll_create1(0))
    };
    // SAFETY: as in `child`; the asm leaves the stack and the registers as they were.
    let child = child(|| unsafe {
        std::arch::asm!(
            "push rbx",
            "push rbp",
            "mov ebx, r8d",
            "xor ebp, ebp",
            "int 0x80",
            "pop rbp",
            "pop rbx",
            inout("eax") libc::SYS_epoll_pwait2 as i32 => _,
            in("ecx") event as u32,
            in("edx") 1,
            in("esi") 0,
            in("edi") 0,
            inout("r8") i64::from(epoll) => _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
        );
    });
    std::thread::sleep(SOON);
    if has_ended(child) {
        // This kernel knows no such calls.
        return;
    }
    let stopped = Pause::of(child as u32, PATIENCE).map(drop);
    std::thread::sleep(SOON);
    let ended = has_ended(child);
    end(child);
    assert!(!ended);
    let refused = stopped.expect_err("it is not stopped");
    assert!(refused.found.contains("32-bit"), "{}", refused.found);
}
