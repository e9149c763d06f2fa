//! What the finder knows about system calls: which yield or sleep, which answer a
//! question, and what memory they fill.

/// What a call in a waiting loop is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Gives the processor away: its result decides nothing.
    Yield,
    /// Lets time pass.
    Sleep,
    /// Waits for or wakes another thread through a word in memory.
    Lock,
    /// Says something about the process or the time.
    Neutral,
    /// Moves data or changes something.
    Work,
    /// Tells whether something is ready.
    Poll,
}

const OWN_SETTINGS: [i32; 4] = [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL];

/// `args` tell a poll for nothing (a sleep) from a real one.
pub fn role(number: u32, args: &[u64; 6]) -> Role {
    match i64::from(number) {
        libc::SYS_sched_yield => Role::Yield,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep | libc::SYS_pause => Role::Sleep,
        libc::SYS_poll | libc::SYS_ppoll if args[1] == 0 => Role::Sleep,
        libc::SYS_select | libc::SYS_pselect6 if args[1..4] == [0, 0, 0] => Role::Sleep,
        libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2 => Role::Poll,
        libc::SYS_futex => Role::Lock,
        // How the process has set a descriptor nobody else changes.
        libc::SYS_fcntl if OWN_SETTINGS.contains(&(args[1] as i32)) => Role::Neutral,
        libc::SYS_getpid
        | libc::SYS_gettid
        | libc::SYS_getppid
        | libc::SYS_clock_gettime
        | libc::SYS_gettimeofday
        | libc::SYS_time
        | libc::SYS_times
        | libc::SYS_getrusage
        | libc::SYS_getcpu
        | libc::SYS_rt_sigprocmask
        | libc::SYS_rt_sigaction
        | libc::SYS_rt_sigreturn
        | libc::SYS_tgkill
        | libc::SYS_madvise
        | libc::SYS_brk
        | libc::SYS_mmap
        | libc::SYS_munmap
        | libc::SYS_mprotect
        | libc::SYS_mremap
        | libc::SYS_membarrier
        | libc::SYS_prctl
        | libc::SYS_getrandom
        | libc::SYS_setsockopt
        | libc::SYS_getsockname
        | libc::SYS_getpeername
        | libc::SYS_epoll_ctl
        | libc::SYS_close
        | libc::SYS_restart_syscall => Role::Neutral,
        _ => Role::Work,
    }
}

/// Does it move data, when its result is positive?
pub fn consumes(number: u32) -> bool {
    let takes = matches!(
        i64::from(number),
        libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_pread64
            | libc::SYS_preadv
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg
            | libc::SYS_accept
            | libc::SYS_accept4
    );
    takes || gives(number)
}

/// Does it hand data on to a place of its own in a file?
pub fn gives_at(number: u32) -> bool {
    matches!(
        i64::from(number),
        libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_pwritev2
    )
}

/// Does it hand data on?
pub fn gives(number: u32) -> bool {
    matches!(
        i64::from(number),
        libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_pwrite64
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendmmsg
            | libc::SYS_sendfile
            | libc::SYS_splice
            | libc::SYS_copy_file_range
    )
}

/// The descriptor it is about, where it has one as first argument.
pub fn descriptor(number: u32, args: &[u64; 6]) -> Option<i32> {
    let first = consumes(number)
        || matches!(
            i64::from(number),
            libc::SYS_ioctl
                | libc::SYS_fcntl
                | libc::SYS_connect
                | libc::SYS_epoll_wait
                | libc::SYS_epoll_pwait
                | libc::SYS_epoll_pwait2
                | libc::SYS_flock
                | libc::SYS_lseek
                | libc::SYS_fstat
        );
    first.then_some(args[0] as i32)
}

