// SPDX-License-Identifier: MIT
//! What a system call makes of being traced: of a stop in it, of a borrowed signal mask or
//! affinity.

/// The kernel runs the call again by itself, once the thread goes on: these results never reach the
/// program.
pub fn is_restart(result: i64) -> bool {
    (-516..=-512).contains(&result)
}

/// It answers EINTR to any stop, though the thread has no signal. See "Interruption of system calls
/// and library functions by stop signals" in signal(7). Of calls that move data, sockets with a
/// limit of time (SO_RCVTIMEO, SO_SNDTIMEO) do so, of those that take a path, servers of files, and
/// of those that wait with a limit of time, all where the kernel can't note what is left of it.
/// When a call answers EINTR it has done nothing yet, so that it can be made again; `connect` then
/// goes on with what it began.
pub fn answers_eintr(number: u32) -> bool {
    crate::syscalls::path(number, &[0; 6]).is_some()
        || matches!(
            i64::from(number),
            libc::SYS_ppoll
                | libc::SYS_pselect6
                | libc::SYS_select
                | libc::SYS_connect
                | libc::SYS_epoll_wait
                | libc::SYS_epoll_pwait
                | libc::SYS_epoll_pwait2
                | libc::SYS_semop
                | libc::SYS_semtimedop
                | libc::SYS_msgrcv
                | libc::SYS_msgsnd
                | libc::SYS_rt_sigtimedwait
                | libc::SYS_io_getevents
                | libc::SYS_io_uring_enter
                | libc::SYS_accept
                | libc::SYS_accept4
                | libc::SYS_read
                | libc::SYS_readv
                | libc::SYS_recvfrom
                | libc::SYS_recvmsg
                | libc::SYS_recvmmsg
                | libc::SYS_write
                | libc::SYS_writev
                | libc::SYS_sendto
                | libc::SYS_sendmsg
                | libc::SYS_sendmmsg
        )
}

/// Not in libc for this system.
pub const SYS_IO_PGETEVENTS: i64 = 333;

/// It reads, changes or passes on the signal mask, or sends a signal to the caller: the thread
/// needs its own mask for it.
pub fn needs_own_mask(number: u32) -> bool {
    matches!(
        i64::from(number),
        libc::SYS_rt_sigprocmask
            | libc::SYS_rt_sigreturn
            | libc::SYS_rt_sigsuspend
            | libc::SYS_rt_sigtimedwait
            | libc::SYS_rt_sigpending
            | libc::SYS_pselect6
            | libc::SYS_ppoll
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
            | libc::SYS_io_uring_enter
            | SYS_IO_PGETEVENTS
            | libc::SYS_pause
            | libc::SYS_kill
            | libc::SYS_tkill
            | libc::SYS_tgkill
            | libc::SYS_rt_sigqueueinfo
            | libc::SYS_rt_tgsigqueueinfo
            | libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_fork
            | libc::SYS_vfork
            | libc::SYS_execve
            | libc::SYS_execveat
            | libc::SYS_exit
            | libc::SYS_exit_group
    )
}

/// It shows the affinity, changes it, or passes it on to a new thread or process.
pub fn needs_own_affinity(number: u32) -> bool {
    matches!(
        i64::from(number),
        libc::SYS_sched_setaffinity | libc::SYS_sched_getaffinity
    ) || crate::life::creates(number)
}
