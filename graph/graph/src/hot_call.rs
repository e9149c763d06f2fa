// SPDX-License-Identifier: MIT
//! A call that a vertex repeated and that brought nothing, and what is known of such calls and
//! their descriptors while the graph is built.

use flagfinder_events::{Calls, Told};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// A call that a vertex made all the time and that brought nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotCall {
    pub vertex: u32,
    pub number: u16,
    /// How often, at least.
    pub count: u32,
    /// Result of the newest call.
    pub result: i64,
    /// Descriptors that keep it coming back, as seen while it went on; else the one that it names.
    pub descriptors: Vec<Told>,
    /// Who made each of them, where that was recorded.
    pub opened: Vec<Option<Opened>>,
    /// The function that makes it, as most samples in the call have it; empty: there are none.
    #[serde(default)]
    pub code: String,
}

/// A call that made a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Index of the thread.
    pub thread: u32,
    pub vertex: u32,
    pub ts: u64,
    pub number: u16,
}

/// When a descriptor changed, and who made the new one.
type Change = (u64, Option<Opened>);

/// What the builder knows of repeated calls.
#[derive(Default)]
pub(crate) struct HotCalls {
    /// By thread: the vertex whose calls these are.
    pub calls: Vec<(u32, Calls)>,
    /// By process and descriptor: the newest changes, `None` where it was closed.
    changed: FxHashMap<(u32, i32), Vec<Change>>,
    /// Of a process: who started it, and when.
    parents: FxHashMap<u32, (u32, u64)>,
}

impl HotCalls {
    pub fn forked(&mut self, pid: u32, parent: u32, ts: u64) {
        if pid != parent {
            self.parents.insert(pid, (parent, ts));
        }
    }

    pub fn changes(&mut self, pid: u32, fd: i32, ts: u64, opened: Option<Opened>) {
        /// Changes of one descriptor: a child may still have it as it was before.
        const MOST: usize = 4;
        let all = self.changed.entry((pid, fd)).or_default();
        if all.len() >= MOST {
            all.remove(0);
        }
        all.push((ts, opened));
    }

    /// Who made a descriptor that a process has at a time: the process itself, or one that it is
    /// descended from, before it started it.
    pub fn opened(&self, mut pid: u32, fd: i32, mut ts: u64) -> Option<Opened> {
        const MOST: usize = 64;
        for _ in 0..MOST {
            let known = self.changed.get(&(pid, fd)).map(Vec::as_slice);
            let mut before = known.unwrap_or_default().iter().rev();
            if let Some((_, opened)) = before.find(|(then, _)| *then <= ts) {
                return *opened;
            }
            (pid, ts) = *self.parents.get(&pid)?;
        }
        None
    }
}
