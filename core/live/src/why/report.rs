// SPDX-License-Identifier: MIT
//! What `flagfinder why` hands on: the `flagfinder.why/1` report.

use flagfinder_code::Code;
use serde::Serialize;

/// A thread of some process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
}

/// Who owes what is waited for, and where that thread stands.
#[derive(Clone, Debug, Serialize)]
pub struct OwedBy {
    #[serde(flatten)]
    pub node: Node,
    /// Of a flag: the code that writes it. Else the innermost call site outside of the C library.
    pub code: Option<Code>,
}

/// How a link is known, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    /// The kernel or the memory says so.
    Seen,
    /// A copy of the thread that owes wrote the word.
    Proved,
    /// There is code for it in a function that the thread may reach.
    ByCode,
    /// Nothing else is left, or it is usual.
    Assumed,
}

/// What kind of thing is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Flag,
    Lock,
    Call,
    Child,
    Timer,
    Cpu,
}

/// The thing itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitsFor {
    pub kind: Kind,
    pub name: String,
    pub address: Option<String>,
}

/// One step of the chain.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    pub waiter: Node,
    pub waits_for: WaitsFor,
    pub owed_by: Option<OwedBy>,
    pub known: Known,
    pub reason: String,
    /// Calls that the waiter has open, innermost first.
    pub stack: Vec<Code>,
}

/// Where a chain ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RootKind {
    /// Something from outside: a terminal, a client, a signal, a device.
    Input,
    /// A process of another machine, or one that could not be looked at.
    Peer,
    Timer,
    /// By job control or by a tracer.
    Stopped,
    /// By a control group.
    Frozen,
    /// A process or thread that is no more.
    Ended,
    /// A thread that uses the processor, or that is kept from it.
    Computes,
    Deadlock,
    Unknown,
}

/// See [`RootKind`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Root {
    pub kind: RootKind,
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    pub name: String,
    pub what: String,
}

impl Root {
    /// The cause is known.
    pub fn is_found(&self) -> bool {
        self.kind != RootKind::Unknown
    }
}

/// See the module.
#[derive(Clone, Debug, Serialize)]
pub struct WhyReport {
    pub schema: &'static str,
    /// `live`, `core` for a process that left a core file, or `recordings`.
    pub source: &'static str,
    pub pid: u32,
    pub program: String,
    /// At most six lines, the most important first.
    pub story: Vec<String>,
    pub links: Vec<Link>,
    pub root: Root,
    /// Commands that help.
    pub next: Vec<String>,
    /// What could not be looked at.
    pub notes: Vec<String>,
}

impl WhyReport {
    pub const SCHEMA: &'static str = "flagfinder.why/1";
}
