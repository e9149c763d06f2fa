// SPDX-License-Identifier: MIT
//! What the notes of a core file say: threads with their registers, mapped files, and the mappings
//! they amount to.

use flagfinder_code::{Mapping, Maps};
use flagfinder_step::{before_call, is_pending};
use object::elf::{self, FileHeader64};
use object::read::elf::NoteIterator;
use object::Endianness;
use rustc_hash::FxHashMap;

use crate::core_layout::{
    read_names, text, Named, FILE_ENTRY, FILE_HEAD, OWN, OWN_THREADS, PROGRAM_GROUP, PROGRAM_ID,
    PROGRAM_NAME, PROGRAM_PARENT, PROGRAM_USER, REGISTERS, STATUS_ID, STATUS_REGISTERS,
    STATUS_SIGNAL, STATUS_TIMES,
};
use crate::last_call::Recalled;
use crate::source::{Identity, Region, ThreadState};

/// Auxiliary vector: where the vDSO lies, and the path of the program.
const AT_SYSINFO_EHDR: u64 = 33;
/// Bytes that the kernel puts on the stack of a program that begins.
const AT_RANDOM: u64 = 25;

/// The kernel's own note holds no more (kernel.core_file_note_size_limit).
const FILES_MOST: usize = 1 << 19;

/// The kernel names the program by at most 15 characters; its file is mapped.
pub(crate) fn program(files: &[MappedFile], name: &str) -> String {
    let is_it = |file: &&MappedFile| {
        let last = file.path.rsplit('/').next().unwrap_or_default();
        !name.is_empty() && last.starts_with(name)
    };
    let found = files.iter().find(is_it).or(files.first());
    found.map_or_else(String::new, |file| file.path.clone())
}

/// A mapping of NT_FILE.
pub(crate) struct MappedFile {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub path: String,
}

/// A thread that a core file has registers of.
#[derive(Clone)]
pub struct CoreThread {
    /// As the core tells it.
    pub tid: u32,
    /// Empty: the kernel and `gcore` note none.
    pub name: String,
    /// Registers before the system call that it was in, if it was in one.
    pub state: ThreadState,
    /// The call that it was in when the core was made: number and arguments.
    pub call: Option<(u32, [u64; 6])>,
    /// The call that it had just come back from, with its result.
    pub returned: Option<(u32, [u64; 6], i64)>,
    /// Time on a processor, in microseconds; 0 where the core's writer did not note it (`gcore`).
    pub used: u64,
}

pub(crate) struct NotedThread {
    tid: u32,
    pub signal: i32,
    used: u64,
    registers: libc::user_regs_struct,
    extended: Vec<u8>,
}

impl NotedThread {
    /// `named`: what our note says of it.
    pub fn with(self, identity: Identity, named: &FxHashMap<u32, &Named>) -> CoreThread {
        let r = self.registers;
        // The kernel notes a negative number for threads that were in no call.
        let number = u32::try_from(r.orig_rax as i64).ok();
        let call = number.map(|number| (number, [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]));
        let interrupted = is_pending(&r)
            || r.rax as i64 == -i64::from(libc::EINTR)
            || call.is_some_and(|(number, arguments)| is_cut_short(number, &arguments, r.rax));
        let registers = match call.is_some() && interrupted {
            true => before_call(&r),
            false => r,
        };
        let named = named.get(&self.tid);
        CoreThread {
            tid: self.tid,
            name: named.map_or_else(String::new, |named| named.name.clone()),
            state: ThreadState {
                registers,
                extended: self.extended,
                stack: Vec::new(),
                identity: Identity {
                    tid: self.tid,
                    ..identity
                },
                recalled: Recalled::default(),
            },
            call: call.filter(|_| interrupted),
            returned: call
                .filter(|_| !interrupted)
                .map(|(number, arguments)| (number, arguments, r.rax as i64)),
            used: self.used,
        }
    }
}

/// Whoever writes a core interrupts a call that waits; one that has done a part of what was asked
/// then says so.
fn is_cut_short(number: u32, arguments: &[u64; 6], result: u64) -> bool {
    /// `IORING_ENTER_GETEVENTS`
    const WAITS: u64 = 1;
    let [_, submits, asked, flags, _, _] = *arguments;
    match i64::from(number) {
        libc::SYS_write | libc::SYS_sendto => (1..asked).contains(&result),
        libc::SYS_io_uring_enter if flags & WAITS != 0 && asked > 0 => {
            (1..=submits).contains(&result)
        }
        _ => false,
    }
}

#[derive(Default)]
pub(crate) struct Notes {
    pub threads: Vec<NotedThread>,
    pub files: Vec<MappedFile>,
    pub identity: Identity,
    pub name: String,
    pub vdso: Option<u64>,
    /// On the stack with which the program began.
    pub on_stack: Option<u64>,
    /// Of a core that we wrote.
    pub named: Vec<Named>,
}

