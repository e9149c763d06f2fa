// SPDX-License-Identifier: MIT
//! What the engine knows about Linux, kept in one place: the system calls of x86-64.
//!
//! In: a call's number and arguments. Out: facts about it. No call is made here.

pub mod descriptors;
pub mod futex;
pub mod life;
pub mod syscalls;
pub mod timeout;
pub mod tracing;
pub mod traits;
