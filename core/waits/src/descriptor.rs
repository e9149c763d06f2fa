// SPDX-License-Identifier: MIT
//! What a file descriptor of the process is, and who is at its other end.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flagfinder_linux::descriptors::watches;
use serde::Serialize;

use crate::owners::{Owner, Owners};

/// A descriptor that a thread waits on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Descriptor {
    pub fd: i32,
    /// As /proc/PID/fd/N links; `closed` when there is none.
    pub target: String,
    /// What it is, for people: `TCP 127.0.0.1:80 -> 127.0.0.1:5566, established`.
    pub what: String,
    /// Who holds the other end: `process 12 (cat), fd 1`. Empty: nobody found.
    pub peers: Vec<String>,
    /// The same, as a program needs it, and all of them.
    #[serde(skip)]
    pub others: Vec<Owner>,
    /// For an epoll descriptor: the descriptors in it.
    pub watches: Vec<Descriptor>,
}

impl Descriptor {
    /// Of a process that left a core file.
    pub fn unknown(fd: i32) -> Descriptor {
        Descriptor {
            fd,
            target: String::new(),
            what: "unknown: a core file does not hold what it was".into(),
            peers: Vec::new(),
            others: Vec::new(),
            watches: Vec::new(),
        }
    }
}

const MOST_WATCHED: usize = 16;
const MOST_PEERS: usize = 4;

/// Describes one; a closed one is an answer too.
pub fn describe(pid: u32, fd: i32, owners: &mut Owners) -> Descriptor {
    let target = match fs::read_link(format!("/proc/{pid}/fd/{fd}")) {
        Ok(target) => target.to_string_lossy().into_owned(),
        Err(_) => "closed".into(),
    };
    let mut descriptor = Descriptor {
        fd,
        what: target.clone(),
        target,
        peers: Vec::new(),
        others: Vec::new(),
        watches: Vec::new(),
    };
    let target = descriptor.target.clone();
    if target == "closed" {
        descriptor.what = "not open: every call on it fails or reports it invalid".into();
    } else if let Some(inode) = between(&target, "socket:[") {
        socket(pid, inode, &mut descriptor, owners);
    } else if target.starts_with("pipe:") || is_fifo(pid, fd) {
        pipe(pid, fd, &mut descriptor, owners);
    } else if target == EPOLL {
        descriptor.what = "epoll".into();
        for inner in watched(pid, fd).into_iter().take(MOST_WATCHED) {
            descriptor.watches.push(describe(pid, inner, owners));
        }
    } else if let Some(kind) = between(&target, "anon_inode:[") {
        descriptor.what = kind.into();
    }
    descriptor
}

/// What an epoll descriptor links to.
pub const EPOLL: &str = "anon_inode:[eventpoll]";

/// The descriptors in an epoll descriptor.
pub fn watched(pid: u32, fd: i32) -> Vec<i32> {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let watched = watches(&info).into_iter().map(|watch| watch.descriptor);
    watched.filter(|inner| *inner != fd).collect()
}

/// Is it one by which the process's threads wake each other: an eventfd, a pipe whose other end it
/// holds itself, or an epoll descriptor of such?
pub fn wakes_itself(pid: u32, fd: i32) -> bool {
    let folder = format!("/proc/{pid}/fd");
    let Ok(target) = fs::read_link(format!("{folder}/{fd}")) else {
        return false;
    };
    let is_other_end = |entry: fs::DirEntry| {
        let is_it = entry.file_name().to_str() == Some(&fd.to_string());
        !is_it && fs::read_link(entry.path()).is_ok_and(|other| other == target)
    };
    let text = target.to_string_lossy();
    let entries = || fs::read_dir(&folder).into_iter().flatten().flatten();
    if text == EPOLL {
        let watched = watched(pid, fd);
        return !watched.is_empty() && watched.iter().all(|&inner| wakes_itself(pid, inner));
    }
    text == "anon_inode:[eventfd]" || text.starts_with("pipe:[") && entries().any(is_other_end)
}

/// `7` of `socket:[7]`.
pub fn between<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    text.strip_prefix(prefix)?.strip_suffix(']')
}

/// Has it a name in the file system?
pub fn is_fifo(pid: u32, fd: i32) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let path = format!("/proc/{pid}/fd/{fd}");
    fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo())
}

impl Descriptor {
    fn has_others(&mut self, owners: &[Owner], wanted: impl Fn(&Owner) -> bool) {
        let chosen = owners.iter().filter(|owner| wanted(owner));
        self.others = chosen.cloned().collect();
        let named = self.others.iter().take(MOST_PEERS);
        let named = named.map(|o| format!("process {} ({}), fd {}", o.pid, o.name, o.fd));
        self.peers = named.collect();
    }
}

