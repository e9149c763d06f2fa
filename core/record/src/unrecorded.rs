// SPDX-License-Identifier: MIT
//! Processes that the target started and that nobody records: which of them keep a processor busy?
//!
//! In: looks at /proc, one a second. Busy is a thread that ran or waited for a processor nearly all
//! the time. Blind spots: a process that left its parents before it was first seen, and one that
//! sleeps between two looks at what it waits for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use flagfinder_linux::proc::threads;
use flagfinder_waits::proc;

use crate::family::started;

/// Time between two looks: each reads all of /proc.
const EVERY: Duration = Duration::from_secs(1);
/// A thread that was busy for so long is reported.
const LONG: Duration = Duration::from_secs(2);
/// The part of the time, in hundredths, that a busy thread runs or waits for a processor.
const BUSY: u32 = 80;
/// Most threads of one process that are looked at.
const THREADS: usize = 64;

#[derive(Default)]
pub struct Unrecorded {
    looked: Option<Instant>,
    known: HashMap<u32, Process>,
}

struct Process {
    /// In the kernel's ticks since boot: a number may be given to another process.
    started: u64,
    threads: HashMap<u32, Thread>,
}

struct Thread {
    /// Time run and waited for a processor.
    wanted: Duration,
    at: Instant,
    busy_since: Instant,
}

impl Thread {
    fn see(&mut self, wanted: Duration, now: Instant) {
        if wanted.saturating_sub(self.wanted) * 100 < (now - self.at) * BUSY {
            self.busy_since = now;
        }
        (self.wanted, self.at) = (wanted, now);
    }

    fn is_busy(&self) -> bool {
        self.at - self.busy_since >= LONG
    }
}

impl Unrecorded {
    /// Looks, if it is time to, at what descends from `root` and is not among the `recorded`.
    pub fn look(&mut self, root: u32, recorded: &[u32], now: Instant) {
        if self.looked.is_some_and(|looked| now - looked < EVERY) {
            return;
        }
        self.looked = Some(now);
        // A process whose parent has ended descends from nobody any more.
        let known = self.known.keys().copied();
        let roots: Vec<u32> = std::iter::once(root).chain(known).collect();
        let mut before = std::mem::take(&mut self.known);
        for pid in flagfinder_waits::descendants(&roots) {
            if pid == root || recorded.contains(&pid) {
                continue;
            }
            let Some(started) = started(pid) else {
                continue;
            };
            let known = before.remove(&pid);
            let mut process = known
                .filter(|known| known.started == started)
                .unwrap_or_else(|| Process {
                    started,
                    threads: HashMap::new(),
                });
            process.see(pid, now);
            self.known.insert(pid, process);
        }
    }

    /// The processes that are busy and have been for long.
    pub fn busy(&self) -> Vec<u32> {
        let busy = self
            .known
            .iter()
            .filter(|(_, process)| process.threads.values().any(Thread::is_busy));
        let mut pids: Vec<u32> = busy.map(|(&pid, _)| pid).collect();
        pids.sort_unstable();
        pids
    }
}

impl Process {
    fn see(&mut self, pid: u32, now: Instant) {
        let tids = threads(pid).unwrap_or_default();
        let mut before = std::mem::take(&mut self.threads);
        for tid in tids.into_iter().take(THREADS) {
            let Some((ran, queued)) = proc::times(pid, tid) else {
                continue;
            };
            let wanted = Duration::from_nanos(ran.saturating_add(queued));
            let mut thread = before.remove(&tid).unwrap_or(Thread {
                wanted,
                at: now,
                busy_since: now,
            });
            thread.see(wanted, now);
            self.threads.insert(tid, thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn shell(script: &str) -> Ended {
        let child = Command::new("sh").args(["-c", script]).spawn();
        Ended(child.expect("a shell"))
    }

    #[test]
    fn a_child_that_loops_is_busy_and_one_that_sleeps_is_not() {
        let busy = shell("while :; do :; done");
        let asleep = shell("exec sleep 100");
        let recorded = shell("while :; do :; done");
        let mut looks = Unrecorded::default();
        let began = Instant::now();
        while looks.busy().is_empty() && began.elapsed() < Duration::from_secs(60) {
            looks.look(std::process::id(), &[recorded.0.id()], Instant::now());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(looks.known.contains_key(&asleep.0.id()));
        let found = looks.busy();
        assert!(found.contains(&busy.0.id()));
        let others = [asleep.0.id(), recorded.0.id()];
        assert!(!found.iter().any(|pid| others.contains(pid)));
    }

    #[test]
    fn waiting_for_a_processor_counts_as_using_it() {
        let began = Instant::now();
        let second = Duration::from_secs(1);
        let busy_after = |wanted: [u64; 3]| {
            let mut thread = Thread {
                wanted: Duration::ZERO,
                at: began,
                busy_since: began,
            };
            for (number, ms) in wanted.into_iter().enumerate() {
                let at = began + second * (number as u32 + 1);
                thread.see(Duration::from_millis(ms), at);
            }
            thread.is_busy()
        };
        assert!(busy_after([990, 1950, 2900]));
        assert!(!busy_after([990, 1950, 2000]), "it has begun to sleep");
        assert!(!busy_after([0, 0, 900]), "not yet for long");
    }
}
