// SPDX-License-Identifier: MIT
//! What stands in the file beside the events, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::NamePatterns;

/// How the recording was made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Info {
    /// Name and version of the program that recorded, and of the one that imported it.
    pub recorder: String,
    /// The program and its arguments, when it was started for the recording.
    pub command: Vec<String>,
    /// The processes whose tree is recorded.
    pub pids: Vec<u32>,
    /// Scheduling of all processes is recorded.
    pub everything: bool,
    /// Only what concerns threads with such names; none: all.
    #[serde(default)]
    pub thread_names: Vec<String>,
    /// `off`, `lazy`, `target`
    pub syscalls: String,
    /// `off`, `application`, `application-all`, `library`, `all`
    pub stacks: String,
    /// Call sites kept of one stack, beside where the thread was.
    pub stack_budget: u32,
    /// Bytes of each stack that were copied; 0: words that lie in code were kept.
    #[serde(default)]
    pub stack_copy: u64,
    /// The interrupt context of wakes is known.
    pub contexts: bool,
    /// CPUs that the recorder may run on; 0 for imported files.
    pub cpus: u32,
    /// Name of the host, as the user gave it or as the host calls itself.
    #[serde(default)]
    pub host: String,
    /// The kernel's random name for the time since it booted: while it is the same, so is the
    /// clock.
    #[serde(default)]
    pub boot_id: String,
    /// What threads send and receive over TCP and UDP is recorded.
    #[serde(default)]
    pub network: bool,
    /// Its release, as `uname -r` has it.
    pub kernel: String,
    /// Size of the ring between kernel and recorder; 0 for imported files.
    pub buffer_bytes: u64,
    /// Bytes on the disk that the file was to stay within.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// What had been recorded before this block.
    #[serde(default)]
    pub before: Before,
    /// CLOCK_MONOTONIC and wall clock (since 1970) at the same moment, ns.
    pub started: u64,
    /// See `started`.
    pub started_unix_ns: u64,
}

impl Info {
    /// Which threads' names are recorded.
    pub fn names(&self) -> NamePatterns {
        NamePatterns::new(&self.thread_names).unwrap_or_default()
    }
}

/// Events that stand before a segment of the file, or stood there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Those that are marks of a loss do not count.
    pub events: u64,
    /// Events that the file says were lost there.
    pub lost: u64,
}

/// A thread that was there before the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadFact {
    /// In the recorder's pid namespace; from 2^30 on of none that it shows.
    pub tid: u32,
    /// Of its process, numbered likewise.
    pub pid: u32,
    /// As the kernel has it (`comm`), at most 15 bytes.
    pub name: String,
    /// A thread of the kernel's, which runs no program.
    #[serde(default)]
    pub kernel: bool,
    /// The process that started its own; 0: not known.
    #[serde(default)]
    pub parent: u32,
}

/// The code of a process: the lines of /proc/PID/maps that are executable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapsFact {
    /// CLOCK_MONOTONIC ns at which it was read.
    pub ts: u64,
    /// In the recorder's pid namespace.
    pub pid: u32,
    /// Those lines, unchanged.
    pub text: String,
}

/// A Python function that threads were found in, or a function of the kernel that they waited in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PythonFact {
    /// What stacks have for it, see [`crate::PYTHON`].
    pub number: u32,
    /// Its qualified name.
    pub name: String,
    /// As its code object has it: `co_filename`; empty: of the kernel.
    pub file: String,
    /// The line of its `def`.
    pub line: u32,
}

/// What a descriptor was when it was looked up, at `ts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescriptorFact {
    /// CLOCK_MONOTONIC ns.
    pub ts: u64,
    /// The process in which `fd` means this.
    pub pid: u32,
    /// Number of the descriptor.
    pub fd: i32,
    /// As /proc/PID/fd/N links: `pipe:[123]`, `socket:[5]`, `anon_inode:[eventfd]`, a path.
    pub target: String,
    /// The target of the socket's other end, if it is connected and its other end could be found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Address and port of that end of an internet socket; of a Unix socket its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Where a socket listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Other processes that have the other end of a pipe or socket open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<EndFact>,
    /// Messages are received one by one, not as a stream of bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub records: bool,
}

/// A process that has an end of a pipe or socket open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndFact {
    /// In the recorder's pid namespace.
    pub pid: u32,
    /// Of its first thread, as the kernel has it (`comm`).
    pub name: String,
}

/// "Here it hung."
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// CLOCK_MONOTONIC ns.
    pub ts: u64,
    /// As the user gave it, or which thread hung; may be empty.
    pub text: String,
    /// The thread that hung, if the recorder noticed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// Where that was, in a graph of several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Something that was announced while recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// `fallback`, `lost`, `warning`
    pub level: String,
    /// For people, as it was announced.
    pub text: String,
}

/// The last block. A file without it comes from a recorder that was killed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// CLOCK_MONOTONIC ns at which the recording ended.
    pub ts: u64,
    /// `program-ended`, `target-ended`, `duration`, `interrupted`; `imported`: of another
    /// recorder's file
    pub reason: String,
    /// The program's exit status, as a shell gives it.
    pub exit_status: Option<i32>,
    /// Those that are marks of a loss do not count.
    pub events: u64,
    /// Bytes of the records as BPF wrote them, the ring's own header included.
    pub raw_bytes: u64,
    /// Events for which there was no room.
    pub lost: u64,
    /// By CPU number; CPUs that lost nothing are left out.
    pub lost_cpus: BTreeMap<u32, u64>,
    /// Stacks for which there was no room in the table.
    pub stacks_dropped: u64,
    /// Processes that recorded ones started, but that were not followed: there was no room for
    /// more.
    #[serde(default)]
    pub lost_processes: u64,
}