impl Notes {
    pub fn read(&mut self, bytes: &[u8], align: u64, endian: Endianness) {
        let notes = NoteIterator::<FileHeader64<Endianness>>::new(endian, align, bytes);
        let Ok(mut notes) = notes else { return };
        while let Ok(Some(note)) = notes.next() {
            let desc = note.desc();
            match (note.name(), note.n_type(endian)) {
                (b"CORE", elf::NT_PRSTATUS) => self.threads.extend(thread(desc)),
                (b"CORE", elf::NT_PRPSINFO) => self.program(desc),
                (b"CORE", elf::NT_AUXV) => {
                    let value = |key: u64| {
                        let mut pairs = desc.chunks_exact(16);
                        word(pairs.find(|pair| word(pair, 0) == Some(key))?, 8)
                    };
                    self.vdso = value(AT_SYSINFO_EHDR);
                    self.on_stack = value(AT_RANDOM);
                }
                (OWN, OWN_THREADS) => self.named = read_names(desc),
                (b"CORE", elf::NT_FILE) => self.files = mapped_files(desc),
                (b"LINUX", elf::NT_X86_XSTATE) => {
                    if let Some(thread) = self.threads.last_mut() {
                        thread.extended = desc.to_vec();
                    }
                }
                _ => {}
            }
        }
    }

