// SPDX-License-Identifier: MIT
//! Pages of a source, read once: every copy of a thread sees the same memory.

use std::cell::RefCell;
use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::source::{Page, Source, PAGE};
use crate::touched::Counted;

/// See the module.
pub struct Pages<'a> {
    source: &'a dyn Source,
    read: RefCell<FxHashMap<u64, Page>>,
    counted: Counted,
}

impl<'a> Pages<'a> {
    /// Nothing is read yet.
    pub fn new(source: &'a dyn Source) -> Self {
        Pages {
            source,
            read: RefCell::default(),
            counted: Counted::default(),
        }
    }

    /// The process that they are read from.
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
        let page = **page;
        self.counted.set(read.len());
        page
    }

    /// Pages that were used and that the process may write, with so many around each of them.
    pub fn writable(&self, around: u64) -> BTreeSet<u64> {
        let read = self.read.borrow();
        let mut pages = BTreeSet::new();
        for page in read.keys() {
            let mut regions = self.source.regions().iter();
            let Some(region) = regions.find(|region| region.holds(*page)) else {
                continue;
            };
            if region.protection & libc::PROT_WRITE == 0 {
                continue;
            }
            let first = page.saturating_sub(around * PAGE).max(region.start);
            let end = page.saturating_add((around + 1) * PAGE).min(region.end);
            pages.extend((first..end).step_by(PAGE as usize));
        }
        pages
    }

    /// Does one of the pages that may be executed hold something else by now?
    pub fn changed_code(&self) -> bool {
        let is_code = |address: u64| {
            let mut regions = self.source.regions().iter();
            let region = regions.find(|region| region.holds(address));
            region.is_some_and(|region| region.protection & libc::PROT_EXEC != 0)
        };
        let read = self.read.borrow();
        let mut now = Box::new([0; PAGE as usize]);
        read.iter().any(|(address, page)| {
            is_code(*address) && self.source.read_page(*address, &mut now) && now[..] != page[..]
        })
    }
}
