// SPDX-License-Identifier: MIT
//! Who is at the other end of a TCP connection on this machine, in whichever network namespace.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use flagfinder_linux::proc::processes;

/// A TCP or UDP socket of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// `TCP 127.0.0.1:80 -> 127.0.0.1:5566`
    pub name: String,
    pub state: &'static str,
    pub is_listening: bool,
    pub is_datagram: bool,
    pub end: OtherEnd,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherEnd {
    Socket(String),
    /// Not accepted yet: the listening socket that it came to.
    Pending(Option<String>),
    /// No socket of this machine has these addresses.
    Elsewhere,
}

/// For people: `TCP 127.0.0.1:80 -> 127.0.0.1:5566, established`.
impl fmt::Display for Connection {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_datagram {
            true => write!(to, "{}", self.name),
            false => write!(to, "{}, {}", self.name, self.state),
        }
    }
}

const PROTOCOLS: [&str; 4] = ["tcp", "tcp6", "udp", "udp6"];

fn table(pid: u32, protocol: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/net/{protocol}")).unwrap_or_default()
}

fn namespace(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// One process for each network namespace, this one's first.
fn namespaces(pid: u32) -> Vec<u32> {
    let mut seen = vec![namespace(pid)];
    let mut holders = vec![pid];
    for other in processes() {
        let its = namespace(other);
        if its.is_some() && !seen.contains(&its) {
            seen.push(its);
            holders.push(other);
        }
    }
    holders
}

/// State of a TCP socket that waits for connections.
const LISTEN: usize = 10;
/// Of one that asks for a connection.
const SYN_SENT: usize = 2;
/// As /proc/net/tcp numbers them.
const TCP_STATES: [&str; 12] = [
    "",
    "established",
    "connecting (SYN sent)",
    "SYN received",
    "FIN wait 1",
    "FIN wait 2",
    "time wait",
    "closed",
    "close wait: the peer has closed",
    "last ACK",
    "listening",
    "closing",
];

/// A line of /proc/net/tcp, udp and their like.
struct InternetSocket<'t> {
    local: String,
    remote: String,
    state: usize,
    inode: &'t str,
}

impl<'t> InternetSocket<'t> {
    /// Whether connections to this address reach it. One that listens at any address has only the
    /// port in common.
    fn serves(&self, remote: &str) -> bool {
        let port = |end: &str| end.rsplit_once(':').map(|(_, port)| port.to_owned());
        let takes_all = matches!(address(&self.local), "0.0.0.0" | "[::]");
        self.local == remote || takes_all && port(&self.local) == port(remote)
    }

    fn parse(line: &'t str) -> Option<InternetSocket<'t>> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        Some(InternetSocket {
            local: endpoint(fields.get(1)?)?,
            remote: endpoint(fields.get(2)?)?,
            state: usize::from_str_radix(fields.get(3)?, 16).ok()?,
            inode: fields.get(9)?,
        })
    }
}

/// Without the port.
fn address(end: &str) -> &str {
    end.rsplit_once(':').map_or("", |(address, _)| address)
}

/// `0100007F:1F90` is 127.0.0.1:8080: words in the machine's byte order.
fn endpoint(text: &str) -> Option<String> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Option<Vec<[u8; 4]>> = (0..address.len() / 8)
        .map(|i| {
            let word = u32::from_str_radix(address.get(i * 8..i * 8 + 8)?, 16).ok()?;
            Some(word.to_ne_bytes())
        })
        .collect();
    let bytes = words?.concat();
    let address = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical(),
        _ => return None,
    };
    Some(match address {
        IpAddr::V6(address) => format!("[{address}]:{port}"),
        IpAddr::V4(address) => format!("{address}:{port}"),
    })
}

/// `None`: it is no such socket. One that was made in another network namespace than its process
/// is in now is found there.
pub fn connection(pid: u32, inode: &str) -> Option<Connection> {
    find(&[pid], inode).or_else(|| find(&namespaces(pid)[1..], inode))
}

