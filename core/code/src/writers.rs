// SPDX-License-Identifier: MIT
//! Which code of the program stores to a word whose address it holds itself: a global.
//!
//! In: the executable segments, as they lie in memory. Every four bytes that may be the
//! displacement of a reference to the word are looked at; where one lies in an instruction of a
//! function, that counts. Blind spots: references by pointers, by indices and through the GOT;
//! code without known functions; modules over [`LARGEST`].

use flagfinder_trace::Segment;
use iced_x86::{Instruction, Mnemonic};

use crate::address_space::AddressSpace;
use crate::ahead::CodeReader;
use crate::ahead_machine::Store;
use crate::names::Names;

/// Larger segments are left out: they take too long.
const LARGEST: u64 = 32 << 20;
/// Read at once.
const CHUNK: usize = 1 << 20;
/// Bytes of an instruction behind its displacement: an immediate operand of 0, 1, 2 or 4.
const BEHIND: [u64; 4] = [0, 1, 2, 4];
const DISPLACEMENT: usize = 4;
/// Before its displacement an instruction has at most so many bytes.
const BEFORE: u64 = 11;

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Writers {
    pub stores: Vec<Store>,
    /// Names of modules that were left out.
    pub left_out: Vec<String>,
}

/// The stores to `bytes` bytes at `word`.
pub fn writers(names: &Names, memory: &dyn AddressSpace, word: u64, bytes: usize) -> Writers {
    const EXECUTABLE: u32 = 4;
    let mut found = Writers::default();
    let mut reader = CodeReader::new(memory);
    let mut chunk = vec![0; CHUNK + DISPLACEMENT - 1];
    for module in &names.input().modules {
        let code = |s: &&Segment| s.prot & EXECUTABLE != 0;
        for segment in module.segments.iter().filter(code) {
            if segment.end - segment.start > LARGEST {
                found.left_out.push(module.identity.name.to_string());
                continue;
            }
            let mut start = segment.start;
            while start < segment.end {
                let wanted = chunk.len().min((segment.end - start) as usize);
                let got = memory.read(start, &mut chunk[..wanted]);
                for at in references(&chunk[..got], start, word, bytes) {
                    let stores = stores_around(&mut reader, names, at);
                    let touches = |store: &Store| {
                        let address = store.address.unwrap_or(0);
                        address < word + bytes as u64 && word < address + store.bytes as u64
                    };
                    found.stores.extend(stores.into_iter().filter(touches));
                }
                start += CHUNK as u64;
            }
        }
    }
    found.stores.sort_by_key(|store| store.pc);
    found.stores.dedup_by_key(|store| store.pc);
    found
}

/// Does an instruction of the program's code count the word up or down?
pub fn is_counted_in(names: &Names, memory: &dyn AddressSpace, word: u64, bytes: usize) -> bool {
    let mut reader = CodeReader::new(memory);
    let found = writers(names, memory, word, bytes);
    let mut stores = found.stores.iter();
    stores.any(|store| reader.decode(store.pc).is_some_and(|code| counts(&code)))
}

fn counts(code: &Instruction) -> bool {
    use Mnemonic::{Add, Dec, Inc, Sub, Xadd};
    matches!(code.mnemonic(), Add | Dec | Inc | Sub | Xadd)
}

/// Where four bytes are what a reference to the word would hold.
fn references(code: &[u8], start: u64, word: u64, bytes: usize) -> Vec<u64> {
    let end = word.wrapping_add(bytes as u64);
    let mut found = Vec::new();
    for (index, window) in code.windows(DISPLACEMENT).enumerate() {
        let field = i32::from_le_bytes([window[0], window[1], window[2], window[3]]);
        let at = start.wrapping_add(index as u64);
        let from_next = at
            .wrapping_add(DISPLACEMENT as u64)
            .wrapping_add_signed(field.into());
        let near = |target: u64| (word..end).contains(&target);
        let relative = BEHIND
            .iter()
            .any(|behind| near(from_next.wrapping_add(*behind)));
        if relative || near(i64::from(field) as u64) {
            found.push(at);
        }
    }
    found
}

/// The stores of the instruction that holds the byte at `at`.
fn stores_around(reader: &mut CodeReader, names: &Names, at: u64) -> Vec<Store> {
    let Some((start, end)) = names.function(at) else {
        return Vec::new();
    };
    let mut pc = start;
    while pc <= at && pc < end {
        let Some(code) = reader.decode(pc) else {
            return Vec::new();
        };
        if code.next_ip() > at {
            return match at - pc <= BEFORE {
                true => reader.stores_of(&code),
                false => Vec::new(),
            };
        }
        pc = code.next_ip();
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    #[test]
    fn what_is_added_to_in_memory_is_counted() {
        let counted = |code: &[u8]| {
            counts(&Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode())
        };
        // lock add dword [rip+0x100], 1; dec byte [rip+0x100]; mov dword [rip+0x100], eax
        assert!(counted(&[0xf0, 0x83, 0x05, 0x00, 0x01, 0x00, 0x00, 0x01]));
        assert!(counted(&[0xfe, 0x0d, 0x00, 0x01, 0x00, 0x00]));
        assert!(!counted(&[0x89, 0x05, 0x00, 0x01, 0x00, 0x00]));
    }

    #[test]
    fn references_are_found_whatever_stands_behind_them() {
        // mov byte [rip+0x100], 1; mov [rip+0xf9], eax: both at 0x2107.
        let code = [
            0xc6, 0x05, 0x00, 0x01, 0x00, 0x00, 0x01, 0x89, 0x05, 0xfa, 0x00, 0x00, 0x00,
        ];
        assert_eq!(references(&code, 0x2000, 0x2107, 1), [0x2002, 0x2009]);
        // mov dword [0x404010], 1
        let code = [
            0xc7, 0x04, 0x25, 0x10, 0x40, 0x40, 0x00, 0x01, 0x00, 0x00, 0x00,
        ];
        assert_eq!(references(&code, 0x40_1000, 0x40_4010, 4), [0x40_1003]);
        assert!(references(&code, 0x40_1000, 0x40_5000, 4).is_empty());
    }
}
