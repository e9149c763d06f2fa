// SPDX-License-Identifier: MIT
//! A way to go on from a thread that waits, and where it leads.

use super::obstacle::{End, Weight};
use super::report::{Kind, Known, Link, Node, Root, RootKind, WaitsFor};

/// What following a thread led to.
#[derive(Clone, Debug)]
pub enum Outcome {
    Root(Root, Weight),
    /// The chain comes back to the thread at this place of the path. `note`: why nobody is left.
    Circle {
        at: usize,
        note: Option<String>,
    },
    /// It waits for any thread of a process whose threads are followed already.
    Idle,
    /// It waits for time, and copies of it did not end the wait.
    Passes,
}

/// Links that begin at a thread, and where they lead.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub links: Vec<Link>,
    pub outcome: Outcome,
}

impl Chosen {
    pub fn bare(outcome: Outcome) -> Chosen {
        Chosen {
            links: Vec::new(),
            outcome,
        }
    }

    /// The chain leads to a thread that has the other end, but is in a call on another file. If it
    /// waits there for whatever comes, the other end is not served: that is the root.
    pub fn of_one_elsewhere(mut self, (pid, tid): (u32, u32)) -> Chosen {
        if let Outcome::Root(root, weight @ Weight::Idle) = &mut self.outcome {
            if (root.pid, root.tid) == (Some(pid), Some(tid)) {
                *weight = Weight::Outside;
                root.what = format!(
                    "it has the other end, and waits for something else: {}",
                    root.what
                );
            }
        }
        self
    }

    /// Nobody is left that could end the wait of this thread, as far as elimination tells: it waits
    /// for any other, or for the only other one, which waits for it.
    pub fn is_nobody(&self, node: &Node) -> bool {
        let is_own = match &self.links[..] {
            [only] => only.waiter == *node,
            [first, .., last] => {
                let back = last.owed_by.as_ref().map(|owed| &owed.node);
                first.waiter == *node && first.known == Known::Assumed && back == Some(node)
            }
            [] => false,
        };
        is_own
            && match &self.outcome {
                Outcome::Root(root, _) => root.note.is_some(),
                Outcome::Circle { note, .. } => note.is_some(),
                Outcome::Idle | Outcome::Passes => false,
            }
    }

    /// Where the thread waits for whatever comes, a function of its program waits as well.
    pub fn explain_idle(&mut self, node: &Node, end: &End) {
        let is_own = |root: &Root| (root.pid, root.tid) == (Some(node.pid), Some(node.tid));
        let is_idle = matches!(&self.outcome, Outcome::Root(root, Weight::Idle) if is_own(root));
        if let Some(link) = self.links.first_mut().filter(|_| is_idle) {
            link.waits_for = WaitsFor {
                kind: Kind::Flag,
                name: "`await`".into(),
                address: None,
                statement: None,
            };
            link.owed_by = None;
            link.known = Known::Seen;
            link.reason.clone_from(&end.what);
            self.links.truncate(1);
            self.outcome = Chosen::end(end.clone(), node).outcome;
        }
    }

    /// The chain ends at this thread.
    pub fn end(end: End, last: &Node) -> Chosen {
        let weight = end.weight;
        Chosen::bare(Outcome::Root(end.root(last), weight))
    }
}

/// One way to go on from a thread: a link, and what follows it.
#[derive(Clone, Debug)]
pub struct Way {
    pub(super) links: Vec<Link>,
    pub(super) outcome: Outcome,
    pub(super) known: Known,
    pub(super) by_elimination: bool,
}

impl Way {
    /// `direct`: it is known to be this thread that owes.
    pub fn new(first: Link, found: Chosen, by_elimination: bool, direct: bool) -> Way {
        let known = if direct { first.known } else { Known::Assumed };
        let outcome = match found.outcome {
            // Most programs have threads that sleep. That there is one is no evidence against it.
            Outcome::Root(root, _)
                if known == Known::Assumed
                    && found.links.iter().all(|link| link.owed_by.is_none())
                    && root.kind == RootKind::Timer =>
            {
                Outcome::Root(root, Weight::Idle)
            }
            other => other,
        };
        let mut links = vec![first];
        links.extend(found.links);
        Way {
            links,
            outcome,
            known,
            by_elimination,
        }
    }

    /// `None`: it leads nowhere.
    pub(super) fn weight(&self) -> Option<Weight> {
        match &self.outcome {
            Outcome::Root(_, weight) => Some(*weight),
            Outcome::Circle { .. } if self.known != Known::Assumed => Some(Weight::Circle),
            Outcome::Circle { .. } | Outcome::Idle | Outcome::Passes => None,
        }
    }

