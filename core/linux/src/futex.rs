// SPDX-License-Identifier: MIT
//! The operations of futex(2).

/// What a futex call is asked to do: its second argument without the flags.
pub fn command(args: &[u64; 6]) -> i32 {
    args[1] as i32 & libc::FUTEX_CMD_MASK
}

/// Is it futex(2) itself, whose first argument is the address of the word?
pub fn is_futex(number: u32) -> bool {
    i64::from(number) == libc::SYS_futex
}

/// It waits for the word to change: FUTEX_WAIT, FUTEX_WAIT_BITSET.
pub fn waits_for_word(command: i32) -> bool {
    matches!(command, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET)
}

/// It waits for a lock that the kernel hands over, whose word holds the owner's thread id.
pub fn takes_lock(command: i32) -> bool {
    matches!(
        command,
        libc::FUTEX_LOCK_PI | libc::FUTEX_WAIT_REQUEUE_PI | libc::FUTEX_LOCK_PI2
    )
}

/// Its limit of time is a point in time, not a span: all but FUTEX_WAIT.
pub fn has_deadline(command: i32) -> bool {
    command != libc::FUTEX_WAIT
}

/// Only threads of its own process wake it, and not the kernel, which wakes whoever waits for the
/// end of a thread.
pub fn is_private(args: &[u64; 6]) -> bool {
    args[1] as i32 & libc::FUTEX_PRIVATE_FLAG != 0
}

/// The value of the word at which the call goes to sleep.
pub fn expected(args: &[u64; 6]) -> u64 {
    args[2] & 0xffff_ffff
}
