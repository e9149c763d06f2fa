// SPDX-License-Identifier: MIT
//! Whether the process still has what a copy read of it.
//!
//! In: what a copy did. Out: a word that others have changed since. Blind spot: a word that has its
//! old value again whenever it is looked at.

use flagfinder_machine::Window;
use flagfinder_replica::{Live, Source, PAGE};
use rustc_hash::{FxHashMap, FxHashSet};

/// What the copy read and did not write itself, by page.
pub struct Words {
    pages: FxHashMap<u64, Vec<Read>>,
}

#[derive(Clone, Copy)]
struct Read {
    offset: usize,
    bytes: usize,
    value: u64,
}

/// Words are told apart by blocks of so many bytes.
const BLOCK: u64 = 8;

impl Words {
    pub fn of(window: &Window, live: &Live) -> Words {
        let blocks = |address: u64, bytes: u64| {
            let last = address.saturating_add(bytes.saturating_sub(1));
            (address / BLOCK)..=(last / BLOCK)
        };
        let mut written: FxHashSet<u64> = FxHashSet::default();
        let calls = window.syscalls.iter().flat_map(|call| &call.written);
        for (address, bytes) in calls {
            written.extend(blocks(*address, (*bytes).min(PAGE)));
        }
        let accesses = || (0..window.len()).flat_map(|step| window.accesses(step));
        for access in accesses().filter(|access| access.write) {
            let Some(address) = access.address else {
                continue;
            };
            written.extend(blocks(address, access.bytes.into()));
        }
        let mut seen: FxHashSet<(u64, u32)> = FxHashSet::default();
        let mut pages: FxHashMap<u64, Vec<Read>> = FxHashMap::default();
        for access in accesses().filter(|access| !access.write) {
            let bytes = access.bytes.min(BLOCK as u32);
            let (Some(address), Some(value)) = (access.address, access.value.get(bytes * 8)) else {
                continue;
            };
            let offset = address % PAGE;
            let is_own = blocks(address, bytes.into()).any(|block| written.contains(&block));
            let is_whole = offset + u64::from(bytes) <= PAGE;
            if is_own || !is_whole || live.is_vdso(address) || !seen.insert((address, bytes)) {
                continue;
            }
            pages.entry(address - offset).or_default().push(Read {
                offset: offset as usize,
                bytes: bytes as usize,
                value,
            });
        }
        Words { pages }
    }

    /// A word that differs in the process by now.
    pub fn changed(&self, live: &Live) -> Option<u64> {
        let mut page = [0; PAGE as usize];
        let differs = |word: &Read, page: &[u8; PAGE as usize]| {
            let mut now = [0; BLOCK as usize];
            now[..word.bytes].copy_from_slice(&page[word.offset..word.offset + word.bytes]);
            u64::from_le_bytes(now) != word.value
        };
        self.pages.iter().find_map(|(address, words)| {
            // Memory that can't be read from outside (the clock's page) holds no word of the
            // program.
            let is_read = live.read_page(*address, &mut page);
            let word = words.iter().find(|word| is_read && differs(word, &page))?;
            Some(address + word.offset as u64)
        })
    }
}
