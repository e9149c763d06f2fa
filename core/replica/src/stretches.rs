// SPDX-License-Identifier: MIT
//! The mappings of a process, and how much of each a core file holds (core(5)).

use std::fs;
use std::io::{Error, ErrorKind, Result};

use flagfinder_code::{Mapping, Maps};
use flagfinder_linux::proc::{lines, path};
use object::elf;

use crate::source::PAGE;

/// Bits of /proc/PID/coredump_filter: what of which kind goes into a core.
const PRIVATE: u64 = 1 << 0;
const SHARED: u64 = 1 << 1;
const PRIVATE_FILES: u64 = 1 << 2;
const SHARED_FILES: u64 = 1 << 3;
const ELF_HEADERS: u64 = 1 << 4;
/// What the kernel takes unless told otherwise.
const USUAL: u64 = 0x33;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub start: u64,
    pub end: u64,
    /// PF_R, PF_W and PF_X.
    pub flags: u32,
    /// Path of its file; empty: it has none.
    pub file: String,
    pub offset: u64,
    /// It has no file, and is not shared: pages that were never touched are zeroes.
    pub is_anonymous: bool,
    /// Bytes from its start that the core holds.
    pub kept: u64,
}

/// In ascending order.
///
/// # Errors
/// When the process is gone, or may not be looked at.
pub fn stretches(pid: u32) -> Result<Vec<Stretch>> {
    let filter = fs::read_to_string(path(pid, "coredump_filter"));
    let filter = filter
        .ok()
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    let found = parse(lines(path(pid, "smaps"))?, filter.unwrap_or(USUAL))?;
    match found.is_empty() {
        true => Err(Error::from(ErrorKind::NotFound)),
        false => Ok(found),
    }
}

fn parse(smaps: impl Iterator<Item = Result<String>>, filter: u64) -> Result<Vec<Stretch>> {
    let mut found: Vec<Stretch> = Vec::new();
    let mut mapping: Option<Mapping> = None;
    let mut written = false;
    for line in smaps {
        let line = line?;
        let field = line.split_once(':').filter(|(name, _)| !name.contains('-'));
        let Some((name, value)) = field else {
            mapping = Maps::parse(&line).all().first().cloned();
            written = false;
            continue;
        };
        let mut words = value.split_whitespace();
        match (name, &mapping) {
            ("Anonymous", _) => written = words.next().is_some_and(|kilobytes| kilobytes != "0"),
            // The last line of each.
            ("VmFlags", Some(mapping)) => {
                let is_kept = !words.any(|flag| matches!(flag, "dd" | "io" | "pf"));
                found.extend(stretch(mapping, written, filter).map(|one| Stretch {
                    kept: if is_kept { one.kept } else { 0 },
                    ..one
                }));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// `written`: it has pages of its own, that are no longer those of its file.
fn stretch(mapping: &Mapping, written: bool, filter: u64) -> Option<Stretch> {
    // The kernel's own page at the top of the address space, and its clocks.
    if i64::try_from(mapping.end).is_err() || mapping.path.starts_with("[vvar") {
        return None;
    }
    let has_file = mapping.inode != 0;
    let size = mapping.end - mapping.start;
    let takes = |bits: u64| filter & bits != 0;
    let is_nameless = mapping.path.ends_with(" (deleted)");
    let is_used = mapping.readable || mapping.writable || mapping.executable || written;
    let kept = match (has_file, mapping.shared) {
        _ if mapping.path == "[vdso]" => size,
        _ if !is_used => 0,
        (false, _) if takes(PRIVATE) => size,
        (true, true) if is_nameless && takes(SHARED) => size,
        (true, true) if !is_nameless && takes(SHARED_FILES) => size,
        (true, false) if written && takes(PRIVATE) => size,
        (true, false) if takes(PRIVATE_FILES) => size,
        (true, false) if mapping.file_offset == 0 && mapping.readable && takes(ELF_HEADERS) => {
            PAGE.min(size)
        }
        _ => 0,
    };
    let right = |given: bool, right: u32| if given { right } else { 0 };
    Some(Stretch {
        start: mapping.start,
        end: mapping.end,
        flags: right(mapping.readable, elf::PF_R)
            | right(mapping.writable, elf::PF_W)
            | right(mapping.executable, elf::PF_X),
        file: if has_file {
            mapping.path.clone()
        } else {
            String::new()
        },
        offset: mapping.file_offset,
        is_anonymous: !has_file && !mapping.shared,
        kept,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 r--p 00000000 08:01 7 /bin/a: b-c\nSize: 8 kB\nAnonymous: 0 kB\nVmFlags: rd mr\n\
3000-5000 r--p 00002000 08:01 7 /bin/a: b-c\nAnonymous: 4 kB\nVmFlags: rd mr\n\
5000-9000 rw-p 00000000 00:00 0 \nAnonymous: 16 kB\nVmFlags: rd wr\n\
9000-a000 rw-p 00000000 00:00 0 [heap]\nAnonymous: 4 kB\nVmFlags: rd wr dd\n\
a000-b000 rw-s 00000000 00:01 9 /dev/zero (deleted)\nAnonymous: 0 kB\nVmFlags: rd wr sh\n\
b000-c000 rw-s 00000000 08:01 8 /data\nAnonymous: 0 kB\nVmFlags: rd wr sh\n\
c000-d000 ---p 00000000 00:00 0 \nAnonymous: 0 kB\nVmFlags: mr\n\
d000-e000 r--p 00000000 00:00 0 [vvar]\nAnonymous: 0 kB\nVmFlags: rd io\n\
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\nVmFlags: ex\n";

    fn parsed(filter: u64) -> Vec<Stretch> {
        let lines = SMAPS.lines().map(|line| Ok(line.to_owned()));
        parse(lines, filter).expect("lines")
    }

    fn kept(filter: u64) -> Vec<(u64, u64)> {
        let found = parsed(filter);
        found.iter().map(|one| (one.start, one.kept)).collect()
    }

    #[test]
    fn what_goes_into_a_core_is_what_the_process_asks_for() {
        let usual = [
            (0x1000, 0x1000),
            (0x3000, 0x2000),
            (0x5000, 0x4000),
            (0x9000, 0),
            (0xa000, 0x1000),
            (0xb000, 0),
            (0xc000, 0),
        ];
        assert_eq!(kept(USUAL), usual);
        assert!(kept(0).iter().all(|(_, kept)| *kept == 0));
        assert!(kept(USUAL | SHARED_FILES).contains(&(0xb000, 0x1000)));
        let found = parsed(USUAL);
        assert_eq!(
            (&found[1].file[..], found[1].offset),
            ("/bin/a: b-c", 0x2000)
        );
        assert!(found[2].is_anonymous && !found[4].is_anonymous);
    }
}
