// SPDX-License-Identifier: MIT
//! Which processes descend from others.

use std::fs;

/// A process, its parent, and its state as ps shows it.
struct Relation {
    pid: u32,
    parent: u32,
    state: char,
}

fn relations() -> Vec<Relation> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let relation = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        Some(Relation {
            pid,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
        })
    };
    pids.filter_map(relation).collect()
}

/// The children of a process that have not ended.
pub fn children(pid: u32) -> Vec<u32> {
    let all = relations().into_iter();
    let alive = all.filter(|one| one.parent == pid && !matches!(one.state, 'Z' | 'X'));
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
