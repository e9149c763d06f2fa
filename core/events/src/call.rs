//! System calls of x86-64, as far as waiting and communicating go: their names, and which take a descriptor first.

use crate::protocol::{CALL_SHIFT, SHORT_SHIFT};

const ARGUMENT: u64 = (1 << CALL_SHIFT) - 1;

/// A call and its first argument (its lower 48 bits, which hold any user address).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    pub number: u16,
    pub first: u64,
}

impl Call {
    pub fn unpack(word: u64) -> Option<Call> {
        let number = ((word >> CALL_SHIFT) as u16).checked_sub(1)?;
        Some(Call {
            number,
            first: word & ARGUMENT,
        })
    }

    pub fn pack(self) -> u64 {
        (u64::from(self.number) + 1) << CALL_SHIFT | self.first & ARGUMENT
    }

    pub fn name(self) -> String {
        name(self.number)
    }

    /// The descriptor that the call works on, when its first argument is one.
    pub fn descriptor(self) -> Option<i32> {
        (has(self.number, FD) && self.first < 1 << 20).then_some(self.first as i32)
    }
}

/// The word of a call, and its argument or result, from the two fields of a short record.
pub(crate) fn lengthen(flags: u8, b: u32) -> u64 {
    let number = u64::from(flags) | u64::from(b >> SHORT_SHIFT) << 8;
    let signed = ((b << (32 - SHORT_SHIFT)) as i32) >> (32 - SHORT_SHIFT);
    (number + 1) << CALL_SHIFT | signed as u64 & ARGUMENT
}

/// A call and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEnd {
    pub number: u16,
    /// The lower 48 bits, sign-extended: descriptors, sizes, -errno and addresses come out whole.
    pub result: i64,
}

impl CallEnd {
    pub fn unpack(word: u64) -> Option<CallEnd> {
        let number = ((word >> CALL_SHIFT) as u16).checked_sub(1)?;
        let result = ((word << (64 - CALL_SHIFT)) as i64) >> (64 - CALL_SHIFT);
        Some(CallEnd { number, result })
    }
}

const FD: u8 = 1;
const SENDS: u8 = 2;
const WAITS: u8 = 4;
const YIELDS: u8 = 8;
const RECEIVES: u8 = 16;
/// It waits for any of several things, and tells how many are there.
const LOOKS: u8 = 32;

