// SPDX-License-Identifier: MIT
//! Memory that processes share, read without giving the process pages of it.
//!
//! In: a process. Out: pages that it has not touched yet. A look at one of them through
//! /proc/PID/mem would make the kernel put a page there, for good. Files that lie in memory (tmpfs,
//! memfd, System V, huge pages) are read in its place: their holes read as zeroes. They are opened
//! through /proc/PID/map_files, which needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, or through
//! a descriptor that the process has. Where neither goes, what lies there is unknown.
//! Blind spot: private mappings of such files.

use std::cell::OnceCell;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use flagfinder_linux::pagemap::Pagemap;
use flagfinder_linux::proc;

use crate::source::PAGE;

/// File systems whose files lie in memory.
const IN_MEMORY: [&str; 4] = ["tmpfs", "devtmpfs", "ramfs", "hugetlbfs"];
/// Private memory that is taken from a pool of huge pages when it is first looked at.
const HUGE: &str = "/anon_hugepage";

/// See the module.
pub(crate) struct SharedMemory {
    pid: u32,
    pagemap: Option<Pagemap>,
    /// In ascending order.
    stretches: Vec<Stretch>,
}

struct Stretch {
    start: u64,
    end: u64,
    offset: u64,
    inode: u64,
    path: String,
    file: OnceCell<Option<File>>,
}

/// What is known of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The process has it: reading changes nothing.
    There,
    /// It was read from its file.
    Read,
    Unknown,
}

impl SharedMemory {
    /// `maps` is what /proc/PID/maps holds.
    pub fn of(pid: u32, maps: &str) -> SharedMemory {
        let mounts = proc::text_of(pid, "mountinfo").unwrap_or_default();
        SharedMemory {
            pid,
            pagemap: Pagemap::open(pid).ok(),
            stretches: maps
                .lines()
                .filter_map(|line| stretch(line, &mounts))
                .collect(),
        }
    }

    fn at(&self, address: u64) -> Option<&Stretch> {
        let behind = self.stretches.partition_point(|one| one.end <= address);
        self.stretches
            .get(behind)
            .filter(|one| one.start <= address)
    }

    /// Is it a stretch of such memory?
    pub fn holds(&self, address: u64) -> bool {
        self.at(address).is_some()
    }

    /// Reads the page at `address`, a multiple of [`PAGE`], unless the process has it.
    pub fn read(&self, address: u64, page: &mut [u8]) -> Content {
        let Some(stretch) = self.at(address) else {
            return Content::There;
        };
        let there = self
            .pagemap
            .as_ref()
            .map(|map| map.there(address, address + PAGE));
        if matches!(there, Some(Ok(pages)) if !pages.is_empty()) {
            return Content::There;
        }
        let Some(file) = stretch.file(self.pid) else {
            return Content::Unknown;
        };
        let place = stretch.offset + (address - stretch.start);
        page.fill(0);
        let mut done = 0;
        while done < page.len() {
            match file.read_at(&mut page[done..], place + done as u64) {
                // The file's end lies within the page, or before it.
                Ok(0) if done > 0 => break,
                Ok(0) | Err(_) => return Content::Unknown,
                Ok(got) => done += got,
            }
        }
        Content::Read
    }
}

impl Stretch {
    fn file(&self, pid: u32) -> Option<&File> {
        self.file.get_or_init(|| self.open(pid)).as_ref()
    }

    fn open(&self, pid: u32) -> Option<File> {
        let name = format!("map_files/{:x}-{:x}", self.start, self.end);
        let mapped = self.opened(&proc::path(pid, &name));
        mapped.or_else(|| {
            let descriptors = fs::read_dir(proc::path(pid, "fd")).ok()?.flatten();
            let mut own = descriptors.map(|entry| entry.path()).filter(|path| {
                fs::read_link(path).is_ok_and(|target| target == Path::new(&self.path))
            });
            own.find_map(|path| self.opened(&path))
        })
    }

    fn opened(&self, path: &Path) -> Option<File> {
        // A FIFO of that name would be waited for: first a handle that only names the file.
        let mut only_names = OpenOptions::new();
        only_names.read(true).custom_flags(libc::O_PATH);
        let handle = only_names.open(path).ok()?;
        let known = handle.metadata().ok()?;
        let is_it = known.is_file() && known.ino() == self.inode && lies_in_memory(&handle);
        let again = format!("/proc/self/fd/{}", handle.as_raw_fd());
        is_it.then(|| File::open(again).ok()).flatten()
    }
}

