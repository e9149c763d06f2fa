// SPDX-License-Identifier: MIT
//! The memory of a running process, as /proc/PID/mem shows it; nothing is stopped.
//!
//! A page of a file that is not in memory has to be fetched. Where the file's server or machine is
//! silent, that holds the reader for ever, and the process's address space with it. So of such
//! files only those pages are read that the process has. Blind spots: a server that answers when it
//! is asked about its file system, and then does not hand out a page.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::path::Path;

use flagfinder_files::{kind_of, path_of_process};
use flagfinder_linux::mounts;
use flagfinder_linux::pagemap::Pagemap;
use flagfinder_linux::proc::{path, text_of};

use crate::address_space::AddressSpace;

const PAGE: u64 = 4096;

/// The memory of a process.
pub struct ProcessMemory {
    memory: File,
    /// Where files are mapped whose file system does not answer.
    silent: Vec<(u64, u64)>,
    pages: Option<Pagemap>,
}

impl ProcessMemory {
    /// # Errors
    /// When the process is gone or may not be looked at.
    pub fn open(pid: u32) -> Result<ProcessMemory> {
        let memory = File::open(path(pid, "mem"))?;
        flagfinder_files::heard_of(pid);
        let silent = silent(pid);
        let pages = match silent.is_empty() {
            true => None,
            false => Pagemap::open(pid).ok(),
        };
        Ok(ProcessMemory {
            memory,
            silent,
            pages,
        })
    }

    /// May each page be read without a wait?
    pub fn is_all_at_hand(&self) -> bool {
        self.silent.is_empty()
    }

    fn is_at_hand(&self, address: u64) -> bool {
        let is_in = |(start, end): &(u64, u64)| (*start..*end).contains(&address);
        if !self.silent.iter().any(is_in) {
            return true;
        }
        let start = address & !(PAGE - 1);
        let there = self.pages.as_ref().map(|p| p.there(start, start + PAGE));
        there.is_some_and(|there| there.is_ok_and(|found| !found.is_empty()))
    }
}

impl AddressSpace for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        if self.is_all_at_hand() {
            return self.memory.read(address, buffer);
        }
        let mut read = 0;
        while read < buffer.len() {
            let Some(at) = address.checked_add(read as u64) else {
                break;
            };
            let page_end = (PAGE - at % PAGE) as usize;
            let end = buffer.len().min(read + page_end);
            let part = &mut buffer[read..end];
            let got = match self.is_at_hand(at) {
                true => self.memory.read(at, part),
                false => 0,
            };
            read += got;
            if got == 0 {
                break;
            }
        }
        read
    }
}

/// The stretches of memory that hold files of silent file systems.
fn silent(pid: u32) -> Vec<(u64, u64)> {
    let table = text_of(pid, "mountinfo").unwrap_or_default();
    let mut may_hang = mounts::all(&table).filter(|m| m.may_hang()).peekable();
    if may_hang.peek().is_none() {
        return Vec::new();
    }
    let maps = text_of(pid, "maps").unwrap_or_default();
    let mapped: Vec<_> = maps.lines().filter_map(device_of).collect();
    let is_silent = |place: &str| {
        let asked = kind_of(&path_of_process(pid, Path::new(place)));
        asked.is_err_and(|error| error.kind() == ErrorKind::TimedOut)
    };
    let used = may_hang.filter(|mount| mapped.iter().any(|(_, device)| *device == mount.device));
    let silent: Vec<_> = used
        .filter(|mount| is_silent(mount.place))
        .map(|mount| mount.device)
        .collect();
    let is_of_silent = mapped.iter().filter(|(_, device)| silent.contains(device));
    is_of_silent.map(|(range, _)| *range).collect()
}

/// Of a line of /proc/PID/maps: the addresses, and the file's device.
fn device_of(line: &str) -> Option<((u64, u64), (u32, u32))> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (major, minor) = fields.nth(2)?.split_once(':')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let number = |text| u32::from_str_radix(text, 16).ok();
    let range = (address(start)?, address(end)?);
    Some((range, (number(major)?, number(minor)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_names_a_device() {
        let line = "7f00-8f00 r-xp 00001000 00:2b 12 /mnt/a b/app";
        assert_eq!(device_of(line), Some(((0x7f00, 0x8f00), (0, 43))));
        assert_eq!(device_of("7f00-8f00 r-xp"), None);
    }

    #[test]
    fn the_memory_of_this_process_is_at_hand() {
        let memory = ProcessMemory::open(std::process::id()).expect("it lives");
        let word = 0x1234_5678_9abc_def0u64;
        let address = std::ptr::from_ref(&word) as u64;
        assert_eq!(memory.word(address), Some(word));
    }
}
