// SPDX-License-Identifier: MIT
//! Who holds a lock on a file: by /proc/locks, and by the descriptors that hold it.

use std::fs;
use std::path::Path;

use flagfinder_files::facts_of;
use flagfinder_linux::file_locks::Line;
use flagfinder_linux::proc::{path, processes};

/// It waits for a lock on a file: flock, fcntl with F_SETLKW or F_OFD_SETLKW.
pub fn takes_file_lock(number: u32, args: &[u64; 6]) -> bool {
    let waits = [libc::F_SETLKW, libc::F_OFD_SETLKW].map(|command| command as u64);
    match i64::from(number) {
        libc::SYS_flock => true,
        libc::SYS_fcntl => waits.contains(&args[1]),
        _ => false,
    }
}

/// The locks for which a thread waits in flock(2) or fcntl(2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLocks {
    /// Processes that hold them, and what kind each is: `FLOCK`, `POSIX`, `OFDLCK`.
    pub holders: Vec<(u32, String)>,
    /// There are some, whoever holds them.
    pub are_there: bool,
}

/// Those on the file of a process's descriptor; `None`: it is not to be read.
pub fn on_file(pid: u32, fd: i32) -> Option<FileLocks> {
    on_path(pid, &path(pid, &format!("fd/{fd}")))
}

/// Those on the file at a path of ours, for a process that waits.
pub fn on_path(pid: u32, path: &Path) -> Option<FileLocks> {
    let file = facts_of(path).ok()?;
    let inode = format!(":{}", file.inode);
    let text = fs::read_to_string("/proc/locks").unwrap_or_default();
    let held = held(&text, &inode, pid);
    let mut found = FileLocks {
        are_there: !held.is_empty(),
        ..FileLocks::default()
    };
    for line in &held {
        for holder in holders_of(line, &inode, pid) {
            if !found.holders.iter().any(|(known, _)| *known == holder) {
                found.holders.push((holder, line.kind.to_owned()));
            }
        }
    }
    Some(found)
}

/// The locks on a file that hold a process up, if it is told to wait; else all on that file.
fn held<'t>(table: &'t str, inode: &str, pid: u32) -> Vec<Line<'t>> {
    let lines = table.lines().filter_map(Line::parse);
    let of_file: Vec<Line> = lines.filter(|line| line.file.ends_with(inode)).collect();
    let is_ours = |line: &&Line| line.is_blocked && line.pid == pid as i32;
    let id = of_file.iter().find(is_ours).map(|line| line.id);
    let own = |line: &Line| !line.is_blocked && id.is_none_or(|id| id == line.id);
    of_file.into_iter().filter(own).collect()
}

/// Processes whose open file holds the lock; they may have inherited it, or been handed it.
fn holders_of(line: &Line, inode: &str, waiter: u32) -> Vec<u32> {
    if line.kind == "POSIX" && line.pid > 0 {
        return vec![line.pid as u32];
    }
    let holds = |pid: &u32| {
        let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"));
        let mut infos = entries.into_iter().flatten().flatten();
        infos.any(|entry| {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let mut locks = text.lines().filter_map(|l| l.strip_prefix("lock:"));
            locks.any(|lock| {
                let parsed = Line::parse(lock);
                parsed.is_some_and(|l| l.kind == line.kind && l.file.ends_with(inode))
            })
        })
    };
    let found: Vec<u32> = processes().into_iter().filter(holds).collect();
    // Its own descriptor may hold another lock on the file, or the very one.
    let others: Vec<u32> = found.iter().copied().filter(|pid| *pid != waiter).collect();
    match others.is_empty() {
        true => found,
        false => others,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_line_leads_to_the_holders_line() {
        let table = "1: POSIX  ADVISORY  WRITE 10 08:01:7 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 08:01:9 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 08:01:9 0 EOF\n\
                     3: POSIX  ADVISORY  WRITE 14 08:01:9 0 EOF";
        let pids = |inode, waiter| -> Vec<i32> {
            let held = held(table, inode, waiter);
            held.iter().map(|line| line.pid).collect()
        };
        assert_eq!(pids(":9", 13), [12]);
        assert_eq!(pids(":9", 15), [12, 14]);
        assert_eq!(pids(":7", 13), [10]);
    }
}
