// SPDX-License-Identifier: MIT
//! Which of several threads that may owe is followed in the report, and what is said where none is.
//!
//! Nobody is left where each way comes back, or comes to a thread that waits for any of those which
//! are being followed. Where one that is only assumed to owe is followed, the root is assumed.

use super::obstacle::{End, Weight};
use super::report::{Kind, Known, Node, Root, RootKind};
use super::way::{close, told_alike, Chosen, Outcome, Way};

/// The same cause, though another thread of the process may have led there.
fn is_same(one: &Root, other: &Root) -> bool {
    use RootKind::{Deadlock, Ended, Frozen, Stopped};
    let of_process = matches!(one.kind, Stopped | Frozen | Ended | Deadlock);
    // A lock of several processes is told of in the same words by each that waits for it.
    let is_shared = one.kind == Ended && one.what == other.what;
    let is_near = one.pid == other.pid && (of_process || one.tid == other.tid);
    one.kind == other.kind && (is_shared || is_near)
}

/// `at`: place of the thread in the path. `nested`: its process's threads are being followed
/// already.
pub fn choose(ways: Vec<Way>, node: &Node, at: usize, nested: bool) -> Chosen {
    let best = ways.iter().filter_map(Way::weight).max();
    let Some(best) = best else {
        return nobody(&ways, node, at, nested);
    };
    let known = |way: &&Way| way.weight() == Some(best);
    let surest = ways.iter().filter(known).map(|way| way.known).min();
    let top: Vec<&Way> = ways
        .iter()
        .filter(known)
        .filter(|way| Some(way.known) == surest)
        .collect();
    // A child to which another one leads tells less than that.
    let is_passed = |way: &Way| top.iter().any(|other| other.passes_child_of(way));
    let rest: Vec<&Way> = top.iter().copied().filter(|way| !is_passed(way)).collect();
    let top = if rest.is_empty() { top } else { rest };
    if best == Weight::Circle && top.iter().all(|way| !way.leads_on()) {
        // Another process that is seen to have a channel may end the wait as well: not all ways
        // lead back, though it is not known what keeps that one.
        let others = ways.iter().filter(|way| way.is_elsewhere(node, surest));
        if let Some(other) = others.max_by_key(|way| way.links.len()) {
            return other.clone().chosen();
        }
        // It is a circle only if no thread that is known to owe leads on. It is a certain one if
        // there is no other thread, as copies of others read made-up data. Where only copies
        // show it, one that waits for whatever comes may end the wait, as in a service at rest.
        let mut circle = top[0].clone();
        let is_left = |way: &&Way| way.by_elimination && way.known == Known::Assumed;
        let is_by_copies = top.iter().all(|way| way.by_elimination);
        if is_by_copies && ways.iter().filter(is_left).any(Way::leads_on) {
            return undecided(&ways, &circle, node);
        }
        if ways.iter().any(|way| is_left(&way)) {
            circle.links[0].known = Known::Assumed;
        }
        return close(circle, node, at);
    }
    let root = |way: &Way| match &way.outcome {
        Outcome::Root(root, _) => Some(root.clone()),
        _ => None,
    };
    let roots: Vec<Root> = top.iter().filter_map(|way| root(way)).collect();
    let is_held = best == Weight::Outside && surest == Some(Known::Seen);
    let is_alike = |root: &Root| is_same(root, &roots[0]) || is_held && are_held(root, &roots[0]);
    let agree = roots.iter().all(is_alike);
    // Of known holders the nearest one is chosen; of threads that may owe, the one with the longest
    // way.
    let length = |way: &&&Way| match surest {
        Some(Known::Assumed) => usize::MAX - way.links.len(),
        _ => way.links.len(),
    };
    let shortest = top.iter().filter(|way| way.leads_on()).min_by_key(length);
    let Some(shortest) = shortest else {
        return nobody(&ways, node, at, nested);
    };
    let is_blind = best <= Weight::Idle && shortest.by_elimination
        || best == Weight::Idle && surest == Some(Known::Assumed);
    // A thread that waits for a child or a peer hangs rather than those that wait for whatever
    // comes, though what keeps the other process was not found.
    let mut outside = ways
        .iter()
        .filter(|way| is_blind && way.is_lost_outside(node));
    if let (Some(way), None) = (outside.next(), outside.next()) {
        return way.clone().chosen();
    }
    let is_one = roots.iter().all(|root| root.what == roots[0].what);
    if best == Weight::Idle && !(agree && is_one) {
        if let Some(idles) = idles(&top, node) {
            return idles;
        }
    }
    // A limit of time is one more way to end a wait for others, and no cause.
    let is_limited = || {
        let by_time = roots.iter().all(|root| root.kind == RootKind::Timer);
        best == Weight::Idle && by_time && ways.iter().any(|way| way.by_elimination)
    };
    if !agree || is_blind || !nested && is_limited() {
        let like = ways.iter().find(|way| way.by_elimination);
        return undecided(&ways, like.unwrap_or(shortest), node);
    }
    // One of the threads of a process owes it, and all of them lead there.
    let all_agree = || {
        let alike = |way: &Way| root(way).is_some_and(|one| is_same(&one, &roots[0]));
        !shortest.by_elimination && ways.len() > 1 && ways.iter().all(alike)
    };
    let is_assumed = surest == Some(Known::Assumed) && !all_agree();
    let mut chosen = (*shortest).clone().chosen();
    if let Outcome::Root(root, _) = &mut chosen.outcome {
        root.assumed |= is_assumed;
        let others = roots.iter().filter(|one| is_held && one.pid != root.pid);
        let mut others: Vec<u32> = others.filter_map(|one| one.pid).collect();
        others.dedup();
        match &others[..] {
            [] => {}
            [one] => root.what += &format!("; so does process {one}"),
            [one, more @ ..] => {
                root.what += &format!("; so do process {one} and {} more", more.len());
            }
        }
    }
    chosen
}

