// SPDX-License-Identifier: MIT
//! Why a call on a descriptor comes back at once: what its file is, what the call gave, and what
//! the kernel says of it now.
//!
//! A pipe or socket is asked with `poll` for no time, by a second descriptor of ours for the same
//! file. Nothing is read from it. Other files are not asked: their driver might take its time.

use std::fmt;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

use flagfinder_linux::descriptors::{duplicate, object, Object};
use flagfinder_linux::proc::{file_kind, link};
use serde::{Deserialize, Serialize};

use crate::descriptor::is_epoll;

/// Why a call on a descriptor does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Because {
    /// The process has no such descriptor.
    NotOpen,
    /// It was read to its end.
    EndOfFile,
    /// End of file as well, since nobody can write.
    NoWriter,
    /// Nobody can read what is written.
    NoReader,
    /// The other end is closed.
    PeerClosed,
    /// An error is pending, or was the answer.
    Error,
    /// Calls on such a file never wait.
    AlwaysReady,
    /// Something is there that was not taken.
    Data,
    /// It could be written to.
    Room,
    /// Nothing is there, and the call does not wait for it.
    NotReady,
}

/// What a call is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Does {
    Takes,
    /// It asks whether something is ready.
    Asks,
    /// It asks for a lock on a file, and does not wait for that.
    Locks,
    #[default]
    Other,
}

/// What a call asked and got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub does: Does,
    pub result: Option<i64>,
    /// POLLIN and so on that it asks for.
    pub events: i16,
    /// Those that it found, where that was seen.
    pub found: Option<i16>,
}

/// The file as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Closed,
    Null,
    /// A device that is always ready.
    Endless,
    /// Regular, a directory or a disk.
    OnDisk,
    Pipe,
    Socket,
    Other,
}

/// What the kernel says of a pipe or socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Now {
    found: i16,
    /// Bytes that wait to be read, of a pipe or a stream.
    queued: Option<i32>,
}

/// What a pipe or socket holds that its process has not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untaken {
    /// So many bytes.
    Bytes(i32),
    /// A message, or a client that asks for a connection.
    Something,
}

/// For people: `29 bytes`.
impl fmt::Display for Untaken {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Untaken::Bytes(1) => write!(to, "1 byte"),
            Untaken::Bytes(count) => write!(to, "{count} bytes"),
            Untaken::Something => write!(to, "something"),
        }
    }
}

/// What the descriptor of a process could read at once. `None`: nothing, or that is not known; an
/// end of file or an error is nothing.
pub fn untaken(pid: u32, fd: i32) -> Option<Untaken> {
    if !matches!(file(pid, fd), File::Pipe | File::Socket) {
        return None;
    }
    let now = now(pid, fd, libc::POLLIN)?;
    let is_there = now.found & libc::POLLIN != 0;
    match now.queued.filter(|_| is_there) {
        Some(0) => None,
        Some(bytes) => Some(Untaken::Bytes(bytes)),
        None => is_there.then_some(Untaken::Something),
    }
}

/// The reason and a clause that tells it; `None`: it is not known.
pub fn because(pid: u32, fd: i32, asked: &Asked) -> Option<(Because, String)> {
    let file = file(pid, fd);
    let now = match file {
        File::Pipe | File::Socket => now(pid, fd, asked.events),
        _ => None,
    };
    decide(file, asked, now)
}

/// The same by the link of the descriptor and the result of the call, without asking the kernel.
pub fn because_of(target: &str, asked: &Asked) -> Option<(Because, String)> {
    let file = match target {
        "/dev/null" => File::Null,
        "/dev/zero" | "/dev/full" | "/dev/random" | "/dev/urandom" => File::Endless,
        _ if target.starts_with("pipe:[") => File::Pipe,
        _ if target.starts_with("socket:[") => File::Socket,
        _ => File::Other,
    };
    decide(file, asked, None)
}

fn file(pid: u32, fd: i32) -> File {
    let Some(target) = link(pid, fd) else {
        let is_there = fs::exists(format!("/proc/{pid}/fd")).unwrap_or(false);
        return if is_there { File::Closed } else { File::Other };
    };
    match &*target {
        "/dev/null" => return File::Null,
        "/dev/zero" | "/dev/full" | "/dev/random" | "/dev/urandom" => return File::Endless,
        _ => {}
    }
    match file_kind(pid, fd) {
        Some(libc::S_IFIFO) => File::Pipe,
        Some(libc::S_IFSOCK) => File::Socket,
        Some(libc::S_IFREG) if !target.starts_with("/proc") => File::OnDisk,
        Some(libc::S_IFDIR) => File::OnDisk,
        _ => File::Other,
    }
}

