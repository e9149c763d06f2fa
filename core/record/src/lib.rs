// SPDX-License-Identifier: MIT
//! The recorder: starts a target under a tracer, drains the tracer's shared-memory
//! pool into a trace file, and sees the recording to its end, however it comes.
//!
//! The pool's protocol is `include/ff_protocol.h`; the file is `flagfinder_trace`'s.

mod alive;
mod calls;
mod chunk_writer;
mod drain;
mod error;
mod family;
mod growth;
mod lock;
mod machine;
mod observe;
mod options;
mod pool;
mod printed;
mod room;
mod session;
mod signals;
mod sink;
mod spinning;
mod target;
mod unrecorded;
mod user;

pub use error::Failure;
pub use options::{
    Last, Listener, Outcome, Progress, RecordOptions, TargetExit, Then, TracerCommand,
    POOL_PLACEHOLDER,
};
pub use session::record;
