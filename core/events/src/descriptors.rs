//! What the descriptors are that threads wait on or send through, looked up in /proc soon after they were used.
//!
//! A number may be closed and opened again meanwhile: so a descriptor is looked up again after a second, and at once when a call is seen
//! that may have changed it. What is written says when it was looked up.

use std::collections::BTreeSet;
use std::fs;

use rustc_hash::FxHashMap;

use crate::call::Call;
use crate::event::{Event, Kind};
use crate::facts::DescriptorFact;
use crate::threads::Threads;

const TRUSTED: u64 = 1_000_000_000;
/// Look-ups between two flushes; each takes some microseconds from the consumer.
const MOST: usize = 500;

#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    known: FxHashMap<(u32, i32), (u64, String)>,
    found: Vec<DescriptorFact>,
    looked_up: usize,
}

/// close, dup2, dup3: their first or second argument is another file from now on.
const CHANGES: [u16; 3] = [3, 33, 292];

impl Descriptors {
    /// Looks at the event's descriptor, if it has one. `now` is the present time.
    pub fn see(&mut self, event: &Event, threads: &Threads, now: u64) {
        match event.kind {
            Kind::Switch | Kind::Enter | Kind::EnterWide => {
                if let Some(call) = event.call() {
                    self.see_call(threads.pid(event.a), call, now);
                }
            }
            Kind::ExitCall => {
                // openat, socket, accept, pipe, eventfd ..: a new number.
                let opened = event
                    .call_end()
                    .filter(|end| (0..1 << 16).contains(&end.result));
                let pid = threads.pid(event.a);
                if let (Some(end), Some(pid)) = (opened, pid) {
                    if !Call::waits(end.number) && !Call::sends(end.number) {
                        self.known.remove(&(pid, end.result as i32));
                    }
                }
            }
            _ => {}
        }
    }

    fn see_call(&mut self, pid: Option<u32>, call: Call, now: u64) {
        let (Some(fd), Some(pid)) = (call.descriptor(), pid) else {
            return;
        };
        if CHANGES.contains(&call.number) {
            self.known.remove(&(pid, fd));
            return;
        }
        let known = self.known.get(&(pid, fd));
        if known.is_some_and(|(ts, _)| now < ts + TRUSTED) || self.looked_up >= MOST {
            return;
        }
        self.looked_up += 1;
        let Ok(link) = fs::read_link(format!("/proc/{pid}/fd/{fd}")) else {
            return;
        };
        let target = link.to_string_lossy().into_owned();
        let changed = known.is_none_or(|(_, before)| *before != target);
        if changed {
            self.found.push(DescriptorFact {
                ts: now,
                pid,
                fd,
                target: target.clone(),
            });
        }
        self.known.insert((pid, fd), (now, target));
    }

    /// All, as they were when they were last looked up.
    pub fn known(&self) -> Vec<DescriptorFact> {
        let facts = self
            .known
            .iter()
            .map(|(&(pid, fd), (ts, target))| DescriptorFact {
                ts: *ts,
                pid,
                fd,
                target: target.clone(),
            });
        facts.collect()
    }

    /// Forgets those of other processes.
    pub fn retain(&mut self, pids: &BTreeSet<u32>) {
        self.known.retain(|(pid, _), _| pids.contains(pid));
    }

    /// Those that are new since the last time.
    pub fn take(&mut self) -> Vec<DescriptorFact> {
        self.looked_up = 0;
        std::mem::take(&mut self.found)
    }
}
