// SPDX-License-Identifier: MIT
//! What a vertex tells. Facts that most recordings lack, or that few vertices have, stand apart.

use bytemuck::{Pod, Zeroable};
use flagfinder_events::Call;

use crate::edge::{EdgeKind, NOBODY};

/// `Details::result` where the call's result was not recorded.
pub const NO_RESULT: i64 = i64::MIN;

/// What a thread did from one wake to the next wait, or one item of what it did.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Vertex {
    /// CLOCK_MONOTONIC, ns: when it became runnable, and when it blocked.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// ns on a CPU.
    pub run: u64,
    /// The call that it blocks in at the end, packed as in events; 0: unknown, or it does not
    /// block.
    pub call: u64,
    /// Index into `Meta::threads`.
    pub thread: u32,
    /// The vertex that made it begin, or [`NOBODY`].
    pub from: u32,
    /// Where its [`Details`] are; 0: there are none.
    pub details: u32,
    /// The CPU that it ran on last.
    pub cpu: u16,
    /// [`EdgeKind`] as a number: why it began. Weak: only what the thread did before is known.
    pub cause: u8,
    /// 1: it ends by blocking; 0: by a split, the recording's end, or the thread's.
    pub blocks: u8,
}

impl Default for Vertex {
    fn default() -> Vertex {
        Vertex {
            from: NOBODY,
            cause: EdgeKind::Weak as u8,
            ..Vertex::zeroed()
        }
    }
}

impl Vertex {
    /// The call in `call`.
    pub fn call(&self) -> Option<Call> {
        Call::unpack(self.call)
    }

    /// The kind of the edge that it began by.
    pub fn cause(&self) -> EdgeKind {
        EdgeKind::from_number(self.cause.into())
    }
}

/// Facts of a vertex that are there if calls or stacks were recorded, threads yielded or flags were
/// watched.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
pub struct Details {
    /// What the call returned that it blocks in, or [`NO_RESULT`].
    pub result: i64,
    /// Hash of the numbers of its calls in order, if all were recorded, and of the place where it
    /// blocks, if stacks were.
    pub semantics: u64,
    /// How many calls that yield it made; a guess where only the clock found it in one.
    pub yields: u32,
    /// Data flag events inside.
    pub flags: u32,
    /// Where it blocks, and where its waker was, see `Graph::stack`.
    pub stack: u32,
    /// See `stack`.
    pub waker_stack: u32,
    /// The kernel's, of the thread and of a less urgent one that woke it; 0: no such one did.
    pub priority: u32,
    /// See `priority`.
    pub waker_priority: u32,
}

impl Default for Details {
    fn default() -> Details {
        Details {
            result: NO_RESULT,
            ..Details::zeroed()
        }
    }
}
