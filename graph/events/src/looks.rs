// SPDX-License-Identifier: MIT
//! Looks at what the target's threads are in, and whom they wait for: at marks, and at the end. It
//! also looks at what a call is about that a thread makes over and over.
//!
//! They read much of /proc. So each has a thread of its own, and the ring is drained meanwhile.

use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use flagfinder_code::ProcessMemory;
use flagfinder_linux::clock;
use flagfinder_waits::hot_call::{told, HotCall};
use flagfinder_waits::{look, Look, Looked, Owners};

use crate::processes::thread_name;

/// How long one look may take.
pub(crate) const LIMIT: Duration = Duration::from_millis(800);

/// Most looks that run at once: those that run answer further requests.
const MOST: usize = 4;

/// The looks that go on.
#[derive(Default)]
pub(crate) struct Looks {
    running: Vec<JoinHandle<Look>>,
}

impl Looks {
    /// Looks at the threads of these processes. When the look has ended, `done` is dropped.
    pub fn begin(&mut self, pids: Vec<u32>, done: Option<Sender<()>>) {
        if self.running.len() >= MOST {
            return;
        }
        let looking = std::thread::Builder::new().name("ff-looks".into());
        let started = looking.spawn(move || {
            let found = look(&pids, LIMIT, clock::kernel);
            drop(done);
            found
        });
        // Without memory for a thread the recording goes on without the look.
        self.running.extend(started);
    }

    /// Looks at the descriptors of these calls: process, thread, call.
    pub fn begin_hot(&mut self, calls: Vec<(u32, u32, HotCall)>) {
        if calls.is_empty() || self.running.len() >= MOST {
            return;
        }
        let looking = std::thread::Builder::new().name("ff-looks".into());
        let started = looking.spawn(move || {
            let mut owners = Owners::default();
            let calls = calls.iter();
            let threads = calls.filter_map(|(pid, tid, call)| hot(*pid, *tid, call, &mut owners));
            Look {
                threads: threads.collect(),
                missing: None,
            }
        });
        self.running.extend(started);
    }

    /// What finished looks have found; `all`: waits for the others.
    pub fn take(&mut self, all: bool) -> Vec<Look> {
        let running = std::mem::take(&mut self.running).into_iter();
        let (done, running) = running.partition(|one| all || one.is_finished());
        self.running = running;
        let done: Vec<JoinHandle<Look>> = done;
        done.into_iter().filter_map(|one| one.join().ok()).collect()
    }
}

/// `None`: the process's memory may not be read.
fn hot(pid: u32, tid: u32, call: &HotCall, owners: &mut Owners) -> Option<Looked> {
    let memory = ProcessMemory::open(pid).ok()?;
    Some(Looked {
        ts: clock::kernel(),
        tid,
        pid,
        name: thread_name(pid, tid),
        state: 'R',
        call: Some(call.number),
        first: call.args[0],
        how: None,
        by: Vec::new(),
        descriptors: told(Some(pid), call, &memory, owners),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_look_finds_its_own_process_and_tells_when_it_is_done() {
        let mut looks = Looks::default();
        let (done, ended) = channel();
        let before = clock::kernel();
        looks.begin(vec![std::process::id()], Some(done));
        assert!(ended.recv().is_err());
        let found = looks.take(true);
        let own = found[0]
            .threads
            .iter()
            .filter(|t| t.pid == std::process::id());
        assert!(own.clone().count() > 0);
        assert!(own.clone().all(|thread| thread.ts >= before));
        assert!(looks.take(true).is_empty());
    }

    #[test]
    fn many_marks_at_once_make_few_looks() {
        let mut looks = Looks::default();
        (0..100).for_each(|_| looks.begin(vec![std::process::id()], None));
        assert_eq!(looks.take(true).len(), MOST);
    }
}
