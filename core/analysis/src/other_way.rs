// SPDX-License-Identifier: MIT
//! Where the way leads that a branch never took.

/// Where the other way of an exit branch leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherWay {
    /// It stays in the loop that repeats: it skips something.
    Stays,
    /// To another test, which may leave the loop.
    Tests,
    /// Back into the loop, with a value that an exit tests later.
    Decides,
    /// To the function's return with an error: negative.
    Fails,
    /// To a function that never returns.
    Dies,
    /// On in a function that the loop calls, without something that is done only on that way.
    Skips,
    /// To the report of a failed precondition: texts are handed to a function, a number is
    /// returned.
    Reports,
}
