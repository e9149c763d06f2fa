// SPDX-License-Identifier: MIT
//! Pages of a source, read once: every copy of a thread sees the same memory.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::source::{Page, Source, PAGE};

/// See the module.
pub struct Pages<'a> {
    source: &'a dyn Source,
    read: RefCell<FxHashMap<u64, Page>>,
}

impl<'a> Pages<'a> {
    pub fn new(source: &'a dyn Source) -> Self {
        Pages {
            source,
            read: RefCell::default(),
        }
    }

    pub fn source(&self) -> &'a dyn Source {
        self.source
    }

    /// The page at `address`. What can't be read is zero: the kernel does not let others read
    /// the clock's page (vvar), and zeroes there make the vDSO ask by system calls, which are
    /// answered.
    pub fn page(&self, address: u64) -> [u8; PAGE as usize] {
        let mut read = self.read.borrow_mut();
        let page = read.entry(address).or_insert_with(|| {
            let mut page = Box::new([0; PAGE as usize]);
            if !self.source.read_page(address, &mut page) {
                page.fill(0);
            }
            page
        });
        **page
    }

    /// Pages that were used, and how many of them hold something else by now.
    pub fn changed(&self) -> (usize, usize) {
        let read = self.read.borrow();
        let mut now = Box::new([0; PAGE as usize]);
        let changed = read.iter().filter(|(address, page)| {
            self.source.read_page(**address, &mut now) && now[..] != page[..]
        });
        (read.len(), changed.count())
    }
}
