//! Loading BPF programs, attaching them, and draining what they write. Knows nothing of what they record.
//!
//! In: an object file that clang made, privileges. Out: [`Object`] with its maps, [`Ring`], perf events as file
//! descriptors. Everything vanishes when these are dropped or the process dies, however it dies: nothing is pinned.
//! Blind spots: x86-64 breakpoints only; the process ids are those of the initial namespace.

mod btf;
pub mod clock;
mod error;
mod object;
mod perf;
mod privileges;
mod ring;

pub use aya::Pod;
pub use btf::per_cpu_offset;
pub use error::{BpfError, Result};
pub use object::{Counts, Object, Table};
pub use perf::{online_cpus, open_breakpoint, open_clock, open_uprobe, Attached};
pub use privileges::{require, Capability};
pub use ring::Ring;
