// SPDX-License-Identifier: MIT
//! What a system call is there for: its name, its part in a loop that waits, and the memory that it
//! fills.

use syscalls::Sysno;

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

/// Does it read a descriptor, as the kernel counts it?
pub fn is_read(number: u32) -> bool {
    matches!(
        i64::from(number),
        libc::SYS_read | libc::SYS_readv | libc::SYS_pread64 | libc::SYS_preadv | libc::SYS_preadv2
    )
}

/// Does it write to a descriptor, as the kernel counts it?
pub fn is_write(number: u32) -> bool {
    matches!(i64::from(number), libc::SYS_write | libc::SYS_writev) || gives_at(number)
}

/// Does it move data, when its result is positive?
pub fn consumes(number: u32) -> bool {
    let takes = matches!(
        i64::from(number),
        libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg
            | libc::SYS_accept
            | libc::SYS_accept4
    );
    is_read(number) || takes || gives(number)
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
    let sends = matches!(
        i64::from(number),
        libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendmmsg
            | libc::SYS_sendfile
            | libc::SYS_splice
            | libc::SYS_copy_file_range
    );
    is_write(number) || sends
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
                | libc::SYS_mq_timedreceive
                | libc::SYS_mq_timedsend
                | libc::SYS_flock
                | libc::SYS_lseek
                | libc::SYS_fstat
        );
    let by_no_path = i64::from(number) == libc::SYS_newfstatat
        && args[3] & libc::AT_EMPTY_PATH as u64 != 0
        && args[0] as i32 != libc::AT_FDCWD;
    (first || by_no_path).then_some(args[0] as i32)
}

/// Does the call ask for a lock on a file, and come back at once if another has it?
pub fn tries_lock(number: u32, args: &[u64; 6]) -> bool {
    match i64::from(number) {
        libc::SYS_flock => args[1] & libc::LOCK_NB as u64 != 0,
        libc::SYS_fcntl => matches!(args[1] as i32, libc::F_SETLK | libc::F_OFD_SETLK),
        _ => false,
    }
}

/// Was the call refused because another has the lock that it asks for? Links, and files that must
/// be new, are made to lock something.
pub fn is_refused_lock(number: u32, args: &[u64; 6], result: i64) -> bool {
    let error = i32::try_from(-result).unwrap_or(0);
    let exists = error == libc::EEXIST;
    let is_new = |flags: u64| flags & libc::O_EXCL as u64 != 0;
    match i64::from(number) {
        libc::SYS_link | libc::SYS_linkat | libc::SYS_symlink | libc::SYS_symlinkat => exists,
        libc::SYS_open => exists && is_new(args[1]),
        libc::SYS_openat => exists && is_new(args[2]),
        _ => tries_lock(number, args) && matches!(error, libc::EAGAIN | libc::EACCES),
    }
}

/// Does it change something, so that its success is no answer to a question?
pub fn is_command(number: u32, args: &[u64; 6]) -> bool {
    match i64::from(number) {
        libc::SYS_kill => args[1] != 0,
        number => matches!(
            number,
            libc::SYS_timerfd_settime
                | libc::SYS_timer_settime
                | libc::SYS_setitimer
                | libc::SYS_rename
                | libc::SYS_renameat
                | libc::SYS_renameat2
                | libc::SYS_link
                | libc::SYS_linkat
                | libc::SYS_symlink
                | libc::SYS_symlinkat
                | libc::SYS_unlink
                | libc::SYS_unlinkat
                | libc::SYS_mkdir
                | libc::SYS_mkdirat
                | libc::SYS_rmdir
                | libc::SYS_mknod
                | libc::SYS_mknodat
                | libc::SYS_chmod
                | libc::SYS_fchmod
                | libc::SYS_fchmodat
                | libc::SYS_chown
                | libc::SYS_fchown
                | libc::SYS_lchown
                | libc::SYS_fchownat
                | libc::SYS_utimensat
                | libc::SYS_truncate
                | libc::SYS_ftruncate
                | libc::SYS_fallocate
                | libc::SYS_fadvise64
                | libc::SYS_fsync
                | libc::SYS_fdatasync
                | libc::SYS_msync
                | libc::SYS_chdir
                | libc::SYS_fchdir
                | libc::SYS_bind
                | libc::SYS_listen
                | libc::SYS_shutdown
                | libc::SYS_fork
                | libc::SYS_vfork
                | libc::SYS_clone
                | libc::SYS_clone3
                | libc::SYS_sched_setaffinity
                | libc::SYS_sched_setscheduler
                | libc::SYS_setpriority
                | libc::SYS_inotify_add_watch
        ),
    }
}

/// Does the call make a descriptor, for which nobody has to do anything?
pub fn makes_descriptor(number: u32) -> bool {
    matches!(
        i64::from(number),
        libc::SYS_socket
            | libc::SYS_socketpair
            | libc::SYS_pipe
            | libc::SYS_pipe2
            | libc::SYS_dup
            | libc::SYS_dup2
            | libc::SYS_dup3
            | libc::SYS_eventfd2
            | libc::SYS_epoll_create1
            | libc::SYS_timerfd_create
            | libc::SYS_inotify_init1
            | libc::SYS_memfd_create
    )
}

