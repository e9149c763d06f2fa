// SPDX-License-Identifier: MIT
//! Which processes descend from others.

use std::fs;

use flagfinder_linux::proc::{lives, processes, program, Stat, Status};

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
        return in_foreground(pid, own);
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

/// Shells that wait for any child until all of one command have ended.
const SHELLS: [&str; 7] = ["ash", "bash", "busybox", "dash", "ksh", "mksh", "sh"];

/// Of a shell's children, those of the command that it waits for. One without job control begins
/// others in the background with SIGINT and SIGQUIT ignored (POSIX, "Asynchronous Lists"). Where
/// only such are left it waits for these: in `wait`.
fn in_foreground(pid: u32, own: Vec<u32>) -> Vec<u32> {
    const BOTH: u64 = 1 << (libc::SIGINT - 1) | 1 << (libc::SIGQUIT - 1);
    let ignores = |pid: u32| Status::of(pid).is_some_and(|it| it.mask("SigIgn:") & BOTH == BOTH);
    let program = program(pid);
    let is_shell = SHELLS.contains(&program.rsplit('/').next().unwrap_or_default());
    if own.len() < 2 || !is_shell || ignores(pid) {
        return own;
    }
    let front: Vec<u32> = own.iter().copied().filter(|one| !ignores(*one)).collect();
    if front.is_empty() {
        own
    } else {
        front
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

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use super::*;

    /// A shell once it has so many children.
    fn shell(script: &str, count: usize) -> (Child, Vec<u32>) {
        let shell = Command::new("sh").args(["-c", script]).spawn();
        let shell = shell.expect("a shell");
        let begin = Instant::now();
        while children(shell.id()).len() < count {
            assert!(begin.elapsed() < Duration::from_secs(20), "its children");
            std::thread::sleep(Duration::from_millis(5));
        }
        // The children are copies of the shell at first.
        std::thread::sleep(Duration::from_millis(200));
        let own = children(shell.id());
        (shell, own)
    }

    #[test]
    fn a_shell_waits_for_its_command_and_not_for_what_is_in_the_background() {
        let seconds = |pid: u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ")
        };
        for (script, meant) in [
            ("sleep 61 & sleep 62; :", &["sleep 62 "][..]),
            ("sleep 63 & sleep 64 & wait", &["sleep 63 ", "sleep 64 "]),
            (
                "trap '' INT QUIT; sleep 65 & sleep 66; :",
                &["sleep 65 ", "sleep 66 "],
            ),
        ] {
            let (mut shell, own) = shell(script, 2);
            let mut found: Vec<String> =
                awaited(shell.id(), libc::SYS_wait4 as u32, &[u64::MAX; 6])
                    .into_iter()
                    .map(seconds)
                    .collect();
            found.sort();
            assert_eq!(found, meant, "{script}");
            for pid in own.into_iter().chain([shell.id()]) {
                // SAFETY: processes of ours.
                unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            }
            shell.wait().expect("its end");
        }
    }
}
