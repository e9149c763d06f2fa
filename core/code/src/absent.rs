// SPDX-License-Identifier: MIT
//! What lies in pages that a process does not have, told without giving it pages.
//!
//! In: a process, and addresses of such pages. Out: zeroes, where memory begins as zeroes; what the
//! file holds that is mapped there, which the opener reads in time; the kernel's own code, which is
//! ours too. Pages that a handler of the process's is to fill (userfaultfd) hold nothing that could
//! be told. A file is opened through /proc/PID/map_files, which needs CAP_SYS_ADMIN or
//! CAP_CHECKPOINT_RESTORE, else by its name or through a descriptor that the process has.

use std::fs::{read_dir, read_link, File};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flagfinder_files::{open_with_facts, path_of_process};
use flagfinder_linux::mounts::of_path;
use flagfinder_linux::proc::{lines, path, text_of};
use rustc_hash::FxHashMap;

use crate::maps::{Mapping, Maps};

const PAGE: u64 = 4096;
/// The list of mappings is read again after so long, and after so many times as long as it took.
const KEPT: Duration = Duration::from_millis(100);
const TIMES: u32 = 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Absent {
    pid: u32,
    maps: Maps,
    /// What has handlers: start and end. `None`: not asked for yet.
    watched: Option<Vec<(u64, u64)>>,
    read: Option<Instant>,
    took: Duration,
    /// By inode and where the mapping begins; `None` where it can't be opened.
    files: FxHashMap<(u64, u64), Option<Mapped>>,
}

#[derive(Clone, Debug)]
struct Mapped {
    file: Arc<File>,
    /// A file in memory, of which parts may have handlers.
    in_memory: bool,
}

enum Content {
    Zeroes,
    File(Arc<File>),
    OfKernel,
    /// The kernel's clock, which it shows to nobody else.
    Clock,
    Unknown,
}

impl Absent {
    pub fn of(pid: u32) -> Absent {
        Absent {
            pid,
            maps: Maps::default(),
            watched: None,
            read: None,
            took: Duration::ZERO,
            files: FxHashMap::default(),
        }
    }

    /// How many bytes from `address` on are known. `is_held`: nobody may be waited for.
    pub fn read(&mut self, address: u64, buffer: &mut [u8], is_held: bool) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let at = address + done as u64;
            let Some(mapping) = self.mapping(at) else {
                break;
            };
            let wanted = (mapping.end - at).min((buffer.len() - done) as u64) as usize;
            let part = &mut buffer[done..done + wanted];
            let got = match self.content(&mapping, is_held) {
                Content::Zeroes => {
                    part.fill(0);
                    wanted
                }
                Content::File(file) => {
                    let offset = mapping.file_offset + (at - mapping.start);
                    of_file(&file, offset, part)
                }
                Content::OfKernel => {
                    of_kernel(at - mapping.start, mapping.end - mapping.start, part)
                }
                Content::Clock | Content::Unknown => 0,
            };
            done += got;
            if got < wanted {
                break;
            }
        }
        done
    }

    /// Is something mapped there of which nobody can tell what it holds?
    pub fn withholds(&mut self, address: u64) -> bool {
        let mapping = self.mapping(address);
        mapping.is_some_and(|mapping| matches!(self.content(&mapping, true), Content::Unknown))
    }

    pub fn begins_as_zeroes(&mut self, address: u64) -> bool {
        let mapping = self.mapping(address).filter(|mapping| mapping.inode == 0);
        mapping.is_some_and(|mapping| matches!(self.content(&mapping, true), Content::Zeroes))
    }

    fn mapping(&mut self, address: u64) -> Option<Mapping> {
        let kept = KEPT.max(self.took * TIMES);
        if self.read.is_none_or(|read| read.elapsed() > kept) {
            let begin = Instant::now();
            self.maps = Maps::parse(&text_of(self.pid, "maps").unwrap_or_default());
            self.watched = None;
            self.read = Some(Instant::now());
            self.took = begin.elapsed();
        }
        self.maps.at(address).cloned()
    }

    /// Has a part of this memory a handler? What can't be asked has.
    pub fn is_watched(&mut self, address: u64) -> bool {
        let watched = self.watched.get_or_insert_with(|| {
            let begin = Instant::now();
            let found = lines(path(self.pid, "smaps")).and_then(watched);
            self.took += begin.elapsed();
            found.unwrap_or_else(|_| vec![(0, u64::MAX)])
        });
        watched
            .iter()
            .any(|(start, end)| (*start..*end).contains(&address))
    }

    fn content(&mut self, mapping: &Mapping, is_held: bool) -> Content {
        if mapping.inode == 0 {
            return match mapping.path.as_str() {
                "[vdso]" => Content::OfKernel,
                path if path.starts_with("[vvar") => Content::Clock,
                path if !is_plain(path) || mapping.shared => Content::Unknown,
                _ if self.is_watched(mapping.start) => Content::Unknown,
                _ => Content::Zeroes,
            };
        }
        match self.file(mapping, is_held) {
            Some(mapped) if mapped.in_memory && self.is_watched(mapping.start) => Content::Unknown,
            Some(mapped) => Content::File(mapped.file),
            None => Content::Unknown,
        }
    }

    fn file(&mut self, mapping: &Mapping, is_held: bool) -> Option<Mapped> {
        let key = (mapping.inode, mapping.start);
        if let Some(known) = self.files.get(&key) {
            return known.clone();
        }
        if is_held {
            let mounts = text_of(self.pid, "mountinfo").unwrap_or_default();
            if of_path(&mounts, mapping.file()).is_none_or(|mount| mount.may_hang()) {
                return None;
            }
        }
        let found = open(self.pid, mapping).map(|file| Mapped {
            in_memory: lies_in_memory(&file),
            file: Arc::new(file),
        });
        self.files.insert(key, found.clone());
        found
    }
}

