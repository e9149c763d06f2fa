// SPDX-License-Identifier: MIT
//! The processes on the way, each looked at once and without stopping anything.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use flagfinder_code::{own_id, Code, Names, NamesInput};
use rustc_hash::FxHashMap;

use crate::memory::Memory;
use crate::sample::{self, Activity};
use crate::stack;
use flagfinder_waits::proc::Call;
use flagfinder_waits::Owners;

/// Of a process other than the first: how long its threads are watched.
const SAMPLE: Duration = Duration::from_millis(100);
/// For finding who holds the other ends of pipes and sockets.
const PATIENCE: Duration = Duration::from_millis(1500);

/// One process.
pub struct Process {
    pub pid: u32,
    /// Threads as they behaved, the first thread first.
    pub activities: Vec<Activity>,
    /// `None`: it may not be looked into.
    pub inside: Option<Inside>,
    /// The id that the process itself sees, and ours.
    pub own_ids: BTreeMap<u32, u32>,
}

/// Its memory and what lies there.
pub struct Inside {
    pub memory: Memory,
    pub names: Names,
}

impl Process {
    /// `None`: it is gone.
    fn look(pid: u32) -> Option<Process> {
        let activities = sample::sample(pid, SAMPLE).ok()?;
        let tids = activities.iter().map(|activity| activity.tid);
        let own_ids = tids.map(|tid| (own_id(pid, tid), tid)).collect();
        let inside = || {
            Some(Inside {
                memory: Memory::open(pid).ok()?,
                names: Names::new(NamesInput::from_live(pid).ok()?),
            })
        };
        Some(Process {
            pid,
            inside: inside(),
            own_ids,
            activities,
        })
    }

    pub fn activity(&self, tid: u32) -> Option<&Activity> {
        self.activities.iter().find(|a| a.tid == tid)
    }

    /// Threads that are alive.
    pub fn tids(&self) -> Vec<u32> {
        let living = self.activities.iter().filter(|a| !is_over(a.state));
        living.map(|a| a.tid).collect()
    }

    pub fn stack(&self, call: &Call) -> Vec<Code> {
        self.inside.as_ref().map_or_else(Vec::new, |inside| {
            stack::scan(call, &inside.memory, &inside.names)
        })
    }
}

/// A zombie, or one that is going.
pub fn is_over(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// All processes that were looked at.
pub struct Processes {
    by_pid: FxHashMap<u32, Option<Process>>,
    pub owners: Owners,
}

impl Default for Processes {
    fn default() -> Self {
        Processes {
            by_pid: FxHashMap::default(),
            owners: Owners::within(PATIENCE),
        }
    }
}

impl Processes {
    /// `None`: there is none of that number.
    pub fn get(&mut self, pid: u32) -> Option<&Process> {
        let looked = self.by_pid.entry(pid).or_insert_with(|| Process::look(pid));
        looked.as_ref()
    }
}

/// Name of a thread, of its process where it is gone, or nothing.
pub fn name(pid: u32, tid: u32) -> String {
    let read = |path: String| fs::read_to_string(path).ok();
    let name = read(format!("/proc/{pid}/task/{tid}/comm"));
    let name = name.or_else(|| read(format!("/proc/{pid}/comm")));
    name.unwrap_or_default().trim_end().to_owned()
}

/// A number of /proc/PID/status.
pub fn status_number(pid: u32, field: &str) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

/// All processes that there are.
pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.collect()
}

/// Those that a process started and that have not been waited for.
pub fn children(pid: u32) -> Vec<u32> {
    let is_child = |child: &u32| status_number(*child, "PPid:") == Some(pid);
    all().into_iter().filter(is_child).collect()
}
