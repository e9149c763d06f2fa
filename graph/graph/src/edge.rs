// SPDX-License-Identifier: MIT
//! Why a vertex began.

use bytemuck::{cast_slice, Pod, Zeroable};

/// `Edge::from` where no thread is the cause: a device, or a timer that was armed before the
/// recording.
pub const NOBODY: u32 = u32::MAX;
/// Why a vertex began.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeKind {
    /// A thread woke it: a lock, a condition.
    Wake = 0,
    /// A thread sent something that it waited for.
    Ipc = 1,
    /// Its time limit was over, or a time that it slept for.
    Timer = 2,
    /// A thread sent a signal to it.
    Signal = 3,
    /// A thread created it.
    Fork = 4,
    /// A thread or process ended that it waited for.
    Exit = 5,
    /// A write to a data flag that a read here saw.
    Flag = 6,
    /// The same thread before: may not be causal.
    Weak = 7,
    /// A device, or an interrupt that is not known better.
    Interrupt = 8,
    /// The context of the wake is unknown: the thread may only have been interrupted.
    Unknown = 9,
    /// A request to io_uring, from its submission to the wake that its completion led to.
    IoUring = 10,
    /// From a thread that has what another waits for: a lock, or its own end. It leads to the
    /// vertex that ends in the wait.
    Holds = 11,
    /// From a thread at the other end of what another waits on; it leads there, too.
    Peer = 12,
}

/// By number.
pub const KINDS: [EdgeKind; 13] = [
    EdgeKind::Wake,
    EdgeKind::Ipc,
    EdgeKind::Timer,
    EdgeKind::Signal,
    EdgeKind::Fork,
    EdgeKind::Exit,
    EdgeKind::Flag,
    EdgeKind::Weak,
    EdgeKind::Interrupt,
    EdgeKind::Unknown,
    EdgeKind::IoUring,
    EdgeKind::Holds,
    EdgeKind::Peer,
];

impl EdgeKind {
    /// The kind with this number; a file may hold any number.
    pub fn from_number(number: u32) -> EdgeKind {
        let known = KINDS.get(number as usize);
        known.copied().unwrap_or(EdgeKind::Unknown)
    }

    /// As JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            EdgeKind::Wake => "wake",
            EdgeKind::Ipc => "ipc",
            EdgeKind::Timer => "timer",
            EdgeKind::Signal => "signal",
            EdgeKind::Fork => "fork",
            EdgeKind::Exit => "exit",
            EdgeKind::Flag => "flag",
            EdgeKind::Weak => "weak",
            EdgeKind::Interrupt => "interrupt",
            EdgeKind::Unknown => "unknown",
            EdgeKind::IoUring => "io_uring",
            EdgeKind::Holds => "holds",
            EdgeKind::Peer => "peer",
        }
    }

    /// The kernel did what a thread had ordered.
    pub fn was_ordered(self) -> bool {
        matches!(self, EdgeKind::Timer | EdgeKind::IoUring)
    }

    /// It comes from the thread that is waited for, and leads to the waiting one.
    pub fn is_awaited(self) -> bool {
        matches!(self, EdgeKind::Holds | EdgeKind::Peer)
    }

    /// Another thread surely caused it.
    pub fn is_strong(self) -> bool {
        use EdgeKind::*;
        matches!(self, Wake | Ipc | Signal | Fork | Exit | Flag)
    }
}

/// A cause of a vertex, as it lies in a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Edge {
    /// Index of the vertex that caused it; [`NOBODY`]: none did.
    pub from: u32,
    /// Index of the vertex that is caused.
    pub to: u32,
    /// CLOCK_MONOTONIC, ns.
    pub ts: u64,
    /// [`EdgeKind`] as a number.
    pub kind: u32,
    /// Where the waker was, see `Graph::stack`.
    pub stack: u32,
}

impl Edge {
    /// By the number in `kind`.
    pub fn kind(&self) -> EdgeKind {
        EdgeKind::from_number(self.kind)
    }
}

/// Edges as bytes, in the layout of [`Edge`].
pub fn edge_records(edges: &[Edge]) -> &[u8] {
    cast_slice(edges)
}
