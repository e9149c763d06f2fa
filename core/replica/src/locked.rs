// SPDX-License-Identifier: MIT
//! Calls of a copy that ask for a lock without waiting: one on a file, or a name that only one
//! process can give.
//!
//! A refusal changes nothing, and the kernel tells us where it would refuse. A lock to read keeps
//! no other reader out. Where the process would get any other lock, the copy halts.

use std::fs::{self, File};
use std::io::Result;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use flagfinder_files::OfCopy;
use flagfinder_linux::file_locks::Line;

use crate::answer::{error, Answer};
use crate::asked::Asked;
use crate::replica::Replica;

type Arguments = [u64; 6];

const HERE: u64 = libc::AT_FDCWD as u64;
const FLOCK: usize = size_of::<libc::flock>();

impl Replica<'_> {
    /// `None`: it asks for no lock, or may get it.
    pub(crate) fn answer_locked(&mut self, number: u32, a: &Arguments) -> Result<Option<Answer>> {
        match i64::from(number) {
            libc::SYS_flock if a[1] as i32 & libc::LOCK_NB != 0 => {
                let fd = a[0] as i32;
                let shares = a[1] as i32 & libc::LOCK_SH != 0;
                let file = self.file(fd);
                let refused = file.is_some_and(|file| self.is_locked(fd, &file, shares));
                Ok(refused.then(|| error(libc::EAGAIN)))
            }
            libc::SYS_fcntl => match a[1] as i32 {
                libc::F_SETLK => self.record(a, libc::F_GETLK),
                libc::F_OFD_SETLK => self.record(a, libc::F_OFD_GETLK),
                _ => Ok(None),
            },
            libc::SYS_mkdir | libc::SYS_mknod => self.taken(HERE, a[0]),
            libc::SYS_mkdirat | libc::SYS_mknodat => self.taken(a[0], a[1]),
            libc::SYS_symlink => self.taken(HERE, a[1]),
            libc::SYS_symlinkat => self.taken(a[1], a[2]),
            libc::SYS_link => self.linked((HERE, a[0]), (HERE, a[1])),
            libc::SYS_linkat => self.linked((a[0], a[1]), (a[2], a[3])),
            _ => Ok(None),
        }
    }

    fn file(&self, fd: i32) -> Option<File> {
        match self.opened.get(&fd) {
            Some(file) => file.try_clone().ok(),
            None => Some(self.descriptors()?.duplicate(fd).ok()?.into()),
        }
    }

    /// Does another open file hold a lock of flock(2)?
    fn is_locked(&self, fd: i32, file: &File, shares: bool) -> bool {
        let Ok(metadata) = file.metadata() else {
            return false;
        };
        let inode = format!(":{}", metadata.ino());
        let keeps_out = |line: &Line| {
            let other = line.kind == "FLOCK" && line.file.ends_with(&inode);
            other && !line.is_blocked && (line.writes || !shares)
        };
        // It may change a lock of its own.
        let own = self.descriptors().map(|d| d.information(fd));
        let own = own.and_then(Result::ok).unwrap_or_default();
        let mut own = own.lines().filter_map(|line| line.strip_prefix("lock:"));
        let holds = own.any(|line| Line::parse(line).is_some_and(|l| l.kind == "FLOCK"));
        let table = fs::read_to_string("/proc/locks").unwrap_or_default();
        !holds && table.lines().filter_map(Line::parse).any(|l| keeps_out(&l))
    }

    /// A lock on a part of a file. `ask`: the command that tells who has it.
    fn record(&mut self, a: &Arguments, ask: i32) -> Result<Option<Answer>> {
        let mut bytes = [0; FLOCK];
        if !self.read(a[2], &mut bytes)? {
            return Ok(Some(error(libc::EFAULT)));
        }
        // SAFETY: a structure of plain numbers, of which there are as many bytes.
        let mut lock: libc::flock = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
        let pid = self.descriptors().map_or(0, |d| d.pid());
        let Some(file) = self.file(a[0] as i32) else {
            return Ok(None);
        };
        // A reader gives its lock back in each round.
        let only_reads = match i32::from(lock.l_type) {
            libc::F_UNLCK => return Ok(Some(Answer::Result(0))),
            kind => kind == libc::F_RDLCK,
        };
        // SAFETY: our own descriptor; the kernel fills a structure of ours.
        let asked = unsafe { libc::fcntl(file.as_raw_fd(), ask, &mut lock) };
        let refuses = asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK;
        // A process's own locks do not keep it out.
        let is_own = ask == libc::F_GETLK && lock.l_pid == pid as i32;
        Ok(match refuses && !is_own {
            true => Some(error(libc::EAGAIN)),
            false => (only_reads && asked == 0).then_some(Answer::Result(0)),
        })
    }

    fn is_there(&mut self, base: u64, path: u64) -> Result<bool> {
        let itself = libc::AT_SYMLINK_NOFOLLOW as u64;
        let asked = |named: &OfCopy| named.call(libc::SYS_newfstatat, itself, 0);
        Ok(matches!(self.by_path(base, path, asked)?, Asked::Known(_)))
    }

    /// A name that is there already can't be given.
    pub(crate) fn taken(&mut self, base: u64, path: u64) -> Result<Option<Answer>> {
        let is_there = self.is_there(base, path)?;
        Ok(is_there.then(|| error(libc::EEXIST)))
    }

    fn linked(&mut self, from: (u64, u64), to: (u64, u64)) -> Result<Option<Answer>> {
        match self.is_there(from.0, from.1)? {
            true => self.taken(to.0, to.1),
            false => Ok(None),
        }
    }
}
