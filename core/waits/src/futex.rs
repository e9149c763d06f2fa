// SPDX-License-Identifier: MIT
//! Whom a thread waits for in futex(2), as far as the word and what lies beside it tell.
//!
//! Read are glibc's mutexes, read-write locks and robust mutexes, by the values that they hold
//! while they are waited for.

use std::collections::BTreeMap;

use flagfinder_code::{AddressSpace, GLIBC_ID};
use flagfinder_linux::futex;

use crate::proc::Call;

/// The word that a thread waits at in futex(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Run-time address.
    pub address: u64,
    /// `mutex`, `lock`, `thread`, `priority-inheriting mutex`, or `word` when it says no more.
    pub kind: &'static str,
    /// Its 4 bytes now; `None`: they cannot be read.
    pub value: Option<u64>,
    /// What it held when the wait began (the kernel compares).
    pub expected: u64,
    /// Thread that holds the lock, or that is waited for.
    pub owner: Option<u32>,
    /// Where that is not known: the owner's id that the lock holds.
    pub held: Option<Held>,
}

/// What a lock of glibc says of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The id as the process itself sees it.
    pub id: u32,
    /// Its word holds the id, as that of a robust or priority-inheriting lock.
    pub is_robust: bool,
}

/// A word that is cleared when a thread ends.
pub const THREAD: &str = "thread";

/// Of the word of a priority-inheriting or robust lock: its owner's id, and what else it says.
const TID_MASK: u64 = 0x3fff_ffff;
const OWNER_DIED: u64 = 0x4000_0000;
const WAITERS: u64 = 0x8000_0000;
/// glibc: locked, with waiters.
const CONTENDED: u64 = 2;
/// Linux gives a thread no larger id (PID_MAX_LIMIT).
const LARGEST_ID: u64 = 1 << 22;
/// Bits of a mutex's kind; those of robust and priority-inheriting ones, whose word holds an id.
const KINDS: u64 = 0x3ff;
const HOLD_IDS: u64 = 0x30;
/// Ids below are given once in each pid namespace, to its first threads (RESERVED_PIDS). In a
/// container these are the program's, and many words hold such numbers.
const COMMON: u64 = 300;
/// Offsets in pthread_mutex_t.
const OWNER: u64 = 8;
const USERS: u64 = 12;
const KIND: u64 = 16;

/// `threads`: by the id that the process itself sees, which is what stands in its memory. `None`:
/// the call is no futex.
pub fn word(call: &Call, memory: &dyn AddressSpace, threads: &BTreeMap<u32, u32>) -> Option<Word> {
    if !futex::is_futex(call.number) {
        return None;
    }
    let address = call.args[0];
    let expected = futex::expected(&call.args);
    let value = memory.number(address, 4);
    let known = |tid: u64| threads.get(&u32::try_from(tid).ok()?).copied();
    let (kind, owner) = if futex::takes_lock(futex::command(&call.args)) {
        // Another process may own it; its id is ours if the namespace is.
        let ours = threads.iter().all(|(own, tid)| own == tid);
        let owner = value.map(|word| word & TID_MASK);
        let owner = owner.and_then(|id| known(id).or(ours.then_some(id as u32)));
        ("priority-inheriting mutex", owner)
    } else if value == Some(expected)
        && known(expected).is_some()
        && !futex::is_private(&call.args)
        && (expected >= COMMON || is_id_of_thread(address, memory))
    {
        // pthread_join waits for the thread's own id to be cleared.
        (THREAD, known(expected))
    } else if expected == CONTENDED && value == Some(CONTENDED) {
        let owner = memory.number(address.wrapping_add(OWNER), 4);
        let owner = owner.filter(|id| *id >= COMMON || kind(address, memory).is_some());
        let owner = owner.and_then(known);
        (if owner.is_some() { "mutex" } else { "lock" }, owner)
    } else {
        ("word", None)
    };
    let held = || held(address, value?, expected, memory, threads);
    Some(Word {
        address,
        kind,
        value,
        expected,
        owner,
        held: owner.map_or_else(held, |_| None),
    })
}

/// Is it the word of a thread of glibc's that has its id? In front of it stand two pointers to
/// where it begins.
fn is_id_of_thread(address: u64, memory: &dyn AddressSpace) -> bool {
    let thread = address.wrapping_sub(GLIBC_ID as u64);
    [0, 0x10]
        .into_iter()
        .all(|at| memory.number(thread.wrapping_add(at), 8) == Some(thread))
}

