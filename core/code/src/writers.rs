// SPDX-License-Identifier: MIT
//! Which code of a module stores to a word: a global of its own, whose address the code holds
//! itself, or a field, by its distance from its object.
//!
//! In: the module's executable segments, as they lie in memory, by way of a [`StoreIndex`].
//! Only instructions of known functions count. Blind spots: a global that is reached by a pointer,
//! an index or the GOT; which object a field belongs to; code over [`LARGEST`].

use flagfinder_trace::Segment;
use iced_x86::{Instruction, Mnemonic};

use crate::address_space::AddressSpace;
use crate::ahead::CodeReader;
use crate::ahead_machine::Store;
use crate::names::Names;
use crate::store_index::StoreIndex;

/// Larger segments are left out: they take too long.
const LARGEST: u64 = 128 << 20;
/// After so many stores the search ends: they do not show who writes the word.
const MOST: usize = 256;

/// The code that stores to a word.
#[derive(Clone, Debug, Default)]
pub struct Writers {
    /// The search ended at 256 stores.
    pub stores: Vec<Store>,
    /// The code of the module was too large.
    pub is_left_out: bool,
}

/// The stores to `bytes` bytes at `word`, in the module that holds the word.
pub fn writers(names: &Names, memory: &dyn AddressSpace, word: u64, bytes: usize) -> Writers {
    let touches = |store: &Store| {
        let address = store.address.unwrap_or(0);
        address < word + bytes as u64 && word < address + store.bytes as u64
    };
    let module = names.module_place(word).map_or("", |place| &place.0.name);
    search(names, memory, module, touches, |index, start| {
        index
            .to_place(word.wrapping_sub(start) as i64, bytes)
            .collect()
    })
}

/// The stores to a field in the code of a module. Of the field: what is added to the object's
/// address, and how many bytes are stored.
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
    search(names, memory, module, touches, |index, _| {
        index.to_field(field).collect()
    })
}

/// The stores that touch what is wanted, [`MOST`] at most. `sites` asks the index of the segment
/// that begins at an address for instructions.
fn search(
    names: &Names,
    memory: &dyn AddressSpace,
    module: &str,
    touches: impl Fn(&Store) -> bool,
    sites: impl Fn(&StoreIndex, u64) -> Vec<u32>,
) -> Writers {
    const EXECUTABLE: u32 = 4;
    let mut found = Writers::default();
    let mut reader = CodeReader::new(memory);
    let modules = names.input().modules.iter();
    for module in modules.filter(|m| &*m.identity.name == module) {
        let build_id = module.identity.build_id_hex();
        let code = |s: &&Segment| s.prot & EXECUTABLE != 0;
        for segment in module.segments.iter().filter(code) {
            if segment.end - segment.start > LARGEST {
                found.is_left_out = true;
                continue;
            }
            let index = index(memory, segment, build_id.as_deref());
            let places = sites(&index, segment.start).into_iter();
            let places = places.map(|distance| segment.start + u64::from(distance));
            let places = places.filter(|pc| names.function(*pc).is_some());
            let decoded = |pc| Some(reader.decode(pc)?).map(|code| reader.stores_of(&code));
            let stores = places.filter_map(decoded).flatten();
            found.stores.extend(stores.filter(&touches).take(MOST));
        }
    }
    found.stores.sort_by_key(|store| store.pc);
    found.stores.dedup_by_key(|store| store.pc);
    found
}

/// The index of the code, as far as it can be read. It is kept only where all of it can.
fn index(memory: &dyn AddressSpace, segment: &Segment, build_id: Option<&str>) -> StoreIndex {
    const CHUNK: usize = 1 << 20;
    let mut code = vec![0; (segment.end - segment.start) as usize];
    let chunks = code.chunks_mut(CHUNK).zip((segment.start..).step_by(CHUNK));
    let is_whole = chunks.fold(true, |is_whole, (chunk, start)| {
        memory.read(start, chunk) == chunk.len() && is_whole
    });
    StoreIndex::of(&code, segment.start, build_id.filter(|_| is_whole))
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
}
