// SPDX-License-Identifier: MIT
//! Records of threads that write, read and exchange a word.

use std::path::Path;

use crate::targets::watched::{CODE, RECORD};

/// mov [rbx], rax; mov rax, [rbx]; lock cmpxchg [rbx], rcx; add qword [rbx], 1; cmp qword [rbx], 3;
/// where each ends.
const INSTRUCTIONS: [u8; 19] = [
    0x48, 0x89, 0x03, 0x48, 0x8b, 0x03, 0xf0, 0x48, 0x0f, 0xb1, 0x0b, 0x48, 0x83, 0x03, 0x01, 0x48,
    0x83, 0x3b, 0x03,
];
const ENDS: [u64; 5] = [3, 6, 11, 15, 19];
/// Places of fields in a record.
const IP: usize = 40;
const TID: usize = 192;
const CPU: usize = 196;
const WHICH: usize = 200;
const WORDS: usize = 204;

pub fn write(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let folder = directory.join("watched");
    std::fs::create_dir_all(&folder)?;
    for (reads, which) in [(0, 0u16), (1, 0), (3, u16::MAX)] {
        let mut seed = vec![0, reads, 100];
        seed.extend(INSTRUCTIONS);
        seed.resize(3 + CODE, 0xc3);
        for (number, end) in (0u64..).zip(ENDS.iter().cycle().take(12)) {
            let mut record = vec![0; RECORD];
            let mut put = |at: usize, bytes: &[u8]| {
                record[at..at + bytes.len()].copy_from_slice(bytes);
            };
            put(0, &(1_000_000 * number).to_le_bytes());
            put(8, &number.to_le_bytes());
            put(32, &1u64.to_le_bytes());
            put(IP, &end.to_le_bytes());
            put(TID, &(7 + number as u32 % 2).to_le_bytes());
            put(CPU, &u32::MAX.to_le_bytes());
            put(WHICH, &which.to_le_bytes());
            put(WORDS, &4u32.to_le_bytes());
            seed.extend(record);
        }
        std::fs::write(folder.join(format!("{reads}")), seed)?;
    }
    Ok(())
}