/// `None`: the kernel has no such call, or does not let us.
fn now(pid: u32, fd: i32, events: i16) -> Option<Now> {
    // Files on disks are always ready. Where a server answers for one, a duplicate would wait, and
    // to ask what is not known may change it.
    if object(pid, fd)? == Object::Other && !is_epoll(pid, fd) {
        return None;
    }
    let file = duplicate(pid, fd).ok()?;
    let mut entry = libc::pollfd {
        fd: file.as_raw_fd(),
        events,
        revents: 0,
    };
    let mut queued = 0i32;
    // SAFETY: one structure and one number of ours; a poll for no time does not wait.
    let (polled, counted) = unsafe {
        let polled = libc::poll(&mut entry, 1, 0);
        (
            polled,
            libc::ioctl(file.as_raw_fd(), libc::FIONREAD, &mut queued),
        )
    };
    (polled >= 0).then_some(Now {
        found: entry.revents,
        queued: (counted == 0 && !is_datagram(&file)).then_some(queued),
    })
}

/// An empty message is no end of file.
fn is_datagram(file: &OwnedFd) -> bool {
    let (mut kind, mut bytes) = (0i32, size_of::<i32>() as libc::socklen_t);
    let to = (&raw mut kind).cast();
    // SAFETY: a number of ours, and its size.
    let got = unsafe {
        libc::getsockopt(
            file.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TYPE,
            to,
            &mut bytes,
        )
    };
    got == 0 && kind != libc::SOCK_STREAM
}