/// Processes that are all seen to have the channel, as children have that inherited it, and wait
/// for the same: none of them is going to use it.
fn are_held(one: &Root, other: &Root) -> bool {
    let is_input = |root: &Root| root.kind == RootKind::Input && root.pid.is_some();
    is_input(one) && is_input(other) && one.what == other.what
}

/// The thread waits for whatever comes at any of these, as a server does that listens at several
/// addresses. `None`: not all of them end at the thread itself.
fn idles(top: &[&Way], node: &Node) -> Option<Chosen> {
    let own = |way: &&Way| match &way.outcome {
        Outcome::Root(root, _) if (root.pid, root.tid) == (Some(node.pid), Some(node.tid)) => {
            (way.links.len() == 1).then(|| (way.links[0].clone(), root.clone()))
        }
        _ => None,
    };
    let mut told: Vec<_> = top.iter().map(own).collect::<Option<_>>()?;
    // Beside what may come, a limit of time is no news.
    if told.iter().any(|(_, root)| root.kind != RootKind::Timer) {
        told.retain(|(_, root)| root.kind != RootKind::Timer);
    }
    let mut texts: Vec<String> = told.iter().map(|(_, root)| root.what.clone()).collect();
    texts.dedup();
    let (mut link, root) = told.into_iter().next()?;
    let what = listed(&texts);
    link.reason.clone_from(&what);
    Some(Chosen {
        links: vec![link],
        outcome: Outcome::Root(Root { what, ..root }, Weight::Idle),
    })
}

