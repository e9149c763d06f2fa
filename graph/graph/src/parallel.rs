// SPDX-License-Identifier: MIT
//! Work on both halves of a graph, its vertices and its edges, at the same time.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::{scope, Builder};

/// The results of two pieces of work, which are done at the same time: one after the other where no
/// thread may be started.
pub(crate) fn both<A, B: Send>(
    one: impl FnOnce() -> A,
    other: impl FnOnce() -> B + Send,
) -> (A, B) {
    // A thread that can't be started drops what it was to run.
    let other = Mutex::new(Some(other));
    let do_other = || {
        let work = other.lock().unwrap_or_else(PoisonError::into_inner).take();
        work.map(|work| work())
    };
    scope(|scope| {
        let thread = Builder::new().spawn_scoped(scope, do_other);
        let one = one();
        let other = thread.map_or_else(
            |_| do_other(),
            |thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
        );
        (one, other.expect("it was not done before"))
    })
}
