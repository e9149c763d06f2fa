// SPDX-License-Identifier: MIT
//! How many pages all copies have together. A thread that walks through a large mapping touches one
//! after the other, and what lies there is its program's to say.
//!
//! The number is shared with forks that are made once the first copies are counted, as helpers
//! are: copies that are looked at at the same time have one limit.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use crate::source::PAGE;

/// A page of a copy is here up to three times: as it was read, in the copy's process, and as the
/// copy changed it. A page table may come to each.
const MOST_PAGES: u64 = 1 << 16;
/// The same in MiB, as people are told.
pub const MOST_TOUCHED_MIB: u64 = (MOST_PAGES * PAGE) >> 20;

/// Memory that forks share.
fn all() -> &'static AtomicU64 {
    static ALL: OnceLock<&AtomicU64> = OnceLock::new();
    static ALONE: AtomicU64 = AtomicU64::new(0);
    ALL.get_or_init(|| {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, which is never taken away. It is zero, and aligned.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), PAGE as usize, rights, flags, -1, 0);
            match at == libc::MAP_FAILED {
                true => &ALONE,
                false => &*at.cast::<AtomicU64>(),
            }
        }
    })
}

/// Helpers that are begun from now on have one limit together. Those of before are over: pages of
/// one that was killed count no more.
pub fn count_pages_anew() {
    all().store(0, Ordering::Relaxed);
}

/// Do all copies have more pages than they may?
pub(crate) fn is_too_much() -> bool {
    all().load(Ordering::Relaxed) > MOST_PAGES
}

/// How many pages one copy has, or one source has read.
#[derive(Default)]
pub(crate) struct Counted(Cell<u64>);

impl Counted {
    pub fn set(&self, now: usize) {
        let before = self.0.replace(now as u64);
        let now = self.0.get();
        if now > before {
            all().fetch_add(now - before, Ordering::Relaxed);
        } else if now < before {
            // It may have been counted anew meanwhile.
            let less = |all: u64| Some(all.saturating_sub(before - now));
            let _ = all().fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use crate::answer::Halt;
    use crate::made_up::halt;

    #[test]
    fn a_copy_that_walks_through_memory_without_an_end_halts_for_good() {
        // mov rax,[rbx]; add rbx,0x1000; jmp back
        let reads = b"\x48\x8b\x03\x48\x81\xc3\x00\x10\x00\x00\xeb\xf4";
        // mov [rbx],rax; add rbx,0x1000; jmp back
        let writes = b"\x48\x89\x03\x48\x81\xc3\x00\x10\x00\x00\xeb\xf4";
        for code in [reads, writes] {
            assert_eq!(halt(code, true, u32::MAX), Some(Halt::TooLarge));
        }
        assert_eq!(halt(reads, false, u32::MAX), Some(Halt::TooLarge));
    }
}
