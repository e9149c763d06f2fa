// SPDX-License-Identifier: MIT
//! Core files of one thread, which polls a word, makes calls or waits for a lock: code, data and a
//! stack of a page each.

use std::path::Path;

use crate::core_writer::{core, Stretch, Thread};
use crate::targets::dead::{FILE, PIPE};

const CODE: u64 = 0x40_1000;
const DATA: u64 = 0x40_4000;
const STACK: u64 = 0x7fff_f000_0000;

/// mov eax, [DATA + 0x10]; test eax, eax; je -0xb; ret
const POLLS: [u8; 12] = [
    0x8b, 0x04, 0x25, 0x10, 0x40, 0x40, 0, 0x85, 0xc0, 0x74, 0xf5, 0xc3,
];

pub fn write(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let [file, dead] = ["core_file", "dead"].map(|name| directory.join(name));
    std::fs::create_dir_all(&file)?;
    std::fs::create_dir_all(&dead)?;
    let polls = of_one(&POLLS, u64::MAX);
    for folder in [&file, &dead] {
        std::fs::write(folder.join("packed"), zstd::encode_all(&polls[..], 0)?)?;
        std::fs::write(folder.join("plain"), &polls)?;
    }
    std::fs::write(dead.join("calls"), of_one(&calls(), u64::MAX))?;
    let waits = of_one(&[0xc3], libc::SYS_futex as u64);
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

fn of_one(code: &[u8], call: u64) -> Vec<u8> {
    let thread = Thread {
        call,
        first_argument: DATA + 0x20,
        pc: CODE,
        sp: STACK + 0x800,
    };
    let stretch = |start, rights, content, in_file| Stretch {
        start,
        rights,
        content,
        in_file,
    };
    let memory = [
        stretch(CODE, 5, code, Some(1)),
        stretch(DATA, 6, &[][..], Some(4)),
        stretch(STACK, 6, &[], None),
    ];
    core("/bin/spinner", &[thread], &memory)
}
