// SPDX-License-Identifier: MIT
//! Where the way leads that a branch never took.

/// Where the other way of an exit branch leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherWay {
    /// It stays in the loop that repeats: it skips something.
    Stays,
    /// To another test, which may leave the loop.
    Tests,
    /// Back into the loop, with something that an exit tests later.
    Decides,
    /// To the function's return with an error: negative.
    Fails,
    /// To a function that never returns.
    Dies,
    /// On in a function that the loop calls, past something that is done on that way only.
    Skips,
    /// To a report of something that must not be: texts are handed to a function, a number is
    /// returned.
    Reports,
}