fn listed(texts: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = texts[..texts.len().min(SHOWN)].join("; ");
    match texts.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

/// More than one thing explains as much, or nothing does: none is blamed.
fn undecided(ways: &[Way], like: &Way, node: &Node) -> Chosen {
    // What a thread is blocked in tells more than that another waits for whatever comes.
    let mut sorted: Vec<&Way> = ways.iter().collect();
    sorted.sort_by_key(|way| way.weight() == Some(Weight::Idle));
    // One thread may end the wait in several ways.
    let owed_by = |way: &Way| way.links[0].owed_by.as_ref().map(|owed| owed.node.tid);
    let mut owing: Vec<Option<u32>> = ways.iter().filter(|w| !w.passes()).map(owed_by).collect();
    owing.sort_unstable();
    owing.dedup();
    let what = match owing.len() {
        1 => "nothing says who ends this wait; the only thread left that could".to_owned(),
        count => format!("{count} threads could end this wait, and nothing tells them apart"),
    };
    let what = format!("{what}: {}", listed(&told_alike(&sorted, node)));
    ends_with(like, node, End::unknown(what))
}

/// The chain ends at the thread itself.
fn ends_with(like: &Way, node: &Node, end: End) -> Chosen {
    let mut link = like.links[0].clone();
    link.owed_by = None;
    link.known = Known::Assumed;
    link.reason.clone_from(&end.what);
    Chosen {
        links: vec![link],
        ..Chosen::end(end, node)
    }
}

/// No way leads on.
fn nobody(ways: &[Way], node: &Node, at: usize, nested: bool) -> Chosen {
    let place = |way: &Way| match way.outcome {
        Outcome::Circle { at, .. } => Some(at),
        _ => None,
    };
    let circles = ways.iter().filter(|way| place(way).is_some());
    let Some(way) = circles.min_by_key(|way| place(way)).or(ways.first()) else {
        return Chosen::end(End::unknown("nothing is known of its wait"), node);
    };
    let what = || {
        let all: Vec<&Way> = ways.iter().collect();
        let all = listed(&told_alike(&all, node));
        // Such a lock does not tell who has it.
        let is_lock = |way: &Way| way.links[0].waits_for.kind == Kind::Lock;
        let itself = match ways.iter().any(is_lock) {
            true => ", which may hold the lock itself",
            false => "",
        };
        format!(
            "no thread is left that could end the wait of thread {}{itself}: {all}",
            node.tid
        )
    };
    // Where a thread is left that goes on, the process as a whole does.
    let goes_on = ways.iter().any(Way::passes);
    let end = || match goes_on {
        true => End::unknown(what()),
        false => End::new(RootKind::Deadlock, Weight::Circle, what()),
    };
    match &way.outcome {
        Outcome::Circle { at: to, note } if !goes_on => {
            let by_elimination = ways.iter().any(|way| way.by_elimination);
            let note = note.clone();
            let note = note.or_else(|| by_elimination.then(what));
            let outcome = Outcome::Circle { at: *to, note };
            let way = way.clone();
            close(Way { outcome, ..way }, node, at)
        }
        _ if nested => Chosen {
            outcome: Outcome::Idle,
            ..ends_with(way, node, End::unknown("it waits for any of these threads"))
        },
        _ => {
            let mut chosen = match (ways, &way.links[..]) {
                // The only other thread is where the chain ends.
                ([_], [_, .., last]) => Chosen {
                    links: way.links.clone(),
                    ..Chosen::end(end(), &last.waiter)
                },
                _ => ends_with(way, node, end()),
            };
            if let Outcome::Root(root, _) = &mut chosen.outcome {
                root.assumed = true;
                root.note = Some(root.what.clone());
            }
            chosen
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::obstacle::End;
    use super::super::report::Link;
    use super::*;

    fn node(tid: u32) -> Node {
        Node::thread(tid)
    }

    fn way(to: u32, known: Known, found: Chosen) -> Way {
        let link = Link {
            known,
            ..Link::of_lock(1, to)
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
    fn a_circle_is_certain_if_no_other_thread_is_left() {
        let back = |known| Way {
            by_elimination: true,
            ..way(2, known, circle_to(0))
        };
        let is_assumed = |ways| root(&choose(ways, &node(1), 0, false)).assumed;
        assert!(!is_assumed(vec![back(Known::Proved)]));
        let other = |found| Way {
            by_elimination: true,
            ..way(3, Known::Assumed, found)
        };
        let passes = Chosen::bare(Outcome::Passes);
        assert!(is_assumed(vec![back(Known::Proved), other(passes)]));
        let waits = ends(3, End::idle(RootKind::Input, "no client has connected"));
        let at_rest = choose(vec![back(Known::Proved), other(waits)], &node(1), 0, false);
        assert_eq!(root(&at_rest).kind, RootKind::Unknown);
    }

    #[test]
    fn a_circle_is_no_deadlock_while_another_process_may_end_the_wait() {
        let other = |known| {
            let mut other = way(
                3,
                known,
                ends(3, End::unknown("its loop was not understood")),
            );
            if let Some(owed) = &mut other.links[0].owed_by {
                owed.node.pid = 2;
            }
            let ways = vec![way(2, Known::Seen, circle_to(0)), other];
            root(&choose(ways, &node(1), 0, false)).kind
        };
        assert_eq!(other(Known::Seen), RootKind::Unknown);
        assert_eq!(other(Known::Assumed), RootKind::Deadlock);
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
    fn of_two_children_the_one_is_told_that_leads_to_the_other() {
        let first_owed = |kind| {
            let reads = End::outside(RootKind::Input, "nobody writes");
            let of_kind = |mut way: Way| {
                way.links[0].waits_for.kind = kind;
                way
            };
            let mut long = ends(2, reads.clone());
            long.links = vec![Link::of_lock(3, 2), Link::of_lock(2, 4)];
            let ways = vec![
                of_kind(way(2, Known::Seen, ends(2, reads))),
                of_kind(way(3, Known::Seen, long)),
            ];
            let chosen = choose(ways, &node(1), 0, false);
            chosen.links[0].owed_by.as_ref().map(|owed| owed.node.tid)
        };
        assert_eq!(first_owed(Kind::Child), Some(3));
        assert_eq!(first_owed(Kind::Lock), Some(2), "one holder is enough");
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
    fn processes_that_all_hold_a_channel_and_wait_for_the_same_are_told_together() {
        let told = |what: [&str; 3], known| {
            let way = |(at, what): (usize, &str)| {
                let mut way = way(2, known, ends(2, End::outside(RootKind::Input, what)));
                if let Outcome::Root(root, _) = &mut way.outcome {
                    root.pid = Some(at as u32 + 5);
                }
                way
            };
            let ways = what.into_iter().enumerate().map(way).collect();
            let chosen = choose(ways, &node(1), 0, false);
            (root(&chosen).kind, root(&chosen).what.clone())
        };
        let (kind, what) = told(["no client"; 3], Known::Seen);
        assert_eq!(kind, RootKind::Input);
        assert_eq!(what, "no client; so do process 6 and 1 more");
        let (kind, _) = told(["no client", "no client", "no line"], Known::Seen);
        assert_eq!(kind, RootKind::Unknown);
        let (kind, _) = told(["no client"; 3], Known::Assumed);
        assert_eq!(kind, RootKind::Unknown);
    }

    #[test]
    fn processes_that_wait_for_one_lock_have_one_cause() {
        let told = |locks: [&str; 2]| {
            let way = |(at, lock): (usize, &str)| {
                let mut way = way(
                    2,
                    Known::Assumed,
                    ends(2, End::fault(RootKind::Ended, lock)),
                );
                if let Outcome::Root(root, _) = &mut way.outcome {
                    root.pid = Some(at as u32 + 5);
                }
                way
            };
            let ways = locks.into_iter().enumerate().map(way).collect();
            root(&choose(ways, &node(1), 0, false)).kind
        };
        assert_eq!(told(["lock A is taken"; 2]), RootKind::Ended);
        assert_eq!(
            told(["lock A is taken", "lock B is taken"]),
            RootKind::Unknown
        );
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
        let begins =
            "2 threads could end this wait, and nothing tells them apart: thread 3 () waits";
        assert!(what.starts_with(begins), "{what}");
    }

    #[test]
    fn a_thread_that_waits_for_a_child_comes_before_idle_ones_though_nothing_explains_it() {
        let idle = End::idle(RootKind::Timer, "it is limited in time");
        let mut child = ends(4, End::unknown("nothing says who owes it"));
        let mut link = way(4, Known::Seen, circle_to(0)).links.remove(0);
        if let Some(owed) = &mut link.owed_by {
            owed.node.pid = 2;
        }
        child.links = vec![link];
        let ways = vec![
            way(2, Known::Assumed, ends(2, idle)),
            way(3, Known::Assumed, child),
        ];
        let chosen = choose(ways, &node(1), 0, false);
        assert_eq!(
            (root(&chosen).kind, chosen.links.len()),
            (RootKind::Unknown, 2)
        );
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
    fn by_elimination_no_circle_is_told_as_one_and_a_root_is_assumed() {
        let circle = choose(
            vec![way(2, Known::Assumed, circle_to(0))],
            &node(1),
            0,
            false,
        );
        let (root_, told) = (root(&circle), "no thread is left");
        assert!(root_.what.starts_with(told) && root_.assumed, "{root_:?}");
        let reads = || End::outside(RootKind::Input, "nobody has typed");
        let is_assumed = |known| {
            let ways = vec![way(2, known, ends(2, reads()))];
            root(&choose(ways, &node(1), 0, false)).assumed
        };
        assert!(is_assumed(Known::Assumed) && !is_assumed(Known::Proved));
    }

    #[test]
    fn all_threads_of_a_process_that_lead_to_one_root_leave_no_doubt() {
        let is_assumed = |at: [u32; 2]| {
            let way = |to: (u32, u32)| {
                let reads = End::outside(RootKind::Input, "nobody has typed");
                let mut way = way(to.0, Known::Assumed, ends(to.1, reads));
                way.by_elimination = false;
                way
            };
            let ways = vec![way((2, at[0])), way((3, at[1]))];
            root(&choose(ways, &node(1), 0, false)).assumed
        };
        assert!(!is_assumed([4, 4]));
    }

    #[test]
    fn a_limit_of_time_is_no_cause_where_others_may_end_the_wait() {
        let kind = |nested| {
            let limited = End::idle(RootKind::Timer, "the call is limited in time");
            let mut own = way(1, Known::Seen, ends(1, limited));
            own.links[0].owed_by = None;
            let ways = vec![own, way(2, Known::Assumed, Chosen::bare(Outcome::Idle))];
            root(&choose(ways, &node(1), 0, nested)).kind
        };
        assert_eq!(
            (kind(false), kind(true)),
            (RootKind::Unknown, RootKind::Timer)
        );
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
        assert!(root(&alone)
            .what
            .starts_with("no thread is left that could end"));
        let nested = choose(vec![idle()], &node(1), 1, true);
        assert!(matches!(nested.outcome, Outcome::Idle));
    }

    #[test]
    fn a_lock_without_an_owner_may_be_that_of_the_thread_itself() {
        let told = |kind| {
            let mut back = way(2, Known::Assumed, circle_to(0));
            back.links[0].waits_for.kind = kind;
            root(&choose(vec![back], &node(1), 0, false)).what.clone()
        };
        let itself = "which may hold the lock itself: thread 2";
        assert!(told(Kind::Lock).contains(itself), "{}", told(Kind::Lock));
        assert!(!told(Kind::Flag).contains(itself));
    }

    #[test]
    fn a_thread_that_waits_for_time_is_told_and_the_process_is_no_deadlock() {
        let back = || way(2, Known::Assumed, circle_to(0));
        let passes = way(3, Known::Assumed, Chosen::bare(Outcome::Passes));
        let chosen = choose(vec![back(), passes], &node(1), 0, false);
        let root_ = root(&chosen);
        assert_eq!((root_.kind, root_.assumed), (RootKind::Unknown, true));
        let told = "thread 3 () waits for time, and no copy ended the wait";
        assert!(root_.what.contains(told), "{root_:?}");
        assert!(chosen.is_nobody(&node(1)));
        let alone = choose(vec![back()], &node(1), 0, false);
        assert_eq!(root(&alone).kind, RootKind::Deadlock);
    }
}
