// SPDX-License-Identifier: MIT
//! What the descriptors are that threads wait on or send through, looked up in /proc soon after
//! they were used; of sockets also the other end.
//!
//! A number may be closed and opened again meanwhile: so a descriptor is looked up again after a
//! second, and at once when a call is seen that may have changed it, or that the file does not fit.
//! What is written says when it was looked up.

use std::collections::BTreeSet;

use flagfinder_linux::proc::link;
use flagfinder_linux::traits;
use rustc_hash::FxHashMap;

use crate::call::Call;
use crate::event::{Event, Kind};
use crate::facts::DescriptorFact;
use crate::threads::Threads;
use flagfinder_waits::descriptor::socket;
use flagfinder_waits::Sockets;

const TRUSTED: u64 = 1_000_000_000;
/// Look-ups between two flushes; each takes some microseconds from the consumer.
const MOST: usize = 500;

#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    /// With the time until which they are trusted.
    known: FxHashMap<(u32, i32), (u64, DescriptorFact)>,
    /// Since the last time that any were taken; whether they may change at once.
    looked_at: Vec<(DescriptorFact, bool)>,
    looked_up: usize,
}

/// It has its other end only afterwards.
const CONNECT: u16 = libc::SYS_connect as u16;

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
        if traits::replaces_descriptor(call.number.into()) {
            self.known.remove(&(pid, fd));
            return;
        }
        let known = self.known.get(&(pid, fd));
        let needs_socket = traits::needs_socket(call.number.into());
        // A call on sockets says that the number was closed, and opened again, unseen.
        let fits = |fact: &DescriptorFact| !needs_socket || socket(&fact.target).is_some();
        let is_known = known.is_some_and(|(until, fact)| now < *until && fits(fact));
        if is_known || self.looked_up >= MOST || self.is_looked_at(pid, fd) {
            return;
        }
        self.looked_up += 1;
        let Some(target) = link(pid, fd) else {
            return;
        };
        let fact = DescriptorFact {
            ts: now,
            pid,
            fd,
            target,
            ..DescriptorFact::default()
        };
        self.looked_at.push((fact, call.number == CONNECT));
    }

    /// What was found later of one of them.
    pub fn learn(&mut self, found: &DescriptorFact) {
        let known = self.known.get_mut(&(found.pid, found.fd));
        if let Some((_, fact)) = known.filter(|(_, fact)| fact.target == found.target) {
            fact.clone_from(found);
        }
    }

    /// All, as they were when they were last looked up.
    pub fn known(&self) -> Vec<&DescriptorFact> {
        self.known.values().map(|(_, fact)| fact).collect()
    }

    /// Forgets those of other processes.
    pub fn retain(&mut self, pids: &BTreeSet<u32>) {
        self.known.retain(|(pid, _), _| pids.contains(pid));
    }

    fn is_looked_at(&self, pid: u32, fd: i32) -> bool {
        let mut all = self.looked_at.iter();
        all.any(|(fact, _)| (fact.pid, fact.fd) == (pid, fd))
    }

    /// Those that are new since the last time, sockets with their other ends.
    pub fn take(&mut self) -> Vec<DescriptorFact> {
        self.looked_up = 0;
        let mut sockets: Option<Sockets> = None;
        let mut found = Vec::new();
        for (mut fact, is_changing) in std::mem::take(&mut self.looked_at) {
            if let Some(inode) = socket(&fact.target) {
                if sockets.is_none() {
                    sockets = Sockets::new().ok();
                }
                let peer = sockets.as_mut().and_then(|all| all.peer(inode));
                fact.records = peer.is_some_and(|peer| peer.records);
                fact.remote = sockets.as_mut().and_then(|all| all.remote(inode));
                fact.at = sockets.as_mut().and_then(|all| all.own(inode));
                fact.peer = peer.map(|peer| format!("socket:[{}]", peer.inode));
            }
            let key = (fact.pid, fact.fd);
            let until = fact.ts + if is_changing { 0 } else { TRUSTED };
            let before = self.known.get(&key).map(|(_, before)| before);
            let same = |b: &&DescriptorFact| {
                b.target == fact.target && b.peer == fact.peer && b.remote == fact.remote
            };
            match before.filter(same) {
                Some(before) => fact.ends.clone_from(&before.ends),
                None => found.push(fact.clone()),
            }
            self.known.insert(key, (until, fact));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_call_on_sockets_looks_again_at_what_was_a_file() {
        let mut descriptors = Descriptors::default();
        let file: OwnedFd = File::open("/dev/null").expect("opened").into();
        let (one, _other) = UnixStream::pair().expect("a pair");
        let pid = Some(std::process::id());
        let mut look = |number: libc::c_long, now| {
            let argument = file.as_raw_fd() as u64;
            let (number, first) = (number as u16, argument);
            descriptors.see_call(pid, Call { number, first }, now);
            let found = descriptors.take();
            found
                .into_iter()
                .map(|fact| fact.target)
                .collect::<Vec<_>>()
        };
        assert_eq!(look(libc::SYS_read, 1), ["/dev/null"]);
        // SAFETY: both are descriptors of ours.
        assert!(unsafe { libc::dup2(one.as_raw_fd(), file.as_raw_fd()) } >= 0);
        assert_eq!(look(libc::SYS_read, 2), [""; 0]);
        assert!(look(libc::SYS_recvfrom, 3)[0].starts_with("socket:["));
        assert_eq!(look(libc::SYS_recvfrom, 4), [""; 0]);
    }
}
