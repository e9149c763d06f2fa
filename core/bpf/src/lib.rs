// SPDX-License-Identifier: MIT
//! Loading BPF programs, attaching them, and draining what they write. Knows nothing of what they
//! record.
//!
//! In: an object file that clang made, privileges. Out: [`Object`] with its maps, [`Ring`], perf
//! events as file descriptors. Everything vanishes when these are dropped or the process dies,
//! however it dies: nothing is pinned. Blind spot: x86-64 breakpoints only.

mod btf;
mod error;
mod layout;
mod object;
mod perf;
mod privileges;
mod probe;
mod ring;

pub use aya::Pod;
pub use btf::{per_cpu_offset, tracepoint_arguments, Argument};
pub use error::{unavailable, Failure, Result};
pub use flagfinder_privileges::Capability;
pub use layout::Layout;
pub use object::{Counts, Object, Table, MINIMUM_KERNEL};
pub use perf::{online_cpus, open_breakpoint, open_clock, open_uprobe, Attached, Breakpoint, Trap};
pub use privileges::require;
pub use probe::{check_breakpoints, check_programs};
pub use ring::Ring;
