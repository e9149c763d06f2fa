// SPDX-License-Identifier: MIT
//! Files that a copy opens. We open a file of this machine that is there, only to read it, and give
//! its content to the copy; the process notices nothing of that. The same goes for some of what the
//! kernel tells in /proc of that process and of the machine. Every other open halts the copy, or is
//! supposed to succeed (`suppose.rs`). So does what the copy would write.

use std::ffi::CStr;
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::answer::{error, Answer};
use crate::asked::{sees_the_same, Asked};
use crate::replica::Replica;

type Arguments = [u64; 6];

/// Descriptor numbers that the process does not use.
const FIRST: i32 = 1_000_100;
/// Most files that a copy has open.
const MOST: usize = 64;
/// Bytes that are read at a time.
const LARGEST: u64 = 1 << 20;
/// Flags with which an open changes nothing of a file that is there.
const HARMLESS: i32 = libc::O_CLOEXEC
    | libc::O_NOFOLLOW
    | libc::O_NOCTTY
    | libc::O_NONBLOCK
    | libc::O_CREAT
    | libc::O_APPEND
    | LARGE_FILE;
/// The flags of an open by which only one process can make the file.
const FIRST_ONLY: i32 = libc::O_CREAT | libc::O_EXCL;
/// As the kernel numbers it; the C library's is 0 here.
const LARGE_FILE: i32 = 0o100_000;
/// Files in the folder of a process, and in /proc itself, that only tell: reading changes nothing,
/// and never waits.
const OF_PROCESS: [&str; 5] = ["comm", "limits", "stat", "statm", "status"];
const OF_MACHINE: [&str; 6] = ["cpuinfo", "loadavg", "meminfo", "stat", "uptime", "vmstat"];

