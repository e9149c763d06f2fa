// SPDX-License-Identifier: MIT
//! The trace: its file, the cursors that walk it, and the writer.
//!
//! Upstream of everything but the recorder's pool. The in-memory protocol is
//! `include/ff_protocol.h` (mirrored in [`protocol`]), the file is described in
//! `docs/trace-format.md`.

mod block;
mod builder;
mod check;
pub mod computed;
pub mod container;
mod decoder;
mod dump;
mod error;
mod event;
mod flow;
mod images;
mod info;
mod process;
pub mod protocol;
mod replay;
mod streams;
mod thread;
mod times;
mod trace;
mod values;
mod writer;

pub use block::{Block, BlockId, BlockTable, ModuleId, Slot, SlotKind};
pub use builder::{ThreadHandle, TraceBuilder};
pub use check::{check, Rule, Violation};
pub use container::{Damage, SectionKind};
pub use decoder::{DecodedFlow, FlowDecoder};
pub use dump::{dump, DumpKind, DumpOptions};
pub use error::{Failure, Result};
pub use event::{Event, Registers, SyscallEnter};
pub use flow::{decode_units, settled_bytes, Flow, FlowCursor, GapReason};
pub use info::{End, EndReason, Info, Level, Note, NoteLevel, ProcessEnd};
pub use process::{settled_records, MapsSnapshot, Module, Process, Segment};
pub use replay::{ReplayBlock, ReplayCursor, ReplayItem};
pub use thread::{Thread, ThreadStart, ValueSpan};
pub use trace::Trace;
pub use values::CHECKPOINT_BYTES;
pub use writer::{EncodedSection, SectionEncoder, SectionMeta, TraceWriter};
