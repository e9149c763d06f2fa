// SPDX-License-Identifier: MIT
//! Which processes descend from others.

use std::fs;

use flagfinder_linux::proc::{lives, processes, Stat, Status};

/// A process, its parent, and whether it has not ended.
struct Relation {
    pid: u32,
    parent: u32,
    lives: bool,
}

fn relations() -> Vec<Relation> {
    let relation = |pid: u32| {
        let stat = Stat::of(pid)?;
        Some(Relation {
            pid,
            lives: lives(pid),
            parent: stat.field(Stat::PARENT)?,
        })
    };
    processes().into_iter().filter_map(relation).collect()
}

/// The children of a process that have not ended.
pub fn children(pid: u32) -> Vec<u32> {
    let all = relations().into_iter();
    let alive = all.filter(|one| one.parent == pid && one.lives);
    alive.map(|one| one.pid).collect()
}

/// The processes that descend from `roots`, these included.
pub fn descendants(roots: &[u32]) -> Vec<u32> {
    let mut found = roots.to_vec();
    let relations = relations();
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        let children = relations.iter().filter(|one| one.parent == parent);
        let new: Vec<u32> = children
            .map(|one| one.pid)
            .filter(|pid| !found.contains(pid))
            .collect();
        found.extend(new);
        next += 1;
    }
    found
}

/// The children whose end a process waits for in wait4 or waitid.
pub fn awaited(pid: u32, number: u32, args: &[u64; 6]) -> Vec<u32> {
    let own = children(pid);
    let Some(id) = wanted(pid, number.into(), args) else {
        return own;
    };
    let inwards = ids(pid).len();
    let for_it = |child: u32| ids(child).get(inwards.saturating_sub(1)).copied();
    match own.into_iter().find(|&child| for_it(child) == Some(id)) {
        Some(child) => vec![child],
        // The numbers of another pid namespace are not ours.
        None if inwards > 1 => Vec::new(),
        None => vec![id],
    }
}

/// The ids of a process, from our pid namespace inwards to its own.
fn ids(pid: u32) -> Vec<u32> {
    Status::of(pid).map_or_else(|| vec![pid], |status| status.numbers("NSpid:"))
}

/// The child that is meant, by the id that it has for the process itself; `None`: any child.
fn wanted(pid: u32, number: i64, args: &[u64; 6]) -> Option<u32> {
    const PID: u64 = libc::P_PID as u64;
    const PIDFD: u64 = libc::P_PIDFD as u64;
    match (number, args[0]) {
        (libc::SYS_wait4, id) => u32::try_from(id as i32).ok().filter(|&id| id > 0),
        (libc::SYS_waitid, PID) => Some(args[1] as u32),
        (libc::SYS_waitid, PIDFD) => {
            let path = format!("/proc/{pid}/fdinfo/{}", args[1]);
            let info = fs::read_to_string(path).unwrap_or_default();
            let line = info.lines().find_map(|line| line.strip_prefix("Pid:"));
            line.and_then(|text| text.trim().parse().ok())
        }
        _ => None,
    }
}
