// SPDX-License-Identifier: MIT
//! No single allocation above a limit: libFuzzer's own limit needs a sanitizer, which the stable
//! toolchain does not have.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;

/// What a file of 64 KiB may make a reader allocate at once.
pub const MOST: usize = 256 << 20;

thread_local! {
    static FAILED: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator, which ends the process at a request for more than [`MOST`] bytes.
pub struct Limited;

fn check(bytes: usize) {
    if bytes > MOST && !FAILED.replace(true) {
        eprintln!(
            "an allocation of {bytes} bytes\n{}",
            Backtrace::force_capture()
        );
        std::process::abort();
    }
}

// SAFETY: every request goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        System.alloc_zeroed(layout)
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        check(bytes);
        System.realloc(pointer, layout, bytes)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        System.dealloc(pointer, layout);
    }
}
