// SPDX-License-Identifier: MIT
//! Core files of one thread, which polls a word, makes calls or waits for a lock: code, data and a
//! stack of a page each, and the notes that the kernel writes.

use std::path::Path;

use crate::targets::dead::{FILE, PIPE};

const PAGE: u64 = 4096;
const CODE: u64 = 0x40_1000;
const DATA: u64 = 0x40_4000;
const STACK: u64 = 0x7fff_f000_0000;
const TID: u32 = 4711;
/// Bytes of the ELF header and of a program header.
const HEADER: u64 = 64;
const SEGMENT: u64 = 56;

/// mov eax, [DATA + 0x10]; test eax, eax; je -0xb; ret
const POLLS: [u8; 12] = [
    0x8b, 0x04, 0x25, 0x10, 0x40, 0x40, 0, 0x85, 0xc0, 0x74, 0xf5, 0xc3,
];

pub fn write(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let [file, dead] = ["core_file", "dead"].map(|name| directory.join(name));
    std::fs::create_dir_all(&file)?;
    std::fs::create_dir_all(&dead)?;
    let polls = core(&POLLS, u64::MAX);
    for folder in [&file, &dead] {
        std::fs::write(folder.join("packed"), zstd::encode_all(&polls[..], 0)?)?;
        std::fs::write(folder.join("plain"), &polls)?;
    }
    std::fs::write(dead.join("calls"), core(&calls(), u64::MAX))?;
    let waits = core(&[0xc3], libc::SYS_futex as u64);
    std::fs::write(dead.join("waits"), waits)?;
    Ok(())
}

/// Code that makes calls again and again, which a copy must not make.
fn calls() -> Vec<u8> {
    let writes = libc::SYS_write as u32;
    let mut code = Vec::new();
    for (number, first) in [
        (writes, PIPE as u32),
        (writes, FILE as u32),
        (libc::SYS_fork as u32, 0),
        (libc::SYS_getppid as u32, 0),
    ] {
        code.push(0xb8); // mov eax, number
        code.extend(number.to_le_bytes());
        code.push(0xbf); // mov edi, first
        code.extend(first.to_le_bytes());
        code.push(0xbe); // mov esi, DATA
        code.extend((DATA as u32).to_le_bytes());
        code.push(0xba); // mov edx, 8
        code.extend(8u32.to_le_bytes());
        code.extend([0x0f, 0x05]); // syscall
    }
    code.extend([0xeb, (-(code.len() as i8) - 2) as u8]); // jmp to the beginning
    code
}

/// `call`: the number of the system call that the thread is in; all bits: it is in none.
fn core(code: &[u8], call: u64) -> Vec<u8> {
    let notes = notes(call);
    let at_notes = HEADER + 4 * SEGMENT;
    let at_pages = (at_notes + notes.len() as u64).next_multiple_of(PAGE);
    // ELF, 64 bits, little-endian; ET_CORE, EM_X86_64.
    let mut core = b"\x7fELF\x02\x01\x01".to_vec();
    core.resize(16, 0);
    core.extend([4, 0, 62, 0, 1, 0, 0, 0]);
    core.extend([0, HEADER, 0].map(u64::to_le_bytes).concat());
    core.extend(0u32.to_le_bytes());
    core.extend([64u16, 56, 4, 0, 0, 0].map(u16::to_le_bytes).concat());
    core.extend(segment(4, 0, at_notes, 0, notes.len() as u64));
    for (number, (flags, address)) in [(5, CODE), (6, DATA), (6, STACK)].into_iter().enumerate() {
        let offset = at_pages + number as u64 * PAGE;
        core.extend(segment(1, flags, offset, address, PAGE));
    }
    core.extend(notes);
    core.resize(at_pages as usize, 0);
    core.extend(code);
    core.resize((at_pages + 3 * PAGE) as usize, 0);
    core
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

fn notes(call: u64) -> Vec<u8> {
    // struct elf_prstatus, with user_regs_struct at 112: rip is its 17th word.
    let mut status = vec![0u8; 336];
    status[32..36].copy_from_slice(&TID.to_le_bytes());
    let mut register = |number: usize, value: u64| {
        let at = 112 + 8 * number;
        status[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    register(10, -512i64 as u64); // rax: the call is to be made again
    register(14, DATA + 0x20); // rdi
    register(15, call);
    register(16, CODE);
    register(17, 0x33); // cs
    register(18, 0x202); // eflags
    register(19, STACK + 0x800);
    register(20, 0x2b); // ss
    let mut program = vec![0u8; 136];
    program[24..28].copy_from_slice(&TID.to_le_bytes());
    program[40..47].copy_from_slice(b"spinner");
    let mut files = [2, PAGE, CODE, CODE + PAGE, 1, DATA, DATA + PAGE, 4]
        .map(u64::to_le_bytes)
        .concat();
    files.extend(b"/bin/spinner\0/bin/spinner\0");
    let vector = [33, STACK, 0, 0].map(u64::to_le_bytes).concat();
    let kinds: [(u32, Vec<u8>); 4] = [(1, status), (3, program), (6, vector), (0x4649_4c45, files)];
    let mut notes = Vec::new();
    for (kind, mut bytes) in kinds {
        notes.extend([5, bytes.len() as u32, kind].map(u32::to_le_bytes).concat());
        notes.extend(b"CORE\0\0\0\0");
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        notes.extend(bytes);
    }
    notes
}