/// `poll`, or `syscall 999` where the name is not known.
pub fn name(number: u32) -> String {
    let name = match i64::from(number) {
        libc::SYS_poll => "poll",
        libc::SYS_ppoll => "ppoll",
        libc::SYS_select => "select",
        libc::SYS_pselect6 => "pselect6",
        libc::SYS_epoll_wait => "epoll_wait",
        libc::SYS_epoll_pwait => "epoll_pwait",
        libc::SYS_epoll_pwait2 => "epoll_pwait2",
        libc::SYS_read => "read",
        libc::SYS_readv => "readv",
        libc::SYS_pread64 => "pread64",
        libc::SYS_write => "write",
        libc::SYS_recvfrom => "recvfrom",
        libc::SYS_recvmsg => "recvmsg",
        libc::SYS_sendto => "sendto",
        libc::SYS_sendmsg => "sendmsg",
        libc::SYS_accept => "accept",
        libc::SYS_accept4 => "accept4",
        libc::SYS_connect => "connect",
        libc::SYS_ioctl => "ioctl",
        libc::SYS_fcntl => "fcntl",
        libc::SYS_futex => "futex",
        libc::SYS_wait4 => "wait4",
        libc::SYS_waitid => "waitid",
        libc::SYS_kill => "kill",
        libc::SYS_open => "open",
        libc::SYS_openat => "openat",
        libc::SYS_access => "access",
        libc::SYS_faccessat => "faccessat",
        libc::SYS_stat => "stat",
        libc::SYS_newfstatat => "newfstatat",
        libc::SYS_fstat => "fstat",
        libc::SYS_flock => "flock",
        libc::SYS_sched_yield => "sched_yield",
        libc::SYS_nanosleep => "nanosleep",
        libc::SYS_clock_nanosleep => "clock_nanosleep",
        libc::SYS_writev => "writev",
        libc::SYS_pwrite64 => "pwrite64",
        libc::SYS_preadv => "preadv",
        libc::SYS_pwritev => "pwritev",
        libc::SYS_recvmmsg => "recvmmsg",
        libc::SYS_sendmmsg => "sendmmsg",
        libc::SYS_socket => "socket",
        libc::SYS_shutdown => "shutdown",
        libc::SYS_close => "close",
        libc::SYS_dup => "dup",
        libc::SYS_fsync => "fsync",
        libc::SYS_lseek => "lseek",
        libc::SYS_ftruncate => "ftruncate",
        libc::SYS_statx => "statx",
        libc::SYS_lstat => "lstat",
        libc::SYS_readlink => "readlink",
        libc::SYS_readlinkat => "readlinkat",
        libc::SYS_unlink => "unlink",
        libc::SYS_unlinkat => "unlinkat",
        libc::SYS_rename => "rename",
        libc::SYS_renameat => "renameat",
        libc::SYS_renameat2 => "renameat2",
        libc::SYS_mkdir => "mkdir",
        libc::SYS_mkdirat => "mkdirat",
        libc::SYS_rmdir => "rmdir",
        libc::SYS_link => "link",
        libc::SYS_linkat => "linkat",
        libc::SYS_symlink => "symlink",
        libc::SYS_symlinkat => "symlinkat",
        libc::SYS_creat => "creat",
        libc::SYS_getdents64 => "getdents64",
        libc::SYS_inotify_add_watch => "inotify_add_watch",
        libc::SYS_semop => "semop",
        libc::SYS_semtimedop => "semtimedop",
        libc::SYS_semctl => "semctl",
        libc::SYS_semget => "semget",
        libc::SYS_msgrcv => "msgrcv",
        libc::SYS_msgsnd => "msgsnd",
        libc::SYS_msgget => "msgget",
        libc::SYS_mq_timedreceive => "mq_timedreceive",
        libc::SYS_mq_timedsend => "mq_timedsend",
        libc::SYS_mq_open => "mq_open",
        libc::SYS_shmget => "shmget",
        libc::SYS_shmat => "shmat",
        libc::SYS_shmctl => "shmctl",
        libc::SYS_io_getevents => "io_getevents",
        libc::SYS_io_uring_enter => "io_uring_enter",
        libc::SYS_io_submit => "io_submit",
        libc::SYS_rt_sigtimedwait => "rt_sigtimedwait",
        libc::SYS_rt_sigpending => "rt_sigpending",
        libc::SYS_signalfd4 => "signalfd4",
        libc::SYS_timerfd_gettime => "timerfd_gettime",
        libc::SYS_timer_gettime => "timer_gettime",
        libc::SYS_pidfd_open => "pidfd_open",
        libc::SYS_pidfd_send_signal => "pidfd_send_signal",
        libc::SYS_tkill => "tkill",
        libc::SYS_tgkill => "tgkill",
        libc::SYS_process_vm_readv => "process_vm_readv",
        libc::SYS_ptrace => "ptrace",
        libc::SYS_getsockopt => "getsockopt",
        libc::SYS_getsockname => "getsockname",
        libc::SYS_getpeername => "getpeername",
        libc::SYS_mincore => "mincore",
        libc::SYS_sched_getaffinity => "sched_getaffinity",
        libc::SYS_getpriority => "getpriority",
        libc::SYS_sysinfo => "sysinfo",
        libc::SYS_getrandom => "getrandom",
        libc::SYS_clock_gettime => "clock_gettime",
        libc::SYS_pause => "pause",
        _ => return format!("syscall {number}"),
    };
    name.into()
}

