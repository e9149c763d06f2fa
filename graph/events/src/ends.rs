// SPDX-License-Identifier: MIT
//! Which processes have the other ends of pipes and sockets open, also those that are not recorded.
//!
//! /proc tells it only by looking through all processes. So that has a thread of its own, is done
//! for many descriptors at once, and not often. Blind spot: what lives for less than a second.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flagfinder_linux::proc::link;
use flagfinder_waits::descriptor::{describe, socket};
use flagfinder_waits::{is_fifo, Owners, Sockets};

use crate::facts::{DescriptorFact, EndFact};

/// Time between two looks.
const REST: Duration = Duration::from_secs(10);
/// Time before the first look: processes that start each other open much at first.
const SETTLES: Duration = Duration::from_millis(200);
/// How long one look may take. Only the end of a recording waits for it.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most descriptors that are asked about at once, and most processes that are told of each.
const MOST: usize = 64;
const MOST_ENDS: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// By process and number; what was asked for before is not asked again.
    waiting: BTreeMap<(u32, i32), DescriptorFact>,
    due: Option<Instant>,
    running: Option<JoinHandle<Vec<DescriptorFact>>>,
}

impl Ends {
    /// Asks for those of the facts that can have other ends.
    pub fn ask(&mut self, facts: &[DescriptorFact]) {
        for fact in facts {
            let target = &fact.target;
            let has_ends = target.starts_with("pipe:[")
                || target.starts_with("socket:[")
                || target.starts_with('/') && is_fifo(fact.pid, fact.fd);
            if has_ends && self.waiting.len() < MOST {
                self.waiting.insert((fact.pid, fact.fd), fact.clone());
            }
        }
        if !self.waiting.is_empty() && self.due.is_none() {
            self.due = Some(Instant::now() + SETTLES);
        }
    }

    /// The facts whose ends were found; `all`: waits for the running look and for the next one.
    pub fn take(&mut self, all: bool) -> Vec<DescriptorFact> {
        let mut found = Vec::new();
        let is_done = |one: &JoinHandle<_>| all || one.is_finished();
        if self.running.as_ref().is_some_and(is_done) {
            let done = self.running.take().and_then(|one| one.join().ok());
            found.extend(done.into_iter().flatten());
        }
        let now = Instant::now();
        let is_due = all || self.due.is_some_and(|at| at <= now);
        if is_due && self.running.is_none() && !self.waiting.is_empty() {
            let facts = std::mem::take(&mut self.waiting).into_values().collect();
            self.due = Some(now + REST);
            if all {
                found.extend(ends(facts));
            } else {
                let looking = std::thread::Builder::new().name("ff-ends".into());
                // Without memory for a thread the recording goes on without the look.
                self.running = looking.spawn(move || ends(facts)).ok();
            }
        }
        found
    }
}

/// Facts of which another end was found. By now the number may be something else.
fn ends(facts: Vec<DescriptorFact>) -> Vec<DescriptorFact> {
    let mut owners = Owners::within(PATIENCE);
    let mut sockets = Sockets::new().ok();
    let mut found = Vec::new();
    for mut fact in facts {
        if link(fact.pid, fact.fd).is_none_or(|link| link != fact.target) {
            continue;
        }
        let inode = socket(&fact.target);
        let sockets = sockets.as_mut().filter(|_| fact.peer.is_none());
        if let Some((inode, sockets)) = inode.zip(sockets) {
            // It may have been looked at before the other side had accepted the connection.
            let peer = sockets.peer(inode);
            fact.records = peer.is_some_and(|peer| peer.records);
            fact.peer = peer.map(|peer| format!("socket:[{}]", peer.inode));
            fact.remote = sockets.remote(inode);
        }
        let others = describe(fact.pid, fact.fd, &mut owners).others.into_iter();
        let others = others.filter(|owner| owner.pid != fact.pid);
        let mut ends: Vec<EndFact> = others
            .map(|owner| EndFact {
                pid: owner.pid,
                name: owner.name,
            })
            .collect();
        ends.dedup_by_key(|end| end.pid);
        ends.truncate(MOST_ENDS);
        if !ends.is_empty() || fact.peer.is_some() {
            fact.ends = ends;
            found.push(fact);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

    #[test]
    fn an_unrecorded_reader_of_a_pipe_is_found() {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pipe = cat.stdin.take().unwrap();
        let pid = std::process::id();
        let fd = pipe.as_raw_fd();
        let target = link(pid, fd).unwrap();
        let fact = DescriptorFact {
            pid,
            fd,
            target,
            ..DescriptorFact::default()
        };
        let other = DescriptorFact {
            target: "pipe:[1]".into(),
            ..fact.clone()
        };
        let file = DescriptorFact {
            target: "/etc/passwd".into(),
            ..fact.clone()
        };
        let mut looked = Ends::default();
        looked.ask(&[file]);
        assert!(looked.take(true).is_empty());
        looked.ask(&[other]);
        assert!(looked.take(true).is_empty(), "it is another by now");
        looked.ask(&[fact]);
        let found = looked.take(true);
        drop(pipe);
        cat.wait().unwrap();
        let ends: Vec<_> = found[0].ends.iter().map(|end| end.pid).collect();
        assert_eq!(ends, [cat.id()]);
    }
}
