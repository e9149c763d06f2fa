// SPDX-License-Identifier: MIT
//! Who is at the other end of a TCP connection on this machine, in whichever network namespace.

use std::fs;
use std::path::PathBuf;

use flagfinder_linux::proc::processes;
use flagfinder_waits::descriptor::{InternetSocket, LISTEN, TCP_STATES};

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
    let port = |address: &str| address.rsplit_once(':').map(|(_, port)| port.to_owned());
    // One that listens at any address has only the port in common.
    let serves = |s: &InternetSocket| {
        let is_any = s.local.starts_with("0.0.0.0:") || s.local.starts_with("[::]:");
        s.local == own.remote || is_any && port(&s.local) == port(&own.remote)
    };
    if is_datagram {
        let bound = sockets().find(|s| s.local == own.remote);
        return bound.map(|s| OtherEnd::Socket(s.inode.to_owned()));
    }
    other.map(|_| {
        let listener = sockets().find(|s| s.state == LISTEN && serves(s));
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
}
