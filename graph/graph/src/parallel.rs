// SPDX-License-Identifier: MIT
//! Work on both halves of a graph, its vertices and its edges, at the same time.

use std::panic::resume_unwind;

/// The results of two pieces of work, which are done at the same time.
pub(crate) fn both<A, B: Send>(
    one: impl FnOnce() -> A,
    other: impl FnOnce() -> B + Send,
) -> (A, B) {
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        let other = other.join();
        (one, other.unwrap_or_else(|panic| resume_unwind(panic)))
    })
}