    fn program(&mut self, desc: &[u8]) {
        let number = |at| half(desc, at).unwrap_or(0);
        self.identity = Identity {
            pid: number(PROGRAM_ID),
            tid: number(PROGRAM_ID),
            parent: number(PROGRAM_PARENT),
            user: [number(PROGRAM_USER); 2],
            group: [number(PROGRAM_GROUP); 2],
        };
        self.name = text(desc.get(PROGRAM_NAME).unwrap_or_default());
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

fn thread(desc: &[u8]) -> Option<NotedThread> {
    let bytes = desc.get(STATUS_REGISTERS..STATUS_REGISTERS + REGISTERS)?;
    // SAFETY: plain data, as long as the slice; every bit pattern is a value of it.
    let registers = unsafe {
        bytes
            .as_ptr()
            .cast::<libc::user_regs_struct>()
            .read_unaligned()
    };
    let times = desc.get(STATUS_TIMES)?.chunks_exact(16);
    let used = times.fold(0, |all: u64, time| {
        let [seconds, rest] = [0, 8].map(|at| word(time, at).unwrap_or(0));
        all.saturating_add(seconds.saturating_mul(1_000_000))
            .saturating_add(rest)
    });
    Some(NotedThread {
        used,
        tid: half(desc, STATUS_ID)?,
        signal: (half(desc, STATUS_SIGNAL)? & 0xffff) as i32,
        registers,
        extended: Vec::new(),
    })
}

/// NT_FILE: count and page size; start, end and page of each file; their names, each ended by a
/// zero.
fn mapped_files(desc: &[u8]) -> Vec<MappedFile> {
    let (Some(count), Some(page)) = (word(desc, 0), word(desc, 8)) else {
        return Vec::new();
    };
    let count = usize::try_from(count).unwrap_or(0);
    let names_at = count
        .checked_mul(FILE_ENTRY)
        .and_then(|bytes| bytes.checked_add(FILE_HEAD));
    let Some(names) = names_at.and_then(|at| desc.get(at..)) else {
        return Vec::new();
    };
    let names = names.split(|byte| *byte == 0);
    let entry = |(number, name): (usize, &[u8])| {
        let at = FILE_HEAD + number * FILE_ENTRY;
        Some(MappedFile {
            start: word(desc, at)?,
            end: word(desc, at + 8)?,
            offset: word(desc, at + 16)?.checked_mul(page)?,
            path: String::from_utf8_lossy(name).into_owned(),
        })
    };
    let is_stretch = |file: &MappedFile| file.start < file.end && i64::try_from(file.end).is_ok();
    names
        .take(count.min(FILES_MOST))
        .enumerate()
        .filter_map(entry)
        .filter(is_stretch)
        .collect()
}

/// The mappings as /proc/PID/maps would list them. The core has no inode numbers: 1 stands for a
/// file. `files` are in ascending order.
pub(crate) fn maps(
    regions: &[Region],
    files: &[MappedFile],
    program: &str,
    vdso: Option<u64>,
    on_stack: Option<u64>,
    is_left_out: &dyn Fn(&Region) -> bool,
) -> Maps {
    let last_file = |below: u64| {
        let above = files.partition_point(|file| file.start < below);
        above.checked_sub(1).map(|last| &files[last])
    };
    let mut has_heap = false;
    let mapping = |region: &Region| {
        let file = last_file(region.start + 1).filter(|file| region.start < file.end);
        let is = |right: i32| region.protection & right != 0;
        let anonymous_and_writable = file.is_none() && is(libc::PROT_WRITE);
        // The heap is the first memory without a file behind the program's own.
        let behind_program = last_file(region.start)
            .is_some_and(|file| file.path == program && file.end < region.start);
        let path = match file {
            Some(file) => file.path.clone(),
            None if vdso.is_some_and(|at| region.holds(at)) => "[vdso]".into(),
            None if anonymous_and_writable && on_stack.is_some_and(|at| region.holds(at)) => {
                "[stack]".into()
            }
            None if anonymous_and_writable && behind_program && !has_heap => {
                has_heap = true;
                "[heap]".into()
            }
            None => String::new(),
        };
        Mapping {
            start: region.start,
            end: region.end,
            readable: is(libc::PROT_READ),
            writable: is(libc::PROT_WRITE),
            executable: is(libc::PROT_EXEC),
            // What a process has written to for itself is in its core.
            shared: file.is_some() && is(libc::PROT_WRITE) && is_left_out(region),
            file_offset: file.map_or(0, |file| file.offset + (region.start - file.start)),
            inode: u64::from(file.is_some()),
            path,
        }
    };
    Maps::new(regions.iter().map(mapping).collect())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::source::PAGE;

    #[test]
    fn mapped_files_are_read_until_they_end() {
        let mut note = Vec::new();
        let words = [2u64, 4096, 0x1000, 0x2000, 0, 0x2000, 0x3000, 3];
        for word in words {
            note.extend(word.to_le_bytes());
        }
        note.extend(b"/bin/a\0/lib/b\0");
        let files = mapped_files(&note);
        let found: Vec<_> = files
            .iter()
            .map(|f| (f.start, f.offset, &f.path[..]))
            .collect();
        assert_eq!(found, [(0x1000, 0, "/bin/a"), (0x2000, 3 * 4096, "/lib/b")]);
        // A stretch that ends before it begins.
        let mut turned = note.clone();
        turned[24..32].copy_from_slice(&0x100u64.to_le_bytes());
        assert_eq!(mapped_files(&turned).len(), 1);
        // A count that the note does not hold.
        note[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(mapped_files(&note).is_empty());
    }

    #[test]
    fn a_call_that_did_a_part_was_interrupted() {
        let is_cut =
            |number: i64, arguments, result| is_cut_short(number as u32, &arguments, result);
        let write = [1, 0x1000, 100, 0, 0, 0];
        assert!(is_cut(libc::SYS_write, write, 99));
        assert!(!is_cut(libc::SYS_write, write, 100), "all was written");
        assert!(!is_cut(
            libc::SYS_write,
            write,
            -i64::from(libc::EAGAIN) as u64
        ));
        let enter = |flags| [4, 1, 1, flags, 0, 0];
        assert!(is_cut(libc::SYS_io_uring_enter, enter(1), 1));
        assert!(
            !is_cut(libc::SYS_io_uring_enter, enter(0), 1),
            "it did not wait"
        );
        let failed = -i64::from(libc::EBADF) as u64;
        assert!(!is_cut(libc::SYS_io_uring_enter, enter(1), failed));
    }

    #[test]
    fn the_time_that_a_thread_used_is_noted() {
        let mut note = vec![0; STATUS_REGISTERS + REGISTERS];
        for (at, number) in STATUS_TIMES.step_by(8).zip([3u64, 5, 0, 70]) {
            note[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        assert_eq!(thread(&note).map(|thread| thread.used), Some(3_000_075));
    }

    #[test]
    fn no_more_files_are_kept_than_the_kernel_notes() {
        let count = FILES_MOST + 3;
        let mut note = [count as u64, 4096].map(u64::to_le_bytes).concat();
        note.extend([1u64, 2, 0].map(u64::to_le_bytes).concat().repeat(count));
        note.extend(b"a\0".repeat(count));
        assert_eq!(mapped_files(&note).len(), FILES_MOST);
    }

    #[test]
    fn mappings_are_told_soon_however_many_there_are() {
        const COUNT: u64 = 100_000;
        let place = |number: u64| (number * 2 * PAGE, (number * 2 + 1) * PAGE);
        let region = |number| Region {
            start: place(number).0,
            end: place(number).1,
            protection: libc::PROT_READ,
            fresh: false,
            anonymous: false,
        };
        let file = |number| MappedFile {
            start: place(number).0,
            end: place(number).1,
            offset: number * PAGE,
            path: format!("/{number}"),
        };
        let regions: Vec<Region> = (1..COUNT).map(region).collect();
        let files: Vec<MappedFile> = (1..COUNT).map(file).collect();
        let begin = Instant::now();
        let maps = maps(&regions, &files, "", None, None, &|_| false);
        assert!(begin.elapsed() < Duration::from_secs(2));
        for (mapping, file) in maps.all().iter().zip(&files) {
            assert_eq!(
                (&mapping.path, mapping.file_offset),
                (&file.path, file.offset)
            );
        }
    }
}
