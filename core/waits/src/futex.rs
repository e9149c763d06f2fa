// SPDX-License-Identifier: MIT
//! Whom a thread waits for in futex(2), as far as the word and what lies beside it tell.

use std::collections::BTreeMap;

use flagfinder_code::AddressSpace;
use flagfinder_linux::futex;

use crate::proc::Call;

/// A futex wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Of the word.
    pub address: u64,
    /// `mutex`, `lock`, `thread`, `priority-inheriting mutex`, or `word` when it says no more.
    pub kind: &'static str,
    /// What it holds.
    pub value: Option<u64>,
    /// What it held when the wait began (the kernel compares).
    pub expected: u64,
    /// Thread that holds the lock, or that is waited for.
    pub owner: Option<u32>,
}

/// Kind of a word that is cleared when a thread ends.
pub const THREAD: &str = "thread";

/// Of the word of a priority-inheriting lock: its owner's id.
const TID_MASK: u64 = 0x3fff_ffff;
/// glibc: locked, with waiters.
const CONTENDED: u64 = 2;
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
        // Another process may own it; its id is one of ours where the namespace is.
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
    Some(Word {
        address,
        kind,
        value,
        expected,
        owner,
    })
}