fn decide(file: File, asked: &Asked, now: Option<Now>) -> Option<(Because, String)> {
    let told = |because, text: &str| Some((because, text.to_owned()));
    let found = asked.found.or(now.map(|now| now.found)).unwrap_or(0);
    let bad = Some(-i64::from(libc::EBADF));
    // A descriptor that was open when the call looked is one that the loop opens and closes itself.
    let was_open = asked
        .found
        .is_some_and(|found| found != 0 && found & libc::POLLNVAL == 0);
    let answered = asked.does != Does::Asks && asked.result.is_some() && asked.result != bad;
    if file == File::Closed && (was_open || answered) {
        return None;
    }
    if file == File::Closed || found & libc::POLLNVAL != 0 || asked.result == bad {
        return told(Because::NotOpen, "the descriptor is not open");
    }
    match asked.result {
        Some(result) if result == -i64::from(libc::EAGAIN) && asked.does == Does::Locks => {
            return told(Because::NotReady, "another has the lock");
        }
        Some(result) if result == -i64::from(libc::EAGAIN) => {
            return told(
                Because::NotReady,
                "nothing is there yet, and the call does not wait for it",
            );
        }
        Some(result) if result < 0 => {
            let error = std::io::Error::from_raw_os_error(-result as i32);
            return Some((Because::Error, error.to_string()));
        }
        Some(0) if asked.does == Does::Asks => return told(Because::NotReady, "nothing is ready"),
        _ => {}
    }
    if asked.does == Does::Other {
        return None;
    }
    if asked.does == Does::Takes {
        return match (asked.result, file) {
            (Some(0), File::Null) => told(Because::EndOfFile, "each read gets end of file"),
            (Some(0), File::Pipe) => told(
                Because::NoWriter,
                "end of file: no process has it open for writing",
            ),
            (Some(0), File::Socket) => told(
                Because::PeerClosed,
                "end of file: the peer has closed its side",
            ),
            (Some(0), File::OnDisk) => told(
                Because::EndOfFile,
                "end of file: such a file is not waited for",
            ),
            (Some(0), _) => told(Because::EndOfFile, "end of file"),
            (_, File::Endless) => told(Because::AlwaysReady, "such a device never runs empty"),
            _ => None,
        };
    }
    let has = |bit: i16| found & bit != 0;
    let is_empty = now.and_then(|now| now.queued) == Some(0);
    match file {
        File::Null | File::Endless => {
            told(Because::AlwaysReady, "such a device is ready at any time")
        }
        File::OnDisk => told(Because::AlwaysReady, "such a file is ready at any time"),
        File::Pipe if has(libc::POLLHUP) => {
            told(Because::NoWriter, "no process has it open for writing")
        }
        File::Pipe if has(libc::POLLERR) => {
            told(Because::NoReader, "no process has it open for reading")
        }
        File::Socket if has(libc::POLLERR) => told(Because::Error, "an error is pending"),
        File::Socket if has(libc::POLLHUP | libc::POLLRDHUP) || has(libc::POLLIN) && is_empty => {
            told(
                Because::PeerClosed,
                "the peer has closed: end of file is there to be read",
            )
        }
        File::Pipe | File::Socket if has(libc::POLLIN) => {
            told(Because::Data, "data is there that was not taken")
        }
        File::Pipe | File::Socket if has(libc::POLLOUT) => {
            told(Because::Room, "there is room to write")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    const POLL: Asked = Asked {
        does: Does::Asks,
        result: Some(1),
        events: libc::POLLIN,
        found: None,
    };

    fn reason(file: File, asked: &Asked, now: Option<Now>) -> Option<Because> {
        decide(file, asked, now).map(|(because, _)| because)
    }

    #[test]
    fn what_a_read_returned_says_why() {
        let read = |result: i64| Asked {
            does: Does::Takes,
            result: Some(result),
            ..Asked::default()
        };
        let bad = read(-i64::from(libc::EBADF));
        assert_eq!(reason(File::Other, &bad, None), Some(Because::NotOpen));
        let refused = read(-i64::from(libc::ECONNREFUSED));
        assert_eq!(reason(File::Closed, &refused, None), None, "it was open");
        let again = read(-i64::from(libc::EAGAIN));
        assert_eq!(reason(File::Pipe, &again, None), Some(Because::NotReady));
        for (file, because) in [
            (File::Null, Because::EndOfFile),
            (File::Pipe, Because::NoWriter),
            (File::Socket, Because::PeerClosed),
            (File::OnDisk, Because::EndOfFile),
        ] {
            assert_eq!(reason(file, &read(0), None), Some(because));
            assert_eq!(reason(file, &read(1), None), None, "it is handed data");
        }
        let sets = Asked {
            result: Some(0),
            ..Asked::default()
        };
        assert_eq!(reason(File::Null, &sets, None), None, "it asks for nothing");
    }

    #[test]
    fn a_lock_that_is_refused_is_another_s() {
        let tries = |does| Asked {
            does,
            result: Some(-i64::from(libc::EAGAIN)),
            ..Asked::default()
        };
        let told = decide(File::OnDisk, &tries(Does::Locks), None);
        let why = "another has the lock".to_owned();
        assert_eq!(told, Some((Because::NotReady, why.clone())));
        let told = decide(File::Pipe, &tries(Does::Takes), None);
        assert!(told.is_some_and(|(_, other)| other != why));
    }

    #[test]
    fn what_a_poll_found_says_why() {
        let found = |bits: i16| Asked {
            found: Some(bits),
            ..POLL
        };
        let invalid = found(libc::POLLNVAL);
        assert_eq!(reason(File::Other, &invalid, None), Some(Because::NotOpen));
        assert_eq!(reason(File::Closed, &POLL, None), Some(Because::NotOpen));
        let ended = found(libc::POLLHUP);
        assert_eq!(reason(File::Closed, &ended, None), None, "it was open then");
        assert_eq!(reason(File::Pipe, &ended, None), Some(Because::NoWriter));
        let ready = found(libc::POLLIN);
        assert_eq!(reason(File::Null, &ready, None), Some(Because::AlwaysReady));
        assert_eq!(reason(File::Other, &ready, None), None);
        let of = |queued| Now {
            found: libc::POLLIN,
            queued,
        };
        let socket = |queued| reason(File::Socket, &ready, Some(of(queued)));
        assert_eq!(socket(Some(0)), Some(Because::PeerClosed));
        assert_eq!(socket(Some(3)), Some(Because::Data));
        assert_eq!(socket(None), Some(Because::Data), "a message, or a client");
    }

    #[test]
    fn the_kernel_is_asked_about_a_socket_without_taking_what_is_there() {
        let (one, mut other) = UnixStream::pair().expect("a pair");
        let of = |fd: &UnixStream| because(std::process::id(), fd.as_raw_fd(), &POLL);
        let reason = |fd: &UnixStream| of(fd).map(|(because, _)| because);
        assert_eq!(reason(&one), None);
        other.write_all(b"x").expect("room");
        assert_eq!(reason(&one), Some(Because::Data));
        assert_eq!(reason(&one), Some(Because::Data), "it is still there");
        std::io::Read::read_exact(&mut &one, &mut [0]).expect("a byte");
        drop(other);
        assert_eq!(reason(&one), Some(Because::PeerClosed));
    }

    #[test]
    fn what_nobody_has_read_is_told_and_an_end_of_file_is_nothing() {
        let (one, mut other) = UnixStream::pair().expect("a pair");
        let of = |fd: &dyn AsRawFd| untaken(std::process::id(), fd.as_raw_fd());
        assert_eq!(of(&one), None);
        other.write_all(b"abc").expect("room");
        assert_eq!(of(&one), Some(Untaken::Bytes(3)));
        std::io::Read::read_exact(&mut &one, &mut [0; 3]).expect("its bytes");
        drop(other);
        assert_eq!(of(&one), None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        assert_eq!(of(&listener), None);
        let address = listener.local_addr().expect("bound");
        let _client = std::net::TcpStream::connect(address).expect("a backlog");
        assert_eq!(of(&listener), Some(Untaken::Something));
        let file = fs::File::open("/proc/self/stat").expect("a file");
        assert_eq!(of(&file), None);
    }
}
