// SPDX-License-Identifier: MIT
//! Whom a thread waits for in futex(2), as far as the word and what lies beside it tell.
//!
//! Read are glibc's mutexes, read-write locks and robust mutexes, by the values that they hold
//! while they are waited for.

use std::collections::BTreeMap;

use flagfinder_code::AddressSpace;
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
/// Offset of `__owner` in pthread_mutex_t.
const OWNER: u64 = 8;

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
    } else if value == Some(expected) && known(expected).is_some() {
        // pthread_join waits for the thread's own id to be cleared.
        (THREAD, known(expected))
    } else if expected == CONTENDED && value == Some(CONTENDED) {
        let owner = memory.number(address + OWNER, 4).and_then(known);
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

/// The owner's id, where the word and its neighbours look like one of glibc's locks.
fn held(
    address: u64,
    value: u64,
    expected: u64,
    memory: &dyn AddressSpace,
    threads: &BTreeMap<u32, u32>,
) -> Option<Held> {
    let word = |distance: i64| memory.number(address.checked_add_signed(distance)?, 4);
    // pthread_mutex_t: lock, count, owner, users, kind. Words of other things have the bit as well.
    let kind = || {
        let is_used = word(12).is_some_and(|users| (1..1 << 20).contains(&users));
        word(16).filter(|kind| is_used && kind & !KINDS == 0)
    };
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
