// SPDX-License-Identifier: MIT
//! A descriptor that a call waits on.

use flagfinder_linux::proc::link;
use flagfinder_waits::call;
use flagfinder_waits::descriptor::{is_epoll, watched};
use flagfinder_waits::proc;

use super::obstacle::{Debtor, End, Obstacle};
use super::process::Processes;
use super::report::Kind;

/// Holders of the other end that are followed.
pub const MOST_HOLDERS: usize = 8;

/// Where a descriptor leads.
pub struct Place<'t> {
    pub pid: u32,
    pub tid: u32,
    pub fd: i32,
    /// `read on fd 3`
    pub call: &'t str,
    pub target: String,
}

impl Place<'_> {
    pub fn named(&self, what: &str) -> String {
        format!("{} on fd {}, {what}", self.call, self.fd)
    }
    pub fn ends(&self, what: &str, end: End) -> Vec<Obstacle> {
        vec![Obstacle::ends(Kind::Call, self.named(what), end)]
    }
    pub fn owed(&self, what: &str, debtors: Vec<Debtor>) -> Vec<Obstacle> {
        vec![Obstacle::owed(Kind::Call, self.named(what), debtors)]
    }
}

/// Is the thread in a call on this file, as /proc/PID/fd links, or on an epoll descriptor with it?
pub fn is_on(processes: &mut Processes, pid: u32, tid: u32, target: &str) -> bool {
    let Some(process) = processes.get(pid) else {
        return false;
    };
    let Some(inside) = &process.inside else {
        return false;
    };
    let call = process.activity(tid).and_then(|activity| activity.call);
    let call = call.or_else(|| proc::look(pid, tid)?.call);
    let descriptors = call.map_or_else(Vec::new, |call| call::descriptors(&call, &*inside.memory));
    let is_it = |fd: &i32| link(pid, *fd).is_some_and(|link| link == target);
    let watches = |fd: &i32| is_epoll(pid, *fd) && watched(pid, *fd).iter().any(is_it);
    descriptors.iter().any(|fd| is_it(fd) || watches(fd))
}
