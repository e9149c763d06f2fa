// SPDX-License-Identifier: MIT
//! What a file descriptor of the process is, and who is at its other end.

use std::fs;

use flagfinder_linux::descriptors::{watches, Watch};
use flagfinder_linux::proc::link;
use serde::Serialize;

use crate::internet::{connection, OtherEnd};
use crate::owners::{is_fifo, is_queue, Owner, Owners};
use crate::unix::{self, UnixEnd};

/// A descriptor that a thread waits on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Descriptor {
    /// Its number in the process.
    pub fd: i32,
    /// As /proc/PID/fd/N links; `closed` when there is none.
    pub target: String,
    /// What it is, for people: `TCP 127.0.0.1:80 -> 127.0.0.1:5566, established`.
    pub what: String,
    /// Who holds the other end: `process 12 (cat), fd 1`. Empty: nobody found.
    pub peers: Vec<String>,
    /// The same processes as numbers; `peers` may leave some out.
    #[serde(skip)]
    pub others: Vec<Owner>,
    /// It is a socket that listens.
    #[serde(skip)]
    pub takes_clients: bool,
    /// For an epoll descriptor: the descriptors in it.
    pub watches: Vec<Descriptor>,
}

impl Descriptor {
    /// A descriptor of a process that left a core file: nothing else is known of it.
    pub fn unknown(fd: i32) -> Descriptor {
        Descriptor {
            fd,
            target: String::new(),
            what: "unknown: a core file does not hold what it was".into(),
            peers: Vec::new(),
            others: Vec::new(),
            takes_clients: false,
            watches: Vec::new(),
        }
    }
}

const MOST_WATCHED: usize = 16;
/// Most epoll descriptors within one that are gone into. They may seem to hold each other: the
/// kernel tells the numbers that descriptors had when they were put in.
const MOST_EPOLLS: usize = 8;
const MOST_PEERS: usize = 4;

/// Describes one; a closed one is an answer too.
pub fn describe(pid: u32, fd: i32, owners: &mut Owners) -> Descriptor {
    describe_in(pid, fd, owners, &mut Vec::new())
}

/// The same; into `epolls` it does not go once more.
fn describe_in(pid: u32, fd: i32, owners: &mut Owners, epolls: &mut Vec<i32>) -> Descriptor {
    let target = link(pid, fd).unwrap_or_else(|| "closed".into());
    let mut descriptor = Descriptor {
        fd,
        what: target.clone(),
        target,
        peers: Vec::new(),
        others: Vec::new(),
        takes_clients: false,
        watches: Vec::new(),
    };
    let target = descriptor.target.clone();
    if target == "closed" {
        descriptor.what = "not open: every call on it fails or reports it invalid".into();
    } else if let Some(inode) = socket(&target) {
        describe_socket(pid, inode, &mut descriptor, owners);
    } else if target.starts_with("pipe:") || is_fifo(pid, fd) {
        pipe(pid, fd, &mut descriptor, owners);
    } else if is_queue(pid, fd, &target) {
        descriptor.has_others(owners.of(&target), |owner| owner.pid != pid);
    } else if target == EPOLL {
        descriptor.what = "epoll".into();
        if !epolls.contains(&fd) && epolls.len() < MOST_EPOLLS {
            epolls.push(fd);
            for inner in watched(pid, fd).into_iter().take(MOST_WATCHED) {
                let inner = describe_in(pid, inner, owners, epolls);
                descriptor.watches.push(inner);
            }
        }
    } else if let Some(kind) = between(&target, "anon_inode:[") {
        descriptor.what = kind.into();
    }
    descriptor
}

/// What an epoll descriptor links to.
const EPOLL: &str = "anon_inode:[eventpoll]";

/// Whether it links to an epoll file; `false` also where it cannot be told.
pub fn is_epoll(pid: u32, fd: i32) -> bool {
    link(pid, fd).is_some_and(|target| target == EPOLL)
}

/// The descriptors in an epoll descriptor.
pub fn watched(pid: u32, fd: i32) -> Vec<i32> {
    let all = watches_of(pid, fd).into_iter();
    all.map(|watch| watch.descriptor).collect()
}

/// Those in an epoll descriptor with what is asked of them, without itself.
pub fn watches_of(pid: u32, fd: i32) -> Vec<Watch> {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let mut all = watches(&info);
    all.retain(|watch| watch.descriptor != fd);
    all
}

/// How epoll tells of what a descriptor has, other than for as long as it is there. `None`: so it
/// does, or it is not asked for what can be read.
pub fn tells_once(watch: &Watch) -> Option<&'static str> {
    const ET: u32 = libc::EPOLLET as u32;
    const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;
    const HOW: u32 = ET | ONE_SHOT | libc::EPOLLWAKEUP as u32 | libc::EPOLLEXCLUSIVE as u32;
    let asked = watch.events & !HOW;
    let reads = asked & libc::EPOLLIN as u32 != 0;
    match watch.events {
        // The kernel takes away what is asked for once it has told.
        events if events & ONE_SHOT != 0 && asked == 0 => Some("EPOLLONESHOT"),
        events if events & ET != 0 && reads => Some("EPOLLET"),
        _ => None,
    }
}

/// Is it one by which the process's threads wake each other: an eventfd, a pipe whose other end it
/// holds itself, or an epoll descriptor of such?
pub fn wakes_itself(pid: u32, fd: i32) -> bool {
    wakes_itself_in(pid, fd, &mut Vec::new())
}

