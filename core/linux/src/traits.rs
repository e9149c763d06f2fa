// SPDX-License-Identifier: MIT
//! What a system call does, by its number alone: it waits, sends, receives, gives way, works on a
//! descriptor, opens one.
//!
//! Asked for with every event of a recording, so the answer is one look into a table.

use syscalls::Sysno;

const FD: u8 = 1;
const SENDS: u8 = 2;
const WAITS: u8 = 4;
const YIELDS: u8 = 8;
const RECEIVES: u8 = 16;
/// It waits for any of several things, and tells how many are there.
const LOOKS: u8 = 32;
/// It can be given a limit of time by which it ends the wait itself.
const TIMED: u8 = 64;
/// Its result is a new descriptor.
const OPENS: u8 = 128;

/// Only calls that have a trait.
const TABLE: &[(Sysno, u8)] = &[
    (Sysno::read, FD | WAITS | RECEIVES),
    (Sysno::write, FD | SENDS),
    (Sysno::open, OPENS),
    (Sysno::close, FD),
    (Sysno::poll, WAITS | LOOKS | TIMED),
    (Sysno::ioctl, FD),
    (Sysno::pread64, FD),
    (Sysno::pwrite64, FD),
    (Sysno::readv, FD | WAITS | RECEIVES),
    (Sysno::writev, FD | SENDS),
    (Sysno::select, WAITS | LOOKS | TIMED),
    (Sysno::sched_yield, YIELDS),
    (Sysno::dup, FD | OPENS),
    (Sysno::dup2, FD | OPENS),
    (Sysno::pause, WAITS),
    (Sysno::nanosleep, WAITS | TIMED),
    (Sysno::sendfile, FD | SENDS),
    (Sysno::socket, OPENS),
    (Sysno::connect, FD | SENDS | WAITS),
    (Sysno::accept, FD | WAITS | OPENS),
    (Sysno::sendto, FD | SENDS),
    (Sysno::recvfrom, FD | WAITS | RECEIVES),
    (Sysno::sendmsg, FD | SENDS),
    (Sysno::recvmsg, FD | WAITS | RECEIVES),
    (Sysno::shutdown, FD | SENDS),
    (Sysno::vfork, WAITS),
    (Sysno::wait4, WAITS),
    (Sysno::semop, WAITS),
    (Sysno::msgsnd, WAITS),
    (Sysno::msgrcv, WAITS),
    (Sysno::fcntl, FD),
    (Sysno::flock, FD | WAITS),
    (Sysno::fsync, FD | WAITS),
    (Sysno::fdatasync, FD | WAITS),
    (Sysno::creat, OPENS),
    (Sysno::rt_sigtimedwait, WAITS | TIMED),
    (Sysno::rt_sigsuspend, WAITS),
    (Sysno::futex, WAITS | TIMED),
    (Sysno::io_getevents, WAITS | TIMED),
    (Sysno::epoll_create, OPENS),
    (Sysno::semtimedop, WAITS | TIMED),
    (Sysno::clock_nanosleep, WAITS | TIMED),
    (Sysno::epoll_wait, FD | WAITS | LOOKS | TIMED),
    (Sysno::epoll_ctl, FD),
    (Sysno::mq_timedsend, FD | SENDS | WAITS | TIMED),
    (Sysno::mq_timedreceive, FD | WAITS | RECEIVES | TIMED),
    (Sysno::waitid, WAITS),
    (Sysno::inotify_init, OPENS),
    (Sysno::openat, OPENS),
    (Sysno::pselect6, WAITS | LOOKS | TIMED),
    (Sysno::ppoll, WAITS | LOOKS | TIMED),
    (Sysno::splice, FD | SENDS | RECEIVES),
    (Sysno::epoll_pwait, FD | WAITS | LOOKS | TIMED),
    (Sysno::signalfd, FD | OPENS),
    (Sysno::timerfd_create, OPENS),
    (Sysno::eventfd, OPENS),
    (Sysno::timerfd_settime, FD),
    (Sysno::accept4, FD | WAITS | OPENS),
    (Sysno::signalfd4, FD | OPENS),
    (Sysno::eventfd2, OPENS),
    (Sysno::epoll_create1, OPENS),
    (Sysno::dup3, FD | OPENS),
    (Sysno::inotify_init1, OPENS),
    (Sysno::preadv, FD),
    (Sysno::pwritev, FD),
    (Sysno::recvmmsg, FD | WAITS | RECEIVES),
    (Sysno::sendmmsg, FD | SENDS),
    (Sysno::memfd_create, OPENS),
    (Sysno::copy_file_range, FD),
    (Sysno::io_uring_setup, OPENS),
    (Sysno::io_uring_enter, FD | SENDS | WAITS),
    (Sysno::pidfd_open, OPENS),
    (Sysno::openat2, OPENS),
    (Sysno::epoll_pwait2, FD | WAITS | LOOKS | TIMED),
    (Sysno::futex_waitv, WAITS | TIMED),
    (Sysno::futex_wait, WAITS | TIMED),
];

