// SPDX-License-Identifier: MIT
//! Code and names: what a trace's blocks do, and what its addresses are called.
//!
//! In: a `flagfinder_trace::Process` (or a live process), and the ELF files it used.
//! Out: [`CodeMap`] (decoded blocks, run-independent places), [`Graph`] (postdominators
//! and loops of observed control flow), and names.
//! Blind spots: x86-64 only; files are believed only when their build-id agrees.

mod absent;
mod address_space;
mod ahead;
mod ahead_machine;
mod block;
mod budget;
mod callers;
mod codemap;
mod data;
mod debug;
mod dominators;
mod fields;
mod file_bytes;
mod frames;
mod go;
mod graph;
mod heap;
mod image;
mod input;
mod live;
mod lock_balance;
mod lookup;
mod loops;
mod mapped;
mod maps;
mod memo;
mod module;
mod name;
mod names;
mod own;
mod process_memory;
mod reach;
mod recorded;
mod register;
mod scope;
mod shared_image;
mod stack;
mod store_index;
mod symbols;
mod thread_blocks;
mod tls;
mod typed;
mod unwind;
mod words;
mod wrappers;
mod writers;

pub use address_space::{AddressSpace, ByPages};
pub use ahead::{CodeReader, Limits as CodeLimits};
pub use ahead_machine::Store;
pub use block::{CodeBlock, Ending, Succession};
pub use callers::outer_callers;
pub use codemap::{CodeMap, FlowBreak};
pub use dominators::Postdominators;
pub use frames::{Frame, NoCaller, Registers};
pub use graph::Graph;
pub use heap::{Allocation, AllocationLog, Moment};
pub use image::has_debug_info;
pub use input::{ModuleInput, NamesInput, StackFrame, ThreadInput, TlsBlock};
pub use live::{build_id_in_memory, own_id};
pub use lock_balance::{GivesBack, LockBalance};
pub use lookup::VariableAt;
pub use loops::{Loop, Loops};
pub use mapped::outlive_cut_files;
pub use maps::{Mapping, Maps};
pub use module::{ModuleIdentity, Place};
pub use name::{Code, DataHome, DataKind, DataName};
pub use names::Names;
pub use own::{is_of_go, Spot, Whose};
pub use process_memory::{Found, ProcessMemory};
pub use reach::{CallsAhead, Reach};
pub use scope::{TypeRef, ValuePlace, Variable};
pub use stack::CallSites;
pub use store_index::keep_indexes_in;
pub use thread_blocks::GLIBC_ID;
pub use typed::{VariableWord, Word};
pub use words::times;
pub use writers::{field_writers, is_counted_in, writers, Writers};
