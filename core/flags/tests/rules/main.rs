// SPDX-License-Identifier: MIT
//! The rules of the ranking, one by one: for each a small program that it is about, and that
//! program with the one thing changed that the rule is about.
//!
//! `OUT` is where a branch goes that was never taken. A round begins where the flow comes back to
//! the first instruction; what others do and the kernel answers goes by its number.

mod assembler;
mod calls;
mod computing;
mod endless;
mod exits;
mod found;
mod interpreters;
mod module;
mod other_ways;
mod pointers;
mod program;
mod progress;
mod reads;

use flagfinder_flags::{
    find_in_live_window, find_in_window, Flag, FlagKind, LiveMemory, Report, ThreadName, Verdict,
    INTERPRETER,
};
