// SPDX-License-Identifier: MIT
//! What the engine knows about Linux, kept in one place: the system calls of x86-64, the files of
//! /proc that tell of processes and threads, the clocks.
//!
//! In: a call's number and arguments, a process, a clock. Out: facts. Nothing is changed, but what
//! `ptrace` and `pidfd` are asked to change.

pub mod arguments;
pub mod clock;
pub mod descriptors;
pub mod file_locks;
pub mod futex;
pub mod life;
pub mod mounts;
pub mod pagemap;
pub mod perf_event;
pub mod pidfd;
pub mod proc;
pub mod ptrace;
pub mod socket_address;
pub mod syscalls;
pub mod timeout;
pub mod tracing;
pub mod traits;
