// SPDX-License-Identifier: MIT
//! Answers that the kernel gives us as it would give them to the process, and that change nothing:
//! what a path or a descriptor names, and whether a child has ended.
//!
//! A path means the same to us where we have the process's root, mounts and rights. /proc does not:
//! it is another one for each process. So a path that leads there, or through a link that leads
//! nowhere, is not answered. A child that has ended is not either: whoever asks for it takes it
//! away.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use flagfinder_files::OfCopy;
use flagfinder_linux::proc::{path as path_of, Stat};

use crate::answer::{error, Answer};
use crate::replica::Replica;

type Arguments = [u64; 6];

/// Bytes of the structures that the kernel fills (`struct stat`, `struct statx`, `siginfo_t`).
const STAT: usize = 144;
const STATX: usize = 256;
const SIGNAL: usize = 128;

/// What was asked about a path.
pub(crate) enum Asked<T> {
    Known(T),
    /// The error that the process would get, too.
    Refused(Answer),
    /// It may mean something else to us, or nobody answers.
    Unknown,
}

/// Children of a process, as a call with WNOHANG sees them.
enum Children {
    None,
    /// All of them go on.
    Live,
    /// One has ended, or is stopped; or that can't be told.
    Unknown,
}

impl Replica<'_> {
    /// `None`: nothing certain is known.
    pub(crate) fn answer_asked(&mut self, number: u32, a: &Arguments) -> Result<Option<Answer>> {
        const HERE: u64 = libc::AT_FDCWD as u64;
        let number = i64::from(number);
        match number {
            libc::SYS_access => self.access(HERE, a[0], a[1], 0),
            libc::SYS_faccessat => self.access(a[0], a[1], a[2], 0),
            libc::SYS_faccessat2 => self.access(a[0], a[1], a[2], a[3]),
            libc::SYS_stat => self.stat(HERE, a[0], a[1], 0),
            libc::SYS_lstat => self.stat(HERE, a[0], a[1], libc::AT_SYMLINK_NOFOLLOW as u64),
            libc::SYS_newfstatat if a[3] & libc::AT_EMPTY_PATH as u64 != 0 => {
                match self.text(a[1])? {
                    Some(path) if path.is_empty() => self.stat_of(a[0] as i32, a[2]),
                    _ => Ok(None),
                }
            }
            libc::SYS_newfstatat => self.stat(a[0], a[1], a[2], a[3]),
            libc::SYS_fstat => self.stat_of(a[0] as i32, a[1]),
            libc::SYS_statx if a[2] & libc::AT_EMPTY_PATH as u64 == 0 => {
                let asked = |named: &OfCopy| named.call(libc::SYS_statx, a[2], a[3]);
                let asked = self.by_path(a[0], a[1], asked)?;
                self.filled(asked, a[4], STATX)
            }
            libc::SYS_pread64 => {
                let descriptors = self.descriptors();
                let read = descriptors.map(|d| d.read_at(a[0] as i32, a[2] as usize, a[3]));
                let Some(Ok(Some(bytes))) = read else {
                    return Ok(None);
                };
                Ok(Some(match self.write(a[1], &bytes)? {
                    true => Answer::Result(bytes.len() as i64),
                    false => error(libc::EFAULT),
                }))
            }
            libc::SYS_kill if a[1] == 0 && a[0] as i32 > 0 => {
                let descriptors = self.descriptors();
                Ok(descriptors.map(|d| match d.lives(a[0] as i32) {
                    Some(_) => Answer::Result(0),
                    None => error(libc::ESRCH),
                }))
            }
            libc::SYS_wait4 if a[2] as i32 & libc::WNOHANG != 0 => {
                let one = a[0] as i32;
                let stops = a[2] as i32 & libc::WUNTRACED != 0;
                // Groups of processes are not told apart.
                let known = (one > 0 || one == -1).then(|| self.children(one, stops));
                Ok(match known {
                    Some(Children::Live) => Some(Answer::Result(0)),
                    Some(Children::None) => Some(error(libc::ECHILD)),
                    _ => None,
                })
            }
            libc::SYS_waitid if a[3] as i32 & libc::WNOHANG != 0 => {
                let one = match a[0] as libc::idtype_t {
                    libc::P_ALL => -1,
                    libc::P_PID => a[1] as i32,
                    _ => return Ok(None),
                };
                match self.children(one, a[3] as i32 & libc::WSTOPPED != 0) {
                    Children::None => Ok(Some(error(libc::ECHILD))),
                    Children::Live => self.fill(Some(Answer::Result(0)), a[2], &[0; SIGNAL]),
                    Children::Unknown => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    fn stat(&mut self, base: u64, path: u64, to: u64, flags: u64) -> Result<Option<Answer>> {
        let asked = |named: &OfCopy| named.call(libc::SYS_newfstatat, flags, 0);
        let asked = self.by_path(base, path, asked)?;
        self.filled(asked, to, STAT)
    }

    fn access(&mut self, base: u64, path: u64, mode: u64, flags: u64) -> Result<Option<Answer>> {
        let asked = |named: &OfCopy| named.call(libc::SYS_faccessat2, mode, flags);
        Ok(match self.by_path(base, path, asked)? {
            Asked::Known((result, _)) => Some(Answer::Result(result)),
            Asked::Refused(answer) => Some(answer),
            Asked::Unknown => None,
        })
    }

    fn filled(
        &mut self,
        asked: Asked<(i64, Vec<u8>)>,
        to: u64,
        bytes: usize,
    ) -> Result<Option<Answer>> {
        match asked {
            Asked::Known((result, filled)) => {
                self.fill(Some(Answer::Result(result)), to, &filled[..bytes])
            }
            Asked::Refused(answer) => Ok(Some(answer)),
            Asked::Unknown => Ok(None),
        }
    }

    fn stat_of(&mut self, descriptor: i32, to: u64) -> Result<Option<Answer>> {
        let Some(descriptors) = self.descriptors() else {
            return Ok(None);
        };
        match descriptors.duplicate(descriptor) {
            Ok(copy) => self.stat_of_file(&copy, to),
            Err(e) if e.raw_os_error() == Some(libc::EBADF) => Ok(Some(error(libc::EBADF))),
            Err(_) => Ok(None),
        }
    }

    pub(crate) fn stat_of_file(&mut self, file: &impl AsRawFd, to: u64) -> Result<Option<Answer>> {
        let mut buffer = [0u8; STAT];
        let asked = ask(|| {
            // SAFETY: the kernel fills a buffer of the size of its structure.
            unsafe { libc::syscall(libc::SYS_fstat, file.as_raw_fd(), buffer.as_mut_ptr()) }
        });
        self.fill(asked, to, &buffer)
    }

    /// Writes what a call that succeeded fills.
    fn fill(&mut self, asked: Option<Answer>, to: u64, bytes: &[u8]) -> Result<Option<Answer>> {
        match asked {
            Some(Answer::Result(0)) if to != 0 && !self.write(to, bytes)? => {
                Ok(Some(error(libc::EFAULT)))
            }
            other => Ok(other),
        }
    }

    /// What our own call answers for the path, if the path means the same to us.
    pub(crate) fn by_path<T>(
        &mut self,
        base: u64,
        path: u64,
        call: impl FnOnce(&OfCopy) -> Result<T>,
    ) -> Result<Asked<T>> {
        let Some(path) = self.text(path)? else {
            return Ok(Asked::Refused(error(libc::EFAULT)));
        };
        let Some(pid) = self.descriptors().map(|descriptors| descriptors.pid()) else {
            return Ok(Asked::Unknown);
        };
        if path.is_empty() || !sees_the_same(pid).unwrap_or(false) {
            return Ok(Asked::Unknown);
        }
        let begins = match base as i32 {
            _ if path.as_bytes().starts_with(b"/") => "root",
            libc::AT_FDCWD => "cwd",
            fd => &format!("fd/{fd}"),
        };
        let named = OfCopy {
            base: &path_of(pid, begins),
            path: Path::new(OsStr::from_bytes(path.as_bytes())),
        };
        Ok(match call(&named) {
            Ok(found) => Asked::Known(found),
            Err(failed) => match failed.raw_os_error() {
                None | Some(libc::EINTR | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => {
                    Asked::Unknown
                }
                Some(number) => Asked::Refused(error(number)),
            },
        })
    }

    /// A text of the copy, of at most PATH_MAX bytes.
    pub(crate) fn text(&mut self, address: u64) -> Result<Option<CString>> {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while bytes.len() < libc::PATH_MAX as usize {
            let Some(at) = address.checked_add(bytes.len() as u64) else {
                return Ok(None);
            };
            if !self.read(at, &mut byte)? {
                return Ok(None);
            }
            if byte[0] == 0 {
                return Ok(CString::new(bytes).ok());
            }
            bytes.push(byte[0]);
        }
        Ok(None)
    }

    /// Its child `one`, or all of them (-1). `stops`: a stopped child may be reported, or was.
    fn children(&self, one: i32, stops: bool) -> Children {
        let Some(pid) = self.descriptors().map(|descriptors| descriptors.pid()) else {
            return Children::Unknown;
        };
        let known = || {
            // Numbers of another namespace name other processes.
            let same = fs::read_link(format!("/proc/{pid}/ns/pid_for_children")).ok()?
                == fs::read_link("/proc/self/ns/pid").ok()?;
            let mut children = Vec::new();
            for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
                let list = fs::read_to_string(task.ok()?.path().join("children")).ok()?;
                children.extend(list.split_whitespace().map(str::to_owned));
            }
            same.then_some(children)
        };
        let Some(mut children) = known() else {
            return Children::Unknown;
        };
        children.retain(|child| one == -1 || *child == one.to_string());
        let goes_on = |child: &String| {
            let state = Stat::of(child.parse().ok()?)?.state();
            Some(matches!(state, 'R' | 'S' | 'D') || state == 'T' && !stops)
        };
        match children.is_empty() {
            true => Children::None,
            false if children.iter().all(|child| goes_on(child) == Some(true)) => Children::Live,
            false => Children::Unknown,
        }
    }
}

/// A result as the kernel gives it; `None`: we may not see what the process may.
fn ask(call: impl FnOnce() -> i64) -> Option<Answer> {
    match call() {
        -1 => match Error::last_os_error().raw_os_error()? {
            libc::EINTR | libc::ENOMEM | libc::EMFILE | libc::ENFILE => None,
            number => Some(error(number)),
        },
        value => Some(Answer::Result(value)),
    }
}

/// Do paths lead it where they lead us, with the same rights?
pub(crate) fn sees_the_same(pid: u32) -> Result<bool> {
    for namespace in ["mnt", "user"] {
        let of = |who: &str| fs::read_link(format!("/proc/{who}/ns/{namespace}"));
        if of(&pid.to_string())? != of("self")? {
            return Ok(false);
        }
    }
    let root = |who: &str| fs::metadata(format!("/proc/{who}/root"));
    let (its, ours) = (root(&pid.to_string())?, root("self")?);
    if (its.dev(), its.ino()) != (ours.dev(), ours.ino()) {
        return Ok(false);
    }
    const RIGHTS: [&str; 4] = ["Uid:", "Gid:", "Groups:", "CapEff:"];
    let rights = |who: &str| -> Result<Vec<String>> {
        let status = flagfinder_linux::proc::text(format!("/proc/{who}/status"))?;
        let lines = status
            .lines()
            .filter(|l| RIGHTS.iter().any(|name| l.starts_with(name)));
        Ok(lines.map(|line| line.trim_end().to_owned()).collect())
    };
    Ok(rights(&pid.to_string())? == rights("self")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_this_process_where_they_lead_it() {
        assert!(sees_the_same(std::process::id()).expect("its own /proc"));
    }
}
