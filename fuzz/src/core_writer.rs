// SPDX-License-Identifier: MIT
//! Core files as the kernel writes them, of processes that never were.

/// The process; its threads have the numbers from there on.
pub const PID: u32 = 4711;
const PAGE: u64 = 4096;
/// Bytes of the ELF header and of a program header.
const HEADER: u64 = 64;
const SEGMENT: u64 = 56;

/// A thread, and the system call that it is in; all bits of `call`: in none.
#[derive(Clone, Copy)]
pub struct Thread {
    pub call: u64,
    pub first_argument: u64,
    pub pc: u64,
    pub sp: u64,
}

/// Memory from `start` on, and its rights as in a program header. `in_file`: from which page of the
/// program's file it was mapped.
pub struct Stretch<'c> {
    pub start: u64,
    pub rights: u32,
    pub content: &'c [u8],
    pub in_file: Option<u64>,
}

/// The core of a process that executes the file of this path.
pub fn core(program: &str, threads: &[Thread], memory: &[Stretch]) -> Vec<u8> {
    let notes = notes(program, threads, memory);
    let at_notes = HEADER + (memory.len() as u64 + 1) * SEGMENT;
    let mut at = (at_notes + notes.len() as u64).next_multiple_of(PAGE);
    // ELF, 64 bits, little-endian; ET_CORE, EM_X86_64.
    let mut core = b"\x7fELF\x02\x01\x01".to_vec();
    core.resize(16, 0);
    core.extend([4, 0, 62, 0, 1, 0, 0, 0]);
    core.extend([0, HEADER, 0].map(u64::to_le_bytes).concat());
    core.extend(0u32.to_le_bytes());
    let count = memory.len() as u16 + 1;
    core.extend([64, 56, count, 0, 0, 0].map(u16::to_le_bytes).concat());
    core.extend(segment(4, 0, at_notes, 0, notes.len() as u64));
    for part in memory {
        let bytes = size(part);
        core.extend(segment(1, part.rights, at, part.start, bytes));
        at += bytes;
    }
    core.extend(notes);
    for part in memory {
        core.resize(core.len().next_multiple_of(PAGE as usize), 0);
        core.extend(part.content);
    }
    core.resize(at as usize, 0);
    core
}

fn size(part: &Stretch) -> u64 {
    (part.content.len() as u64).max(1).next_multiple_of(PAGE)
}

/// `Elf64_Phdr`.
fn segment(kind: u32, flags: u32, offset: u64, address: u64, bytes: u64) -> Vec<u8> {
    let words = [offset, address, 0, bytes, bytes, 4].map(u64::to_le_bytes);
    [kind.to_le_bytes(), flags.to_le_bytes()]
        .concat()
        .into_iter()
        .chain(words.concat())
        .collect()
}

/// `struct elf_prstatus`, with user_regs_struct at 112.
fn status(tid: u32, thread: &Thread) -> Vec<u8> {
    let mut status = vec![0u8; 336];
    status[32..36].copy_from_slice(&tid.to_le_bytes());
    let mut register = |number: usize, value: u64| {
        let at = 112 + 8 * number;
        status[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    register(10, -512i64 as u64); // rax: the call is to be made again
    register(14, thread.first_argument); // rdi
    register(15, thread.call);
    register(16, thread.pc);
    register(17, 0x33); // cs
    register(18, 0x202); // eflags
    register(19, thread.sp);
    register(20, 0x2b); // ss
    status
}

fn notes(program: &str, threads: &[Thread], memory: &[Stretch]) -> Vec<u8> {
    let mut about = vec![0u8; 136];
    about[24..28].copy_from_slice(&PID.to_le_bytes());
    let name = program.rsplit('/').next().unwrap_or_default().as_bytes();
    let name = &name[..name.len().min(15)];
    about[40..40 + name.len()].copy_from_slice(name);
    let mapped = memory.iter().filter_map(|part| {
        let place = part.in_file?;
        Some([part.start, part.start + size(part), place])
    });
    let mapped: Vec<[u64; 3]> = mapped.collect();
    let words = [mapped.len() as u64, PAGE];
    let words = words.into_iter().chain(mapped.iter().flatten().copied());
    let mut files: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    for _ in &mapped {
        files.extend(program.as_bytes());
        files.push(0);
    }
    let vdso = memory.last().map_or(0, |part| part.start);
    let vector = [33, vdso, 0, 0].map(u64::to_le_bytes).concat();
    let threads = (PID..).zip(threads);
    let mut kinds: Vec<(u32, Vec<u8>)> = threads
        .map(|(tid, thread)| (1, status(tid, thread)))
        .collect();
    kinds.extend([(3, about), (6, vector), (0x4649_4c45, files)]);
    let mut notes = Vec::new();
    for (kind, mut bytes) in kinds {
        notes.extend([5, bytes.len() as u32, kind].map(u32::to_le_bytes).concat());
        notes.extend(b"CORE\0\0\0\0");
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        notes.extend(bytes);
    }
    notes
}
