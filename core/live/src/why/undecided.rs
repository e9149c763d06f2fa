// SPDX-License-Identifier: MIT
//! What is said of a thread whose wait several things may end, none of which explains more.

use super::obstacle::{End, Weight};
use super::report::{Known, Node, Root, RootKind};
use super::way::{close, Chosen, Outcome, Way};

/// The thread waits for whatever comes at any of these, as a server does that listens at several
/// addresses. `None`: not all of them end at the thread itself.
pub(super) fn idles(top: &[&Way], node: &Node) -> Option<Chosen> {
    let own = |way: &&Way| match &way.outcome {
        Outcome::Root(root, _) if (root.pid, root.tid) == (Some(node.pid), Some(node.tid)) => {
            (way.links.len() == 1).then(|| root.clone())
        }
        _ => None,
    };
    let roots: Vec<Root> = top.iter().map(own).collect::<Option<_>>()?;
    // Beside what may come, a limit of time is no news.
    let is_timer = |root: &&Root| root.kind == RootKind::Timer;
    let (timers, others): (Vec<&Root>, Vec<&Root>) = roots.iter().partition(is_timer);
    let told = if others.is_empty() { timers } else { others };
    let mut texts: Vec<String> = told.iter().map(|root| root.what.clone()).collect();
    texts.dedup();
    let shown = texts.len().min(3);
    let more = texts.len() - shown;
    let mut what = texts[..shown].join("; ");
    if more > 0 {
        what += &format!("; and {more} more");
    }
    let first = top.iter().find(|way| {
        let Outcome::Root(root, _) = &way.outcome else {
            return false;
        };
        *root == *told[0]
    })?;
    let mut link = first.links[0].clone();
    link.reason.clone_from(&what);
    let root = Root {
        what,
        ..told[0].clone()
    };
    Some(Chosen {
        links: vec![link],
        outcome: Outcome::Root(root, Weight::Idle),
    })
}

/// More than one thing explains as much: none is blamed. `blocked`: threads that lead on to nobody,
/// and what they wait for; `open`: how many more there are.
pub(super) fn several(
    way: &Way,
    roots: &[Root],
    blocked: Vec<String>,
    node: &Node,
    open: usize,
) -> Chosen {
    let mut link = way.links[0].clone();
    link.owed_by = None;
    link.known = Known::Assumed;
    let count = roots.len() + blocked.len() + open;
    let roots = roots.iter().map(|root| match (root.pid, root.tid) {
        (Some(_), Some(tid)) => format!("thread {tid} ({}): {}", root.name, root.what),
        _ => root.what.clone(),
    });
    let mut texts: Vec<String> = blocked.into_iter().chain(roots).collect();
    texts.dedup();
    let shown = texts.len().min(3);
    let more = texts.len() - shown + open;
    let told = texts[..shown].join("; ");
    let mut what = match count {
        1 => format!("nothing says who ends this wait; the only thread left that could: {told}"),
        count => {
            format!("{count} threads could end this wait, and nothing tells them apart: {told}")
        }
    };
    if more > 0 {
        what += &format!("; and {more} more");
    }
    link.reason.clone_from(&what);
    let root = Root {
        kind: RootKind::Unknown,
        pid: Some(node.pid),
        tid: Some(node.tid),
        name: node.name.clone(),
        what,
        at: None,
        note: None,
    };
    Chosen {
        links: vec![link],
        outcome: Outcome::Root(root, Weight::Unknown),
    }
}

/// No way leads on.
pub(super) fn nobody(ways: Vec<Way>, node: &Node, at: usize, nested: bool) -> Chosen {
    let place = |way: &Way| match way.outcome {
        Outcome::Circle { at, .. } => Some(at),
        _ => None,
    };
    let count = ways.len();
    let by_elimination = ways.iter().any(|way| way.by_elimination);
    let first = ways
        .iter()
        .filter(|way| place(way).is_some())
        .min_by_key(|way| place(way));
    let Some(way) = first.or(ways.first()).cloned() else {
        return Chosen::end(End::unknown("nothing is known of its wait"), node);
    };
    let what = match count {
        1 => format!(
            "the only other thread that could end the wait of thread {} waits too: nobody is left",
            node.tid
        ),
        2 => format!(
            "both other threads that could end the wait of thread {} wait too: nobody is left",
            node.tid
        ),
        count => format!(
            "all {count} other threads that could end the wait of thread {} wait too: nobody is \
             left",
            node.tid
        ),
    };
    match &way.outcome {
        Outcome::Circle { at: to, note } => {
            // If one thread is left, the text of the circle names it.
            let note = note.clone();
            let note = note.or((by_elimination && count > 1).then_some(what));
            let outcome = Outcome::Circle { at: *to, note };
            close(Way { outcome, ..way }, node, at)
        }
        _ if nested => Chosen::bare(Outcome::Idle),
        _ => {
            let mut link = way.links[0].clone();
            link.owed_by = None;
            link.known = Known::Assumed;
            link.reason.clone_from(&what);
            let end = End::new(RootKind::Deadlock, Weight::Circle, what);
            let found = Chosen::end(end, node);
            Chosen {
                links: vec![link],
                ..found
            }
        }
    }
}
