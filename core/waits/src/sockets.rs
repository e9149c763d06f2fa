// SPDX-License-Identifier: MIT
//! The other ends of sockets. Those of Unix sockets are asked of the kernel (sock_diag(7)): /proc
//! does not tell them.
//!
//! Blind spots: sockets of other network namespaces; datagram sockets that name an address with
//! each message.

use std::fs;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use crate::internet::{self, InternetSocket};

/// linux/sock_diag.h, linux/unix_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_NAME: u32 = 1;
const UDIAG_SHOW_PEER: u32 = 4;
const UDIAG_SHOW_ICONS: u32 = 8;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_ICONS: u16 = 3;
const ALL_STATES: u32 = u32::MAX;
const NO_COOKIE: [u32; 2] = [u32::MAX; 2];
const HEADER: usize = size_of::<libc::nlmsghdr>();

/// The other end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub inode: u32,
    /// Each message is received by itself: not a stream.
    pub records: bool,
}

/// The socket at the other end of a Unix socket, by its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixEnd {
    /// The socket with this inode.
    Socket(u32),
    /// Nobody has accepted the connection at this listening socket.
    Pending(u32),
}

/// What the kernel tells of a Unix socket.
struct Unix {
    peer: Option<Peer>,
    /// Its path; an abstract one as `@name`.
    name: Option<String>,
}

/// The kernel's sockets, as they are now. Those of the internet are listed once, when they are
/// first asked for.
pub struct Sockets {
    channel: OwnedFd,
    internet: Option<Vec<InternetSocket>>,
}

impl Sockets {
    /// # Errors
    /// Where the kernel has no sock_diag.
    pub fn new() -> io::Result<Sockets> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: a system call; the descriptor it returns is nobody else's.
        let channel = unsafe {
            match libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        Ok(Sockets {
            channel,
            internet: None,
        })
    }