/// The same; `epolls` were asked before, and decide nothing.
fn wakes_itself_in(pid: u32, fd: i32, epolls: &mut Vec<i32>) -> bool {
    let Some(target) = link(pid, fd) else {
        return false;
    };
    let is_other_end = |entry: fs::DirEntry| {
        let is_it = entry.file_name().to_str() == Some(&fd.to_string());
        !is_it && fs::read_link(entry.path()).is_ok_and(|other| other.as_os_str() == &*target)
    };
    let entries = || {
        fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten()
    };
    if target == EPOLL {
        if epolls.contains(&fd) {
            return true;
        }
        if epolls.len() == MOST_EPOLLS {
            return false;
        }
        epolls.push(fd);
        let watched = watched(pid, fd);
        let mut all = watched.iter();
        return !watched.is_empty() && all.all(|&inner| wakes_itself_in(pid, inner, epolls));
    }
    target == "anon_inode:[eventfd]" || target.starts_with("pipe:[") && entries().any(is_other_end)
}

/// The inode of `socket:[7]`.
pub fn socket(target: &str) -> Option<u32> {
    between(target, "socket:[")?.parse().ok()
}

/// `eventfd` of `anon_inode:[eventfd]`.
pub fn between<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    text.strip_prefix(prefix)?.strip_suffix(']')
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

fn describe_socket(pid: u32, inode: u32, descriptor: &mut Descriptor, owners: &mut Owners) {
    if let Some(name) = unix::name(pid, inode) {
        let path = name.path.as_deref().unwrap_or("without a name");
        descriptor.what = format!("Unix socket {path}");
        descriptor.takes_clients = name.is_listening;
        if let Ok(Some(UnixEnd::Socket(other) | UnixEnd::Pending(other))) = unix::end(pid, inode) {
            descriptor.has_others(owners.of(&format!("socket:[{other}]")), |_| true);
        }
        return;
    }
    if let Some(connection) = connection(pid, inode) {
        descriptor.what = connection.to_string();
        descriptor.takes_clients = connection.is_listening;
        // A connection that nobody has accepted yet is nobody's: who listens there owes that.
        if let OtherEnd::Socket(other) | OtherEnd::Pending(Some(other)) = connection.end {
            descriptor.has_others(owners.of(&format!("socket:[{other}]")), |_| true);
        }
        return;
    }
    descriptor.what = "socket".into();
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
    fn a_message_queue_has_other_ends() {
        let name = std::ffi::CString::new(format!("/ff-ends-{}", std::process::id())).expect("it");
        // SAFETY: plain system calls with our own text; the child inherits the queue.
        let queue = unsafe {
            let how = libc::O_CREAT | libc::O_RDWR;
            let queue = libc::mq_open(name.as_ptr(), how, 0o600, std::ptr::null::<libc::mq_attr>());
            libc::mq_unlink(name.as_ptr());
            assert!(queue >= 0 && libc::fcntl(queue, libc::F_SETFD, 0) == 0);
            queue
        };
        let mut other = std::process::Command::new("sleep")
            .arg("9")
            .spawn()
            .expect("sleep");
        let found = describe(std::process::id(), queue, &mut Owners::default());
        other.kill().expect("killed");
        other.wait().expect("its end");
        // SAFETY: ours.
        unsafe { libc::close(queue) };
        assert!(found.others.iter().any(|owner| owner.pid == other.id()));
        assert!(found
            .others
            .iter()
            .all(|owner| owner.pid != std::process::id()));
    }

    #[test]
    fn epoll_descriptors_that_seem_to_hold_each_other_are_told_once() {
        let pid = std::process::id();
        let mut ends = [0; 2];
        // SAFETY: plain system calls on descriptors that are nobody else's.
        let (epoll, inner) = unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            let epoll = libc::epoll_create1(0);
            let inner = [0; 3].map(|_| libc::dup(ends[0]));
            for fd in inner {
                let mut asked = libc::epoll_event {
                    events: libc::EPOLLIN as u32,
                    u64: 0,
                };
                assert_eq!(
                    libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut asked),
                    0
                );
            }
            // What stands there under these numbers is the epoll descriptor itself.
            assert!(inner[1..].iter().all(|&fd| libc::dup2(epoll, fd) == fd));
            (epoll, inner)
        };
        let found = describe(pid, epoll, &mut Owners::default());
        let told: Vec<i32> = found.watches.iter().map(|inner| inner.fd).collect();
        assert!(inner.iter().all(|fd| told.contains(fd)));
        assert!(wakes_itself(pid, epoll), "the pipe's other end is its own");
        for fd in ends.into_iter().chain(inner).chain([epoll]) {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }

    #[test]
    fn epoll_tells_only_once_if_it_is_asked_to() {
        let how = |events: i32| {
            tells_once(&Watch {
                descriptor: 3,
                events: events as u32,
                data: 0,
            })
        };
        use libc::{EPOLLET, EPOLLIN, EPOLLONESHOT, EPOLLOUT};
        assert_eq!(how(EPOLLIN), None);
        assert_eq!(how(EPOLLIN | EPOLLET), Some("EPOLLET"));
        assert_eq!(how(EPOLLOUT | EPOLLET), None, "it does not read");
        assert_eq!(how(EPOLLIN | EPOLLONESHOT), None, "it has not told yet");
        assert_eq!(how(EPOLLONESHOT), Some("EPOLLONESHOT"));
    }
}
