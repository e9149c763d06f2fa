// SPDX-License-Identifier: MIT
//! The processes that write to the pool, as the kernel knows them.
//!
//! What stands in shared memory is the target's word: it says which processes to ask about, but
//! never which to end. A process introduces itself by a lock on the pool's file
//! (`include/ff_protocol.h`); the kernel says who holds it, in this process's pid namespace. From
//! then on a pidfd stands for it, which never names another process.
//!
//! Blind spots: a process whose tracer could not introduce it (fcntl forbidden) is recorded under
//! the pid that it has in its own namespace, is not waited for and not ended.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

use flagfinder_linux::pidfd;
use flagfinder_linux::proc::Stat;

use crate::lock::lock;
use crate::pool::Pool;

/// More ancestors than any process has.
const DEEPEST: usize = 1000;

pub struct Family {
    root: u32,
    /// When it started, in the kernel's ticks since boot, and whose it is.
    started: u64,
    uid: u32,
    members: Mutex<BTreeMap<u32, Member>>,
}

enum Member {
    Runs(OwnedFd),
    Ended,
}

impl Family {
    /// `root` is this process's child and not reaped yet.
    pub fn of(root: u32) -> Family {
        let root_runs = pidfd::open(root).map_or(Member::Ended, Member::Runs);
        Family {
            root,
            started: started(root).unwrap_or(0),
            uid: owner(root).unwrap_or(u32::MAX),
            members: Mutex::new(BTreeMap::from([(root, root_runs)])),
        }
    }

    /// Answers the processes that ask who they are.
    pub fn answer(&self, pool: &Pool) {
        for (place, number) in pool.introductions() {
            let pid = pool.holder(number).filter(|&pid| {
                self.admit(pid, || pool.holder(number) == Some(pid));
                true
            });
            pool.answer(place, pid);
        }
    }

    /// Takes a process in, if it is the target's child, near or far. `is_still` tells that the pid
    /// is still that of the process that is meant, once there is a pidfd.
    fn admit(&self, pid: u32, is_still: impl Fn() -> bool) {
        let mut members = lock(&self.members);
        if members.get(&pid).is_some_and(Member::runs) {
            return;
        }
        let Ok(process) = pidfd::open(pid) else {
            return;
        };
        if self.is_ours(pid, &members) && is_still() {
            members.insert(pid, Member::Runs(process));
        }
    }

    /// Does it descend from a member? If its parent has ended, its descent can't be seen. Then it
    /// must belong to the target's user, who could end it himself, and be younger than the target.
    fn is_ours(&self, pid: u32, members: &BTreeMap<u32, Member>) -> bool {
        let mut at = pid;
        for _ in 0..DEEPEST {
            let Some(parent) = Stat::of(at).and_then(|stat| stat.field(Stat::PARENT)) else {
                return false;
            };
            if members.get(&parent).is_some_and(Member::runs) {
                return true;
            }
            if parent <= 1 {
                break;
            }
            at = parent;
        }
        let young = started(pid).is_some_and(|started| started >= self.started);
        young && owner(pid) == Some(self.uid)
    }

    /// All that run.
    pub fn running(&self) -> Vec<u32> {
        self.by_state(true)
    }

    pub fn ended(&self) -> Vec<u32> {
        self.by_state(false)
    }

    fn by_state(&self, wanted: bool) -> Vec<u32> {
        let mut members = lock(&self.members);
        for member in members.values_mut() {
            // Its pidfd is no longer needed.
            if !member.runs() {
                *member = Member::Ended;
            }
        }
        let chosen = members
            .iter()
            .filter(|(_, member)| matches!(member, Member::Runs(_)) == wanted);
        chosen.map(|(&pid, _)| pid).collect()
    }

    /// Does a child of the target run?
    pub fn children_run(&self) -> bool {
        self.running().iter().any(|&pid| pid != self.root)
    }

    /// SIGKILL to the children.
    pub fn kill_children(&self) {
        for (&pid, member) in lock(&self.members).iter() {
            if let (Member::Runs(process), true) = (member, pid != self.root) {
                let _ = pidfd::send(process, libc::SIGKILL);
            }
        }
    }
}

impl Member {
    /// A zombie does not run.
    fn runs(&self) -> bool {
        matches!(self, Member::Runs(process) if !pidfd::has_ended(process))
    }
}

fn owner(pid: u32) -> Option<u32> {
    let facts = std::fs::metadata(format!("/proc/{pid}")).ok()?;
    Some(facts.uid())
}

/// In the kernel's ticks since boot.
pub fn started(pid: u32) -> Option<u64> {
    Stat::of(pid)?.field(Stat::STARTED)
}
