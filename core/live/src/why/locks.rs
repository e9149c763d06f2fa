// SPDX-License-Identifier: MIT
//! Who holds a lock on a file: by /proc/locks, and by the descriptors that hold it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use flagfinder_linux::proc::processes;

use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::name;
use super::report::{Kind, RootKind};

/// A line of /proc/locks: `1: -> POSIX  ADVISORY  WRITE 1234 08:02:131 0 EOF`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line<'t> {
    id: &'t str,
    is_blocked: bool,
    kind: &'t str,
    /// -1: an open file's, not a process's.
    pid: i32,
    file: &'t str,
}

impl<'t> Line<'t> {
    fn parse(text: &'t str) -> Option<Line<'t>> {
        let mut fields = text.split_whitespace().peekable();
        let id = fields.next()?;
        let is_blocked = fields.next_if_eq(&"->").is_some();
        let kind = fields.next()?;
        let mut rest = fields.skip(2);
        Some(Line {
            id,
            is_blocked,
            kind,
            pid: rest.next()?.parse().ok()?,
            file: rest.next()?,
        })
    }
}

/// A thread that waits in flock(2) or fcntl(2) for the lock on one of its descriptors.
pub fn obstacle(pid: u32, fd: i32) -> Obstacle {
    let path = fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
    let label = format!("the lock on {}", path.display());
    let Ok(file) = fs::metadata(format!("/proc/{pid}/fd/{fd}")) else {
        let end = End::unknown(format!(
            "descriptor {fd} of process {pid} is not to be read"
        ));
        return Obstacle::ends(Kind::Lock, label, end);
    };
    let inode = format!(":{}", file.ino());
    let text = fs::read_to_string("/proc/locks").unwrap_or_default();
    let lines: Vec<Line> = text.lines().filter_map(Line::parse).collect();
    let of_file = || lines.iter().filter(|line| line.file.ends_with(&inode));
    let blocked = of_file().find(|line| line.is_blocked && line.pid == pid as i32);
    let held: Vec<&Line> = of_file()
        .filter(|line| !line.is_blocked && blocked.is_none_or(|b| b.id == line.id))
        .collect();
    let mut debtors: Vec<Debtor> = Vec::new();
    for line in &held {
        let holders = holders(line, &inode, pid);
        for holder in holders {
            let reason = format!(
                "process {holder} ({}) holds the lock ({})",
                name(holder, holder),
                line.kind
            );
            let who = Who::Process(holder, None);
            if !debtors.iter().any(|debtor| debtor.who == who) {
                debtors.push(Debtor::seen(who, reason));
            }
        }
    }
    if debtors.is_empty() {
        let what =
            "who holds it is not to be seen: a process in another pid namespace, or another \
                    machine that has the file system too";
        let end = match held.is_empty() {
            true => End::unknown(what),
            false => End::outside(RootKind::Peer, what),
        };
        return Obstacle::ends(Kind::Lock, label, end);
    }
    Obstacle::owed(Kind::Lock, label, debtors)
}

/// Processes whose open file holds the lock: it may have been inherited, or handed on.
fn holders(line: &Line, inode: &str, waiter: u32) -> Vec<u32> {
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
    fn lines_of_the_kernel_are_read() {
        let held = Line::parse("7: FLOCK  ADVISORY  WRITE 1234 08:02:131 0 EOF").unwrap();
        assert_eq!((held.id, held.kind, held.pid), ("7:", "FLOCK", 1234));
        assert_eq!((held.file, held.is_blocked), ("08:02:131", false));
        let blocked = Line::parse("7: -> OFDLCK ADVISORY  WRITE -1 08:02:131 0 EOF").unwrap();
        assert!(blocked.is_blocked && blocked.pid == -1);
        assert_eq!(Line::parse("7: FLOCK"), None);
    }
}
