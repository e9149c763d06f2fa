// SPDX-License-Identifier: MIT
//! Which code of the program stores to a word: a global, whose address the code holds itself, or a
//! field, by its distance from its object.
//!
//! In: the executable segments, as they lie in memory. A reference to a global holds four bytes of
//! displacement, so each four bytes that may be one are looked at. For a field the code is decoded
//! from end to end. Only instructions of known functions count. Blind spots: a global that is
//! reached by a pointer, an index or the GOT; which object a field belongs to; modules over
//! [`LARGEST`].

use flagfinder_trace::Segment;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

use crate::address_space::AddressSpace;
use crate::ahead::{field_of, CodeReader};
use crate::ahead_machine::Store;
use crate::names::Names;

/// Larger segments are left out: they take too long.
const LARGEST: u64 = 32 << 20;
/// Read at once.
const CHUNK: usize = 1 << 20;
/// Bytes of an instruction behind its displacement: an immediate operand of 0, 1, 2 or 4.
const BEHIND: [u64; 4] = [0, 1, 2, 4];
const DISPLACEMENT: usize = 4;
/// With so many stores the search ends: they do not tell who writes the word.
const MOST: usize = 256;
/// Before its displacement an instruction has at most so many bytes.
const BEFORE: u64 = 11;

#[derive(Clone, Debug, Default)]
pub struct Writers {
    pub stores: Vec<Store>,
    /// Names of modules that were left out.
    pub left_out: Vec<String>,
}

/// The stores to `bytes` bytes at `word`.
pub fn writers(names: &Names, memory: &dyn AddressSpace, word: u64, bytes: usize) -> Writers {
    let touches = |store: &Store| {
        let address = store.address.unwrap_or(0);
        address < word + bytes as u64 && word < address + store.bytes as u64
    };
    search(names, memory, None, |reader, code, start| {
        let places = references(code, start, word, bytes).into_iter();
        let stores = places.flat_map(|at| stores_around(reader, names, at));
        stores.filter(touches).collect()
    })
}

/// The stores to a field in the code of a module, [`MOST`] and some at most. Of the field: what is
/// added to the object's address, and how many bytes are stored.
pub fn field_writers(
    names: &Names,
    memory: &dyn AddressSpace,
    module: &str,
    field: (u64, usize),
) -> Writers {
    let touches = |store: &Store| {
        store
            .displacement
            .is_some_and(|d| (d, store.bytes) == field)
    };
    search(names, memory, Some(module), |reader, code, start| {
        let places = fields(code, start, field).into_iter();
        let places = places.filter(|code| names.function(code.ip()).is_some());
        let stores = places.flat_map(|code| reader.stores_of(&code));
        stores.filter(touches).collect()
    })
}

/// The stores that `look` finds in a piece of code, which begins at an address.
fn search(
    names: &Names,
    memory: &dyn AddressSpace,
    within: Option<&str>,
    look: impl Fn(&mut CodeReader, &[u8], u64) -> Vec<Store>,
) -> Writers {
    const EXECUTABLE: u32 = 4;
    let mut found = Writers::default();
    let mut reader = CodeReader::new(memory);
    let mut chunk = vec![0; CHUNK + DISPLACEMENT - 1];
    let modules = names.input().modules.iter();
    for module in modules.filter(|m| within.is_none_or(|name| name == &*m.identity.name)) {
        let code = |s: &&Segment| s.prot & EXECUTABLE != 0;
        for segment in module.segments.iter().filter(code) {
            if segment.end - segment.start > LARGEST {
                found.left_out.push(module.identity.name.to_string());
                continue;
            }
            let mut start = segment.start;
            while start < segment.end && found.stores.len() < MOST {
                let wanted = chunk.len().min((segment.end - start) as usize);
                let got = memory.read(start, &mut chunk[..wanted]);
                found.stores.extend(look(&mut reader, &chunk[..got], start));
                start += CHUNK as u64;
            }
        }
    }
    found.stores.sort_by_key(|store| store.pc);
    found.stores.dedup_by_key(|store| store.pc);
    found
}

/// The instructions with such an operand. What was decoded may be no code: then some are none.
fn fields(code: &[u8], start: u64, field: (u64, usize)) -> Vec<Instruction> {
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut found = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if field_of(&instruction) == Some(field) {
            found.push(instruction);
        }
    }
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
    fn stores_to_a_field_are_found_by_distance_and_size() {
        // mov dword [rdi+0x18], 7; mov byte [rdi+0x18], 1; mov dword [rdi+0x10], 7;
        // mov eax, [rdi+0x18]
        let code = [
            0xc7, 0x47, 0x18, 0x07, 0x00, 0x00, 0x00, 0xc6, 0x47, 0x18, 0x01, 0xc7, 0x47, 0x10,
            0x07, 0x00, 0x00, 0x00, 0x8b, 0x47, 0x18,
        ];
        let found = fields(&code, 0x1000, (0x18, 4));
        let places: Vec<u64> = found.iter().map(Instruction::ip).collect();
        assert_eq!(places, [0x1000, 0x1012]);
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
