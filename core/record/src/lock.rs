// SPDX-License-Identifier: MIT
//! The locks of the recorder. A thread of it that panics must not cost the recording.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Data that a panicked holder left are still usable: sections are whole or absent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
