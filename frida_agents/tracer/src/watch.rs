// SPDX-License-Identifier: MIT
//! A watch inside the process: `struct ff_watch_config` says of what.

use std::ffi::{c_char, CStr};

use crate::{ring, sites, trap};

/// Begins a watch in this process: maps the ring and puts the hooks in place. Null, or why not.
///
/// # Safety
/// `path` is the ring's, `functions` are those of `trap`.
#[no_mangle]
pub unsafe extern "C" fn ff_watch(path: *const c_char, functions: *const usize) -> *const c_char {
    trap::use_functions(functions);
    if let Err(wrong) = ring::open(CStr::from_ptr(path)) {
        return wrong.as_ptr();
    }
    if !trap::install() {
        return c"SIGTRAP can't be handled".as_ptr();
    }
    sites::hook().map_or_else(|wrong| wrong.as_ptr(), |()| std::ptr::null())
}

/// Nothing is handed over any more, and the hooks are gone. Handlers stay: a thread may be on its
/// way to one.
#[no_mangle]
pub extern "C" fn ff_watch_end() {
    ring::close();
    sites::unhook();
}