const IPC_STAT: u64 = libc::IPC_STAT as u64;
/// Requests whose number does not tell how much is written.
const OF_INT: [u64; 4] = [
    libc::FIONREAD,
    libc::TIOCOUTQ,
    libc::TIOCMGET,
    libc::TIOCGPGRP,
];

/// (address, bytes) that the kernel wrote on success, for the calls that threads poll
/// with.
pub fn outputs(number: u32, args: &[u64; 6], result: i64) -> Vec<(u64, u64)> {
    if result < 0 {
        return Vec::new();
    }
    let got = result as u64;
    let sets = |sets: &[u64], descriptors: u64| {
        let bytes = descriptors.min(65536).div_ceil(64) * 8;
        sets.iter()
            .filter(|&&set| set != 0)
            .map(|&set| (set, bytes))
            .collect()
    };
    match i64::from(number) {
        libc::SYS_poll | libc::SYS_ppoll => {
            // Only `revents`, the last two bytes of each entry.
            let count = args[1].min(1024);
            (0..count)
                .map(|i| (args[0].wrapping_add(i * 8 + 6), 2))
                .collect()
        }
        libc::SYS_select | libc::SYS_pselect6 => sets(&args[1..4], args[0]),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
            vec![(args[1], got.min(4096) * 12)]
        }
        libc::SYS_read | libc::SYS_recvfrom | libc::SYS_pread64 => {
            vec![(args[1], got.min(1 << 20))]
        }
        libc::SYS_clock_gettime if args[1] != 0 => vec![(args[1], 16)],
        libc::SYS_ioctl if OF_INT.contains(&args[1]) => vec![(args[2], 4)],
        libc::SYS_ioctl if args[1] >> 30 & 2 != 0 => vec![(args[2], args[1] >> 16 & 0x3fff)],
        libc::SYS_fstat | libc::SYS_stat | libc::SYS_lstat => vec![(args[1], 144)],
        libc::SYS_statx => vec![(args[4], 256)],
        libc::SYS_shmctl if args[1] == IPC_STAT => vec![(args[2], 112)],
        libc::SYS_msgctl if args[1] == IPC_STAT => vec![(args[2], 120)],
        libc::SYS_semctl if args[2] == IPC_STAT => vec![(args[3], 104)],
        libc::SYS_getsockopt => vec![(args[3], 4)],
        libc::SYS_timerfd_gettime | libc::SYS_timer_gettime | libc::SYS_getitimer => {
            vec![(args[1], 32)]
        }
        libc::SYS_sysinfo => vec![(args[0], 112)],
        libc::SYS_sched_getaffinity => vec![(args[2], got.min(1024))],
        libc::SYS_mincore => vec![(args[2], args[1].div_ceil(4096).min(1 << 16))],
        libc::SYS_waitid if args[2] != 0 => vec![(args[2], 128)],
        libc::SYS_newfstatat => vec![(args[2], 144)],
        libc::SYS_wait4 if args[1] != 0 => vec![(args[1], 4)],
        libc::SYS_rt_sigpending => vec![(args[0], args[1].min(128))],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptors_mode_is_no_answer_but_its_lock_is() {
        let fcntl = |command: i32| role(libc::SYS_fcntl as u32, &[3, command as u64, 0, 0, 0, 0]);
        assert_eq!(fcntl(libc::F_GETFL), Role::Neutral);
        assert_eq!(fcntl(libc::F_SETLK), Role::Work);
    }
}
