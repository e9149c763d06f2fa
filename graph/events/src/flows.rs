// SPDX-License-Identifier: MIT
//! Connections of TCP and pairs of addresses of UDP, by number, and what is sent over them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::event::{Event, Kind};
use crate::protocol::{self as p, Exchanged};

/// So many are known at once; a number is given again for one that is met after that.
const MOST: usize = 1 << 16;

/// What a flow goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// A stream; positions are the connection's sequence numbers.
    Tcp,
    /// Datagrams; positions are hashes of their first bytes.
    Udp,
}

/// A connection, or the addresses of datagrams. Unspecified addresses and port 0 are not known.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FlowFact {
    /// What events have for it, from 1.
    pub number: u32,
    /// What it goes over.
    pub protocol: Protocol,
    /// Of the socket.
    pub local: SocketAddr,
    /// Of the other end.
    pub remote: SocketAddr,
}

/// Something that a thread sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When the call had sent or received it.
    pub ts: u64,
    /// When the call that sent it began, if that is known.
    pub began: Option<u64>,
    /// The thread.
    pub tid: u32,
    /// Number of its [`FlowFact`].
    pub flow: u32,
    /// How many bytes.
    pub bytes: u32,
    /// TCP: the sequence number behind the last byte. UDP: a hash, or 0.
    pub position: u64,
    /// Sent, or received.
    pub sent: bool,
}

impl Exchange {
    /// From an event of what was sent or received.
    pub fn of(event: &Event) -> Option<Exchange> {
        let sent = match event.kind {
            Kind::Sent => true,
            Kind::Received => false,
            _ => return None,
        };
        let (flow, bytes) = event.halves(0);
        let took = event.words[2];
        Some(Exchange {
            ts: event.ts,
            began: (sent && took > 0).then(|| event.ts.saturating_sub(took)),
            tid: event.a,
            flow,
            bytes,
            position: event.words[1],
            sent,
        })
    }
}

/// Gives flows their numbers while they are recorded.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// By the place of the socket in the kernel: one that is made anew is another connection.
    known: FxHashMap<(u64, SocketAddr, SocketAddr), FlowFact>,
    fresh: Vec<FlowFact>,
    given: u32,
}

fn address(bytes: [u8; 16], is_v6: bool, port: u16) -> SocketAddr {
    let ip = match is_v6 {
        true => IpAddr::from(Ipv6Addr::from(bytes)).to_canonical(),
        false => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
    };
    SocketAddr::new(ip, port)
}

impl Flows {
    /// The words of the event for a record of the kernel's; `None`: it is no such record.
    pub fn words(&mut self, ts: u64, record: &[u8]) -> Option<[u64; 3]> {
        let (it, _) = p::read::<Exchanged>(record)?;
        let protocol = match it.protocol {
            p::TCP => Protocol::Tcp,
            p::UDP => Protocol::Udp,
            _ => return None,
        };
        let is_v6 = it.is_v6 != 0;
        let local = address(it.local, is_v6, it.local_port);
        let remote = address(it.remote, is_v6, it.remote_port);
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let (given, fresh) = (&mut self.given, &mut self.fresh);
        let flow = self.known.entry((it.socket, local, remote));
        let flow = flow.or_insert_with(|| {
            *given += 1;
            let flow = FlowFact {
                number: *given,
                protocol,
                local,
                remote,
            };
            fresh.push(flow.clone());
            flow
        });
        let took = match it.began {
            0 => 0,
            began => ts.saturating_sub(began).max(1),
        };
        let head = u64::from(flow.number) | u64::from(it.bytes) << 32;
        Some([head, it.position, took])
    }

    /// Those that are new since the last time.
    pub fn take(&mut self) -> Vec<FlowFact> {
        std::mem::take(&mut self.fresh)
    }

    /// All that may still be used.
    pub fn known(&self) -> Vec<&FlowFact> {
        self.known.values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(socket: u64, is_v6: u8, local: &[u8], remote: &[u8]) -> Vec<u8> {
        let mut bytes = [socket, 90, 1234].map(u64::to_le_bytes).concat();
        bytes.extend(5u32.to_le_bytes());
        bytes.extend([80u16, 4000].map(u16::to_le_bytes).concat());
        bytes.extend([p::TCP, is_v6, 0, 0, 0, 0, 0, 0]);
        for address in [local, remote] {
            bytes.extend(address);
            bytes.extend(vec![0; 16 - address.len()]);
        }
        bytes
    }

    #[test]
    fn a_connection_has_one_number_and_a_new_socket_another() {
        let mut flows = Flows::default();
        let (local, remote) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let records = [7, 7, 8].map(|socket| record(socket, 0, &local, &remote));
        let numbers = records.map(|r| flows.words(100, &r).unwrap()[0] as u32);
        assert_eq!(numbers, [1, 1, 2]);
        let told = flows.take();
        assert_eq!(told.len(), 2);
        assert_eq!(told[0].local.to_string(), "10.0.0.1:80");
        assert_eq!(told[0].remote.to_string(), "10.0.0.2:4000");
        assert_eq!(flows.take(), []);
    }

    #[test]
    fn an_old_address_in_a_new_socket_is_the_same_address() {
        let mut flows = Flows::default();
        let mapped = [&[0; 10][..], &[255, 255, 10, 0, 0, 1]].concat();
        let words = flows.words(100, &record(7, 1, &mapped, &mapped)).unwrap();
        assert_eq!(flows.take()[0].local.to_string(), "10.0.0.1:80");
        let event = Event {
            ts: 100,
            a: 3,
            b: 0,
            cpu: 0,
            kind: Kind::Sent,
            flags: 0,
            stack: 0,
            words,
        };
        let exchange = Exchange::of(&event).unwrap();
        assert_eq!((exchange.bytes, exchange.position), (5, 1234));
        assert_eq!((exchange.began, exchange.tid), (Some(90), 3));
        assert_eq!(flows.words(100, &[0; 20]), None);
    }
}