impl Replica<'_> {
    /// `None`: the call opens no file, and concerns none that the copy opened.
    pub(crate) fn answer_opened(&mut self, number: u32, a: &Arguments) -> Result<Option<Answer>> {
        const HERE: u64 = libc::AT_FDCWD as u64;
        match i64::from(number) {
            libc::SYS_open => return self.open(HERE, a[0], a[1]),
            libc::SYS_openat => return self.open(a[0], a[1], a[2]),
            _ => {}
        }
        let fd = a[0] as i32;
        let Some(file) = self.opened.get(&fd).cloned() else {
            return Ok(None);
        };
        let at = self.moved.get(&fd).copied().unwrap_or(0);
        Ok(match i64::from(number) {
            libc::SYS_read => {
                let (answer, taken) = self.give(&file, a[1], a[2], at)?;
                self.moved.insert(fd, at + taken);
                answer
            }
            libc::SYS_pread64 => self.give(&file, a[1], a[2], a[3])?.0,
            libc::SYS_lseek => {
                let size = file.metadata()?.len();
                let from = match a[2] as i32 {
                    libc::SEEK_SET => Some(0),
                    libc::SEEK_CUR => Some(at),
                    libc::SEEK_END => Some(size),
                    _ => None,
                };
                let to = from.and_then(|from| from.checked_add_signed(a[1] as i64));
                Some(match to {
                    Some(to) => {
                        self.moved.insert(fd, to);
                        Answer::Result(to as i64)
                    }
                    None => error(libc::EINVAL),
                })
            }
            libc::SYS_fstat => self.stat_of_file(&file, a[1])?,
            libc::SYS_newfstatat => self.stat_of_file(&file, a[2])?,
            libc::SYS_fcntl if matches!(a[1] as i32, libc::F_GETFD | libc::F_SETFD) => {
                Some(Answer::Result(0))
            }
            libc::SYS_fadvise64 => Some(Answer::Result(0)),
            libc::SYS_ioctl => Some(error(libc::ENOTTY)),
            libc::SYS_close => {
                self.opened.remove(&fd);
                self.moved.remove(&fd);
                Some(Answer::Result(0))
            }
            _ => None,
        })
    }

    fn open(&mut self, base: u64, path: u64, flags: u64) -> Result<Option<Answer>> {
        let flags = flags as i32;
        if flags & FIRST_ONLY == FIRST_ONLY {
            return self.taken(base, path);
        }
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        // An empty file can't be cut.
        let cuts = flags & libc::O_TRUNC != 0;
        let known = HARMLESS | libc::O_ACCMODE | libc::O_TRUNC;
        if flags & !known != 0 || self.opened.len() >= MOST {
            return Ok(None);
        }
        if let Some(file) = self.told_by_kernel(path)?.filter(|_| !writes) {
            return Ok(self.keep(file));
        }
        let follow = flags & libc::O_NOFOLLOW == 0;
        let opened = match self.by_path(base, path, |named| named.open(follow))? {
            Asked::Known(opened) => opened,
            // The error with which the process could not open it either, unless it makes the file.
            Asked::Refused(answer) => return Ok((flags & libc::O_CREAT == 0).then_some(answer)),
            Asked::Unknown => return Ok(None),
        };
        let would_cut = cuts && opened.facts.size > 0;
        if would_cut || writes && !opened.facts.may_be_written() {
            return Ok(None);
        }
        Ok(self.keep(opened.file))
    }

    /// The file in /proc that the path names; `None`: it may mean something else to us.
    fn told_by_kernel(&mut self, path: u64) -> Result<Option<File>> {
        let (text, descriptors) = (self.text(path)?, self.descriptors());
        let (Some(text), Some(pid)) = (text, descriptors.map(|d| d.pid())) else {
            return Ok(None);
        };
        let found = in_proc(pid, &text).filter(|_| sees_the_same(pid).unwrap_or(false));
        Ok(found.and_then(|path| File::open(path).ok()))
    }

    fn keep(&mut self, file: File) -> Option<Answer> {
        let free = |fd: &i32| !self.opened.contains_key(fd);
        let fd = (FIRST..).find(free)?;
        self.opened.insert(fd, Arc::new(file));
        Some(Answer::Result(fd.into()))
    }

    /// What reading answers, and how many bytes it took.
    fn give(&mut self, file: &File, to: u64, most: u64, at: u64) -> Result<(Option<Answer>, u64)> {
        let mut bytes = vec![0; most.min(LARGEST) as usize];
        let Ok(got) = file.read_at(&mut bytes, at) else {
            return Ok((None, 0));
        };
        let given = got == 0 || self.write(to, &bytes[..got])?;
        Ok(match given {
            true => (Some(Answer::Result(got as i64)), got as u64),
            false => (Some(error(libc::EFAULT)), 0),
        })
    }
}

/// Where we read what `path` tells the process of itself or of the machine.
fn in_proc(pid: u32, path: &CStr) -> Option<String> {
    let rest = path.to_str().ok()?.strip_prefix("/proc/")?;
    if OF_MACHINE.contains(&rest) {
        return Some(format!("/proc/{rest}"));
    }
    let (who, name) = rest.split_once('/')?;
    let is_own = who == "self" || who == pid.to_string();
    (is_own && OF_PROCESS.contains(&name)).then(|| format!("/proc/{pid}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reads_of_itself_and_of_the_machine() {
        let place = |path: &CStr| in_proc(7, path);
        assert_eq!(place(c"/proc/self/stat").as_deref(), Some("/proc/7/stat"));
        assert_eq!(place(c"/proc/7/status").as_deref(), Some("/proc/7/status"));
        assert_eq!(place(c"/proc/meminfo").as_deref(), Some("/proc/meminfo"));
        for other in [
            c"/proc/1/stat",
            c"/proc/self/../1/stat",
            c"/proc/self/mem",
            c"/proc/kmsg",
            c"proc/stat",
        ] {
            assert_eq!(place(other), None, "{other:?}");
        }
    }
}
