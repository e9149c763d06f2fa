// SPDX-License-Identifier: MIT
//! What a copy has ahead of its process, where instructions are executed in software.

use std::rc::Rc;

use flagfinder_machine::decoded::Decoded;
use flagfinder_machine::evaluator::Evaluator;
use iced_x86::InstructionInfoFactory;
use rustc_hash::FxHashMap;

use crate::source::{Page, PAGE};

pub(crate) const LONGEST: usize = 15;
/// Most instructions that are kept decoded: code may go on without an end.
pub(crate) const MOST_DECODED: usize = 1 << 18;

/// What a copy has newer than its process.
pub(crate) struct Software {
    pub evaluator: Evaluator,
    pub factory: InstructionInfoFactory,
    /// By program counter: the bytes seen there, and what they are.
    pub decoded: FxHashMap<u64, ([u8; LONGEST], Rc<Decoded>)>,
    pub pages: FxHashMap<u64, Held>,
    /// The registers of the process are older.
    pub is_ahead: bool,
    /// The process executes everything itself.
    pub is_off: bool,
}

/// A page as the copy has it.
pub(crate) struct Held {
    pub content: Page,
    pub protection: i32,
    /// The process has an older version of the page.
    pub is_newer: bool,
}

impl Default for Software {
    fn default() -> Self {
        Software {
            evaluator: Evaluator::default(),
            factory: InstructionInfoFactory::new(),
            decoded: FxHashMap::default(),
            pages: FxHashMap::default(),
            is_ahead: false,
            is_off: false,
        }
    }
}

impl Software {
    /// Pages of which the process has an older version.
    pub fn newer(&self) -> impl Iterator<Item = (u64, &Page)> {
        let newer = self.pages.iter().filter(|(_, held)| held.is_newer);
        newer.map(|(page, held)| (*page, &held.content))
    }

    /// The process has written there.
    pub fn forget(&mut self, address: u64, bytes: u64) {
        let last = address.saturating_add(bytes.saturating_sub(1));
        for page in (address / PAGE)..=(last / PAGE) {
            self.pages.remove(&(page * PAGE));
        }
    }
}
