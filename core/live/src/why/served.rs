// SPDX-License-Identifier: MIT
//! A server's side of connections: a call that takes new clients waits for whatever any of them
//! asks next, and none of them owes it a request.

use super::obstacle::{End, Obstacle, Side, Weight};
use super::report::{Node, RootKind};
use super::way::{Chosen, Outcome};
use flagfinder_waits::turn::SentLast;

/// The same obstacles, of a channel on that side.
pub fn of_side(side: Side, found: Vec<Obstacle>) -> Vec<Obstacle> {
    let side = Some(side);
    let one = |obstacle| Obstacle {
        side: side.clone(),
        ..obstacle
    };
    found.into_iter().map(one).collect()
}

/// Marks what a server awaits beside new clients: connections that came to a socket which the same
/// call listens at, and the output of programs whose terminal it shows. The socket comes last: what
/// its clients ask tells more than that there are no others.
pub fn mark(all: &mut [Obstacle]) {
    let listens = |one: &Obstacle| match &one.side {
        Some(Side::Listens(address)) => Some(address.clone()),
        _ => None,
    };
    let addresses: Vec<String> = all.iter().filter_map(listens).collect();
    for obstacle in &mut *all {
        obstacle.is_request = match &obstacle.side {
            Some(Side::Connected(address)) => addresses.contains(address),
            Some(Side::Programs) => !addresses.is_empty(),
            _ => false,
        };
    }
    if all.iter().any(|one| one.is_request) {
        all.sort_by_key(|one| listens(one).is_some());
    }
}

/// Where a client leads from which the server `node` awaits a request, and whether that client owes
/// anything. What is wrong with it is told; that it waits for its answer, for input or for a time
/// is no debt.
pub fn from_client(found: Chosen, client: &Node, node: &Node) -> (Chosen, bool) {
    match found.outcome {
        // It awaits the request at one end, and the answer at the other.
        Outcome::Circle { .. } if client == node => {
            let what = format!(
                "thread {} is at both ends of a connection of process {} to itself: its own \
                 request has not been answered",
                node.tid, node.pid
            );
            let end = End::new(RootKind::Deadlock, Weight::Circle, what);
            (Chosen::end(end, node), false)
        }
        Outcome::Circle { .. } => {
            let (pid, name) = (client.pid, &client.name);
            let what = format!(
                "it waits for the next request of any client; process {pid} ({name}) waits for its \
                 answer"
            );
            (Chosen::end(End::idle(RootKind::Input, what), node), false)
        }
        Outcome::Root(root, Weight::Outside) => {
            let outcome = Outcome::Root(root, Weight::Idle);
            (Chosen { outcome, ..found }, true)
        }
        _ => (found, true),
    }
}

/// Where a peer leads that waits for the thread in turn. A circle over a connection is one only if
/// it is the peer's turn there: `sent_last` says who sent last.
pub fn from_peer(found: Chosen, sent_last: SentLast, peer: &Node, node: &Node) -> Chosen {
    if !matches!(found.outcome, Outcome::Circle { .. }) {
        return found;
    }
    let (pid, name) = (peer.pid, &peer.name);
    let end = match sent_last {
        SentLast::Own => return found,
        SentLast::Peer => End::idle(
            RootKind::Input,
            format!(
                "the last that was sent there came from process {pid} ({name}), which waits as \
                 well: it is the turn of process {}, which waits for something else, or for more",
                node.pid
            ),
        ),
        SentLast::Unclear | SentLast::Untold => End::unknown(format!(
            "process {pid} ({name}) waits at the other end as well: whose turn it is is not known"
        )),
    };
    Chosen::end(end, node)
}

#[cfg(test)]
mod tests {
    use super::super::report::Kind;
    use super::*;

    fn obstacle(side: Side) -> Obstacle {
        let end = End::idle(RootKind::Input, "");
        Obstacle {
            side: Some(side),
            ..Obstacle::ends(Kind::Call, "", end)
        }
    }

    fn node(pid: u32) -> Node {
        Node {
            pid,
            ..Node::thread(pid)
        }
    }

    #[test]
    fn a_connection_to_a_listener_of_the_call_is_a_clients_and_the_listener_comes_last() {
        let at = |address: &str| address.to_owned();
        let mut all = [
            obstacle(Side::Listens(at("TCP port 80"))),
            obstacle(Side::Connected(at("TCP port 5000"))),
            obstacle(Side::Connected(at("TCP port 80"))),
            obstacle(Side::Programs),
        ];
        mark(&mut all);
        assert_eq!(all.map(|one| one.is_request), [false, true, true, false]);
        let mut alone = [obstacle(Side::Programs)];
        mark(&mut alone);
        assert!(!alone[0].is_request, "a program may owe its output");
    }

    #[test]
    fn a_client_that_waits_for_its_answer_makes_no_circle() {
        let circle = Chosen::bare(Outcome::Circle { at: 0, note: None });
        let (found, owes) = from_client(circle, &node(2), &node(1));
        assert!(!owes);
        let Outcome::Root(root, weight) = found.outcome else {
            panic!("no root");
        };
        assert_eq!((root.pid, weight), (Some(1), Weight::Idle));
    }

    #[test]
    fn a_circle_over_a_connection_needs_the_peers_turn() {
        let kind = |sent_last| {
            let circle = Chosen::bare(Outcome::Circle { at: 0, note: None });
            match from_peer(circle, sent_last, &node(2), &node(1)).outcome {
                Outcome::Root(root, _) => Some((root.kind, root.pid)),
                _ => None,
            }
        };
        assert_eq!(kind(SentLast::Own), None);
        assert_eq!(kind(SentLast::Peer), Some((RootKind::Input, Some(1))));
        assert_eq!(kind(SentLast::Unclear), Some((RootKind::Unknown, Some(1))));
    }

    #[test]
    fn a_thread_that_asks_its_own_server_waits_for_itself() {
        let circle = Chosen::bare(Outcome::Circle { at: 0, note: None });
        let Outcome::Root(root, weight) = from_client(circle, &node(1), &node(1)).0.outcome else {
            panic!("no root");
        };
        assert_eq!((root.kind, weight), (RootKind::Deadlock, Weight::Circle));
    }

    #[test]
    fn a_stopped_client_is_told_and_a_sleeping_one_is_no_reason() {
        let weight = |end: End| {
            let found = Chosen::end(end, &node(2));
            match from_client(found, &node(2), &node(1)).0.outcome {
                Outcome::Root(_, weight) => weight,
                other => panic!("{other:?}"),
            }
        };
        let stopped = End::fault(RootKind::Stopped, "it is stopped");
        assert_eq!(weight(stopped), Weight::Fault);
        assert_eq!(
            weight(End::outside(RootKind::Timer, "it sleeps")),
            Weight::Idle
        );
    }
}