/// Of what looks like pthread_mutex_t: lock, count, owner, users, kind.
fn kind(address: u64, memory: &dyn AddressSpace) -> Option<u64> {
    let word = |distance| memory.number(address.checked_add(distance)?, 4);
    let is_used = (1..1 << 20).contains(&word(USERS)?);
    word(KIND).filter(|kind| is_used && kind & !KINDS == 0)
}

/// The owner's id, where the word and its neighbours look like one of glibc's locks.
fn held(
    address: u64,
    value: u64,
    expected: u64,
    memory: &dyn AddressSpace,
    threads: &BTreeMap<u32, u32>,
) -> Option<Held> {
    let word = |distance: i64| memory.number(address.checked_add_signed(distance)?, 4);
    // Words of other things have the bit as well.
    let kind = || kind(address, memory);
    if value & WAITERS != 0 && value & OWNER_DIED == 0 && value == expected {
        let id = value & TID_MASK;
        let is_robust = (1..=LARGEST_ID).contains(&id) && kind()? & HOLD_IDS != 0;
        return is_robust.then_some(Held {
            id: id as u32,
            is_robust,
        });
    }
    let plain = |id: u32| Held {
        id,
        is_robust: false,
    };
    if value == CONTENDED && expected == CONTENDED {
        let may_be = |id: &u64| kind().is_some() && (1..=LARGEST_ID).contains(id);
        if let Some(id) = word(8).filter(may_be) {
            return Some(plain(id as u32));
        }
    }
    // pthread_rwlock_t: readers, writers, the phase's futex, the writers' futex, 2 words, writer.
    const WRITE_LOCKED: u64 = 2;
    [(-8, 16), (-12, 12)]
        .into_iter()
        .find_map(|(lock, writer)| {
            let is_written = word(lock)? & WRITE_LOCKED != 0;
            let shared = word(writer + 4)? <= 1;
            let id = u32::try_from(word(writer)?).ok()?;
            (is_written && shared && threads.contains_key(&id)).then(|| plain(id))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of 4 bytes, and nothing else.
    struct Numbers(BTreeMap<u64, u32>);

    impl AddressSpace for Numbers {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let mut read = 0;
            for (at, part) in (address..).step_by(4).zip(buffer.chunks_exact_mut(4)) {
                let Some(number) = self.0.get(&at) else {
                    break;
                };
                part.copy_from_slice(&number.to_le_bytes());
                read += 4;
            }
            read
        }
    }

    const AT: u64 = 0x10000;

    /// What is said of a wait for `expected` at AT, by a process of the threads 1, 2 and 4711.
    fn said(expected: u64, operation: i32, more: &[(u64, u32)]) -> (&'static str, Option<u32>) {
        let call = Call {
            number: libc::SYS_futex as u32,
            args: [AT, operation as u64, expected, 0, 0, 0],
            sp: 0,
            pc: 0,
        };
        let threads = [1, 2, 4711].map(|id| (id, id + 5000)).into();
        let held = [(AT, expected as u32)];
        let numbers = held.iter().chain(more).copied().collect();
        let word = word(&call, &Numbers(numbers), &threads).unwrap();
        (word.kind, word.owner)
    }

    #[test]
    fn small_ids_need_more_evidence_than_the_number() {
        const PRIVATE: i32 = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        let ended = (THREAD, Some(9711));
        assert_eq!(said(4711, libc::FUTEX_WAIT, &[]), ended);
        assert_eq!(said(4711, PRIVATE, &[]), ("word", None));
        // As a semaphore or a lock of Rust's may hold.
        assert_eq!(said(1, libc::FUTEX_WAIT, &[]), ("word", None));
        assert_eq!(said(2, libc::FUTEX_WAIT, &[(AT + 8, 1)]), ("lock", None));
        let mutex = [(AT + 8, 1), (AT + 12, 1), (AT + 16, 0)];
        assert_eq!(said(2, PRIVATE, &mutex), ("mutex", Some(5001)));
        let thread = AT - GLIBC_ID as u64;
        let own = [thread as u32, 0];
        let pointers = [0, 4, 0x10, 0x14].map(|at| (thread + at, own[at as usize / 4 % 2]));
        let ended = (THREAD, Some(5001));
        assert_eq!(said(1, libc::FUTEX_WAIT, &pointers), ended);
    }
}
