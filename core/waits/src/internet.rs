// SPDX-License-Identifier: MIT
//! Sockets of the internet, as /proc/PID/net lists them, and who is at the other end of one on this
//! machine, in whichever network namespace.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use flagfinder_linux::proc::processes;

/// A TCP or UDP socket of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// `TCP 127.0.0.1:80 -> 127.0.0.1:5566`
    pub name: String,
    /// `TCP port 80`: where it listens, or where the connection came to if it was asked for.
    pub local: String,
    /// Of TCP, in words; says nothing of UDP.
    pub state: &'static str,
    /// A TCP socket that takes connections.
    pub is_listening: bool,
    /// UDP.
    pub is_datagram: bool,
    /// Who has the other end.
    pub end: OtherEnd,
}

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherEnd {
    /// The socket with this inode.
    Socket(u32),
    /// Not accepted yet: the listening socket that it came to.
    Pending(Option<u32>),
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

/// All that the process's network namespace has.
pub(crate) fn table(pid: u32) -> Vec<InternetSocket> {
    let mut all = Vec::new();
    for (protocol, is_datagram) in [
        ("tcp", false),
        ("tcp6", false),
        ("udp", true),
        ("udp6", true),
    ] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{protocol}")).unwrap_or_default();
        let socket = |line| InternetSocket::parse(line, is_datagram);
        all.extend(text.lines().skip(1).filter_map(socket));
    }
    all
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
/// State of a socket that asks for a connection.
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
#[derive(Clone, Debug)]
pub(crate) struct InternetSocket {
    /// 0: no process has it.
    pub inode: u32,
    pub is_datagram: bool,
    pub local: SocketAddr,
    /// Port 0: it is not connected.
    pub remote: SocketAddr,
    state: usize,
}

impl InternetSocket {
    fn parse(line: &str, is_datagram: bool) -> Option<InternetSocket> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        Some(InternetSocket {
            inode: fields.get(9)?.parse().ok()?,
            is_datagram,
            local: endpoint(fields.get(1)?)?,
            remote: endpoint(fields.get(2)?)?,
            state: usize::from_str_radix(fields.get(3)?, 16).ok()?,
        })
    }

    pub fn is_listening(&self) -> bool {
        !self.is_datagram && self.state == LISTEN
    }

    /// To another machine a connection has two addresses.
    fn is_near(&self) -> bool {
        let (local, remote) = (self.local.ip(), self.remote.ip());
        local == remote || local.is_loopback() && remote.is_loopback()
    }

    /// Whether a message to this address of the machine reaches the socket. A socket that listens
    /// at any address has only the port in common.
    fn serves(&self, to: SocketAddr) -> bool {
        let takes_all = self.local.ip().is_unspecified();
        self.local.port() == to.port() && (takes_all || self.local.ip() == to.ip())
    }

    /// The other end among these. A socket that is connected to this one comes before one that
    /// takes messages from anybody. Its inode is 0 until it is accepted.
    pub fn peer<'s>(&self, all: &'s [InternetSocket]) -> Option<&'s InternetSocket> {
        let is_other = |other: &&InternetSocket| {
            self.remote.port() != 0
                && other.is_datagram == self.is_datagram
                && !other.is_listening()
                && (other.local == self.remote || self.is_near() && other.serves(self.remote))
                && (other.remote.port() == 0 || other.remote == self.local)
        };
        let others = all.iter().filter(is_other);
        others.max_by_key(|other| other.remote == self.local)
    }
}

/// `0100007F:1F90` is 127.0.0.1:8080: words in the machine's byte order.
fn endpoint(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
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
    Some(SocketAddr::new(
        address,
        u16::from_str_radix(port, 16).ok()?,
    ))
}

/// `None`: it is no such socket. A socket that was made in another network namespace than its
/// process is in now is found there.
pub fn connection(pid: u32, inode: u32) -> Option<Connection> {
    let of = |holder: &u32| {
        let all = table(*holder);
        let own = all.iter().find(|socket| socket.inode == inode)?.clone();
        Some((own, all))
    };
    let (own, all) = of(&pid).or_else(|| namespaces(pid)[1..].iter().find_map(of))?;
    let is_listening = own.is_listening();
    let kind = if own.is_datagram { "UDP" } else { "TCP" };
    // In the namespace of the socket first: most connections do not leave it.
    let elsewhere = || {
        let others = &namespaces(pid)[..];
        others
            .iter()
            .find_map(|other| other_end(&own, &table(*other)))
    };
    let end = other_end(&own, &all).or_else(elsewhere);
    Some(Connection {
        name: match is_listening {
            true => format!("{kind} {}", own.local),
            false => format!("{kind} {} -> {}", own.local, own.remote),
        },
        local: format!("{kind} port {}", own.local.port()),
        state: TCP_STATES.get(own.state).copied().unwrap_or(""),
        is_listening,
        is_datagram: own.is_datagram,
        end: end.unwrap_or(OtherEnd::Elsewhere),
    })
}

fn other_end(own: &InternetSocket, all: &[InternetSocket]) -> Option<OtherEnd> {
    let other = own.peer(all);
    if let Some(other) = other.filter(|other| other.inode != 0) {
        return Some(OtherEnd::Socket(other.inode));
    }
    // If the listener's queue is full, the other end does not exist yet.
    let is_asked = other.is_some() || own.state == SYN_SENT && own.is_near();
    (is_asked && !own.is_datagram).then(|| {
        let mut listening = all.iter().filter(|socket| socket.is_listening());
        let listener = listening.find(|socket| socket.serves(own.remote));
        OtherEnd::Pending(listener.map(|socket| socket.inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(socket: &impl std::os::fd::AsRawFd) -> u32 {
        use std::os::unix::fs::MetadataExt;
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        fs::metadata(path).expect("a socket").ino() as u32
    }

    #[test]
    fn the_other_end_is_found_once_accepted_and_before() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let client = std::net::TcpStream::connect(address).expect("a backlog");
        let of_client = || {
            connection(std::process::id(), inode(&client))
                .expect("ours")
                .end
        };
        assert_eq!(of_client(), OtherEnd::Pending(Some(inode(&listener))));
        let (server, _) = listener.accept().expect("the client");
        assert_eq!(of_client(), OtherEnd::Socket(inode(&server)));
        let listens = connection(std::process::id(), inode(&listener)).expect("ours");
        assert!(listens.is_listening);
    }

    #[test]
    fn endpoints_are_read_in_the_machines_byte_order() {
        let text = |text: &str| endpoint(text).unwrap().to_string();
        assert_eq!(text("0100007F:1F90"), "127.0.0.1:8080");
        let mapped = "0000000000000000FFFF00000100007F:0050";
        assert_eq!(text(mapped), "127.0.0.1:80");
    }

    #[test]
    fn a_listener_with_a_full_queue_owes_the_connection() {
        let line = |local: &str, remote: &str, state: &str, inode: &str| {
            format!("0: {local} {remote} {state} 0:0 00:0 00000000 0 0 {inode} 1")
        };
        let listens = line("00000000:1F90", "00000000:0000", "0A", "7");
        let asks = |from: &str, at: &str| {
            let own = line(from, at, "02", "9");
            let all = [&own, &listens].map(|l| InternetSocket::parse(l, false).expect("a line"));
            other_end(&all[0], &all)
        };
        let owed = Some(OtherEnd::Pending(Some(7)));
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