fn lies_in_memory(file: &File) -> bool {
    // SAFETY: a structure of plain numbers, which the kernel fills.
    let mut told: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: our own descriptor and structure.
    let known = unsafe { libc::fstatfs(file.as_raw_fd(), &mut told) } == 0;
    known && matches!(told.f_type, libc::TMPFS_MAGIC | libc::HUGETLBFS_MAGIC)
}

/// `None`: the line is no mapping of shared memory.
fn stretch(line: &str, mounts: &str) -> Option<Stretch> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let (rights, offset, device) = (words.next()?, words.next()?, words.next()?);
    let (inode, path) = (words.next()?, words.next().unwrap_or_default().trim_start());
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let is_memory = rights.ends_with('s') && is_in_memory(device, mounts);
    (is_memory || path.starts_with(HUGE)).then_some(Stretch {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        inode: inode.parse().ok()?,
        path: path.to_owned(),
        file: OnceCell::new(),
    })
}

/// Is it the number of a file system whose files lie in memory? The kernel's own are not mounted.
fn is_in_memory(device: &str, mounts: &str) -> bool {
    let number = |text: &str, base| u32::from_str_radix(text, base).ok();
    let pair = |text: &str, base| {
        let (major, minor) = text.split_once(':')?;
        Some((number(major, base)?, number(minor, base)?))
    };
    let Some(device) = pair(device, 16).filter(|(major, _)| *major == 0) else {
        return false;
    };
    let mut mounts = mounts.lines().filter_map(|line| {
        let (mount, what) = line.split_once(" - ")?;
        Some((pair(mount.split(' ').nth(2)?, 10)?, what.split(' ').next()?))
    });
    mounts
        .find(|(mounted, _)| *mounted == device)
        .is_none_or(|(_, kind)| IN_MEMORY.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        24 1 0:22 / /dev/shm rw,nosuid - tmpfs tmpfs rw\n\
        30 1 0:40 / / rw - overlay overlay rw\n\
        31 1 8:1 / /home rw - ext4 /dev/sda1 rw";

    #[test]
    fn shared_memory_is_told_from_files_on_disks() {
        let is = |line: &str| stretch(line, MOUNTS).is_some();
        assert!(is("7000-9000 rw-s 00000000 00:16 9   /dev/shm/a b"));
        assert!(is("7000-9000 rw-s 00000000 00:01 9   /memfd:x (deleted)"));
        assert!(!is("7000-9000 rw-s 00000000 00:28 9   /var/lib/data"));
        assert!(!is("7000-9000 rw-s 00000000 08:01 9   /home/data"));
        assert!(!is("7000-9000 rw-p 00000000 00:16 9   /dev/shm/a"));
        assert!(!is("7000-9000 rw-p 00000000 00:00 0"));
        assert!(is(
            "7000-9000 rw-p 00000000 00:0f 9   /anon_hugepage (deleted)"
        ));
    }

    fn resident() -> u32 {
        let status = proc::Status::of(std::process::id()).expect("this process");
        status.number("RssShmem:").expect("the kernel counts it")
    }

    #[test]
    fn a_page_that_nobody_touched_is_read_and_not_made() {
        const PAGES: u64 = 512;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let size = (PAGES * PAGE) as usize;
        // SAFETY: a fresh mapping.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, rights, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        // SAFETY: within the mapping.
        unsafe { memory.cast::<u8>().write(7) };
        let start = memory.expose_provenance() as u64;
        let pid = std::process::id();
        let maps = proc::text_of(pid, "maps").expect("its own");
        let shared = SharedMemory::of(pid, &maps);
        let mut page = vec![1; PAGE as usize];
        let before = resident();
        assert_eq!(shared.read(start, &mut page), Content::There);
        for number in 1..PAGES {
            // Only some users may open what is mapped.
            match shared.read(start + number * PAGE, &mut page) {
                Content::Read => assert!(page.iter().all(|byte| *byte == 0)),
                other => assert_eq!(other, Content::Unknown),
            }
        }
        assert!(resident() < before + 100, "pages were made");
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { libc::munmap(memory, size) };
    }
}
