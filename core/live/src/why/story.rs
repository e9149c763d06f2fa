// SPDX-License-Identifier: MIT
//! The chain in words: at most six lines, the root first; and what to do next.

use std::path::Path;

use super::report::{Known, Link, Node, Root, RootKind, WhyReport};
use super::stopped::By;
use crate::report::Source;

const MOST_LINES: usize = 6;

fn mark(known: Known) -> &'static str {
    match known {
        Known::Seen => "[seen]",
        Known::Proved => "[proved]",
        Known::ByCode => "[by code]",
        Known::Assumed => "[assumed]",
    }
}

fn who(node: &Node) -> String {
    format!(
        "thread {} ({}) of process {}",
        node.tid, node.name, node.pid
    )
}

impl WhyReport {
    /// What this chain tells, and no more.
    pub(crate) fn of_chain(
        source: Source,
        pid: u32,
        program: String,
        links: Vec<Link>,
        root: Root,
    ) -> WhyReport {
        WhyReport {
            schema: WhyReport::SCHEMA,
            source,
            pid,
            program,
            story: story(&links, &root),
            next: Vec::new(),
            links,
            root,
            notes: Vec::new(),
            not_asked: Vec::new(),
        }
    }
}

/// `root`: its text is not repeated.
fn line(link: &Link, root: &Root) -> String {
    let waiter = who(&link.waiter);
    let what = &link.waits_for.name;
    let owed = match &link.owed_by {
        Some(owed) if owed.node.pid == link.waiter.pid => {
            format!(", owed by thread {} ({})", owed.node.tid, owed.node.name)
        }
        Some(owed) => format!(", owed by {}", who(&owed.node)),
        None => String::new(),
    };
    let reason = match link.reason == root.what {
        true => String::new(),
        false => format!(": {}", link.reason),
    };
    format!(
        "{waiter} waits for {what}{owed}{reason} {}",
        mark(link.known)
    )
}

fn head(root: &Root) -> String {
    let kind = match root.kind {
        RootKind::Input => "waits for input",
        RootKind::Peer => "waits for a peer",
        RootKind::Timer => "waits for a timer",
        RootKind::Stopped => "stopped",
        RootKind::Frozen => "frozen",
        RootKind::Ended => "ended",
        RootKind::Computes => "computes",
        RootKind::Deadlock => "deadlock",
        RootKind::Unknown => "not known",
    };
    let names_itself = matches!(
        root.kind,
        RootKind::Stopped | RootKind::Frozen | RootKind::Ended | RootKind::Deadlock
    );
    match (root.pid, root.tid) {
        (Some(pid), Some(tid)) if !names_itself => {
            let name = root.name.clone();
            format!("{kind}: {}: {}", who(&Node { pid, tid, name }), root.what)
        }
        _ => format!("{kind}: {}", root.what),
    }
}

/// The root, then the links from the first thread on; of long chains the middle is left out.
pub fn story(links: &[Link], root: &Root) -> Vec<String> {
    let mut story = vec![head(root)];
    let room = MOST_LINES - 1;
    if links.len() <= room {
        story.extend(links.iter().map(|link| line(link, root)));
        return story;
    }
    let (first, last) = (2, room - 3);
    story.extend(links[..first].iter().map(|link| line(link, root)));
    let left = links.len() - first - last;
    story.push(format!(".. {left} more links; --json has them all"));
    story.extend(
        links[links.len() - last..]
            .iter()
            .map(|link| line(link, root)),
    );
    story
}

/// One or two commands, for a process that left this core file.
pub fn next_of_core(core: &Path, program: &str) -> Vec<String> {
    let core = quoted(&core.to_string_lossy());
    vec![
        format!(
            "gdb {} {core} -batch -ex 'thread apply all bt'",
            quoted(program)
        ),
        format!("flagfinder core {core} --explain"),
    ]
}

