// SPDX-License-Identifier: MIT
//! A descriptor that a call waits on.

use flagfinder_linux::life;
use flagfinder_linux::proc::link;
use flagfinder_waits::awaited;
use flagfinder_waits::call;
use flagfinder_waits::descriptor::{is_epoll, watched};
use flagfinder_waits::proc;

use super::obstacle::{Debtor, End, Obstacle};
use super::process::{status_number, Processes};
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

/// Has this one of several holders of a channel ended since, or has it the channel from another
/// holder that waits for its end? That one goes on to have it then, as the shell of a script does.
pub fn is_passing(processes: &mut Processes, pid: u32, holders: &[u32]) -> bool {
    if holders.len() < 2 {
        return false;
    }
    if processes.get(pid).is_none() {
        return true;
    }
    let parent = status_number(pid, "PPid:").filter(|parent| holders.contains(parent));
    parent.is_some_and(|parent| {
        let first = processes.get(parent).and_then(|all| all.activity(parent));
        let call = first.and_then(|activity| activity.call);
        call.is_some_and(|call| {
            life::waits_for_child(call.number)
                && awaited(parent, call.number, &call.args).contains(&pid)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_child_has_the_channel_from_a_holder_that_waits_for_it() {
        let script = "sleep 60; true";
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", script]).stdout(Stdio::piped()).spawn();
        let mut shell = shell.expect("a shell");
        let parent = shell.id();
        let child = loop {
            if let Some(child) = flagfinder_waits::children(parent).first() {
                break *child;
            }
        };
        std::thread::sleep(std::time::Duration::from_millis(300));
        let mut processes = Processes::default();
        let mut is_passing = |pid, holders: &[u32]| is_passing(&mut processes, pid, holders);
        assert!(is_passing(child, &[parent, child]));
        assert!(!is_passing(parent, &[parent, child]));
        assert!(!is_passing(child, &[child]), "nobody else has it");
        assert!(!is_passing(child, &[child, 1]), "its parent has not");
        for pid in [child, parent] {
            // SAFETY: processes of ours.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        shell.wait().expect("its end");
    }
}