fn find(holders: &[u32], inode: &str) -> Option<Connection> {
    let tables = holders
        .iter()
        .flat_map(|pid| PROTOCOLS.map(|protocol| (*pid, protocol)));
    let found = tables.filter_map(|(pid, protocol)| {
        let text = table(pid, protocol);
        let mut sockets = text.lines().skip(1).filter_map(InternetSocket::parse);
        let own = sockets.find(|socket| socket.inode == inode)?;
        let is_datagram = protocol.starts_with("udp");
        let is_listening = !is_datagram && own.state == LISTEN;
        let kind = protocol.trim_end_matches('6').to_uppercase();
        Some(Connection {
            name: match is_listening {
                true => format!("{kind} {}", own.local),
                false => format!("{kind} {} -> {}", own.local, own.remote),
            },
            state: TCP_STATES.get(own.state).copied().unwrap_or(""),
            is_listening,
            is_datagram,
            end: other_end(pid, &own, is_datagram),
        })
    });
    found.into_iter().next()
}

/// In the namespace of the socket first: most connections do not leave it.
fn other_end(pid: u32, own: &InternetSocket, is_datagram: bool) -> OtherEnd {
    let protocols = match is_datagram {
        true => &PROTOCOLS[2..],
        false => &PROTOCOLS[..2],
    };
    let within = |pid: &u32| {
        let tables = protocols.iter().map(|protocol| table(*pid, protocol));
        tables
            .filter_map(|text| in_table(own, &text, is_datagram))
            .next()
    };
    let elsewhere = || namespaces(pid)[1..].iter().find_map(within);
    within(&pid)
        .or_else(elsewhere)
        .unwrap_or(OtherEnd::Elsewhere)
}

fn in_table(own: &InternetSocket, text: &str, is_datagram: bool) -> Option<OtherEnd> {
    let sockets = || text.lines().skip(1).filter_map(InternetSocket::parse);
    let other = sockets().find(|s| s.local == own.remote && s.remote == own.local);
    if let Some(other) = other.as_ref().filter(|other| other.inode != "0") {
        return Some(OtherEnd::Socket(other.inode.to_owned()));
    }
    if is_datagram {
        let bound = sockets().find(|s| s.local == own.remote);
        return bound.map(|s| OtherEnd::Socket(s.inode.to_owned()));
    }
    // Where the queue of who listens is full, the other end does not exist yet. To another machine
    // a connection has two addresses.
    let is_near = |own: &InternetSocket| address(&own.local) == address(&own.remote);
    let is_asked = other.is_some() || own.state == SYN_SENT && is_near(own);
    is_asked.then(|| {
        let listener = sockets().find(|s| s.state == LISTEN && s.serves(&own.remote));
        OtherEnd::Pending(listener.map(|s| s.inode.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(socket: &impl std::os::fd::AsRawFd) -> String {
        use std::os::unix::fs::MetadataExt;
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        fs::metadata(path).expect("a socket").ino().to_string()
    }

    #[test]
    fn the_other_end_is_found_once_accepted_and_before() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let client = std::net::TcpStream::connect(address).expect("a backlog");
        let of_client = || {
            connection(std::process::id(), &inode(&client))
                .expect("ours")
                .end
        };
        assert_eq!(of_client(), OtherEnd::Pending(Some(inode(&listener))));
        let (server, _) = listener.accept().expect("the client");
        assert_eq!(of_client(), OtherEnd::Socket(inode(&server)));
        let listens = connection(std::process::id(), &inode(&listener)).expect("ours");
        assert!(listens.is_listening);
    }

    #[test]
    fn endpoints_are_read_in_the_machines_byte_order() {
        assert_eq!(endpoint("0100007F:1F90").unwrap(), "127.0.0.1:8080");
        let mapped = "0000000000000000FFFF00000100007F:0050";
        assert_eq!(endpoint(mapped).unwrap(), "127.0.0.1:80");
    }

    #[test]
    fn who_listens_owes_a_connection_that_finds_its_queue_full() {
        let line = |local: &str, remote: &str, state: &str, inode: &str| {
            format!("0: {local} {remote} {state} 0:0 00:0 00000000 0 0 {inode} 1")
        };
        let listens = line("00000000:1F90", "00000000:0000", "0A", "7");
        let asks = |from: &str, at: &str| {
            let own = line(from, at, "02", "9");
            let text = format!("header\n{listens}\n{own}\n");
            in_table(&InternetSocket::parse(&own).expect("a line"), &text, false)
        };
        let owed = Some(OtherEnd::Pending(Some("7".into())));
        assert_eq!(asks("0100007F:D431", "0100007F:1F90"), owed);
        assert_eq!(
            asks("0100007F:D431", "0100007F:1F91"),
            Some(OtherEnd::Pending(None))
        );
        assert_eq!(
            asks("0200000A:D431", "0300000A:1F90"),
            None,
            "another machine"
        );
    }
}
