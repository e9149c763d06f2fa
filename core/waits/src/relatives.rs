// SPDX-License-Identifier: MIT
//! Which processes descend from others.

use flagfinder_linux::proc::{processes, Stat};

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
            lives: stat.lives(),
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
