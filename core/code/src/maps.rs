// SPDX-License-Identifier: MIT
//! /proc/PID/maps, parsed.

/// One line of it: a stretch of address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Run-time addresses.
    pub start: u64,
    /// Behind its last byte.
    pub end: u64,
    /// The `r` of its permissions.
    pub readable: bool,
    /// The `w` of its permissions.
    pub writable: bool,
    /// The `x` of its permissions.
    pub executable: bool,
    /// MAP_SHARED.
    pub shared: bool,
    /// Bytes from the file's start to what lies at `start`.
    pub file_offset: u64,
    /// Of the file, on its device; 0 without a file.
    pub inode: u64,
    /// Path, `[heap]` and its like, or empty.
    pub path: String,
}

impl Mapping {
    /// Parses a line; `None` if it is no mapping.
    fn parse(line: &str) -> Option<Mapping> {
        let mut rest = line;
        let mut field = || {
            rest = rest.trim_start();
            let end = rest.find(' ').unwrap_or(rest.len());
            let (head, tail) = rest.split_at(end);
            rest = tail;
            head
        };
        let (start, end) = field().split_once('-')?;
        let flags = field().as_bytes();
        let file_offset = u64::from_str_radix(field(), 16).ok()?;
        let _device = field();
        let inode = field().parse().ok()?;
        let has = |index: usize, flag: u8| flags.get(index) == Some(&flag);
        Some(Mapping {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            readable: has(0, b'r'),
            writable: has(1, b'w'),
            executable: has(2, b'x'),
            shared: has(3, b's'),
            file_offset,
            inode,
            path: rest.trim_start().to_owned(),
        })
    }

    /// The path without the kernel's mark of a deleted file.
    pub fn file(&self) -> &str {
        self.path.strip_suffix(" (deleted)").unwrap_or(&self.path)
    }
}

/// All mappings of a process, by address.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    list: Vec<Mapping>,
}

impl Maps {
    /// Lines that are no mapping are left out.
    pub fn parse(text: &str) -> Maps {
        Maps::new(text.lines().filter_map(Mapping::parse).collect())
    }

    /// Sorts them by address.
    pub fn new(mut list: Vec<Mapping>) -> Maps {
        list.sort_by_key(|mapping| mapping.start);
        Maps { list }
    }

    /// By address.
    pub fn all(&self) -> &[Mapping] {
        &self.list
    }

    /// The mapping that holds the address.
    pub fn at(&self, address: u64) -> Option<&Mapping> {
        let after = self.list.partition_point(|m| m.start <= address);
        self.list[..after].last().filter(|m| address < m.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_blanks_in_paths() {
        let maps = Maps::parse(
            "7f0000001000-7f0000002000 rw-s 00001000 00:05 77   /dev/shm/a b (deleted)\n\
             garbage\n\
             1000-2000 r-xp 00000000 00:00 0 \n",
        );
        assert_eq!(maps.all().len(), 2);
        let shared = maps.at(0x7f00_0000_1fff).expect("mapped");
        assert!(shared.shared && shared.writable && !shared.executable);
        assert_eq!((shared.file(), shared.inode), ("/dev/shm/a b", 77));
        assert_eq!(maps.at(0x1000).map(|m| m.path.as_str()), Some(""));
        assert_eq!(maps.at(0x2000), None);
    }
}
