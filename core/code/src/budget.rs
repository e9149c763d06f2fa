// SPDX-License-Identifier: MIT
//! How much debug information is in memory at a time, of all files together. Packed, it takes a
//! fraction of that, and a process may name any number of files that have some.
//!
//! In: bytes that somebody is about to read. Out: his share, which he gives back by dropping it.
//! Whoever keeps what nobody needs now is asked to forget it where there is no room.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// What is made of it takes as much again.
const MOST: u64 = 384 << 20;

static TAKEN: AtomicU64 = AtomicU64::new(0);
static FORGET: OnceLock<fn()> = OnceLock::new();

/// So many bytes are somebody's until this is dropped.
#[derive(Debug)]
pub(crate) struct Share(u64);

/// `forget` is called where there is no room.
pub(crate) fn ask_for_room(forget: fn()) {
    FORGET.get_or_init(|| forget);
}

/// `None`: no more is to be read.
pub(crate) fn share(bytes: u64) -> Option<Share> {
    taken(bytes).or_else(|| {
        FORGET.get()?();
        taken(bytes)
    })
}

fn taken(bytes: u64) -> Option<Share> {
    let more = |taken: u64| taken.checked_add(bytes).filter(|all| *all <= MOST);
    let order = Ordering::Relaxed;
    TAKEN.fetch_update(order, order, more).ok()?;
    Some(Share(bytes))
}

impl Drop for Share {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_take_is_bounded_and_comes_back() {
        assert!(share(MOST + 1).is_none() && share(u64::MAX).is_none());
        let half = share(MOST / 2 + 1).expect("there is room");
        assert!(share(MOST / 2 + 1).is_none());
        drop(half);
        assert!(share(MOST / 2 + 1).is_some());
    }
}
