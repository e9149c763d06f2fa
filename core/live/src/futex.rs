//! Whom a thread waits for in futex(2), as far as the word and what lies beside it tell.

use flagfinder_code::{DataKind, Names};
use serde::Serialize;

use crate::memory::Memory;
use crate::proc::Call;

/// A futex wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Futex {
    pub address: String,
    /// Name of the word.
    pub name: String,
    /// `mutex`, `thread`, `priority-inheriting mutex`, or `word` when it says no more.
    pub kind: &'static str,
    pub value: Option<u64>,
    /// What it held when the wait began (the kernel compares).
    pub expected: u64,
    /// Thread that holds the lock, or that is waited for.
    pub owner: Option<u32>,
}

const COMMAND: u64 = 0x7f;
const LOCK_PI: u64 = 6;
const WAIT_REQUEUE_PI: u64 = 11;
const LOCK_PI2: u64 = 13;
const TID_MASK: u64 = 0x3fff_ffff;
/// glibc: locked, with waiters.
const CONTENDED: u64 = 2;
/// Offset of `__owner` in pthread_mutex_t.
const OWNER: u64 = 8;

pub fn describe(call: &Call, memory: &Memory, names: &Names, threads: &[u32]) -> Option<Futex> {
    if i64::from(call.number) != libc::SYS_futex {
        return None;
    }
    let address = call.args[0];
    let expected = call.args[2] & 0xffff_ffff;
    let value = memory.number(address, 4);
    let known = |tid: u64| {
        let tid = u32::try_from(tid).ok()?;
        threads.contains(&tid).then_some(tid)
    };
    let command = call.args[1] & COMMAND;
    let (kind, owner) = if matches!(command, LOCK_PI | WAIT_REQUEUE_PI | LOCK_PI2) {
        let owner = value.map(|word| (word & TID_MASK) as u32);
        ("priority-inheriting mutex", owner)
    } else if value == Some(expected) && known(expected).is_some() {
        // pthread_join waits for the thread's own id to be cleared.
        ("thread", known(expected))
    } else if expected == CONTENDED && value == Some(CONTENDED) {
        let owner = memory.number(address + OWNER, 4).and_then(known);
        (if owner.is_some() { "mutex" } else { "lock" }, owner)
    } else {
        ("word", None)
    };
    let data = names.data(address);
    let name = match data.kind {
        DataKind::Unknown => format!("{address:#x}"),
        _ => data.name,
    };
    Some(Futex {
        address: format!("{address:#x}"),
        name,
        kind,
        value,
        expected,
        owner,
    })
}
