// SPDX-License-Identifier: MIT
//! Answers that the kernel gives us as it would give them to the process, and that change nothing:
//! what a path or a descriptor names, and whether a child has ended.
//!
//! A path means the same to us where we have the process's root, mounts and rights. /proc does not:
//! it is another one for each process. So a path that leads there, or through a link that leads
//! nowhere, is not answered. A child that has ended is not either: whoever asks for it takes it
//! away.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use flagfinder_linux::proc::{path as path_of, Stat};

use crate::answer::{error, Answer};
use crate::replica::Replica;

type Arguments = [u64; 6];

/// Bytes of the structures that the kernel fills (`struct stat`, `struct statx`, `siginfo_t`).
pub(crate) const STAT: usize = 144;
const STATX: usize = 256;
const SIGNAL: usize = 128;

/// Where a path begins, and how the call treats its last part.
pub(crate) struct Named {
    pub base: OwnedFd,
    pub path: CString,
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
            libc::SYS_access => self.by_path(HERE, a[0], |n| access(n, a[1], 0)),
            libc::SYS_faccessat => self.by_path(a[0], a[1], |n| access(n, a[2], 0)),
            libc::SYS_faccessat2 => self.by_path(a[0], a[1], |n| access(n, a[2], a[3])),
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
                let mut buffer = [0; STATX];
                let place = buffer.as_mut_ptr() as u64;
                let asked = self.by_path(a[0], a[1], |n| statx(n, a[2], a[3], place))?;
                self.fill(asked, a[4], &buffer)
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
        let mut buffer = [0; STAT];
        let place = buffer.as_mut_ptr() as u64;
        let asked = self.by_path(base, path, |named| stat(named, place, flags))?;
        self.fill(asked, to, &buffer)
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
    pub(crate) fn by_path(
        &mut self,
        base: u64,
        path: u64,
        call: impl FnOnce(&Named) -> i64,
    ) -> Result<Option<Answer>> {
        let Some(path) = self.text(path)? else {
            return Ok(Some(error(libc::EFAULT)));
        };
        let Some(pid) = self.descriptors().map(|descriptors| descriptors.pid()) else {
            return Ok(None);
        };
        if path.is_empty() || !sees_the_same(pid).unwrap_or(false) {
            return Ok(None);
        }
        let named = match named(pid, base as i32, path) {
            Some(named) => named,
            None => return Ok(None),
        };
        Ok(ask(|| call(&named)))
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

fn access(named: &Named, mode: u64, flags: u64) -> i64 {
    let (base, path) = (named.base.as_raw_fd(), named.path.as_ptr());
    // SAFETY: our own descriptor and text; plain numbers.
    unsafe { libc::syscall(libc::SYS_faccessat2, base, path, mode, flags) }
}

pub(crate) fn stat(named: &Named, place: u64, flags: u64) -> i64 {
    let (base, path) = (named.base.as_raw_fd(), named.path.as_ptr());
    // SAFETY: `place` is a buffer of the size of the kernel's structure.
    unsafe { libc::syscall(libc::SYS_newfstatat, base, path, place, flags) }
}

fn statx(named: &Named, flags: u64, mask: u64, place: u64) -> i64 {
    let (base, path) = (named.base.as_raw_fd(), named.path.as_ptr());
    // SAFETY: `place` is a buffer of the size of the kernel's structure.
    unsafe { libc::syscall(libc::SYS_statx, base, path, flags, mask, place) }
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

/// The place where a path begins, and the path; `None` if it may mean something else to us.
fn named(pid: u32, base: RawFd, path: CString) -> Option<Named> {
    let begins = match base {
        _ if path.as_bytes().starts_with(b"/") => "root",
        libc::AT_FDCWD => "cwd",
        fd => &format!("fd/{fd}"),
    };
    let begins = path_of(pid, begins);
    let mut only_name = File::options();
    only_name
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY);
    let base = only_name.open(&begins).ok()?;
    let folder = fs::read_link(&begins).ok()?;
    leads_outside_proc(&folder, &path).then(|| Named {
        base: base.into(),
        path,
    })
}

fn leads_outside_proc(folder: &Path, path: &CStr) -> bool {
    let whole = folder.join(OsStr::from_bytes(path.to_bytes()));
    let mut so_far = PathBuf::new();
    for part in whole.components() {
        so_far.push(part);
        if matches!(part, Component::RootDir) {
            continue;
        }
        match fs::canonicalize(&so_far) {
            Ok(there) if there.starts_with("/proc") => return false,
            Ok(_) => {}
            // Nothing is there, and no link that leads anywhere.
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return fs::symlink_metadata(&so_far).is_err();
            }
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_into_proc_means_something_else_to_each_process() {
        let leads = |path: &str| {
            let path = CString::new(path).expect("no zero");
            leads_outside_proc(Path::new("/"), &path)
        };
        assert!(leads("/etc/passwd") && leads("etc") && leads("/no/such/file"));
        for there in [
            "/proc/self/status",
            "proc/1",
            "/etc/../proc/self/no",
            "/dev/fd/0",
        ] {
            assert!(!leads(there), "{there}");
        }
    }

    #[test]
    fn paths_lead_this_process_where_they_lead_it() {
        assert!(sees_the_same(std::process::id()).expect("its own /proc"));
    }
}