const TRAITS: [u8; 512] = {
    let mut traits = [0; 512];
    let mut index = 0;
    while index < TABLE.len() {
        traits[TABLE[index].0.id() as usize] = TABLE[index].1;
        index += 1;
    }
    traits
};

fn has(number: u32, trait_: u8) -> bool {
    let traits = TRAITS.get(number as usize);
    traits.is_some_and(|traits| traits & trait_ != 0)
}

/// Its first argument is a descriptor.
pub fn has_descriptor(number: u32) -> bool {
    has(number, FD)
}

/// It can pass data or a connection to another thread.
pub fn sends(number: u32) -> bool {
    has(number, SENDS)
}

/// It takes data from its descriptor.
pub fn receives(number: u32) -> bool {
    has(number, RECEIVES)
}

/// It waits for any of several things, and its result is how many of them there are: poll, select,
/// epoll.
pub fn looks(number: u32) -> bool {
    has(number, LOOKS)
}

/// It looks at descriptors that its first argument does not name: poll, select, pselect6, ppoll.
pub fn looks_at_a_set(number: u32) -> bool {
    looks(number) && !has_descriptor(number)
}

/// It may block until something happens.
pub fn waits(number: u32) -> bool {
    has(number, WAITS)
}

/// A wait in it may end by a limit of time, so that it serves to poll.
pub fn is_timed(number: u32) -> bool {
    has(number, TIMED)
}

/// Whether a result of a call that waits for a time, or for something, says that the time is over:
/// a sleep that was slept to its end, a look that found nothing, a futex that timed out.
pub fn timed_out(number: u32, result: i64) -> bool {
    let error = match i64::from(number) {
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep | libc::SYS_io_getevents => 0,
        _ if looks(number) => 0,
        libc::SYS_rt_sigtimedwait | libc::SYS_semtimedop => libc::EAGAIN,
        _ => libc::ETIMEDOUT,
    };
    is_timed(number) && result == -i64::from(error)
}

/// It gives the CPU away and has no other purpose.
pub fn yields(number: u32) -> bool {
    has(number, YIELDS)
}

/// Its result is a new descriptor.
pub fn opens(number: u32) -> bool {
    has(number, OPENS)
}

/// Its result counts messages of any length, not bytes: recvmmsg, sendmmsg.
pub fn counts_messages(number: u32) -> bool {
    matches!(i64::from(number), libc::SYS_recvmmsg | libc::SYS_sendmmsg)
}

/// It fails on whatever is no socket.
pub fn needs_socket(number: u32) -> bool {
    matches!(
        i64::from(number),
        libc::SYS_connect
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_sendto
            | libc::SYS_recvfrom
            | libc::SYS_sendmsg
            | libc::SYS_recvmsg
            | libc::SYS_sendmmsg
            | libc::SYS_recvmmsg
            | libc::SYS_shutdown
    )
}

/// One of its first two arguments is another file from now on: close, dup2, dup3.
pub fn replaces_descriptor(number: u32) -> bool {
    matches!(
        i64::from(number),
        libc::SYS_close | libc::SYS_dup2 | libc::SYS_dup3
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_each_call_once_in_the_order_of_numbers() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0.id() < pair[1].0.id()));
    }

    #[test]
    fn a_result_tells_whether_the_time_was_over() {
        let cases = [
            (libc::SYS_clock_nanosleep, 0, true),
            (libc::SYS_nanosleep, -4, false),
            (libc::SYS_poll, 0, true),
            (libc::SYS_epoll_wait, 2, false),
            (libc::SYS_futex, -110, true),
            (libc::SYS_futex, 0, false),
            (libc::SYS_rt_sigtimedwait, -11, true),
            (libc::SYS_semop, -11, false),
            (libc::SYS_mq_timedreceive, -110, true),
            (libc::SYS_read, 0, false),
        ];
        for (number, result, expected) in cases {
            assert_eq!(timed_out(number as u32, result), expected, "{number}");
        }
    }

    #[test]
    fn polls_look_at_sets_and_epolls_at_a_descriptor() {
        let sets = (0..TRAITS.len() as u32).filter(|&number| looks_at_a_set(number));
        assert_eq!(sets.collect::<Vec<_>>(), [7, 23, 270, 271]);
        let timed = (0..TRAITS.len() as u32).filter(|&number| is_timed(number));
        assert_eq!(
            timed.collect::<Vec<_>>(),
            [7, 23, 35, 128, 202, 208, 220, 230, 232, 242, 243, 270, 271, 281, 441, 449, 455]
        );
    }
}
