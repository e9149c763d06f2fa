// SPDX-License-Identifier: MIT
//! Values that one thread hands to another in batches. The memory of a batch goes back and is
//! filled again: a fresh megabyte for each costs more than filling it.

use std::sync::mpsc::{channel, sync_channel, Receiver, Sender, SyncSender};

/// How far ahead values are asked for before they are taken.
const SOON: usize = 16;

#[inline]
fn prefetch<T>(value: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which any address may be given.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch::<_MM_HINT_T0>(value.cast());
    }
}

/// Fills batches.
pub(crate) struct Writer<T> {
    full: SyncSender<Vec<T>>,
    empty: Receiver<Vec<T>>,
}

/// Takes the values out again, one by one.
pub(crate) struct Reader<T> {
    full: Receiver<Vec<T>>,
    empty: Sender<Vec<T>>,
    batch: Vec<T>,
    next: usize,
}

/// Both ends. At most `ahead` batches wait between them; then the writer waits.
pub(crate) fn batches<T>(ahead: usize) -> (Writer<T>, Reader<T>) {
    let (full, filled) = sync_channel(ahead);
    let (done, empty) = channel();
    let reader = Reader {
        full: filled,
        empty: done,
        batch: Vec::new(),
        next: 0,
    };
    (Writer { full, empty }, reader)
}

impl<T> Writer<T> {
    pub fn room(&self) -> Vec<T> {
        let mut batch = self.empty.try_recv().unwrap_or_default();
        batch.clear();
        batch
    }

    /// Hands a batch over; `false`: nobody reads any more.
    pub fn send(&self, batch: Vec<T>) -> bool {
        self.full.send(batch).is_ok()
    }
}

impl<T> Reader<T> {
    /// The next value, waited for; `None` at the end.
    #[inline]
    pub fn next(&mut self) -> Option<&T> {
        if self.is_used_up() && !self.refill() {
            return None;
        }
        self.next += 1;
        // Another core wrote them, so the next cache lines are asked for in time. The address need
        // not be one of the batch.
        prefetch(self.batch.as_ptr().wrapping_add(self.next + SOON));
        self.batch.get(self.next - 1)
    }

    /// Whether the next value stands in a batch that was not looked at yet.
    #[inline]
    pub fn is_used_up(&self) -> bool {
        self.next == self.batch.len()
    }

    #[cold]
    fn refill(&mut self) -> bool {
        while self.is_used_up() {
            let Ok(batch) = self.full.recv() else {
                return false;
            };
            let before = std::mem::replace(&mut self.batch, batch);
            self.next = 0;
            // The writer has ended: nobody needs it.
            let _ = self.empty.send(before);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_out_in_order_and_empty_batches_are_skipped() {
        let (writer, mut reader) = batches::<u32>(4);
        for batch in [vec![], vec![1, 2], vec![], vec![3]] {
            assert!(writer.send(batch));
        }
        drop(writer);
        let mut found = Vec::new();
        while let Some(&value) = reader.next() {
            found.push((value, reader.is_used_up()));
        }
        assert_eq!(found, [(1, false), (2, true), (3, true)]);
        assert_eq!(reader.next(), None);
    }

    #[test]
    fn memory_goes_round() {
        let (writer, mut reader) = batches::<u32>(1);
        let mut batch = Vec::with_capacity(1000);
        batch.push(1);
        assert!(writer.send(batch));
        assert_eq!(reader.next(), Some(&1));
        assert!(writer.send(vec![2]));
        assert_eq!(reader.next(), Some(&2));
        let rooms = [writer.room(), writer.room()];
        assert!(rooms.iter().all(Vec::is_empty));
        assert!(rooms.iter().any(|room| room.capacity() >= 1000));
    }

    #[test]
    fn a_writer_learns_that_nobody_reads() {
        let (writer, reader) = batches::<u32>(1);
        drop(reader);
        assert!(!writer.send(vec![1]));
    }
}
