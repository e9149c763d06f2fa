// SPDX-License-Identifier: MIT
//! Whether the process still has what a copy read of it.
//!
//! In: what a copy did. Out: a word that others have changed since. Blind spot: a word that has its
//! old value again whenever it is looked at.

use std::time::Duration;

use flagfinder_machine::Window;
use flagfinder_replica::{Live, Source, Unready, PAGE};
use flagfinder_step::is_abandoned;
use rustc_hash::{FxHashMap, FxHashSet};

/// How often it is asked whether the words are the same, and the time in between. No two are equal,
/// so that what happens at regular times is not always met at the same point.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(4),
    Duration::from_millis(9),
    Duration::from_millis(17),
    Duration::from_millis(13),
    Duration::from_millis(31),
    Duration::from_millis(25),
];

/// What others have changed, a little later, of what a copy found. `look`: what is to be done
/// meanwhile.
pub fn changed(window: &Window, live: &Live, mut look: impl FnMut()) -> Option<String> {
    let words = Words::of(window, live);
    let unready = Unready::of(std::slice::from_ref(window), live);
    for pause in PAUSES {
        let ready = unready.ready_within(live, pause);
        look();
        if let Some(address) = words.changed(live) {
            return Some(format!(
                "what it reads at {address:#x} changes, and its copy does not do that"
            ));
        }
        if let Some(fd) = ready {
            return Some(format!("fd {fd} is ready, and was not when its copy asked"));
        }
        if is_abandoned() {
            break;
        }
    }
    None
}

/// What the copy read and did not write itself, by page.
struct Words {
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
        // An atomic that puts back what was there leaves the word to others: it asks for a lock.
        let changing = (0..window.len()).filter(|step| !window.is_silent(*step));
        let accesses = || (0..window.len()).flat_map(|step| window.accesses(step));
        for access in changing
            .flat_map(|step| window.accesses(step))
            .filter(|access| access.write)
        {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use flagfinder_machine::evaluator::Access;
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    /// Of one `xchg [rax], ebx` that finds a 1 and leaves this value, once the word is 0: is it
    /// seen to change?
    fn is_changed_after(left: u64) -> bool {
        let word = AtomicU64::new(1);
        let address = std::ptr::from_ref(&word) as u64;
        let mut window = Window::default();
        let mut decoder = Decoder::with_ip(64, &[0x87, 0x18], 0x1000, DecoderOptions::NONE);
        let code = window.intern(&decoder.decode(), 0, &mut InstructionInfoFactory::new());
        window.push(code, Value::of(0x7000));
        for (write, value) in [(false, 1), (true, left)] {
            window.push_access(Access {
                address: Some(address),
                bytes: 4,
                write,
                value: Value::of(value),
            });
        }
        let live = Live::open(std::process::id()).expect("this process");
        let words = Words::of(&window, &live);
        word.store(0, Ordering::SeqCst);
        words.changed(&live) == Some(address)
    }

    #[test]
    fn a_lock_that_an_atomic_finds_taken_is_another_thread_s_word() {
        assert!(is_changed_after(1));
        assert!(!is_changed_after(2), "the copy wrote it");
    }
}
