// SPDX-License-Identifier: MIT
//! Where a copy's registers and memory come from.

use crate::descriptors::Descriptors;
use crate::last_call::Recalled;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Its content.
pub type Page = Box<[u8; PAGE as usize]>;

/// A stretch of the address space with one protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    /// PROT_READ, PROT_WRITE and PROT_EXEC.
    pub protection: i32,
    /// It has no content of its own yet: its pages are zeroes.
    pub fresh: bool,
    /// It is known to be private memory without a file: what is given back reads as zeroes again.
    pub anonymous: bool,
}

impl Region {
    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// The ids that a thread is told when it asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub pid: u32,
    pub tid: u32,
    pub parent: u32,
    /// Real, effective.
    pub user: [u32; 2],
    pub group: [u32; 2],
}

/// A thread at one moment.
#[derive(Clone)]
pub struct ThreadState {
    /// General registers; of a thread that was in a system call, those before it.
    pub registers: libc::user_regs_struct,
    /// As NT_X86_XSTATE gives it; empty: the processor's initial state.
    pub extended: Vec<u8>,
    /// Pages as they were at the same moment: those of the stack, which the thread overwrites at
    /// once, and others that it is known to use.
    pub stack: Vec<(u64, Page)>,
    /// What calls that ask for an id are answered.
    pub identity: Identity,
    /// What is known of its calls where nobody can be asked any more.
    pub recalled: Recalled,
}

/// A process whose threads can be copied.
pub trait Source {
    /// Its address space, in ascending order.
    fn regions(&self) -> &[Region];
    /// Fills `page` with what lies at `address`, a multiple of [`PAGE`]. `false`: it can't be read.
    fn read_page(&self, address: u64, page: &mut [u8; PAGE as usize]) -> bool;
    /// Was this page asked for in vain, as reading it would give the process pages that it does not
    /// have?
    fn withholds(&self, _page: u64) -> bool {
        false
    }
    /// What its descriptors would answer; `None` where nobody can be asked any more.
    fn descriptors(&self) -> Option<&Descriptors>;
}
