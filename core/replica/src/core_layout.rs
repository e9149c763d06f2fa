// SPDX-License-Identifier: MIT
//! The notes of a core file as Linux lays them out on x86-64 (`include/linux/elfcore.h`,
//! `fs/binfmt_elf.c`): written here, read in `core_notes.rs`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::source::{Identity, PAGE};
use crate::stretches::Stretch;

/// Offsets in `struct elf_prstatus`.
pub const STATUS_SIGNAL: usize = 12;
const STATUS_PENDING: usize = 16;
pub const STATUS_ID: usize = 32;
const STATUS_PARENT: usize = 36;
/// Time in the program and in the kernel, each in seconds and microseconds.
pub const STATUS_TIMES: std::ops::Range<usize> = 48..80;
pub const STATUS_REGISTERS: usize = 112;
pub const REGISTERS: usize = size_of::<libc::user_regs_struct>();
const STATUS_HAS_FLOATING: usize = STATUS_REGISTERS + REGISTERS;
const STATUS_SIZE: usize = 336;
/// Offsets in `struct elf_prpsinfo`.
pub const PROGRAM_USER: usize = 16;
pub const PROGRAM_GROUP: usize = 20;
pub const PROGRAM_ID: usize = 24;
pub const PROGRAM_PARENT: usize = 28;
pub const PROGRAM_NAME: std::ops::Range<usize> = 40..56;
const PROGRAM_WORDS: std::ops::Range<usize> = 56..136;
/// NT_FILE: bytes of an entry, and of what comes before the first.
pub const FILE_ENTRY: usize = 24;
pub const FILE_HEAD: usize = 16;

/// A note of ours: what a core file has no room for elsewhere. An entry for each thread that there
/// was: its id, whether its registers are left out, and its name.
pub const OWN: &[u8] = b"FLAGFINDER";
pub const OWN_THREADS: u32 = 1;
const OWN_ENTRY: usize = 24;
const OWN_NAME: std::ops::Range<usize> = 8..OWN_ENTRY;

/// A thread by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub tid: u32,
    pub is_left_out: bool,
    pub name: String,
}

/// The content of that note.
pub fn names(threads: &[Named]) -> Vec<u8> {
    let entries = threads.iter().flat_map(|thread| {
        let mut entry = [0; OWN_ENTRY];
        put(&mut entry, 0, &thread.tid.to_le_bytes());
        put(&mut entry, 4, &u32::from(thread.is_left_out).to_le_bytes());
        let name = thread.name.as_bytes();
        put(
            &mut entry,
            OWN_NAME.start,
            &name[..name.len().min(OWN_NAME.len())],
        );
        entry
    });
    entries.collect()
}

/// Reads it.
pub fn read_names(note: &[u8]) -> Vec<Named> {
    let number = |entry: &[u8], at: usize| {
        let bytes = entry[at..at + 4].try_into();
        bytes.map_or(0, u32::from_le_bytes)
    };
    let entries = note.chunks_exact(OWN_ENTRY).map(|entry| Named {
        tid: number(entry, 0),
        is_left_out: number(entry, 4) != 0,
        name: text(&entry[OWN_NAME]),
    });
    entries.collect()
}

/// Up to the first zero.
pub fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// NT_PRSTATUS. `signals`: pending for the thread, and blocked.
pub fn status(
    registers: &libc::user_regs_struct,
    identity: &Identity,
    signals: [u64; 2],
) -> [u8; STATUS_SIZE] {
    let mut status = [0; STATUS_SIZE];
    for (number, set) in signals.into_iter().enumerate() {
        put(&mut status, STATUS_PENDING + number * 8, &set.to_le_bytes());
    }
    put(&mut status, STATUS_ID, &identity.tid.to_le_bytes());
    put(&mut status, STATUS_PARENT, &identity.parent.to_le_bytes());
    // SAFETY: plain data without gaps.
    let bytes: [u8; REGISTERS] = unsafe { std::mem::transmute(*registers) };
    put(&mut status, STATUS_REGISTERS, &bytes);
    put(&mut status, STATUS_HAS_FLOATING, &1u32.to_le_bytes());
    status
}

/// NT_PRPSINFO. `words`: the command line, each word ended by a zero.
pub fn process(identity: &Identity, program: &Path, words: &[u8]) -> [u8; PROGRAM_WORDS.end] {
    let mut info = [0; PROGRAM_WORDS.end];
    put(&mut info, PROGRAM_USER, &identity.user[0].to_le_bytes());
    put(&mut info, PROGRAM_GROUP, &identity.group[0].to_le_bytes());
    put(&mut info, PROGRAM_ID, &identity.pid.to_le_bytes());
    put(&mut info, PROGRAM_PARENT, &identity.parent.to_le_bytes());
    let name = program.file_name().map_or(&b""[..], OsStrExt::as_bytes);
    // Both texts end in a zero.
    let name = &name[..name.len().min(PROGRAM_NAME.len() - 1)];
    put(&mut info, PROGRAM_NAME.start, name);
    let words = words.strip_suffix(&[0]).unwrap_or(words);
    let words = &words[..words.len().min(PROGRAM_WORDS.len() - 1)];
    let spaced: Vec<u8> = words
        .iter()
        .map(|b| if *b == 0 { b' ' } else { *b })
        .collect();
    put(&mut info, PROGRAM_WORDS.start, &spaced);
    info
}

/// NT_FILE: count and page size; start, end and page of each file; their names.
pub fn files(stretches: &[Stretch]) -> Vec<u8> {
    let mapped: Vec<&Stretch> = stretches
        .iter()
        .filter(|one| !one.file.is_empty())
        .collect();
    let mut note = Vec::new();
    let numbers = mapped
        .iter()
        .flat_map(|one| [one.start, one.end, one.offset / PAGE]);
    for number in [mapped.len() as u64, PAGE].into_iter().chain(numbers) {
        note.extend(number.to_le_bytes());
    }
    for one in mapped {
        note.extend(one.file.bytes());
        note.push(0);
    }
    note
}

fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    into[at..at + bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_written() {
        let named = |tid, is_left_out, name: &str| Named {
            tid,
            is_left_out,
            name: name.into(),
        };
        let threads = [
            named(7, false, "worker"),
            named(8, true, "a name of 16 byt"),
        ];
        assert_eq!(read_names(&names(&threads)), threads);
        assert!(read_names(&[1; OWN_ENTRY - 1]).is_empty());
    }
}
