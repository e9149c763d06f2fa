// SPDX-License-Identifier: MIT
//! One thread as a machine: its instructions, registers and memory, as far as they are known.
//!
//! In: a recorded thread, or the steps of a live one. Out: a [`Window`] of known values; or a
//! [`Visitor`](replayer::Visitor) that is shown every instruction of a recording. Nothing here
//! judges what a program does.

mod compact;
mod compact_run;
pub mod decoded;
pub mod decoded_blocks;
mod evaluate_alu;
mod evaluate_bits;
mod evaluate_move;
mod evaluate_shift;
mod evaluate_string;
pub mod evaluator;
mod made_call;
mod reader;
pub mod registers;
pub mod replayer;
mod trace_window;
pub mod value;
mod window;

pub use made_call::MadeCall;
pub use reader::Reader;
pub use trace_window::{tail_window, window_between, window_until};
pub use window::{Interruption, Syscall, Window};