/// Is it memory that begins as zeroes? Names in brackets that the process gives begin so.
fn is_plain(path: &str) -> bool {
    path.is_empty()
        || path == "[heap]"
        || ["[stack", "[anon:"]
            .iter()
            .any(|begins| path.starts_with(begins))
}

/// The stretches of /proc/PID/smaps that userfaultfd knows of.
fn watched(smaps: impl Iterator<Item = Result<String>>) -> Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    let mut stretch = None;
    for line in smaps {
        let line = line?;
        match line.strip_prefix("VmFlags:") {
            Some(flags) => {
                let mut flags = flags.split_whitespace();
                if flags.any(|flag| matches!(flag, "um" | "uw" | "ui")) {
                    found.extend(stretch);
                }
            }
            None => {
                let range = line.split(' ').next().and_then(|word| word.split_once('-'));
                let hex = |text: &str| u64::from_str_radix(text, 16).ok();
                if let Some((start, end)) = range.and_then(|(a, b)| Some((hex(a)?, hex(b)?))) {
                    stretch = Some((start, end));
                }
            }
        }
    }
    Ok(found)
}

/// The file that is mapped there, from the opener.
fn open(pid: u32, mapping: &Mapping) -> Option<File> {
    let is_it = |path: &Path| match open_with_facts(path) {
        Ok(opened) if opened.facts.inode == mapping.inode => Ok(opened.file),
        Ok(_) => Err(Error::from(ErrorKind::NotFound)),
        Err(error) => Err(error),
    };
    let range = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
    for place in [
        path(pid, &range),
        path_of_process(pid, Path::new(&mapping.path)),
    ] {
        match is_it(&place) {
            Ok(file) => return Some(file),
            Err(error) if error.kind() == ErrorKind::TimedOut => return None,
            Err(_) => {}
        }
    }
    let has_its_name =
        |path: &PathBuf| read_link(path).is_ok_and(|it| it == Path::new(&mapping.path));
    let own = read_dir(path(pid, "fd"))
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    own.filter(has_its_name).find_map(|path| is_it(&path).ok())
}

