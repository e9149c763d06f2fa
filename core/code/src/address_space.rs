// SPDX-License-Identifier: MIT
//! Memory that can be read by address, whoever holds it.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

const PAGE: usize = 4096;
/// So many pages are kept at once: what they lead to may be anywhere, and without an end.
const MOST_PAGES: usize = 1 << 15;

/// A process's memory: of a live one, or of one that left a core file.
pub trait AddressSpace {
    /// Reads what lies at `address`; how many bytes could be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;

    /// A little-endian number of `bytes` (at most 8) bytes; `None` where it is not there as a
    /// whole.
    fn number(&self, address: u64, bytes: usize) -> Option<u64> {
        let mut buffer = [0; 8];
        let wanted = bytes.min(8);
        (self.read(address, &mut buffer[..wanted]) == wanted).then(|| u64::from_le_bytes(buffer))
    }

    /// Eight bytes, little-endian; `None` where not all of them can be read.
    fn word(&self, address: u64) -> Option<u64> {
        self.number(address, 8)
    }
}

/// As [`AddressSpace::read`].
type Read<'a> = dyn Fn(u64, &mut [u8]) -> usize + 'a;

/// Memory of which each page is read once: reads of a few bytes then cost little, and what is read
/// again is as it was, unless that were too many pages.
pub struct ByPages<'a> {
    read: Box<Read<'a>>,
    /// By address; `None` where the page can't be read as a whole.
    pages: RefCell<FxHashMap<u64, Option<Box<[u8; PAGE]>>>>,
}

impl<'a> ByPages<'a> {
    /// `read` as [`AddressSpace::read`].
    pub fn new(read: impl Fn(u64, &mut [u8]) -> usize + 'a) -> Self {
        ByPages {
            read: Box::new(read),
            pages: RefCell::default(),
        }
    }
}

impl AddressSpace for ByPages<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut got = 0;
        while got < buffer.len() {
            let at = address.wrapping_add(got as u64);
            let within = at as usize % PAGE;
            let start = at - within as u64;
            let mut pages = self.pages.borrow_mut();
            if pages.len() >= MOST_PAGES && !pages.contains_key(&start) {
                pages.clear();
            }
            let page = pages.entry(start).or_insert_with(|| {
                let mut page = Box::new([0; PAGE]);
                let whole = (self.read)(start, &mut page[..]) == PAGE;
                whole.then_some(page)
            });
            let Some(page) = page else {
                return got + (self.read)(at, &mut buffer[got..]);
            };
            let some = (PAGE - within).min(buffer.len() - got);
            buffer[got..got + some].copy_from_slice(&page[within..within + some]);
            got += some;
        }
        got
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Three pages, the last of which ends after 100 bytes.
    fn read(address: u64, buffer: &mut [u8]) -> usize {
        let end = 0x3064u64;
        let some = (end.saturating_sub(address) as usize).min(buffer.len());
        for (at, byte) in buffer[..some].iter_mut().enumerate() {
            *byte = ((address as usize + at) / 16) as u8;
        }
        some
    }

    #[test]
    fn each_page_is_read_once_and_a_part_of_one_still_is() {
        let reads = Cell::new(0);
        let memory = ByPages::new(|address, buffer: &mut [u8]| {
            reads.set(reads.get() + 1);
            read(address, buffer)
        });
        for address in [0x1000, 0x1ff8, 0x1ffc, 0x2010, 0x1ff8] {
            let (mut by_pages, mut directly) = ([0; 16], [0; 16]);
            assert_eq!(memory.read(address, &mut by_pages), 16);
            read(address, &mut directly);
            assert_eq!(by_pages, directly);
        }
        assert_eq!(reads.get(), 2);
        let mut bytes = [0; 200];
        assert_eq!(memory.read(0x2fd0, &mut bytes), 48 + 100);
        assert_eq!(bytes[147], 0x06);
        assert_eq!(memory.number(0x3060, 8), None);
    }

    #[test]
    fn of_memory_without_an_end_a_part_is_kept() {
        let memory = ByPages::new(|_, buffer: &mut [u8]| {
            buffer.fill(1);
            buffer.len()
        });
        for page in 0..2 * MOST_PAGES as u64 + 1 {
            assert_eq!(memory.number(page * PAGE as u64, 1), Some(1));
            assert!(memory.pages.borrow().len() <= MOST_PAGES);
        }
    }
}
