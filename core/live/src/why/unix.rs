// SPDX-License-Identifier: MIT
//! Who is at the other end of a Unix socket, as the kernel's sock_diag tells.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustc_hash::FxHashMap;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SHOW_PEER: u32 = 4;
const SHOW_PENDING: u32 = 8;
const PEER: u16 = 2;
const PENDING: u16 = 3;
/// struct nlmsghdr, struct unix_diag_msg, struct nlattr.
const HEADER: usize = 16;
const MESSAGE: usize = 16;
const ATTRIBUTE: usize = 4;

/// Unix sockets of one network namespace, by their inodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnixSockets {
    peers: FxHashMap<u32, u32>,
    /// Connected, and not accepted: by which listening socket.
    pending: FxHashMap<u32, u32>,
}

/// The other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixPeer {
    Socket(u32),
    /// Nobody has accepted the connection at this listening socket.
    Pending(u32),
}

impl UnixSockets {
    /// Those of the process's network namespace.
    ///
    /// # Errors
    /// When the kernel has no sock_diag, or the namespace may not be entered.
    pub fn of(pid: u32) -> io::Result<UnixSockets> {
        let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
        let same = std::fs::read_link("/proc/self/ns/net").ok()
            == std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        // A namespace is a thread's own: this one ends with its answer.
        let asked = std::thread::spawn(move || {
            // SAFETY: an open descriptor of a namespace.
            if !same && unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            ask()
        });
        asked
            .join()
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }

    pub fn peer(&self, inode: u32) -> Option<UnixPeer> {
        let pending = self.pending.get(&inode).copied().map(UnixPeer::Pending);
        let peer = self.peers.get(&inode).filter(|peer| **peer != 0);
        pending.or(peer.copied().map(UnixPeer::Socket))
    }

    /// One datagram of the answer; true: the last.
    ///
    /// # Errors
    /// When the kernel refuses, as one without this part of sock_diag does.
    fn take(&mut self, datagram: &[u8]) -> io::Result<bool> {
        let mut rest = datagram;
        while rest.len() >= HEADER {
            let length = number(rest, 0) as usize;
            let kind = number(rest, 4) & 0xffff;
            if kind == libc::NLMSG_ERROR as u32 {
                let errno = (number(rest, HEADER) as i32).wrapping_neg();
                return Err(io::Error::from_raw_os_error(errno));
            }
            if kind == libc::NLMSG_DONE as u32 {
                return Ok(true);
            }
            if length < HEADER || length > rest.len() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if length >= HEADER + MESSAGE {
                let inode = number(rest, HEADER + 4);
                self.attributes(inode, &rest[HEADER + MESSAGE..length]);
            }
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
        Ok(false)
    }

    fn attributes(&mut self, inode: u32, mut rest: &[u8]) {
        while rest.len() >= ATTRIBUTE {
            let head = number(rest, 0);
            let (length, kind) = ((head & 0xffff) as usize, (head >> 16) as u16);
            if length < ATTRIBUTE || length > rest.len() {
                return;
            }
            let body = &rest[ATTRIBUTE..length];
            match kind {
                PEER if body.len() >= 4 => {
                    self.peers.insert(inode, number(body, 0));
                }
                PENDING => {
                    let clients = body.chunks_exact(4).map(|bytes| number(bytes, 0));
                    self.pending.extend(clients.map(|client| (client, inode)));
                }
                _ => {}
            }
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..at + 4).unwrap_or_default();
    u32::from_ne_bytes(bytes.try_into().unwrap_or_default())
}

fn ask() -> io::Result<UnixSockets> {
    // SAFETY: a new descriptor, which is ours.
    let socket = unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        let fd = libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let all = u32::MAX;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u32;
    let words = [
        40, // bytes of the whole message: HEADER and struct unix_diag_req
        u32::from(SOCK_DIAG_BY_FAMILY) | flags << 16,
        1,
        0,
        libc::AF_UNIX as u32,
        all,
        0,
        SHOW_PEER | SHOW_PENDING,
        all,
        all,
    ];
    let request: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let fd = socket.as_raw_fd();
    let timeout = libc::timeval {
        tv_sec: 1,
        tv_usec: 0,
    };
    // SAFETY: buffers of ours with their lengths.
    let sent = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const timeout).cast(),
            size_of_val(&timeout) as u32,
        );
        libc::send(fd, request.as_ptr().cast(), request.len(), 0)
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut sockets = UnixSockets::default();
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        // SAFETY: a buffer of ours with its length.
        let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match usize::try_from(got) {
            Err(_) => return Err(io::Error::last_os_error()),
            Ok(got) if got == 0 || sockets.take(&buffer[..got])? => return Ok(sockets),
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn inode(socket: &dyn AsRawFd) -> u32 {
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        std::fs::metadata(path).expect("a socket").ino() as u32
    }

    #[test]
    fn a_pair_and_a_connection_that_nobody_accepted_are_found() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let folder = tempfile();
        let listener = UnixListener::bind(folder.join("socket")).expect("a name");
        let client = UnixStream::connect(folder.join("socket")).expect("a backlog");
        let sockets = UnixSockets::of(std::process::id()).expect("sock_diag");
        std::fs::remove_dir_all(&folder).expect("ours");
        let peer = |socket| sockets.peer(inode(socket));
        assert_eq!(peer(&one), Some(UnixPeer::Socket(inode(&other))));
        assert_eq!(peer(&client), Some(UnixPeer::Pending(inode(&listener))));
        assert_eq!(peer(&listener), None);
    }

    fn tempfile() -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("ff-unix-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        folder
    }

    #[test]
    fn damaged_answers_end_the_reading() {
        let mut sockets = UnixSockets::default();
        assert!(sockets.take(&[0xff; 40]).is_err());
        assert!(!sockets.take(&[1, 2]).expect("nothing"));
        // NLMSG_ERROR: no such family.
        let words: [u32; 5] = [20, libc::NLMSG_ERROR as u32, 1, 0, -libc::ENOENT as u32];
        let refused: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let error = sockets.take(&refused).expect_err("it is refused");
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        assert_eq!(sockets, UnixSockets::default());
    }
}
