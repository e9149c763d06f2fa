// SPDX-License-Identifier: MIT
//! Memory of a large table, asked for on another thread. The kernel finds and clears a page when it
//! is first written to, which takes a fifth of the time of a thread that does nothing but fill a
//! table.

use std::ops::Range;
use std::sync::mpsc::{channel, Sender};
use std::thread::{Builder, Scope};

/// Bytes that are asked for at once. Smaller tables are left alone.
const PIECE: usize = 4 << 20;
const PAGE: usize = 4096;

/// Asks for the memory of a `Vec` piece by piece while it grows, one piece ahead.
pub(crate) struct Ahead {
    pieces: Sender<Range<usize>>,
    /// How many entries the table has when the next piece is due.
    next: usize,
}

impl Ahead {
    /// With a thread of its own, which ends when this is dropped. Where none may be started, pages
    /// come when they are written to.
    pub fn start<'scope>(scope: &'scope Scope<'scope, '_>) -> Ahead {
        let (pieces, asked) = channel();
        let _ = Builder::new().spawn_scoped(scope, || asked.into_iter().for_each(populate));
        Ahead { pieces, next: 0 }
    }

    /// Must be called at each growth of the table.
    #[inline]
    pub fn grows<T>(&mut self, table: &mut Vec<T>) {
        if table.len() >= self.next {
            self.ask(table);
        }
    }

    #[cold]
    fn ask<T>(&mut self, table: &mut Vec<T>) {
        let piece = PIECE / size_of::<T>();
        if table.len() >= piece {
            table.reserve(2 * piece);
            let begin = table.as_ptr().wrapping_add(table.len() + piece) as usize;
            // The thread, if there is one, outlives this.
            let _ = self.pieces.send(begin..begin + piece * size_of::<T>());
        }
        self.next = table.len() + piece;
    }
}

/// Has the kernel map the whole pages of a range, if that is memory of this process by now. What
/// stands there stays.
fn populate(range: Range<usize>) {
    let begin = range.start.next_multiple_of(PAGE);
    let bytes = (range.end - range.end % PAGE).saturating_sub(begin);
    // SAFETY: MADV_POPULATE_WRITE changes no memory that is mapped, and fails where none is.
    // Kernels before 5.14 do not know it: then pages come when they are written to.
    unsafe {
        libc::madvise(begin as *mut libc::c_void, bytes, libc::MADV_POPULATE_WRITE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_table_stays_as_it_was_filled() {
        std::thread::scope(|scope| {
            let mut ahead = Ahead::start(scope);
            let mut table: Vec<u64> = Vec::new();
            for number in 0..(5 * PIECE / size_of::<u64>()) as u64 {
                ahead.grows(&mut table);
                table.push(number);
            }
            assert!((0..).zip(&table).all(|(number, &found)| number == found));
            assert!(ahead.next >= table.len());
        });
    }

    #[test]
    fn only_whole_pages_are_asked_for_and_what_stands_there_stays() {
        let memory = vec![7u8; 3 * PAGE];
        let begin = memory.as_ptr() as usize;
        populate(begin + 1..begin + memory.len());
        populate(begin + 1..begin + 2);
        populate(0..PAGE); // belongs to nobody
        assert!(memory.iter().all(|&byte| byte == 7));
    }
}
