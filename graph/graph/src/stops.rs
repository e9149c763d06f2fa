// SPDX-License-Identifier: MIT
//! Threads that a signal stopped: which signal, and who sent it.

use flagfinder_events::Event;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// What stopped a thread at the end of a vertex.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Number of the signal; 0: not recorded.
    pub signal: u32,
    /// Index of the thread that sent it; `None`: the terminal, or not recorded.
    pub by: Option<u32>,
}

/// The newest stopping signal of each process.
#[derive(Default)]
pub(crate) struct Stops(FxHashMap<u32, Stop>);

impl Stops {
    /// Whether a signal is one that stops.
    pub fn stops(event: &Event) -> bool {
        let signal = event.halves(0).0 as i32;
        [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal)
    }

    /// Such a signal is sent to a process, by the thread with the index `by`.
    pub fn sent(&mut self, pid: u32, event: &Event, by: Option<u32>) {
        let signal = event.halves(0).0;
        self.0.insert(pid, Stop { signal, by });
    }

    /// What stopped a thread of a process that stops now.
    pub fn of(&self, pid: u32) -> Stop {
        self.0.get(&pid).cloned().unwrap_or_default()
    }
}
