// SPDX-License-Identifier: MIT
//! The chain in words: at most six lines, the root first; and what to do next.

use super::report::{Kind, Known, Link, Node, Root, RootKind};

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

fn line(link: &Link) -> String {
    let waiter = who(&link.waiter);
    let what = &link.waits_for.name;
    let verb = match link.waits_for.kind {
        Kind::Flag if link.waits_for.address.is_some() => "waits for a change of",
        _ => "waits for",
    };
    let owed = match &link.owed_by {
        Some(owed) if owed.node.pid == link.waiter.pid => {
            format!(", owed by thread {}", owed.node.tid)
        }
        Some(owed) => format!(", owed by {}", who(&owed.node)),
        None => String::new(),
    };
    format!(
        "{waiter} {verb} {what}{owed}: {} {}",
        link.reason,
        mark(link.known)
    )
}

/// The root, then the links from the first thread on; of long chains the middle is left out.
pub fn story(links: &[Link], root: &Root) -> Vec<String> {
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
    let place = match (root.pid, root.tid) {
        (Some(pid), Some(tid)) => format!(" (process {pid}, thread {tid})"),
        (Some(pid), None) => format!(" (process {pid})"),
        _ => String::new(),
    };
    let mut story = vec![format!("{kind}: {}{place}", root.what)];
    let room = MOST_LINES - 1;
    // The reason of a last link without debtor is what the root says already.
    let tells =
        |link: &&Link| link.owed_by.is_some() || link.reason != root.what || links.len() == 1;
    let told: Vec<&Link> = links.iter().filter(tells).collect();
    if told.len() <= room {
        story.extend(told.iter().map(|link| line(link)));
        return story;
    }
    let (head, tail) = (2, room - 3);
    story.extend(told[..head].iter().map(|link| line(link)));
    let left = told.len() - head - tail;
    story.push(format!(".. {left} more links; --json has them all"));
    story.extend(told[told.len() - tail..].iter().map(|link| line(link)));
    story
}

/// One or two commands.
pub fn next(links: &[Link], root: &Root) -> Vec<String> {
    let pid = root
        .pid
        .or(links.last().map(|link| link.waiter.pid))
        .unwrap_or(0);
    let tid = root.tid.unwrap_or(pid);
    let stacks = |pid: u32| format!("gdb -p {pid} -batch -ex 'thread apply all bt'");
    match root.kind {
        RootKind::Stopped if root.what.contains("tracer") => {
            vec![format!("grep TracerPid /proc/{pid}/status")]
        }
        RootKind::Stopped => vec![format!("kill -CONT {pid}")],
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
