// SPDX-License-Identifier: MIT
//! What /proc tells about the target while it runs: memory maps and thread names.
//!
//! Looking costs the target its mmap lock for a moment, so the looks grow rare
//! while nothing changes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use flagfinder_linux::clock;
use flagfinder_trace::{SectionKind, SectionMeta};

use crate::lock::lock;
use crate::sink::Sink;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct Observer {
    processes: BTreeMap<u32, Observed>,
}

struct Observed {
    next: Instant,
    interval: Duration,
    maps: String,
    names: BTreeMap<u32, String>,
}

impl Observer {
    /// Looks at each process whose turn it is; all of them when `now` is demanded.
    pub fn look(&mut self, pids: &[u32], demanded: bool, sink: &Mutex<Sink>) {
        let now = Instant::now();
        for &pid in pids {
            let observed = self.processes.entry(pid).or_insert_with(|| Observed {
                next: now,
                interval: FIRST,
                maps: String::new(),
                names: BTreeMap::new(),
            });
            if demanded || observed.next <= now {
                let changed = observed.look(pid, sink);
                // A program whose maps change all the time is not looked at more often for that.
                let longest = if changed { LONGEST / 2 } else { LONGEST };
                observed.interval = (observed.interval * 2).min(longest);
                observed.next = now + observed.interval;
            }
        }
    }
}

impl Observed {
    fn look(&mut self, pid: u32, sink: &Mutex<Sink>) -> bool {
        let mut changed = false;
        let ts = clock::monotonic();
        let meta = |kind| SectionMeta {
            pid,
            ts_open: ts,
            ts_full: ts,
            ..SectionMeta::new(kind)
        };
        let maps = flagfinder_linux::proc::text_of(pid, "maps").unwrap_or_default();
        if !maps.is_empty() && maps != self.maps {
            lock(sink).section(&meta(SectionKind::Maps), maps.as_bytes());
            self.maps = maps;
            changed = true;
        }
        let names = thread_names(pid);
        if names
            .iter()
            .any(|(tid, name)| self.names.get(tid) != Some(name))
        {
            // Ended threads keep their last name.
            self.names.extend(names);
            if let Ok(text) = serde_json::to_vec(&self.names) {
                lock(sink).section(&meta(SectionKind::Names), &text);
            }
            changed = true;
        }
        changed
    }
}

/// The pid or tid that a task has in its own pid namespace, if that is another than ours: from its
/// directory in /proc.
fn own_id(task: &Path) -> Option<u32> {
    let status = flagfinder_linux::proc::text(task.join("status")).ok()?;
    let ids = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().skip(1).last()?.parse().ok()
}

/// How long a thread has waited for a processor in its life; zero if the kernel does not tell, or
/// knows the thread by another number.
pub fn waited_for_processor(pid: u32, tid: u32) -> Duration {
    if own_id(Path::new(&format!("/proc/{pid}"))).is_some() {
        return Duration::ZERO;
    }
    let times = flagfinder_waits::proc::times(pid, tid);
    Duration::from_nanos(times.map_or(0, |(_, queued)| queued))
}

/// By tid as the threads themselves know it, which is what the tracer writes.
fn thread_names(pid: u32) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    let has_own_ids = own_id(Path::new(&format!("/proc/{pid}"))).is_some();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return names;
    };
    for task in tasks.flatten() {
        let tid = match has_own_ids {
            true => own_id(&task.path()),
            false => task.file_name().to_str().and_then(|name| name.parse().ok()),
        };
        let name = std::fs::read(task.path().join("comm")).ok();
        if let (Some(tid), Some(name)) = (tid, name) {
            names.insert(
                tid,
                String::from_utf8_lossy(&name)
                    .trim_end_matches('\n')
                    .to_owned(),
            );
        }
    }
    names
}