/// Address of the path that a call is about; of one that gives a file a name, of that name.
pub fn path(number: u32, args: &[u64; 6]) -> Option<u64> {
    let place = match i64::from(number) {
        libc::SYS_open
        | libc::SYS_creat
        | libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_access
        | libc::SYS_readlink
        | libc::SYS_mkdir
        | libc::SYS_rmdir
        | libc::SYS_mknod
        | libc::SYS_unlink => 0,
        libc::SYS_openat
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_readlinkat
        | libc::SYS_mkdirat
        | libc::SYS_mknodat
        | libc::SYS_unlinkat
        | libc::SYS_link
        | libc::SYS_symlink
        | libc::SYS_rename => 1,
        libc::SYS_symlinkat => 2,
        libc::SYS_linkat | libc::SYS_renameat | libc::SYS_renameat2 => 3,
        _ => return None,
    };
    Some(args[place])
}

/// Does it open a file by its path?
pub fn opens(number: u32) -> bool {
    let number = i64::from(number);
    matches!(number, libc::SYS_open | libc::SYS_openat | libc::SYS_creat)
}

/// `poll`, or `syscall_999` where the number is nobody's.
pub fn name(number: u32) -> String {
    match Sysno::new(number as usize) {
        Some(call) => call.name().into(),
        None => format!("syscall_{number}"),
    }
}

/// The number of the call with this name.
pub fn number(name: &str) -> Option<u32> {
    let call: Sysno = name.parse().ok()?;
    Some(call.id() as u32)
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
        libc::SYS_getrusage => vec![(args[1], 144)],
        libc::SYS_wait4 if args[1] != 0 => vec![(args[1], 4)],
        libc::SYS_rt_sigpending => vec![(args[0], args[1].min(128))],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_its_own_name() {
        assert_eq!(name(libc::SYS_futex as u32), "futex");
        assert_eq!(name(libc::SYS_newfstatat as u32), "newfstatat");
        assert_eq!(name(999), "syscall_999");
        assert_eq!(name(u32::MAX), "syscall_4294967295");
    }

    #[test]
    fn who_gives_a_file_a_name_is_about_that_name() {
        let args = [1, 2, 3, 4, 5, 6];
        let of = |number: i64| path(number as u32, &args);
        assert_eq!(
            (of(libc::SYS_open), of(libc::SYS_openat)),
            (Some(1), Some(2))
        );
        assert_eq!(
            (of(libc::SYS_link), of(libc::SYS_linkat)),
            (Some(2), Some(4))
        );
        assert_eq!(of(libc::SYS_read), None);
    }

    #[test]
    fn a_descriptors_mode_is_no_answer_but_its_lock_is() {
        let fcntl = |command: i32| role(libc::SYS_fcntl as u32, &[3, command as u64, 0, 0, 0, 0]);
        assert_eq!(fcntl(libc::F_GETFL), Role::Neutral);
        assert_eq!(fcntl(libc::F_SETLK), Role::Work);
        let tries = |number: i64, of: u64| tries_lock(number as u32, &[3, of, 0, 0, 0, 0]);
        assert!(tries(libc::SYS_fcntl, libc::F_SETLK as u64));
        assert!(!tries(libc::SYS_fcntl, libc::F_SETLKW as u64));
        let exclusive = libc::LOCK_EX as u64;
        assert!(tries(libc::SYS_flock, exclusive | libc::LOCK_NB as u64));
        assert!(!tries(libc::SYS_flock, exclusive));
    }

    #[test]
    fn a_lock_is_refused_where_another_has_it() {
        let is = |number: i64, flags: i32, error: i32| {
            let args = [3, flags as u64, flags as u64, 0, 0, 0];
            is_refused_lock(number as u32, &args, -i64::from(error))
        };
        let new = libc::O_CREAT | libc::O_EXCL;
        assert!(is(libc::SYS_openat, new, libc::EEXIST));
        assert!(is(libc::SYS_open, new, libc::EEXIST));
        assert!(!is(libc::SYS_openat, libc::O_CREAT, libc::EEXIST));
        assert!(!is(libc::SYS_openat, new, libc::ENOENT));
        assert!(is(libc::SYS_link, 0, libc::EEXIST) && !is(libc::SYS_link, 0, 0));
        assert!(is(
            libc::SYS_flock,
            libc::LOCK_EX | libc::LOCK_NB,
            libc::EAGAIN
        ));
        assert!(
            !is(libc::SYS_mkdir, 0, libc::EEXIST),
            "also made for itself"
        );
    }

    #[test]
    fn a_file_that_is_asked_about_without_a_path_has_a_descriptor() {
        let of = |fd: i32, flags: i32| {
            let args = [fd as u64, 0x1000, 0x2000, flags as u64, 0, 0];
            descriptor(libc::SYS_newfstatat as u32, &args)
        };
        assert_eq!(of(3, libc::AT_EMPTY_PATH), Some(3));
        assert_eq!(of(3, 0), None, "a path below it");
        assert_eq!(of(libc::AT_FDCWD, libc::AT_EMPTY_PATH), None);
    }
}
