// SPDX-License-Identifier: MIT
//! What a call on a socket waits for: who holds the other end.

use flagfinder_linux::{syscalls, traits};
use flagfinder_waits::internet::{connection, OtherEnd};
use flagfinder_waits::turn::{sent_last, SentLast};
use flagfinder_waits::unix::{self, UnixEnd};

use super::obstacle::{Debtor, End, Obstacle, Side, Weight, Who};
use super::place::{Place, MOST_HOLDERS};
use super::process::Processes;
use super::report::RootKind;
use super::served::of_side;
use crate::effects::Effect;

/// One for the socket of that inode.
pub(super) fn socket(processes: &mut Processes, place: &Place, inode: u32) -> Vec<Obstacle> {
    if let Some(connection) = connection(place.pid, inode) {
        let what = connection.name.clone();
        if connection.is_listening {
            let end = End::idle(
                RootKind::Input,
                format!("no new client has connected to {what}"),
            );
            return of_side(Side::Listens(connection.local), place.ends(&what, end));
        }
        let found = match connection.end {
            OtherEnd::Socket(peer) => {
                let sent_last = looks(place).then(|| sent_last(place.pid, place.fd));
                in_turn(
                    sent_last.flatten(),
                    holders(processes, place, &what, peer, ""),
                )
            }
            OtherEnd::Pending(Some(listener)) => holders(
                processes,
                place,
                &what,
                listener,
                "has not accepted the connection: it ",
            ),
            OtherEnd::Pending(None) | OtherEnd::Elsewhere if connection.is_datagram => {
                let end = End::idle(RootKind::Peer, format!("no datagram has come to {what}"));
                place.ends(&what, end)
            }
            _ => {
                let text = format!(
                    "the other end of {what} is on another machine, or is gone without a word \
                     (state: {})",
                    connection.state
                );
                place.ends(&what, End::outside(RootKind::Peer, text))
            }
        };
        return of_side(Side::Connected(connection.local), found);
    }
    unix_socket(processes, place, inode)
}

/// Whoever asks about one of several may wait for another; who reads waits for more.
fn looks(place: &Place) -> bool {
    syscalls::number(place.call).is_some_and(traits::looks)
}

fn in_turn(sent_last: Option<SentLast>, found: Vec<Obstacle>) -> Vec<Obstacle> {
    let found = found.into_iter();
    found.map(|one| Obstacle { sent_last, ..one }).collect()
}

fn unix_socket(processes: &mut Processes, place: &Place, inode: u32) -> Vec<Obstacle> {
    let Some(name) = unix::name(place.pid, inode) else {
        let end = End::unknown("what kind of socket it is could not be told");
        return place.ends("a socket", end);
    };
    let path = name.path.map_or(String::new(), |path| format!(" {path}"));
    let what = format!("Unix socket{path}");
    if name.is_listening {
        let end = End::idle(
            RootKind::Input,
            format!("no new client has connected to {what}"),
        );
        return of_side(Side::Listens(what.clone()), place.ends(&what, end));
    }
    let end = match unix::end(place.pid, inode) {
        Ok(end) => end,
        Err(error) => {
            let end = End::unknown(format!("the kernel does not tell its other end: {error}"));
            return place.ends(&what, end);
        }
    };
    match end {
        Some(UnixEnd::Socket(peer)) => {
            let sent_last = looks(place).then_some(SentLast::Untold);
            let found = holders(processes, place, &what, peer, "");
            of_side(Side::Connected(what), in_turn(sent_last, found))
        }
        Some(UnixEnd::Pending(listener)) => {
            let reason = "has not accepted the connection: it ";
            holders(processes, place, &what, listener, reason)
        }
        None => {
            let end = End::idle(
                RootKind::Peer,
                format!("{what} has no peer: anybody may send"),
            );
            place.ends(&what, end)
        }
    }
}

/// A process of one thread holds both ends. An event loop wakes itself by a pair of Unix sockets; a
/// program may also have a connection to a server of its own.
fn to_itself(place: &Place, what: &str, fd: i32) -> End {
    let weight = match what.starts_with("Unix socket") {
        true => Weight::Fault,
        false => Weight::Circle,
    };
    let text = format!(
        "only process {} itself holds the other end of {what} (fd {fd}), and its one thread waits: \
         nobody is left to write to it",
        place.pid
    );
    End::new(RootKind::Deadlock, weight, text)
}

/// Processes that have the socket of the other end.
fn holders(
    processes: &mut Processes,
    place: &Place,
    what: &str,
    inode: u32,
    did: &str,
) -> Vec<Obstacle> {
    let target = format!("socket:[{inode}]");
    let owners = processes.owners.of(&target).to_vec();
    if owners.is_empty() {
        let end = match processes.owners.partial {
            true => End::unknown("not every process could be looked at for the other end"),
            false => End::outside(
                RootKind::Peer,
                format!("no process of this pid namespace holds the other end of {what}"),
            ),
        };
        return place.ends(what, end);
    }
    let own = owners.iter().find(|owner| owner.pid == place.pid);
    let is_foreign = owners.iter().any(|owner| owner.pid != place.pid);
    if let Some(own) = own.filter(|_| !is_foreign) {
        let threads = processes.get(place.pid).map_or(0, |all| all.tids().len());
        if threads == 1 {
            return place.ends(what, to_itself(place, what, own.fd));
        }
    }
    let for_room = traits::sends(syscalls::number(place.call).unwrap_or(u32::MAX));
    let uses = if for_room {
        Effect::Read
    } else {
        Effect::Write
    };
    let mut debtors: Vec<Debtor> = Vec::new();
    // A process that only inherited it from the one that asks owes nothing as long as others have
    // it.
    let asked = owners
        .iter()
        .filter(|owner| !is_foreign || owner.pid != place.pid);
    for owner in asked.take(MOST_HOLDERS) {
        let who = Who::Process(owner.pid, Some(target.clone()));
        let reason = format!("it {did}holds the other end, fd {}", owner.fd);
        // Whoever has not accepted the connection is to do that first.
        let on = owners
            .iter()
            .filter(|one| one.pid == owner.pid && did.is_empty());
        if !debtors.iter().any(|debtor| debtor.who == who) {
            let on: Vec<i32> = on.map(|one| one.fd).collect();
            let effect = (!on.is_empty()).then(|| uses(on));
            let debtor = Debtor::seen(who, reason);
            debtors.push(Debtor { effect, ..debtor });
        }
    }
    let owed = place.owed(what, debtors).into_iter();
    owed.map(|one| Obstacle { for_room, ..one }).collect()
}
