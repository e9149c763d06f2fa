// SPDX-License-Identifier: MIT
//! Which of several threads that may owe is followed in the report.

use super::obstacle::{End, Weight};
use super::report::{Known, Link, Node, Root, RootKind};
use super::undecided::{idles, several};

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
    known: Known,
    by_elimination: bool,
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
            Outcome::Circle { .. } | Outcome::Idle => None,
        }
    }

    /// What the next thread waits for, if nobody is known to end that.
    fn blocked_in(&self) -> Option<String> {
        let leads_on = matches!(self.outcome, Outcome::Root(_, weight) if weight > Weight::Unknown);
        let next = self.links.get(1).filter(|_| !leads_on)?;
        let (tid, name) = (next.waiter.tid, &next.waiter.name);
        let what = &next.waits_for.name;
        Some(format!("thread {tid} ({name}) waits for {what}"))
    }

    fn leads_on(&self) -> bool {
        matches!(self.outcome, Outcome::Root(..))
    }

    fn chosen(self) -> Chosen {
        Chosen {
            links: self.links,
            outcome: self.outcome,
        }
    }
}

/// The same cause, though another thread of the process may have led there.
fn is_same(one: &Root, other: &Root) -> bool {
    use RootKind::{Deadlock, Ended, Frozen, Stopped};
    let of_process = matches!(one.kind, Stopped | Frozen | Ended | Deadlock);
    one.kind == other.kind && one.pid == other.pid && (of_process || one.tid == other.tid)
}

/// `at`: place of the thread in the path. `nested`: its process's threads are being followed
/// already.
pub fn choose(ways: Vec<Way>, node: &Node, at: usize, nested: bool) -> Chosen {
    let best = ways.iter().filter_map(Way::weight).max();
    let Some(best) = best else {
        return nobody(ways, node, at, nested);
    };
    let known = |way: &&Way| way.weight() == Some(best);
    let surest = ways.iter().filter(known).map(|way| way.known).min();
    let top: Vec<&Way> = ways
        .iter()
        .filter(known)
        .filter(|way| Some(way.known) == surest)
        .collect();
    if best == Weight::Circle && top.iter().all(|way| !way.leads_on()) {
        // It is a circle only if no thread that is known to owe leads on.
        return close(top[0].clone(), node, at);
    }
    let root = |way: &Way| match &way.outcome {
        Outcome::Root(root, _) => Some(root.clone()),
        _ => None,
    };
    let roots: Vec<Root> = top.iter().filter_map(|way| root(way)).collect();
    let agree = roots.iter().all(|root| is_same(root, &roots[0]));
    // Of known holders the nearest one is chosen; of threads that may owe, the one with the longest
    // way.
    let length = |way: &&&Way| match surest {
        Some(Known::Assumed) => usize::MAX - way.links.len(),
        _ => way.links.len(),
    };
    let shortest = top.iter().filter(|way| way.leads_on()).min_by_key(length);
    let Some(shortest) = shortest else {
        return nobody(ways.clone(), node, at, nested);
    };
    let is_blind = best == Weight::Idle && surest == Some(Known::Assumed);
    if best == Weight::Idle && !agree {
        if let Some(idles) = idles(&top, node) {
            return idles;
        }
    }
    if agree && !is_blind {
        return (*shortest).clone().chosen();
    }
    // Beside threads that wait for whatever comes, what another is blocked in tells more.
    let blocked: Vec<String> = match is_blind {
        true => ways.iter().filter_map(Way::blocked_in).collect(),
        false => Vec::new(),
    };
    let is_open = |way: &&Way| !way.leads_on() && (!is_blind || way.blocked_in().is_none());
    let open = ways.iter().filter(is_open).count();
    several(shortest, &roots, blocked, node, open)
}

/// No way leads on.
fn nobody(ways: Vec<Way>, node: &Node, at: usize, nested: bool) -> Chosen {
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
        count => format!(
            "all {count} other threads that could end the wait of thread {} wait too: nobody is left",
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

/// A circle ends at the thread that it came from.
fn close(way: Way, node: &Node, at: usize) -> Chosen {
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
        what,
    };
    Chosen {
        links: way.links,
        outcome: Outcome::Root(root, Weight::Fault),
    }
}

/// `thread 1 waits for thread 2, which waits for thread 1`
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
    let (first, others) = (&names[0], names[1..].join(", which waits for "));
    format!("{first} waits for {others}")
}

#[cfg(test)]
mod tests {
    use super::super::report::{Kind, OwedBy, WaitsFor};
    use super::*;

    fn node(tid: u32) -> Node {
        Node {
            pid: 1,
            tid,
            name: String::new(),
        }
    }

    fn way(to: u32, known: Known, found: Chosen) -> Way {
        let link = Link {
            waiter: node(1),
            waits_for: WaitsFor {
                kind: Kind::Lock,
                name: "lock".into(),
                address: None,
            },
            owed_by: Some(OwedBy {
                node: node(to),
                code: None,
            }),
            known,
            reason: String::new(),
            stack: Vec::new(),
        };
        Way::new(
            link,
            found,
            known == Known::Assumed,
            known != Known::Assumed,
        )
    }

    fn ends(tid: u32, end: End) -> Chosen {
        Chosen::end(end, &node(tid))
    }

    fn circle_to(at: usize) -> Chosen {
        Chosen::bare(Outcome::Circle { at, note: None })
    }