/// By number (arch/x86/entry/syscalls/syscall_64.tbl).
const TABLE: &[(u16, &str, u8)] = &[
    (0, "read", FD | WAITS | RECEIVES),
    (1, "write", FD | SENDS),
    (3, "close", FD),
    (7, "poll", WAITS | LOOKS),
    (9, "mmap", 0),
    (10, "mprotect", 0),
    (11, "munmap", 0),
    (12, "brk", 0),
    (13, "rt_sigaction", 0),
    (14, "rt_sigprocmask", 0),
    (16, "ioctl", FD),
    (17, "pread64", FD),
    (18, "pwrite64", FD),
    (19, "readv", FD | WAITS | RECEIVES),
    (20, "writev", FD | SENDS),
    (22, "pipe", 0),
    (23, "select", WAITS | LOOKS),
    (24, "sched_yield", YIELDS),
    (32, "dup", FD),
    (33, "dup2", FD),
    (34, "pause", WAITS),
    (35, "nanosleep", WAITS),
    (38, "setitimer", 0),
    (40, "sendfile", FD | SENDS),
    (41, "socket", 0),
    (42, "connect", FD | SENDS | WAITS),
    (43, "accept", FD | WAITS),
    (44, "sendto", FD | SENDS),
    (45, "recvfrom", FD | WAITS | RECEIVES),
    (46, "sendmsg", FD | SENDS),
    (47, "recvmsg", FD | WAITS | RECEIVES),
    (48, "shutdown", FD | SENDS),
    (53, "socketpair", 0),
    (56, "clone", 0),
    (57, "fork", 0),
    (58, "vfork", WAITS),
    (59, "execve", 0),
    (60, "exit", 0),
    (61, "wait4", WAITS),
    (62, "kill", 0),
    (72, "fcntl", FD),
    (73, "flock", FD | WAITS),
    (74, "fsync", FD | WAITS),
    (75, "fdatasync", FD | WAITS),
    (128, "rt_sigtimedwait", WAITS),
    (130, "rt_sigsuspend", WAITS),
    (200, "tkill", 0),
    (202, "futex", WAITS),
    (222, "timer_create", 0),
    (223, "timer_settime", 0),
    (228, "clock_gettime", 0),
    (230, "clock_nanosleep", WAITS),
    (231, "exit_group", 0),
    (232, "epoll_wait", FD | WAITS | LOOKS),
    (233, "epoll_ctl", FD),
    (234, "tgkill", 0),
    (247, "waitid", WAITS),
    (257, "openat", 0),
    (270, "pselect6", WAITS | LOOKS),
    (271, "ppoll", WAITS | LOOKS),
    (275, "splice", FD | SENDS | RECEIVES),
    (281, "epoll_pwait", FD | WAITS | LOOKS),
    (282, "signalfd", FD),
    (283, "timerfd_create", 0),
    (284, "eventfd", 0),
    (286, "timerfd_settime", FD),
    (288, "accept4", FD | WAITS),
    (289, "signalfd4", FD),
    (290, "eventfd2", 0),
    (292, "dup3", FD),
    (293, "pipe2", 0),
    (295, "preadv", FD),
    (296, "pwritev", FD),
    (299, "recvmmsg", FD | WAITS | RECEIVES),
    (307, "sendmmsg", FD | SENDS),
    (326, "copy_file_range", FD),
    (426, "io_uring_enter", FD | SENDS | WAITS),
    (435, "clone3", 0),
    (441, "epoll_pwait2", FD | WAITS | LOOKS),
    (449, "futex_waitv", WAITS),
    (454, "futex_wake", 0),
    (455, "futex_wait", WAITS),
];

/// Traits by number: they are asked for with every event.
const TRAITS: [u8; 512] = {
    let mut traits = [0; 512];
    let mut index = 0;
    while index < TABLE.len() {
        traits[TABLE[index].0 as usize] = TABLE[index].2;
        index += 1;
    }
    traits
};

fn has(number: u16, trait_: u8) -> bool {
    let traits = TRAITS.get(usize::from(number));
    traits.is_some_and(|traits| traits & trait_ != 0)
}

/// `syscall_17` for one that is not in the table.
pub fn name(number: u16) -> String {
    match TABLE.binary_search_by_key(&number, |entry| entry.0) {
        Ok(index) => TABLE[index].1.into(),
        Err(_) => format!("syscall_{number}"),
    }
}

impl Call {
    /// It can pass data or a connection to another thread.
    pub fn sends(number: u16) -> bool {
        has(number, SENDS)
    }

    /// It takes data from its descriptor.
    pub fn receives(number: u16) -> bool {
        has(number, RECEIVES)
    }

    /// It waits for any of several things, and its result is how many of them there are: poll, select, epoll.
    pub fn looks(number: u16) -> bool {
        has(number, LOOKS)
    }

    /// It may block until something happens.
    pub fn waits(number: u16) -> bool {
        has(number, WAITS)
    }

    /// It gives the CPU away and has no other purpose.
    pub fn yields(number: u16) -> bool {
        has(number, YIELDS)
    }

    pub fn name_of(number: u16) -> String {
        name(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_searched() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn calls_and_results_survive_packing() {
        let call = Call {
            number: 0,
            first: 0x7fff_ffff_f000,
        };
        assert_eq!(Call::unpack(call.pack()), Some(call));
        assert_eq!(Call::unpack(0), None);
        let failed = CallEnd::unpack(203 << CALL_SHIFT | (-110i64 as u64 & ARGUMENT));
        assert_eq!(
            failed,
            Some(CallEnd {
                number: 202,
                result: -110
            })
        );
    }
}
