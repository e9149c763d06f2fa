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
    use std::time::Duration;

    use super::*;
    use crate::answer::Halt;
    use crate::descriptors::Descriptors;
    use crate::pages::Pages;
    use crate::replica::Replica;
    use crate::source::{Identity, Region, Source, ThreadState};
    use crate::window::go_round;

    const CODE: u64 = 0x40_0000;
    const LARGE: u64 = 0x10_0000_0000;

    /// Code, and memory without an end in which each page begins with its address.
    struct Endless {
        regions: Vec<Region>,
        code: &'static [u8],
    }

    impl Source for Endless {
        fn regions(&self) -> &[Region] {
            &self.regions
        }

        fn read_page(&self, address: u64, page: &mut [u8; PAGE as usize]) -> bool {
            page.fill(0);
            match address {
                CODE => page[..self.code.len()].copy_from_slice(self.code),
                _ => page[..8].copy_from_slice(&address.to_le_bytes()),
            }
            true
        }

        fn descriptors(&self) -> Option<&Descriptors> {
            None
        }
    }

    fn region(start: u64, bytes: u64, protection: i32) -> Region {
        Region {
            start,
            end: start + bytes,
            protection,
            fresh: false,
            anonymous: false,
        }
    }

    /// Why the copy of a thread went no further that executes this with `rbx` = [`LARGE`].
    fn halt(code: &'static [u8], in_software: bool) -> Option<Halt> {
        let source = Endless {
            regions: vec![
                region(CODE, PAGE, libc::PROT_READ | libc::PROT_EXEC),
                region(LARGE, 1 << 45, libc::PROT_READ | libc::PROT_WRITE),
            ],
            code,
        };
        // SAFETY: plain data.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        (registers.rip, registers.rbx, registers.rsp) = (CODE, LARGE, LARGE + PAGE / 2);
        (registers.cs, registers.ss, registers.eflags) = (0x33, 0x2b, 0x202);
        let state = ThreadState {
            registers,
            extended: Vec::new(),
            stack: Vec::new(),
            recalled: Default::default(),
            identity: Identity::default(),
        };
        let pages = Pages::new(&source);
        let mut copy = Replica::start(&pages, &state).expect("a copy");
        if !in_software {
            copy.without_software();
        }
        let round = go_round(&mut copy, u32::MAX, Duration::from_secs(600), |_| false);
        round.expect("it goes on").halt
    }

    #[test]
    fn a_copy_that_walks_through_memory_without_an_end_halts_for_good() {
        // mov rax,[rbx]; add rbx,0x1000; jmp back
        let reads = b"\x48\x8b\x03\x48\x81\xc3\x00\x10\x00\x00\xeb\xf4";
        // mov [rbx],rax; add rbx,0x1000; jmp back
        let writes = b"\x48\x89\x03\x48\x81\xc3\x00\x10\x00\x00\xeb\xf4";
        for code in [reads, writes] {
            assert_eq!(halt(code, true), Some(Halt::TooLarge));
        }
        assert_eq!(halt(reads, false), Some(Halt::TooLarge));
    }
}
