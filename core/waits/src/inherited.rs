// SPDX-License-Identifier: MIT
//! From whom a process has a descriptor: its parent, if that holds the same open file.

use std::fs;

use flagfinder_linux::proc::{link, name, Status};
use serde::{Deserialize, Serialize};

/// How it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sure {
    /// The kernel says that it is one open file.
    Seen,
    /// Whoever starts a program sets its standard descriptors; or the kernel's facts about the two
    /// descriptors are alike, but it does not say whether they are one.
    Assumed,
}

/// From whom a process has a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    /// The parent.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Of the parent; null: it does not hold the file itself.
    pub fd: Option<i32>,
    /// How that is known.
    pub known: Sure,
}

/// `None`: the process opened it itself, as far as can be told.
pub fn inherited(pid: u32, fd: i32) -> Option<Inherited> {
    let target = link(pid, fd)?;
    let parent = Status::of(pid)?.number("PPid:").filter(|id| *id != 0)?;
    let name = name(parent, parent)?;
    let from = |fd, known| Inherited {
        pid: parent,
        name: name.clone(),
        fd,
        known,
    };
    let entries = fs::read_dir(format!("/proc/{parent}/fd"));
    let links = entries.into_iter().flatten().flatten().filter(|entry| {
        fs::read_link(entry.path()).is_ok_and(|other| other.as_os_str() == &*target)
    });
    let numbers = links.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut numbers: Vec<i32> = numbers.collect();
    // If several are the same, the one with the same number is the plainest answer.
    numbers.sort_by_key(|other| (*other != fd, *other));
    let mut alike = None;
    for other in numbers {
        match is_same(pid, fd, parent, other) {
            Some(true) => return Some(from(Some(other), Sure::Seen)),
            Some(false) => {}
            None if info(pid, fd) == info(parent, other) => alike = alike.or(Some(other)),
            None => {}
        }
    }
    if alike.is_some() {
        return Some(from(alike, Sure::Assumed));
    }
    // What the first process started long ago says nothing: a daemon sets its own descriptors.
    let is_standard = (0..=libc::STDERR_FILENO).contains(&fd) && parent != 1;
    is_standard.then(|| from(None, Sure::Assumed))
}

/// `None`: the kernel does not tell.
fn is_same(pid: u32, fd: i32, other: u32, other_fd: i32) -> Option<bool> {
    const KCMP_FILE: i32 = 0;
    // SAFETY: it takes numbers only.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, pid, other, KCMP_FILE, fd, other_fd) };
    (order >= 0).then_some(order == 0)
}

fn info(pid: u32, fd: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_childs_file_is_the_parents_only_if_it_was_opened_once() {
        let file = fs::File::open("/dev/null").expect("there is one");
        let shared = file.try_clone().expect("a copy");
        let start = |stdin: Stdio| {
            let mut command = Command::new("sleep");
            command.arg("100").stdin(stdin).spawn().expect("sleep")
        };
        let (mut with, mut without) = (start(shared.into()), start(Stdio::null()));
        let (seen, own) = (inherited(with.id(), 0), inherited(without.id(), 0));
        for child in [&mut with, &mut without] {
            child.kill().expect("ours");
            child.wait().expect("its end");
        }
        let seen = seen.expect("it is the parent's");
        assert_eq!((seen.pid, seen.known), (std::process::id(), Sure::Seen));
        let same = |fd| is_same(std::process::id(), file.as_raw_fd(), seen.pid, fd);
        assert_eq!(seen.fd.and_then(same), Some(true));
        let own = own.expect("a standard descriptor");
        assert_eq!((own.fd, own.known), (None, Sure::Assumed));
    }
}