    /// See [`Outcome::Passes`].
    pub(super) fn passes(&self) -> bool {
        matches!(self.outcome, Outcome::Passes)
    }

    /// A full channel, and a thread of the process with its other end waits for the one that
    /// writes. No thread of it is in a call on the channel, or that one would be known to owe; so
    /// nobody reads it until that wait ends.
    pub(super) fn is_unread(&mut self) {
        if self.known == Known::Assumed && matches!(self.outcome, Outcome::Circle { .. }) {
            self.known = Known::Seen;
            self.links[0].known = Known::Seen;
        }
    }

    /// The thread to which it leads, and what that one does.
    fn told(&self, node: &Node) -> (Option<Node>, String) {
        let next = self.links.get(1);
        let root = match &self.outcome {
            Outcome::Root(root, _) => Some(root),
            _ => None,
        };
        let owing = self.links[0].owed_by.as_ref().map(|owed| owed.node.clone());
        let is_known = |link: &Link| link.known != Known::Assumed;
        match (next, root) {
            // What it waits for is told with what ends that, unless nothing says so.
            (Some(next), Some(root))
                if self.links.len() == 2 && next.owed_by.is_none() && is_known(next) =>
            {
                (Some(next.waiter.clone()), root.what.clone())
            }
            (Some(next), _) => {
                // The address of a word without a name says nothing.
                let name = &next.waits_for.name;
                let shape = name
                    .split_once(" 0x")
                    .map(|(shape, _)| format!("a {shape}"));
                let name = shape.as_ref().unwrap_or(name);
                // The name of a statement has its place.
                let at = next.at.as_ref();
                let at = at.filter(|_| next.waits_for.statement.is_none());
                let function = at.and_then(|at| at.function.as_ref());
                let at = function.map_or(String::new(), |function| format!(" in {function}"));
                (Some(next.waiter.clone()), format!("waits for {name}{at}"))
            }
            (None, Some(root)) => (owing, root.what.clone()),
            (None, None) if self.passes() => {
                (owing, "waits for time, and no copy ended the wait".into())
            }
            (None, None) => (owing, format!("waits for thread {}", node.tid)),
        }
    }

    /// Is a thread of another process seen to owe on this way, and its own wait not explained?
    pub(super) fn is_lost_outside(&self, node: &Node) -> bool {
        let is_other = |link: &Link| {
            let owed_by = link.owed_by.as_ref();
            link.known == Known::Seen && owed_by.is_some_and(|owed| owed.node.pid != node.pid)
        };
        let is_lost = matches!(self.outcome, Outcome::Root(_, Weight::Unknown));
        is_lost && self.links.iter().skip(1).any(is_other)
    }

    /// Is a thread of another process known to owe, as surely as that, and its wait not explained?
    pub(super) fn is_elsewhere(&self, node: &Node, surest: Option<Known>) -> bool {
        let owed_by = self.links[0].owed_by.as_ref();
        let is_other = owed_by.is_some_and(|owed| owed.node.pid != node.pid);
        is_other && Some(self.known) == surest && self.weight() == Some(Weight::Unknown)
    }

    /// Does it lead through the child that the other way begins with?
    pub(super) fn passes_child_of(&self, other: &Way) -> bool {
        let owed = |way: &Way| way.links[0].owed_by.as_ref().map(|owed| owed.node.clone());
        let child = owed(other).filter(|_| other.links[0].waits_for.kind == Kind::Child);
        let mut rest = self.links.iter().skip(2);
        child.is_some_and(|child| {
            owed(self) != Some(child.clone()) && rest.any(|link| link.waiter == child)
        })
    }

    pub(super) fn leads_on(&self) -> bool {
        matches!(self.outcome, Outcome::Root(..))
    }

    pub(super) fn chosen(self) -> Chosen {
        Chosen {
            links: self.links,
            outcome: self.outcome,
        }
    }
}

