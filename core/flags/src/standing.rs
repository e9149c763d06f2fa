// SPDX-License-Identifier: MIT
//! How it is known that a loop waits for a candidate.
//!
//! In: what copies, a good run and the loop's code told of it. Out: a [`Standing`], which people
//! read in place of a score.

use serde::{Deserialize, Serialize};

/// The surest comes first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Copies showed both: another thread writes it, and what it writes moves the loop on.
    Proved,
    /// In a good run another thread wrote it, and the loop ended with another value.
    SeenInGoodRun,
    /// A copy of the thread left the loop by it.
    EndsLoop,
    /// It is a call whose answers were counted in the thread itself: all are the same. Whether the
    /// thread gets on beside it is not known.
    Counted,
    /// The loop's code alone says so.
    ByCode,
    /// Another candidate would end the loop as well, and nothing tells which is waited for.
    OneOfSeveral,
    /// It rests on what nothing shows: answers of calls, or that one moment stands for more.
    Assumed,
    /// Too little speaks for it to claim anything.
    #[default]
    Unsure,
    /// Something speaks against it: the first piece of its evidence.
    RuledOut,
}

impl Standing {
    /// Is it told as the answer?
    pub fn is_told(self) -> bool {
        self <= Standing::Assumed
    }
}