/// One word of a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// One or two commands. `is_java`: does a virtual machine of Java run in the process? A debugger
/// does not understand its stacks. `stopped_by`: what keeps a thread (process and thread id).
pub fn next(
    links: &[Link],
    root: &Root,
    mut is_java: impl FnMut(u32) -> bool,
    stopped_by: impl Fn(u32, u32) -> Option<By>,
) -> Vec<String> {
    let pid = root
        .pid
        .or(links.last().map(|link| link.waiter.pid))
        .unwrap_or(0);
    let tid = root.tid.unwrap_or(pid);
    let mut stacks = |pid: u32| match is_java(pid) {
        true => format!("jstack {pid}"),
        false => format!("gdb -p {pid} -batch -ex 'thread apply all bt'"),
    };
    match root.kind {
        RootKind::Stopped => vec![match stopped_by(pid, tid) {
            Some(By::Tracer(_)) => format!("grep TracerPid /proc/{pid}/task/{tid}/status"),
            Some(By::Terminal(_)) => stacks(pid),
            Some(By::Signal) | None => format!("kill -CONT {pid}"),
        }],
        RootKind::Frozen => vec![format!("cat /proc/{pid}/cgroup")],
        RootKind::Computes => vec![format!("flagfinder spin {pid} --thread {tid} --explain")],
        RootKind::Deadlock => {
            let mut pids: Vec<u32> = links.iter().map(|link| link.waiter.pid).collect();
            pids.sort_unstable();
            pids.dedup();
            pids.into_iter().take(2).map(stacks).collect()
        }
        RootKind::Peer => vec![format!("nsenter -t {pid} -n ss -anpo")],
        RootKind::Input | RootKind::Timer => vec![stacks(pid), format!("ls -l /proc/{pid}/fd")],
        RootKind::Ended => vec![format!("ls -l /proc/{pid}/fd"), stacks(pid)],
        RootKind::Unknown => vec![format!("flagfinder spin {pid} --explain"), stacks(pid)],
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Kind, OwedBy, WaitsFor};
    use super::*;

    fn node(tid: u32) -> Node {
        Node {
            pid: tid,
            tid,
            name: "app".into(),
        }
    }

    #[test]
    fn a_long_chain_is_told_in_six_lines() {
        let link = |tid| Link {
            waiter: node(tid),
            waits_for: WaitsFor {
                kind: Kind::Lock,
                name: "a lock".into(),
                address: None,
            },
            owed_by: Some(OwedBy {
                node: node(tid + 1),
                code: None,
            }),
            known: Known::Seen,
            reason: "it has it".into(),
            stack: Vec::new(),
        };
        let links: Vec<Link> = (1..=9).map(link).collect();
        let root = Root {
            kind: RootKind::Timer,
            pid: Some(10),
            tid: Some(10),
            name: "app".into(),
            what: "it sleeps".into(),
        };
        let told = story(&links, &root);
        assert_eq!(told.len(), MOST_LINES);
        assert_eq!(
            told[0],
            "waits for a timer: thread 10 (app) of process 10: it sleeps"
        );
        assert!(told[3].starts_with(".. 5 more"), "{told:?}");
        assert!(told[5].starts_with("thread 9 (app)"), "{told:?}");
        assert_eq!(story(&links[..3], &root).len(), 4);
    }

    #[test]
    fn a_name_does_not_choose_the_next_command() {
        let root = Root {
            kind: RootKind::Stopped,
            pid: Some(7),
            tid: Some(7),
            name: "tracer".into(),
            what: "process 7 (tracer SIGTTIN) is stopped by a signal".into(),
        };
        let next = |by: fn() -> By| next(&[], &root, |_| false, |_, _| Some(by()));
        assert_eq!(next(|| By::Signal), ["kill -CONT 7"]);
        assert_eq!(
            next(|| By::Tracer(9)),
            ["grep TracerPid /proc/7/task/7/status"]
        );
        assert!(next(|| By::Terminal("pts".into()))[0].starts_with("gdb -p 7"));
    }
}