fn pipe(pid: u32, fd: i32, descriptor: &mut Descriptor, owners: &mut Owners) {
    let all = owners.of(&descriptor.target);
    let own = all.iter().find(|o| o.pid == pid && o.fd == fd);
    let we_read = own.is_none_or(|o| o.reads);
    let kind = if descriptor.target.starts_with("pipe:") {
        "pipe"
    } else {
        "FIFO"
    };
    let others = |owner: &Owner| if we_read { owner.writes } else { owner.reads };
    descriptor.has_others(all, |o| others(o) && !(o.pid == pid && o.fd == fd));
    let (end, other) = if we_read {
        ("read end", "writers")
    } else {
        ("write end", "readers")
    };
    descriptor.what = format!("{end} of a {kind}");
    if kind == "FIFO" {
        descriptor.what += &format!(" {}", descriptor.target);
    }
    if descriptor.peers.is_empty() && !owners.partial {
        descriptor.what += &format!(" without {other}");
    }
}

fn socket(pid: u32, inode: &str, descriptor: &mut Descriptor, owners: &mut Owners) {
    for protocol in ["tcp", "tcp6", "udp", "udp6"] {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{protocol}")).unwrap_or_default();
        let lines = || table.lines().skip(1).filter_map(InternetSocket::parse);
        let Some(own) = lines().find(|socket| socket.inode == inode) else {
            continue;
        };
        let name = protocol.trim_end_matches('6').to_uppercase();
        let state = TCP_STATES.get(own.state).copied().unwrap_or("");
        descriptor.what = match own.state {
            LISTEN if name == "TCP" => format!("TCP {}, listening", own.local),
            _ if name == "TCP" => format!("TCP {} -> {}, {state}", own.local, own.remote),
            _ => format!("{name} {} -> {}", own.local, own.remote),
        };
        let other = lines().find(|s| s.local == own.remote && s.remote == own.local);
        // A connection that nobody has accepted yet is nobody's: who listens there owes that.
        let listener = || lines().find(|s| s.state == LISTEN && s.serves(&own.remote));
        let is_there = |socket: &InternetSocket| socket.inode != NOBODYS;
        if let Some(other) = other.filter(is_there).or_else(listener) {
            let all = owners.of(&format!("socket:[{}]", other.inode));
            descriptor.has_others(all, |_| true);
        }
        return;
    }
    let table = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.get(6) == Some(&inode) {
            let path = fields.get(7).map_or("without a name", |path| path);
            descriptor.what = format!("Unix socket {path}");
            let other = inode.parse().ok().and_then(|own| owners.unix_peer(own));
            if let Some(other) = other {
                let all = owners.of(&format!("socket:[{other}]"));
                descriptor.has_others(all, |_| true);
            }
            return;
        }
    }
    descriptor.what = "socket".into();
}

/// State of a TCP socket that waits for connections.
pub const LISTEN: usize = 10;
/// As inode: no process has the socket.
const NOBODYS: &str = "0";
/// As /proc/net/tcp numbers them.
pub const TCP_STATES: [&str; 12] = [
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
pub struct InternetSocket<'t> {
    pub local: String,
    pub remote: String,
    pub state: usize,
    pub inode: &'t str,
}

impl<'t> InternetSocket<'t> {
    /// Whether connections to this address reach it.
    fn serves(&self, remote: &str) -> bool {
        let port = |end: &str| end.rsplit_once(':').map(|(_, port)| port.to_owned());
        let any = ["0.0.0.0:", "[::]:"];
        let takes_all = any.iter().any(|prefix| self.local.starts_with(prefix));
        self.local == remote || takes_all && port(&self.local) == port(remote)
    }

    pub fn parse(line: &'t str) -> Option<InternetSocket<'t>> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        Some(InternetSocket {
            local: endpoint(fields.get(1)?)?,
            remote: endpoint(fields.get(2)?)?,
            state: usize::from_str_radix(fields.get(3)?, 16).ok()?,
            inode: fields.get(9)?,
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_to_itself_is_told_from_one_to_another() {
        use std::os::fd::AsRawFd;
        let wakes = |fd: &dyn AsRawFd| wakes_itself(std::process::id(), fd.as_raw_fd());
        let mut cat = std::process::Command::new("cat");
        let piped = std::process::Stdio::piped();
        let mut child = cat.stdin(piped).spawn().expect("cat");
        let write = child.stdin.take().expect("a pipe");
        assert!(!wakes(&write), "the child reads");
        let end = format!("/proc/self/fd/{}", write.as_raw_fd());
        let read = fs::File::open(end).expect("the other end");
        assert!(wakes(&write) && wakes(&read));
        drop(write);
        assert!(!wakes(&read), "nobody of this process writes");
        child.wait().expect("its end");
        let file = fs::File::open("/proc/self/stat").expect("a file");
        assert!(!wakes(&file));
    }

    #[test]
    fn endpoints_are_read_in_the_machines_byte_order() {
        assert_eq!(endpoint("0100007F:1F90").unwrap(), "127.0.0.1:8080");
        let mapped = "0000000000000000FFFF00000100007F:0050";
        assert_eq!(endpoint(mapped).unwrap(), "127.0.0.1:80");
    }
}
