// SPDX-License-Identifier: MIT
//! Which receipt on one host got what another host sent.
//!
//! A byte of a TCP stream has the same sequence number at both ends, whenever either recording
//! began and whatever they lost. A datagram is known by the hash of its first bytes; where several
//! are equal they are paired in order, if as many were received as were sent, and else not at all.
//! Blind spots: addresses that something between the hosts translates; a stream whose recordings
//! begin more than two GiB apart.

use std::net::SocketAddr;

use flagfinder_events::{Exchange, FlowFact, Protocol};
use rustc_hash::FxHashMap;

/// What one host sent, and where another received the last of it: places in their exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub sent: usize,
    pub received: usize,
    /// It can be no other than this one.
    pub is_certain: bool,
}

/// Exchanges of a host with its flows.
pub(crate) struct Side<'s> {
    flows: FxHashMap<u32, &'s FlowFact>,
    pub exchanges: &'s [Exchange],
}

/// Sequence numbers of a stream, counted on beyond 32 bits, from a number near those to come.
struct Counted(u64);

impl Counted {
    fn on(&mut self, position: u64) -> u64 {
        let by = (position as u32).wrapping_sub(self.0 as u32) as i32;
        self.0 = self.0.wrapping_add_signed(by.into());
        self.0
    }
}

/// So far from zero that numbers may go back.
const FAR: u64 = 1 << 40;

type Addresses = (SocketAddr, SocketAddr);

impl<'s> Side<'s> {
    pub fn new(flows: &'s [FlowFact], exchanges: &'s [Exchange]) -> Side<'s> {
        Side {
            flows: flows.iter().map(|flow| (flow.number, flow)).collect(),
            exchanges,
        }
    }

    pub fn flow(&self, exchange: &Exchange) -> Option<&'s FlowFact> {
        self.flows.get(&exchange.flow).copied()
    }

    /// Places of what was sent or received over TCP: by sender's and receiver's address, then by
    /// flow.
    fn streams(&self, sent: bool) -> FxHashMap<Addresses, FxHashMap<u32, Vec<usize>>> {
        let mut all: FxHashMap<Addresses, FxHashMap<u32, Vec<usize>>> = FxHashMap::default();
        for (place, one) in self.exchanges.iter().enumerate() {
            let flow = self.flow(one).filter(|_| one.sent == sent);
            let Some(flow) = flow.filter(|flow| flow.protocol == Protocol::Tcp) else {
                continue;
            };
            let ends = match sent {
                true => (flow.local, flow.remote),
                false => (flow.remote, flow.local),
            };
            let of_ends = all.entry(ends).or_default();
            of_ends.entry(one.flow).or_default().push(place);
        }
        all
    }

    /// Places of datagrams, by hash, length and ports.
    fn datagrams(&self, sent: bool) -> FxHashMap<(u64, u32, u16), Vec<usize>> {
        let mut all: FxHashMap<(u64, u32, u16), Vec<usize>> = FxHashMap::default();
        for (place, one) in self.exchanges.iter().enumerate() {
            let flow = self
                .flow(one)
                .filter(|_| one.sent == sent && one.position != 0);
            let Some(flow) = flow.filter(|flow| flow.protocol == Protocol::Udp) else {
                continue;
            };
            let to = if sent { flow.remote } else { flow.local };
            let key = (one.position, one.bytes, to.port());
            all.entry(key).or_default().push(place);
        }
        all
    }
}

/// Whether two notes of an address may mean the same: a socket that is bound to any address does
/// not know to which one a datagram came.
fn may_be(one: SocketAddr, other: SocketAddr) -> bool {
    let open = |address: SocketAddr| address.ip().is_unspecified();
    let same_port = one.port() == other.port() || one.port() == 0 || other.port() == 0;
    same_port && (one.ip() == other.ip() || open(one) || open(other))
}

fn in_stream(from: &Side, to: &Side, sent: &[usize], received: &[usize], found: &mut Vec<Message>) {
    let Some(first) = sent.first() else {
        return;
    };
    let base = FAR | from.exchanges[*first].position;
    let mut count = Counted(base);
    // The number of the first byte, behind the last one, and the place of each.
    let all = sent.iter().map(|&place| {
        let one = &from.exchanges[place];
        let end = count.on(one.position);
        (end - u64::from(one.bytes), end, place)
    });
    let mut all: Vec<(u64, u64, usize)> = all.collect();
    all.sort_unstable();
    let mut count = Counted(base);
    for &place in received {
        let end = count.on(to.exchanges[place].position);
        let next = all.partition_point(|&(begin, ..)| begin < end);
        let last = next.checked_sub(1).map(|before| all[before]);
        if let Some((_, _, sent)) = last.filter(|&(begin, until, _)| begin < end && end <= until) {
            found.push(Message {
                sent,
                received: place,
                is_certain: true,
            });
        }
    }
}

