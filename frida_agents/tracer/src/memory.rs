// SPDX-License-Identifier: MIT
//! An allocator of our own: a followed thread may be inside the program's malloc when we need
//! memory. And the lock for what threads share.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// A lock that sleeps in the kernel and needs nothing of the program.
pub struct Lock<T> {
    /// 0 free, 1 held, 2 held and waited for.
    word: AtomicU32,
    content: UnsafeCell<T>,
}

// SAFETY: the content is reached by one holder at a time.
unsafe impl<T> Sync for Lock<T> {}

pub struct Held<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    pub const fn new(content: T) -> Self {
        Lock {
            word: AtomicU32::new(0),
            content: UnsafeCell::new(content),
        }
    }

    pub fn hold(&self) -> Held<'_, T> {
        let free = self
            .word
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        if free.is_err() {
            while self.word.swap(2, Ordering::Acquire) != 0 {
                sys::wait(self.word.as_ptr(), 2, 100);
            }
        }
        Held(self)
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: held.
        unsafe { &*self.0.content.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: held.
        unsafe { &mut *self.0.content.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if self.0.word.swap(0, Ordering::Release) == 2 {
            sys::wake(self.0.word.as_ptr());
        }
    }
}

const LARGEST: usize = 1 << 14;
const ARENA: usize = 1 << 18;

struct Heap {
    /// Free blocks of 16 << i bytes, each beginning with the next one's address.
    free: [usize; 11],
    arena: usize,
    left: usize,
}

/// Powers of two from arenas; what is larger has pages of its own.
pub struct Allocator(Lock<Heap>);

impl Allocator {
    pub const fn new() -> Self {
        Allocator(Lock::new(Heap {
            free: [0; 11],
            arena: 0,
            left: 0,
        }))
    }
}

fn class(layout: Layout) -> (usize, usize) {
    let bytes = layout
        .size()
        .max(layout.align())
        .max(16)
        .next_power_of_two();
    (bytes, bytes.trailing_zeros() as usize - 4)
}

fn pages(bytes: usize) -> usize {
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS;
    sys::map(0, bytes, sys::PROT_READ | sys::PROT_WRITE, flags, -1).unwrap_or(0)
}

// SAFETY: blocks are handed out once, are as large as asked and aligned to their size (up to a
// page).
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (bytes, class) = class(layout);
        if bytes > LARGEST {
            return pages(bytes) as *mut u8;
        }
        let mut heap = self.0.hold();
        let first = heap.free[class];
        if first != 0 {
            heap.free[class] = *(first as *const usize);
            return first as *mut u8;
        }
        // Arenas begin at a page; each block at a multiple of its size within one.
        let skip = heap.arena.wrapping_neg() & (bytes.min(4096) - 1);
        if heap.left < bytes + skip {
            heap.arena = pages(ARENA);
            heap.left = if heap.arena == 0 { 0 } else { ARENA };
            if heap.left == 0 {
                return null_mut();
            }
        } else {
            heap.arena += skip;
            heap.left -= skip;
        }
        let at = heap.arena;
        heap.arena += bytes;
        heap.left -= bytes;
        at as *mut u8
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let (bytes, class) = class(layout);
        if bytes > LARGEST {
            sys::unmap(at as usize, bytes);
            return;
        }
        let mut heap = self.0.hold();
        *(at as *mut usize) = heap.free[class];
        heap.free[class] = at as usize;
    }
}