/// What the threads do to which these ways lead, those that do alike together. `node`: where the
/// ways begin.
pub(super) fn told_alike(ways: &[&Way], node: &Node) -> Vec<String> {
    const NAMED: usize = 3;
    let mut groups: Vec<(String, Vec<Node>)> = Vec::new();
    for (who, does) in ways.iter().map(|way| way.told(node)) {
        let at = groups.iter().position(|(known, _)| *known == does);
        let at = at.unwrap_or_else(|| {
            groups.push((does, Vec::new()));
            groups.len() - 1
        });
        let who = who.filter(|who| !groups[at].1.contains(who));
        groups[at].1.extend(who);
    }
    let text = |(does, who): (String, Vec<Node>)| match &who[..] {
        [] => does,
        [one] if does.starts_with("waits") => format!("thread {} ({}) {does}", one.tid, one.name),
        [one] => format!("thread {} ({}): {does}", one.tid, one.name),
        all => {
            let ids: Vec<String> = all.iter().map(|one| one.tid.to_string()).collect();
            let shown = ids[..ids.len().min(NAMED)].join(", ");
            let more = match ids.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            match does.strip_prefix("waits ") {
                Some(what) => format!("threads {shown}{more} wait {what}"),
                None => format!("threads {shown}{more}: {does}"),
            }
        }
    };
    groups.into_iter().map(text).collect()
}

/// A circle ends at the thread that it came from.
pub(super) fn close(way: Way, node: &Node, at: usize) -> Chosen {
    let Outcome::Circle { at: to, note } = &way.outcome else {
        return way.chosen();
    };
    if *to != at {
        return way.chosen();
    }
    let what = note.clone().unwrap_or_else(|| circle(&way.links));
    let root = Root {
        kind: RootKind::Deadlock,
        pid: Some(node.pid),
        tid: Some(node.tid),
        name: node.name.clone(),
        task: node.task.clone(),
        what,
        at: None,
        note: note.clone(),
        assumed: way.links.iter().any(|one| one.known == Known::Assumed),
    };
    Chosen {
        links: way.links,
        outcome: Outcome::Root(root, Weight::Fault),
    }
}

/// `thread 1 waits for thread 2, which waits for thread 1`; `thread 1 waits for itself`.
fn circle(links: &[Link]) -> String {
    let one_process = links
        .iter()
        .all(|link| link.waiter.pid == links[0].waiter.pid);
    let named = |node: &Node| match one_process {
        true => format!("thread {}", node.tid),
        false => format!("process {} ({})", node.pid, node.name),
    };
    let mut names = vec![named(&links[0].waiter)];
    let owing = links.iter().filter_map(|link| link.owed_by.as_ref());
    names.extend(owing.map(|owed| named(&owed.node)));
    // Of threads of one process behind each other its name says it all.
    names.dedup();
    let others = match &names[1..] {
        [] => "itself".into(),
        others => others.join(", which waits for "),
    };
    format!("{} waits for {others}", names[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_left_where_the_only_other_thread_waits_for_this_one() {
        let of = |known, back| {
            let first = Link {
                known,
                ..Link::of_lock(1, 2)
            };
            let end = End::unknown("nobody");
            let mut found = Chosen::end(end, &Node::thread(1));
            found.links = vec![first, Link::of_lock(2, back)];
            if let Outcome::Root(root, _) = &mut found.outcome {
                root.note = Some("nobody is left".into());
            }
            found.is_nobody(&Node::thread(1))
        };
        assert!(of(Known::Assumed, 1));
        assert!(!of(Known::Assumed, 3), "another may come to it");
        assert!(!of(Known::Proved, 1), "it is known to owe");
    }

    #[test]
    fn a_circle_names_its_threads_to_the_first_one_again() {
        let two = circle(&[Link::of_lock(1, 2), Link::of_lock(2, 1)]);
        assert_eq!(two, "thread 1 waits for thread 2, which waits for thread 1");
        assert_eq!(circle(&[Link::of_lock(1, 1)]), "thread 1 waits for itself");
    }

    #[test]
    fn threads_that_wait_alike_are_told_together() {
        let way = |tid: u32, name: &str| {
            let mut next = Link::of_lock(tid, 9);
            next.waits_for.name = name.into();
            let found = Chosen {
                links: vec![next],
                outcome: Outcome::Idle,
            };
            Way::new(Link::of_lock(1, tid), found, true, false)
        };
        let back = Chosen::bare(Outcome::Circle { at: 0, note: None });
        let back = Way::new(Link::of_lock(1, 7), back, true, false);
        let ways = [
            way(2, "word 0x10"),
            way(3, "`q.get()`"),
            way(4, "word 0x20"),
            back,
        ];
        let told = told_alike(&ways.iter().collect::<Vec<_>>(), &Node::thread(1));
        assert_eq!(
            told,
            [
                "threads 2, 4 wait for a word",
                "thread 3 () waits for `q.get()`",
                "thread 7 () waits for thread 1"
            ]
        );
    }
}