fn lies_in_memory(file: &File) -> bool {
    // SAFETY: a structure of plain numbers, which the kernel fills.
    let mut told: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: our own descriptor and structure.
    let known = unsafe { libc::fstatfs(file.as_raw_fd(), &mut told) } == 0;
    known && matches!(told.f_type, libc::TMPFS_MAGIC | libc::HUGETLBFS_MAGIC)
}

/// Behind a file's end its last page is zero; further pages can't be read.
fn of_file(file: &File, offset: u64, part: &mut [u8]) -> usize {
    let mut done = 0;
    while done < part.len() {
        match file.read_at(&mut part[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return done,
        }
    }
    let size = file.metadata().map_or(0, |facts| facts.len());
    let behind = size
        .next_multiple_of(PAGE)
        .saturating_sub(offset)
        .min(part.len() as u64) as usize;
    if behind > done {
        part[done..behind].fill(0);
        return behind;
    }
    done
}

/// Of the code that the kernel maps into each process; ours is the same if it is as long.
fn of_kernel(offset: u64, length: u64, part: &mut [u8]) -> usize {
    let own = Maps::parse(&text_of(std::process::id(), "maps").unwrap_or_default());
    let own = own.all().iter().find(|mapping| mapping.path == "[vdso]");
    let Some(own) = own.filter(|own| own.readable && own.end - own.start == length) else {
        return 0;
    };
    let from = std::ptr::with_exposed_provenance::<u8>((own.start + offset) as usize);
    // SAFETY: within a mapping of this process which nobody removes or writes, as the caller
    // asks for nothing behind the end of one that is as long.
    part.copy_from_slice(unsafe { std::slice::from_raw_parts(from, part.len()) });
    part.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 r--p 00000000 08:01 7 /bin/a: b-c\nSize: 8 kB\nVmFlags: rd mr\n\
5000-9000 rw-p 00000000 00:00 0 \nAnonymous: 16 kB\nVmFlags: rd wr um\n\
9000-a000 rw-s 00000000 00:01 9 /memfd:um VmFlags: um\nVmFlags: rd wr sh uw ui\n";

    #[test]
    fn memory_with_a_handler_is_told_by_its_flags() {
        let lines = SMAPS.lines().map(|line| Ok(line.to_owned()));
        let found = watched(lines).expect("lines");
        assert_eq!(found, [(0x5000, 0x9000), (0x9000, 0xa000)]);
    }

    #[test]
    fn what_the_kernel_keeps_for_itself_is_not_zero() {
        for path in ["", "[heap]", "[stack]", "[anon:cache]"] {
            assert!(is_plain(path), "{path}");
        }
        for path in ["[vvar]", "[uprobes]", "[vvar_vclock]", "anon_inode:x"] {
            assert!(!is_plain(path), "{path}");
        }
    }

    #[test]
    fn the_last_page_of_a_file_ends_in_zeroes_and_none_comes_behind() {
        let own = std::env::temp_dir().join(format!("ff-absent-{}", std::process::id()));
        std::fs::write(&own, [7; 5000]).expect("written");
        let file = File::open(&own).expect("opened");
        std::fs::remove_file(&own).expect("removed");
        let mut part = vec![1; 3 * PAGE as usize];
        assert_eq!(of_file(&file, PAGE, &mut part), PAGE as usize);
        assert_eq!((part[903], part[904], part[4095]), (7, 0, 0));
        assert_eq!(of_file(&file, 2 * PAGE, &mut part), 0);
    }

    #[test]
    fn the_kernel_s_code_is_ours_too() {
        let mut header = [0; 4];
        let maps = Maps::parse(&text_of(std::process::id(), "maps").expect("its own"));
        let own = maps.all().iter().find(|mapping| mapping.path == "[vdso]");
        let length = own.map_or(0, |own| own.end - own.start);
        assert_eq!(of_kernel(0, length, &mut header), 4);
        assert_eq!(&header, b"\x7fELF");
        assert_eq!(of_kernel(0, length + PAGE, &mut header), 0);
    }
}