/// What of the first side's was received on the second.
pub(crate) fn messages(from: &Side, to: &Side) -> Vec<Message> {
    let mut found = Vec::new();
    let received = to.streams(false);
    for (ends, flows) in from.streams(true) {
        let others = received.get(&ends).into_iter().flatten();
        for (_, received) in others {
            for sent in flows.values() {
                in_stream(from, to, sent, received, &mut found);
            }
        }
    }
    let received = to.datagrams(false);
    for (key, sent) in from.datagrams(true) {
        let Some(received) = received.get(&key) else {
            continue;
        };
        let addresses = |side: &Side, place: usize| {
            let flow = side.flow(&side.exchanges[place]);
            flow.map(|flow| (flow.local, flow.remote))
        };
        let fits = |sent: usize, received: usize| {
            let ends = addresses(from, sent).zip(addresses(to, received));
            ends.is_some_and(|((from, to), (at, by))| may_be(to, at) && may_be(from, by))
        };
        let all = std::iter::zip(&sent, received);
        if sent.len() == received.len() && all.clone().all(|(&s, &r)| fits(s, r)) {
            let is_certain = sent.len() == 1;
            found.extend(all.map(|(&sent, &received)| Message {
                sent,
                received,
                is_certain,
            }));
        }
    }
    found.sort_unstable_by_key(|message| message.received);
    found.dedup_by_key(|message| message.received);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(protocol: Protocol, local: &str, remote: &str) -> FlowFact {
        FlowFact {
            number: 1,
            protocol,
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
        }
    }

    fn exchange(sent: bool, bytes: u32, position: u64) -> Exchange {
        Exchange {
            ts: 1,
            began: None,
            tid: 1,
            flow: 1,
            bytes,
            position,
            sent,
        }
    }

    fn paired(
        flows: [FlowFact; 2],
        sent: &[(u32, u64)],
        received: &[(u32, u64)],
    ) -> Vec<[usize; 2]> {
        let of = |all: &[(u32, u64)], sent| -> Vec<Exchange> {
            let all = all.iter();
            all.map(|&(bytes, position)| exchange(sent, bytes, position))
                .collect()
        };
        let (sent, received) = (of(sent, true), of(received, false));
        let sides = [(&flows[..1], &sent), (&flows[1..], &received)];
        let [from, to] = sides.map(|(flows, all)| Side::new(flows, all));
        let all = messages(&from, &to);
        all.iter().map(|m| [m.sent, m.received]).collect()
    }

    fn tcp() -> [FlowFact; 2] {
        let (here, there) = ("10.0.0.1:80", "10.0.0.2:4000");
        [(here, there), (there, here)].map(|(a, b)| flow(Protocol::Tcp, a, b))
    }

    #[test]
    fn a_byte_has_the_same_number_at_both_ends() {
        // Numbers wrap around, the first was received before its recording began, the second in
        // two parts, the last two at once.
        let near = u64::from(u32::MAX) - 9;
        let sent = [(5, near), (5, near + 5), (5, 0), (10, 10), (10, 20)];
        let received = [(3, near + 3), (2, near + 5), (5, 0), (20, 20)];
        assert_eq!(
            paired(tcp(), &sent, &received),
            [[1, 0], [1, 1], [2, 2], [4, 3]]
        );
    }

    #[test]
    fn what_nobody_is_known_to_have_sent_is_not_paired() {
        // Between the two something was sent that was not recorded.
        let sent = [(10, 110), (10, 210)];
        assert_eq!(
            paired(tcp(), &sent, &[(10, 160), (50, 210), (10, 220)]),
            [[1, 1]]
        );
        let [one, _] = tcp();
        let other = flow(Protocol::Tcp, "10.0.0.2:4001", "10.0.0.1:80");
        assert_eq!(paired([one, other], &sent, &[(10, 110)]).len(), 0);
    }

    #[test]
    fn datagrams_are_known_by_their_bytes_and_equal_ones_by_their_order() {
        let bound = |local| {
            [
                flow(Protocol::Udp, "10.0.0.1:900", "10.0.0.2:53"),
                flow(Protocol::Udp, local, "10.0.0.1:900"),
            ]
        };
        let sent = [(8, 77), (8, 78), (8, 79), (8, 79), (8, 80), (8, 80)];
        // The second was lost, and one of the last two; the first two came in another order.
        let received = [(8, 79), (8, 77), (8, 79), (8, 80)];
        let expected = [[2, 0], [0, 1], [3, 2]];
        assert_eq!(paired(bound("0.0.0.0:53"), &sent, &received), expected);
        assert_eq!(paired(bound("10.0.0.3:53"), &sent, &received).len(), 0);
    }
}