    /// Those of the process's network namespace.
    ///
    /// # Errors
    /// When the kernel has no sock_diag, or the namespace may not be entered.
    pub(crate) fn of(pid: u32) -> io::Result<Sockets> {
        let [own, its] = ["self".to_owned(), pid.to_string()]
            .map(|process| PathBuf::from(format!("/proc/{process}/ns/net")));
        if fs::read_link(&own).ok() == fs::read_link(&its).ok() {
            return Sockets::new();
        }
        let namespace = fs::File::open(its)?;
        // A namespace is a thread's own, and the channel's is that in which it was made.
        let made = std::thread::Builder::new().spawn(move || {
            // SAFETY: an open descriptor of a namespace.
            match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
                0 => Sockets::new(),
                _ => Err(io::Error::last_os_error()),
            }
        });
        made?
            .join()
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }

    /// The other end of a socket, if it is connected and this can be known.
    pub fn peer(&mut self, inode: u32) -> Option<Peer> {
        if let Some(this) = self.unix(inode) {
            return this.peer;
        }
        let all = self.internet();
        let this = all.iter().find(|socket| socket.inode == inode)?;
        let other = this.peer(all).filter(|other| other.inode != 0)?;
        Some(Peer {
            inode: other.inode,
            records: this.is_datagram,
        })
    }

    /// Address and port of the other end of an internet socket, if it is connected: it may be on
    /// another machine. Of a Unix socket the other end's path, where it has one.
    pub fn remote(&mut self, inode: u32) -> Option<String> {
        if let Some(this) = self.unix(inode) {
            return self.unix(this.peer?.inode)?.name;
        }
        let this = self
            .internet()
            .iter()
            .find(|socket| socket.inode == inode)?;
        (this.remote.port() != 0).then(|| this.remote.to_string())
    }

    /// The address that a socket without another end has itself: where it listens.
    pub fn own(&mut self, inode: u32) -> Option<String> {
        if let Some(this) = self.unix(inode) {
            return this.name.filter(|_| this.peer.is_none());
        }
        let mut all = self.internet().iter();
        let this = all.find(|socket| socket.inode == inode)?;
        let is_alone = this.remote.port() == 0 && this.local.port() != 0;
        is_alone.then(|| this.local.to_string())
    }

    /// The socket at the other end of a Unix socket; of a connection that nobody has accepted, the
    /// one that listens.
    ///
    /// # Errors
    /// When the kernel refuses, as one without this part of sock_diag does.
    pub(crate) fn unix_end(&self, inode: u32) -> io::Result<Option<UnixEnd>> {
        let mut end = None;
        let mut listener = None;
        let request = unix_request(0, UDIAG_SHOW_PEER | UDIAG_SHOW_ICONS);
        self.ask(&request, libc::NLM_F_DUMP, |message| {
            let (head, attributes) = message.split_at_checked(16)?;
            let this = word(head, 4)?;
            let is_it = |bytes: &[u8]| word(bytes, 0) == Some(inode);
            let waiting = attribute(attributes, UNIX_DIAG_ICONS).unwrap_or_default();
            if waiting.chunks_exact(4).any(is_it) {
                listener = Some(UnixEnd::Pending(this));
            }
            if this == inode {
                let peer = attribute(attributes, UNIX_DIAG_PEER).and_then(|bytes| word(bytes, 0));
                end = peer.filter(|peer| *peer != 0).map(UnixEnd::Socket);
            }
            Some(())
        })?;
        Ok(listener.or(end))
    }

    fn unix(&self, inode: u32) -> Option<Unix> {
        let request = unix_request(inode, UDIAG_SHOW_NAME | UDIAG_SHOW_PEER);
        let mut found = None;
        let _ = self.ask(&request, 0, |message| {
            let (head, attributes) = message.split_at_checked(16)?;
            let peer = attribute(attributes, UNIX_DIAG_PEER).and_then(|bytes| word(bytes, 0));
            found = Some(Unix {
                peer: peer.filter(|inode| *inode != 0).map(|inode| Peer {
                    inode,
                    records: i32::from(head[1]) != libc::SOCK_STREAM,
                }),
                name: attribute(attributes, UNIX_DIAG_NAME).and_then(path),
            });
            Some(())
        });
        found
    }

    fn internet(&mut self) -> &[InternetSocket] {
        let list = || internet::table(std::process::id());
        self.internet.get_or_insert_with(list)
    }

    /// Sends a request and hands the answers to `take`.
    fn ask(
        &self,
        request: &[u8],
        flags: i32,
        mut take: impl FnMut(&[u8]) -> Option<()>,
    ) -> io::Result<()> {
        let mut message = ((HEADER + request.len()) as u32).to_ne_bytes().to_vec();
        message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        message.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        message.extend([0; 8]);
        message.extend(request);
        let fd = self.channel.as_raw_fd();
        // SAFETY: the buffer and its length.
        if unsafe { libc::send(fd, message.as_ptr().cast(), message.len(), 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut buffer = vec![0u8; 1 << 16];
        loop {
            // SAFETY: the buffer and its length. The kernel has its answer ready when the request
            // was sent.
            let got = unsafe {
                let room = buffer.len();
                libc::recv(fd, buffer.as_mut_ptr().cast(), room, libc::MSG_DONTWAIT)
            };
            let Ok(got @ 1..) = usize::try_from(got) else {
                return Err(io::Error::last_os_error());
            };
            let mut rest = &buffer[..got];
            while let Some((kind, payload, tail)) = message_of(rest) {
                match (i32::from(kind), word(payload, 0)) {
                    (libc::NLMSG_DONE, _) => return Ok(()),
                    (libc::NLMSG_ERROR, errno) => {
                        let errno = (errno.unwrap_or(0) as i32).wrapping_neg();
                        return Err(io::Error::from_raw_os_error(errno));
                    }
                    _ => take(payload),
                };
                rest = tail;
            }
            if flags == 0 {
                return Ok(());
            }
        }
    }
}

/// Of one Unix socket, or (0) of all.
fn unix_request(inode: u32, show: u32) -> Vec<u8> {
    let family = u32::from_ne_bytes([libc::AF_UNIX as u8, 0, 0, 0]);
    let words = [family, ALL_STATES, inode, show, NO_COOKIE[0], NO_COOKIE[1]];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Kind and payload of the first message, and what is behind it.
fn message_of(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = word(bytes, 0)? as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let payload = bytes.get(HEADER..length)?;
    Some((
        kind,
        payload,
        bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]),
    ))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Of a Unix socket's address, which may end with zeros; that of an abstract one begins with one.
fn path(address: &[u8]) -> Option<String> {
    let (mark, name) = match address.split_first()? {
        (0, name) => ("@", name),
        _ => ("", address),
    };
    let end = name.iter().rposition(|byte| *byte != 0)? + 1;
    Some(format!("{mark}{}", String::from_utf8_lossy(&name[..end])))
}

fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        if kind == wanted {
            return bytes.get(4..length);
        }
        bytes = bytes.get(length.max(4).next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    fn inode(socket: &impl AsFd) -> u32 {
        let path = format!("/proc/self/fd/{}", socket.as_fd().as_raw_fd());
        let link = std::fs::read_link(path).unwrap();
        let text = link.to_string_lossy();
        text["socket:[".len()..text.len() - 1].parse().unwrap()
    }

    fn peer(socket: &impl AsFd) -> Option<Peer> {
        Sockets::new().unwrap().peer(inode(socket))
    }

    fn stream(of: &impl AsFd) -> Option<Peer> {
        let (inode, records) = (inode(of), false);
        Some(Peer { inode, records })
    }

    fn datagrams(of: &impl AsFd) -> Option<Peer> {
        let (inode, records) = (inode(of), true);
        Some(Peer { inode, records })
    }

    #[test]
    fn unix_sockets_have_each_other_as_peers() {
        let (a, b) = UnixStream::pair().unwrap();
        assert_eq!((peer(&a), peer(&b)), (stream(&b), stream(&a)));
        let (c, d) = UnixDatagram::pair().unwrap();
        assert_eq!((peer(&c), peer(&d)), (datagrams(&d), datagrams(&c)));
        assert_eq!(peer(&UnixDatagram::unbound().unwrap()), None);
    }

    #[test]
    fn a_connection_that_nobody_accepted_is_with_who_listens() {
        let name = format!("ff-pending-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&file).unwrap();
        let client = UnixStream::connect(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let all = Sockets::of(std::process::id()).unwrap();
        let end = |socket: &dyn AsFd| all.unix_end(inode(&socket)).unwrap();
        assert_eq!(end(&client), Some(UnixEnd::Pending(inode(&listener))));
        assert_eq!(end(&listener), None);
        let (server, _) = listener.accept().unwrap();
        assert_eq!(end(&client), Some(UnixEnd::Socket(inode(&server))));
    }

    #[test]
    fn connections_over_loopback_have_each_other_as_peers() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue; // no IPv6 here
            };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            assert_eq!(
                (peer(&client), peer(&server)),
                (stream(&server), stream(&client))
            );
            assert_eq!(peer(&listener), None);
            let remote = |socket: &dyn AsFd| Sockets::new().unwrap().remote(inode(&socket));
            let own = |socket: &dyn AsFd| Sockets::new().unwrap().own(inode(&socket));
            let at = listener.local_addr().unwrap().to_string();
            assert_eq!(remote(&client), Some(at.clone()));
            let back = client.local_addr().unwrap().to_string();
            assert_eq!(remote(&server), Some(back));
            assert_eq!((remote(&listener), own(&listener)), (None, Some(at)));
            assert_eq!(own(&client), None);
        }
    }

    #[test]
    fn unix_sockets_are_told_by_the_path_of_their_other_end() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::SocketAddr;
        let id = std::process::id();
        let file = std::env::temp_dir().join(format!("ff-sockets-{id}"));
        let name = format!("ff-sockets-{id}");
        let abstract_one = SocketAddr::from_abstract_name(&name).unwrap();
        let _ = std::fs::remove_file(&file);
        let named = UnixListener::bind(&file).unwrap();
        let listeners = [named, UnixListener::bind_addr(&abstract_one).unwrap()];
        for (listener, expected) in
            std::iter::zip(listeners, [file.display().to_string(), format!("@{name}")])
        {
            let address = listener.local_addr().unwrap();
            let client = UnixStream::connect_addr(&address).unwrap();
            let (server, _) = listener.accept().unwrap();
            let mut all = Sockets::new().unwrap();
            assert_eq!(all.remote(inode(&client)).as_deref(), Some(&expected[..]));
            assert_eq!(all.remote(inode(&server)), None);
            assert_eq!(all.own(inode(&listener)).as_deref(), Some(&expected[..]));
            assert_eq!(all.own(inode(&server)), None);
        }
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn an_old_address_reaches_a_new_socket() {
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            return; // no IPv6 here
        };
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(
            (peer(&client), peer(&server)),
            (stream(&server), stream(&client))
        );
    }

    #[test]
    fn datagrams_go_to_the_socket_bound_there() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        assert_eq!(
            (peer(&sender), peer(&receiver)),
            (datagrams(&receiver), None)
        );
    }
}