    fn root(chosen: &Chosen) -> &Root {
        match &chosen.outcome {
            Outcome::Root(root, _) => root,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_way_that_leads_on_comes_before_a_circle() {
        let reads = End::outside(RootKind::Input, "nobody has typed");
        let ways = vec![
            way(2, Known::Assumed, circle_to(0)),
            way(3, Known::Assumed, ends(3, reads)),
        ];
        let chosen = choose(ways, &node(1), 0, false);
        assert_eq!(
            (root(&chosen).kind, root(&chosen).tid),
            (RootKind::Input, Some(3))
        );
    }

    #[test]
    fn a_circle_closes_where_it_began_and_not_before() {
        let back = || vec![way(2, Known::Seen, circle_to(0))];
        let open = choose(back(), &node(5), 1, false);
        assert!(matches!(open.outcome, Outcome::Circle { at: 0, .. }));
        assert_eq!(
            root(&choose(back(), &node(1), 0, false)).kind,
            RootKind::Deadlock
        );
    }

    #[test]
    fn who_has_the_other_end_and_waits_elsewhere_does_not_serve_it() {
        let idle = || ends(2, End::idle(RootKind::Input, "no client has connected"));
        let told = |place| match idle().of_one_elsewhere(place).outcome {
            Outcome::Root(root, weight) => (root.what, weight),
            other => panic!("{other:?}"),
        };
        let (what, weight) = told((1, 2));
        assert!(what.ends_with("something else: no client has connected"));
        assert_eq!(weight, Weight::Outside);
        let (what, weight) = told((1, 3));
        assert_eq!((&*what, weight), ("no client has connected", Weight::Idle));
    }

    #[test]
    fn nobody_is_blamed_where_two_explain_as_much() {
        let sleeps = || End::outside(RootKind::Timer, "it sleeps");
        let ways = vec![
            way(2, Known::Assumed, ends(2, sleeps())),
            way(3, Known::Assumed, ends(3, sleeps())),
        ];
        let chosen = choose(ways, &node(1), 0, false);
        assert_eq!(
            (root(&chosen).kind, root(&chosen).tid),
            (RootKind::Unknown, Some(1))
        );
        assert!(chosen.links[0].owed_by.is_none());
    }

    #[test]
    fn a_server_that_listens_at_several_addresses_is_idle() {
        let listens = |kind, what: &str| {
            let mut way = way(1, Known::Seen, ends(1, End::idle(kind, what)));
            way.links[0].owed_by = None;
            way
        };
        let ways = vec![
            listens(RootKind::Timer, "the call is limited in time"),
            listens(RootKind::Input, "no client has connected to A"),
            listens(RootKind::Input, "no client has connected to B"),
        ];
        let chosen = choose(ways, &node(1), 0, false);
        let told = "no client has connected to A; no client has connected to B";
        assert_eq!(
            (root(&chosen).kind, &*root(&chosen).what),
            (RootKind::Input, told)
        );
        let idles = matches!(chosen.outcome, Outcome::Root(_, Weight::Idle));
        assert!(idles, "that it waits is no fault");
    }

    #[test]
    fn beside_a_listener_what_another_thread_is_blocked_in_is_told() {
        let idle = End::idle(RootKind::Input, "no client has connected");
        let mut blocked = ends(3, End::unknown("nothing says who owes it"));
        let lock = way(1, Known::Assumed, circle_to(0)).links.remove(0);
        blocked.links = vec![Link {
            waiter: node(3),
            ..lock
        }];
        let ways = vec![
            way(2, Known::Assumed, ends(2, idle)),
            way(3, Known::Assumed, blocked),
        ];
        let what = root(&choose(ways, &node(1), 0, false)).what.clone();
        let begins = "nothing says which of 2 owes it; one of them: thread 3 () waits for lock";
        assert!(what.starts_with(begins), "{what}");
    }

    #[test]
    fn a_thread_that_sleeps_is_not_blamed_for_being_there() {
        let sleeps = || End::outside(RootKind::Timer, "it sleeps");
        let alone = choose(
            vec![way(2, Known::Assumed, ends(2, sleeps()))],
            &node(1),
            0,
            false,
        );
        assert_eq!(root(&alone).kind, RootKind::Unknown);
        let served = vec![
            way(2, Known::Assumed, ends(2, sleeps())),
            way(3, Known::Seen, circle_to(0)),
        ];
        let chosen = choose(served, &node(1), 0, false);
        assert_eq!(root(&chosen).kind, RootKind::Deadlock);
    }

    #[test]
    fn a_childs_wait_comes_before_the_time_limit_of_its_parents_call() {
        let blamed = |child: End| {
            let limited = End::idle(RootKind::Timer, "it is limited in time");
            let ways = vec![
                way(1, Known::Seen, ends(1, limited)),
                way(2, Known::Assumed, ends(2, child)),
            ];
            root(&choose(ways, &node(1), 0, false)).tid
        };
        let reads = End::outside(RootKind::Input, "nobody has typed");
        assert_eq!(blamed(reads), Some(2));
        let sleeps = End::outside(RootKind::Timer, "it sleeps");
        assert_eq!(blamed(sleeps), Some(1), "it is no cause");
    }

    #[test]
    fn a_known_link_comes_before_an_assumed_one() {
        let sleeps = || End::outside(RootKind::Timer, "it sleeps");
        let ways = vec![
            way(2, Known::Assumed, ends(2, sleeps())),
            way(3, Known::ByCode, ends(3, sleeps())),
        ];
        assert_eq!(root(&choose(ways, &node(1), 0, false)).tid, Some(3));
    }

    #[test]
    fn threads_that_all_wait_have_nobody_left() {
        let idle = || way(2, Known::Assumed, Chosen::bare(Outcome::Idle));
        let alone = choose(vec![idle(), idle()], &node(1), 0, false);
        assert_eq!(root(&alone).kind, RootKind::Deadlock);
        assert!(root(&alone).what.starts_with("all 2"));
        let nested = choose(vec![idle()], &node(1), 1, true);
        assert!(matches!(nested.outcome, Outcome::Idle));
    }
}
