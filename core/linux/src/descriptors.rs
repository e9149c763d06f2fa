// SPDX-License-Identifier: MIT
//! Which descriptors a system call is about, as its arguments name them.

use std::ffi::{CString, OsStr};
use std::fs::{read_link, File};
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::syscalls;
use crate::{pidfd, proc};

/// What a descriptor is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A pipe, with a name or without.
    Pipe,
    /// Its protocol, as the kernel calls it: `TCP`, `UNIX-STREAM`.
    Socket(String),
    /// What the kernel makes for a process, and tells what it knows: eventfd, timerfd, pidfd.
    Events,
    /// A terminal, or a device that makes or swallows bytes.
    Plain,
    /// What asks a file system, a driver or a server.
    Other,
}

/// What has no path, how its link begins, and is one of [`Object::Events`].
const EVENTS: [&[u8]; 6] = [
    b"anon_inode:[eventfd",
    b"anon_inode:[timerfd]",
    b"anon_inode:[signalfd]",
    b"anon_inode:[pidfd]",
    b"anon_inode:inotify",
    b"anon_inode:[userfaultfd]",
];

/// `None`: there is no such descriptor, or it may not be asked. Nothing is asked but the kernel.
pub fn object(pid: u32, fd: i32) -> Option<Object> {
    let place = proc::path(pid, &format!("fd/{fd}"));
    // What it is may change between two looks at the process; what this handle names does not.
    let handle = File::options()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(place)
        .ok()?;
    let own = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    let link = read_link(&own).ok()?;
    let text = link.as_os_str().as_bytes();
    if text.starts_with(b"pipe:") {
        return Some(Object::Pipe);
    }
    if text.starts_with(b"socket:") {
        return Some(Object::Socket(
            protocol(own.as_os_str()).unwrap_or_default(),
        ));
    }
    if EVENTS.iter().any(|begins| text.starts_with(begins)) {
        return Some(Object::Events);
    }
    let (kind, device) = proc::kind_and_device(std::process::id(), handle.as_raw_fd())?;
    Some(match kind {
        libc::S_IFIFO => Object::Pipe,
        libc::S_IFCHR if is_plain(device) => Object::Plain,
        _ => Object::Other,
    })
}

/// A descriptor of ours for the same file. As long as it is open, so is the file.
///
/// # Errors
/// When there is none, its process's first thread has ended, or the system refuses.
pub fn duplicate(pid: u32, fd: i32) -> Result<OwnedFd> {
    let owned = |number: libc::c_long| match i32::try_from(number) {
        // SAFETY: the kernel has just made it for us.
        Ok(number @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        _ => Err(Error::last_os_error()),
    };
    // SAFETY: plain numbers; it makes a descriptor of ours.
    unsafe {
        let process = pidfd::open(pid)?;
        owned(libc::syscall(
            libc::SYS_pidfd_getfd,
            process.as_raw_fd(),
            fd,
            0,
        ))
    }
}

/// Is this character device (major, minor) known to be a terminal, or to make or swallow bytes? To
/// ask another one may change it.
pub fn is_plain((major, minor): (u32, u32)) -> bool {
    match major {
        // null, zero, full, random, urandom
        1 => matches!(minor, 3 | 5 | 7 | 8 | 9),
        // Consoles and serial lines; tty, console and ptmx; both ends of pseudoterminals.
        4 | 128..=143 => true,
        5 => minor <= 2,
        _ => false,
    }
}

fn protocol(socket: &OsStr) -> Option<String> {
    let path = CString::new(socket.as_bytes()).ok()?;
    let mut name = [0u8; 32];
    let (to, room) = (name.as_mut_ptr().cast(), name.len());
    // SAFETY: texts of ours, and a buffer with its size.
    let got = unsafe { libc::getxattr(path.as_ptr(), c"system.sockprotoname".as_ptr(), to, room) };
    let name = name.get(..usize::try_from(got).ok()?)?;
    Some(
        String::from_utf8_lossy(name)
            .trim_end_matches('\0')
            .to_owned(),
    )
}

/// Where a call names its descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// An argument is the only one.
    One(i32),
    /// `struct pollfd`s, 8 bytes each: the descriptor (4), what is asked (2), what was found (2).
    Entries {
        /// Address of the first entry.
        address: u64,
        /// How many entries.
        count: u64,
    },
    /// `fd_set`s: one bit a descriptor.
    Sets {
        /// For reading, for writing, for exceptions; 0 where there is none.
        addresses: [u64; 3],
        /// One more than the highest that is looked at.
        count: u64,
    },
}

/// `None`: the call is about none, or does not name it first.
pub fn named(number: u32, args: &[u64; 6]) -> Option<Named> {
    match i64::from(number) {
        libc::SYS_poll | libc::SYS_ppoll => Some(Named::Entries {
            address: args[0],
            count: args[1],
        }),
        libc::SYS_select | libc::SYS_pselect6 => Some(Named::Sets {
            addresses: [args[1], args[2], args[3]],
            count: args[0],
        }),
        libc::SYS_io_uring_enter => Some(Named::One(args[0] as i32)),
        _ => syscalls::descriptor(number, args).map(Named::One),
    }
}

/// A descriptor in an epoll descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The one that is watched.
    pub descriptor: i32,
    /// EPOLLIN and so on.
    pub events: u32,
    /// What epoll_wait hands back for it.
    pub data: u64,
}

/// What an epoll descriptor watches, by its text in /proc/PID/fdinfo.
pub fn watches(fdinfo: &str) -> Vec<Watch> {
    let watch = |line: &str| {
        let mut words = line.split_whitespace();
        let mut after = |name: &str| words.find(|word| *word == name).and(words.next());
        Some(Watch {
            descriptor: after("tfd:")?.parse().ok()?,
            events: u32::from_str_radix(after("events:")?, 16).ok()?,
            data: u64::from_str_radix(after("data:")?, 16).ok()?,
        })
    };
    fdinfo.lines().filter_map(watch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoll_descriptor_tells_what_it_watches() {
        let text = "pos:\t0\nflags:\t02\n\
            tfd:       10 events:       1f data:     7ffc12  pos:0 ino:3 sdev:e\n\
            tfd: damaged\n";
        let watch = Watch {
            descriptor: 10,
            events: 0x1f,
            data: 0x7f_fc12,
        };
        assert_eq!(watches(text), [watch]);
    }

    #[test]
    fn each_kind_of_call_names_them_its_own_way() {
        let args = [3, 4, 5, 6, 7, 8];
        let named = |number: i64| named(number as u32, &args);
        assert_eq!(named(libc::SYS_read), Some(Named::One(3)));
        let entries = Named::Entries {
            address: 3,
            count: 4,
        };
        assert_eq!(named(libc::SYS_ppoll), Some(entries));
        let sets = Named::Sets {
            addresses: [4, 5, 6],
            count: 3,
        };
        assert_eq!(named(libc::SYS_select), Some(sets));
        assert_eq!(named(libc::SYS_nanosleep), None);
    }
}
