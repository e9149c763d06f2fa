// SPDX-License-Identifier: MIT
//! Where the pool's file lies: names, room on disk and in memory, and files that were left behind.

use std::fs::{File, Metadata, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub const PREFIX: &str = "flagfinder-";
pub const SUFFIX: &str = ".pool";

/// Marks the file as one whose recorder lives. The kernel removes the mark when the file is closed,
/// also for a recorder that is killed.
pub fn claim(file: &File) -> std::io::Result<()> {
    // SAFETY: a plain system call on an open file.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Removes pools whose recorder was killed. Their targets keep what they mapped. A pid in the name
/// would tell nothing here: the recorder may live in another pid namespace.
pub fn sweep(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) && is_left(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Whether it is a pool that nobody claims. An empty file may be about to be claimed.
fn is_left(path: &Path) -> bool {
    let mut options = OpenOptions::new();
    // Anybody may put a link or a FIFO there.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = options.read(true).custom_flags(flags).open(path);
    file.is_ok_and(|file| {
        let is_made = |facts: Metadata| facts.is_file() && facts.len() > 0;
        file.metadata().is_ok_and(is_made) && claim(&file).is_ok()
    })
}

/// Reserves the bytes, so that no later write can fail for want of room.
pub fn allocate(file: &File, offset: u64, bytes: u64) -> std::io::Result<()> {
    // SAFETY: a plain system call on an open file.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), offset as i64, bytes as i64) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// Bytes that are free in the directory's file system.
pub fn free_bytes(directory: &Path) -> Option<u64> {
    let path = std::ffi::CString::new(directory.to_str()?).ok()?;
    // SAFETY: statvfs fills the struct it is given.
    unsafe {
        let mut facts: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut facts) == 0).then_some(facts.f_bavail * facts.f_frsize)
    }
}

/// MemAvailable in bytes; unlimited where /proc does not tell.
pub fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_living_recorder_claims_is_not_swept() {
        let directory = std::env::temp_dir().join(format!("ff-sweep-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let make = |name: &str, bytes: u64| {
            let path = directory.join(name);
            let mut options = OpenOptions::new();
            let file = options.write(true).create_new(true).open(&path).unwrap();
            file.set_len(bytes).unwrap();
            (path, file)
        };
        // No process has this pid: the recorder may be one of another namespace.
        let (claimed, file) = make("flagfinder-4294967295-0.pool", 64);
        claim(&file).unwrap();
        let (left, _) = make("flagfinder-1-0.pool", 64);
        let (new, _) = make("flagfinder-1-1.pool", 0);
        let (other, _) = make("another-1-1.pool", 64);
        let link = directory.join("flagfinder-1-2.pool");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        sweep(&directory);
        assert!(claimed.exists() && new.exists() && other.exists() && link.exists());
        assert!(!left.exists());
        drop(file);
        sweep(&directory);
        assert!(!claimed.exists());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
