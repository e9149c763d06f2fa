// SPDX-License-Identifier: MIT
//! The command that helps most where a chain ends.

use std::path::Path;

use super::report::{Link, Root, RootKind};
use super::stopped::By;

/// For a process that left this core file.
pub fn of_core(core: &Path) -> String {
    let core = quoted(&core.to_string_lossy());
    format!("flagfinder why --core {core} --stacks")
}

/// One word of a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// What is asked about processes while they live.
pub struct Facts<'f> {
    /// What keeps a thread (process and thread id).
    pub stopped_by: &'f dyn Fn(u32, u32) -> Option<By>,
    /// The process whose stacks the report has.
    pub stacks_of: Option<u32>,
    /// Who has not asked for the status of a process that has ended.
    pub parent: &'f dyn Fn(u32) -> Option<u32>,
}

/// `None`: the one to be asked has ended, or was asked already.
pub fn of(links: &[Link], root: &Root, facts: Facts<'_>) -> Option<String> {
    let waits = links.last().map(|link| link.waiter.pid);
    let pid = root.pid.or(waits)?;
    let tid = root.tid.unwrap_or(pid);
    let Facts {
        stopped_by,
        stacks_of,
        parent,
    } = facts;
    let stacks =
        |pid: u32| (stacks_of != Some(pid)).then(|| format!("flagfinder why {pid} --stacks"));
    Some(match root.kind {
        RootKind::Stopped => match stopped_by(pid, tid) {
            Some(By::Tracer(_)) => format!("grep TracerPid /proc/{pid}/task/{tid}/status"),
            Some(By::Terminal(_)) => stacks(pid)?,
            Some(By::Signal) | None => format!("kill -CONT {pid}"),
        },
        RootKind::Frozen => format!("cat /proc/{pid}/cgroup"),
        RootKind::Computes => format!("flagfinder spin {pid} --thread {tid} --explain"),
        RootKind::Peer => format!("nsenter -t {pid} -n ss -anpo"),
        RootKind::Input => format!("ls -l /proc/{pid}/fd"),
        RootKind::Deadlock | RootKind::LostWakeup | RootKind::LeftLocked | RootKind::Timer => {
            stacks(pid)?
        }
        RootKind::Ended => match (waits, parent(pid)) {
            (_, Some(parent)) => format!("flagfinder why {parent}"),
            (Some(waits), None) => stacks(waits)?,
            (None, None) => return None,
        },
        RootKind::Unknown => format!("flagfinder spin {pid} --explain"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(kind: RootKind, links: &[Link], by: Option<By>, parent: Option<u32>) -> Option<String> {
        let root = Root {
            kind,
            pid: Some(7),
            tid: Some(7),
            name: "tracer".into(),
            task: None,
            what: "process 7 (tracer SIGTTIN) is stopped by a signal".into(),
            at: None,
            note: None,
            assumed: false,
        };
        let facts = Facts {
            stopped_by: &|_, _| by.clone(),
            stacks_of: Some(8),
            parent: &|_| parent,
        };
        of(links, &root, facts)
    }

    #[test]
    fn a_name_does_not_choose_the_next_command() {
        let stopped = |by| next(RootKind::Stopped, &[], Some(by), None).unwrap();
        assert_eq!(stopped(By::Signal), "kill -CONT 7");
        assert_eq!(
            stopped(By::Tracer(9)),
            "grep TracerPid /proc/7/task/7/status"
        );
        assert!(stopped(By::Terminal("pts".into())).ends_with("why 7 --stacks"));
    }

    #[test]
    fn of_what_has_ended_nothing_is_asked() {
        let ended = |links: &[Link], parent| next(RootKind::Ended, links, None, parent);
        assert_eq!(ended(&[], None), None);
        assert_eq!(ended(&[], Some(3)).as_deref(), Some("flagfinder why 3"));
        let waits = [Link::of_lock(1, 7)];
        assert_eq!(
            ended(&waits, None).as_deref(),
            Some("flagfinder why 1 --stacks")
        );
        let mut told = Link::of_lock(1, 7);
        told.waiter.pid = 8;
        assert_eq!(ended(&[told], None), None, "its stacks are told already");
    }
}
