// SPDX-License-Identifier: MIT
//! What a window of one thread says about the loop that it is in.
//!
//! In: a [`Window`](flagfinder_machine::Window). Out: an [`Analysis`]: the loop, the ways out of
//! it, the conditions of these, and the words and system calls that they depend on. The code around
//! the loop tells where a way leads that was never taken. Which of the words is the flag is decided
//! in `core/flags`.

mod analysis;
mod carried;
mod circle;
mod compound;
pub mod condition;
mod dependence;
mod effects;
pub mod exit;
pub mod expression;
pub mod failing_call;
mod generated_code;
pub mod idle_call;
mod interpreter;
mod jump_table;
mod later_test;
mod long_enough;
mod loop_kind;
pub mod loop_search;
pub mod natural_loop;
mod never_returns;
mod operands;
mod origins;
mod other_way;
pub mod other_way_stores;
pub mod own_position;
pub mod own_wakeup;
mod passing;
mod progress;
mod read_code;
mod relation;
mod repeated_reads;
mod returned;
pub mod runtime;
mod shown;
mod slice;
mod slice_scratch;
mod spin_loop;
pub mod tasks;
mod transfers;
mod way;

pub use analysis::{analyse, Analysis, Candidate};
pub use generated_code::Generated;
pub use long_enough::{seen, waits_for_others, Seen};
pub use loop_kind::LoopKind;
pub use origins::{origins, Origin};
pub use other_way::OtherWay;
pub use progress::{is_refusal, Progress};
pub use read_code::ReadCode;
pub use spin_loop::SpinLoop;
pub use way::Pointer;
