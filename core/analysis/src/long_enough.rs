// SPDX-License-Identifier: MIT
//! Whether a window is long enough to judge by.

use flagfinder_machine::Window;

use crate::analysis::waits_for_others;
use crate::interpreter;
use crate::loop_search;

/// What tells whether a window is long enough to judge by.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Whole iterations of the loop at the window's end.
    pub iterations: u64,
    /// They are an interpreter's: many of them may be one of the loop that it runs.
    pub interprets: bool,
    /// Something but the thread itself decides when the loop is left. If not, it may be the pause
    /// within another, of which the window shows too little.
    pub waits_for_others: bool,
}

/// Looks at the loop at the window's end; `None` without one.
pub fn seen(window: &Window) -> Option<Seen> {
    let spin = loop_search::find(window, &[])?;
    Some(Seen {
        iterations: spin.iterations,
        interprets: interpreter::interprets(window, &spin),
        waits_for_others: waits_for_others(window, &spin),
    })
}
