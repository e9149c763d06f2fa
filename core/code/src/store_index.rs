// SPDX-License-Identifier: MIT
//! Where a module's code stores to memory, by what is stored to: a place at a fixed distance, as of
//! a global, or a field at a distance from a base register.
//!
//! The code is decoded from end to end, so the index is kept in a file for each build-id. Any
//! program may claim a build-id, so the file holds a hash of the code as well. Each instruction
//! that an index names is decoded again: an index that is wrong hides stores, and makes none up.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind, Register};
use xxhash_rust::xxh3::xxh3_64;

use crate::ahead::field_of;

/// Where indexes are kept; none are, unless this is set.
static KEPT_IN: OnceLock<PathBuf> = OnceLock::new();
/// Most bytes that are kept of all indexes.
const MOST: u64 = 256 << 20;
const EXTENSION: &str = "stores";
const MAGIC: &[u8; 8] = b"ffstore1";
/// Magic, hash of the code, number of sites.
const HEADER: usize = 24;
/// What is stored to, and where the instruction lies.
const SITE: usize = 12;
/// Tells a place from a field.
const PLACE: u64 = 1 << 63;

/// Keeps indexes in this folder from now on. The first call counts.
pub fn keep_indexes_in(folder: PathBuf) {
    let _ = KEPT_IN.set(folder);
}

/// The stores of one executable segment.
#[derive(Debug, PartialEq)]
pub(crate) struct StoreIndex {
    /// What is stored to, and the instruction's distance from the segment's start. Ascending.
    sites: Vec<(u64, u32)>,
}

impl StoreIndex {
    /// The index of `code`, which lies at `start`: the one that is kept for `build_id`, or a new
    /// one, which is then kept.
    pub fn of(code: &[u8], start: u64, build_id: Option<&str>) -> StoreIndex {
        let Some((folder, id)) = KEPT_IN.get().zip(build_id) else {
            return StoreIndex::made(code, start);
        };
        let path = folder.join(id).with_extension(EXTENSION);
        let hash = xxh3_64(code);
        if let Some(kept) = StoreIndex::load(&path, hash) {
            return kept;
        }
        let index = StoreIndex::made(code, start);
        // If it can't be kept, it is made again the next time.
        let saved = fs::create_dir_all(folder).and_then(|()| index.save(&path, hash));
        if saved.is_ok() {
            remove_oldest(folder, MOST);
        }
        index
    }

    /// Data between functions is decoded as well. The decoder meets the true instructions again a
    /// few instructions later.
    fn made(code: &[u8], start: u64) -> StoreIndex {
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut sites = Vec::new();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.op0_kind() == OpKind::Memory {
                let key = key_of(&instruction, start);
                sites.extend(key.map(|key| (key, (instruction.ip() - start) as u32)));
            }
        }
        sites.sort_unstable();
        StoreIndex { sites }
    }

    /// Distances of the instructions that may store to `bytes` bytes at this distance from the
    /// segment's start.
    pub fn to_place(&self, distance: i64, bytes: usize) -> impl Iterator<Item = u32> + '_ {
        /// An operand is at most as large as a register of AVX-512.
        const WIDEST: i64 = 64;
        let bounds = place(distance - WIDEST + 1).zip(place(distance + bytes as i64 - 1));
        let (first, last) = bounds.unwrap_or((1, 0));
        self.between(first, last)
    }

    /// The same of a field: what is added to the object's address, and its size.
    pub fn to_field(&self, field: (u64, usize)) -> impl Iterator<Item = u32> + '_ {
        let key = field_key(field);
        self.between(key, key)
    }

    fn between(&self, first: u64, last: u64) -> impl Iterator<Item = u32> + '_ {
        let from = self.sites.partition_point(|site| site.0 < first);
        let found = self.sites[from..].iter();
        found
            .take_while(move |site| site.0 <= last)
            .map(|site| site.1)
    }

    /// `None`: there is none, it is of other code, or it is damaged.
    fn load(path: &Path, hash: u64) -> Option<StoreIndex> {
        let mut bytes = Vec::new();
        let file = flagfinder_files::open_regular(path).ok()?;
        file.take(MOST).read_to_end(&mut bytes).ok()?;
        let (content, checksum) = bytes.split_last_chunk::<8>()?;
        let (header, sites) = content.split_at_checked(HEADER)?;
        let is_sound = header[..8] == *MAGIC
            && header[8..16] == hash.to_le_bytes()
            && header[16..] == ((sites.len() / SITE) as u64).to_le_bytes()
            && *checksum == xxh3_64(content).to_le_bytes();
        let site = |site: &[u8]| {
            let (key, at) = site.split_first_chunk::<8>()?;
            let at = at.first_chunk::<4>()?;
            Some((u64::from_le_bytes(*key), u32::from_le_bytes(*at)))
        };
        let sites: Option<Vec<_>> = sites.chunks(SITE).map(site).collect();
        sites.filter(|_| is_sound).map(|sites| StoreIndex { sites })
    }

    /// Another process may do the same: the file is whole, or not there under its name.
    fn save(&self, path: &Path, hash: u64) -> std::io::Result<()> {
        let mut bytes = Vec::with_capacity(HEADER + self.sites.len() * SITE + 8);
        bytes.extend(MAGIC);
        bytes.extend(hash.to_le_bytes());
        bytes.extend((self.sites.len() as u64).to_le_bytes());
        for (key, at) in &self.sites {
            bytes.extend(key.to_le_bytes());
            bytes.extend(at.to_le_bytes());
        }
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        let new = path.with_extension(std::process::id().to_string());
        flagfinder_files::write_private(&new, |file| file.write_all(&bytes))?;
        fs::rename(&new, path)
    }
}

/// What an instruction with a memory operand stores to, if it stores.
fn key_of(instruction: &Instruction, start: u64) -> Option<u64> {
    let is_place = instruction.is_ip_rel_memory_operand()
        || instruction.memory_base() == Register::None
            && instruction.memory_index() == Register::None
            && instruction.memory_segment() == Register::DS;
    if is_place {
        let target = instruction.memory_displacement64();
        return place(target.wrapping_sub(start) as i64);
    }
    field_of(instruction).map(field_key)
}

/// `None`: no instruction reaches so far.
fn place(distance: i64) -> Option<u64> {
    let distance = i32::try_from(distance).ok()?;
    Some(PLACE | (i64::from(distance) - i64::from(i32::MIN)) as u64)
}

fn field_key((displacement, bytes): (u64, usize)) -> u64 {
    ((bytes as u64) << 32 | u64::from(displacement as u32)) & !PLACE
}

/// Limits the size of the folder.
fn remove_oldest(folder: &Path, most: u64) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let is_index = |path: &PathBuf| path.extension() == Some(OsStr::new(EXTENSION));
    let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
        .flatten()
        .filter(|entry| is_index(&entry.path()))
        .filter_map(|entry| {
            let known = entry.metadata().ok()?;
            Some((known.modified().ok()?, known.len(), entry.path()))
        })
        .collect();
    files.sort();
    let mut total = 0;
    for (_, bytes, path) in files.iter().rev() {
        total += bytes;
        if total > most {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // mov dword [rdi+0x18], 7; mov byte [rdi+0x18], 1; mov [rip+0x100], eax; mov eax, [rdi+0x18];
    // mov dword [0x404010], 1
    const CODE: &[u8] = &[
        0xc7, 0x47, 0x18, 0x07, 0x00, 0x00, 0x00, 0xc6, 0x47, 0x18, 0x01, 0x89, 0x05, 0x00, 0x01,
        0x00, 0x00, 0x8b, 0x47, 0x18, 0xc7, 0x04, 0x25, 0x10, 0x40, 0x40, 0x00, 0x01, 0x00, 0x00,
        0x00,
    ];
    const START: u64 = 0x40_1000;

    #[test]
    fn stores_are_found_by_what_they_store_to() {
        let index = StoreIndex::made(CODE, START);
        let field = |bytes| index.to_field((0x18, bytes)).collect::<Vec<_>>();
        assert_eq!((field(4), field(1), field(8)), (vec![0], vec![7], vec![]));
        let place = |distance, bytes| index.to_place(distance, bytes).collect::<Vec<_>>();
        assert_eq!(place(0x111, 1), [11]);
        assert_eq!(place(0x404010 - START as i64, 4), [20]);
        assert_eq!(place(0x50, 4), [] as [u32; 0]);
        assert_eq!(place(i64::MAX - 9, 4), [] as [u32; 0]);
    }

    #[test]
    fn a_kept_index_is_taken_for_the_same_code_only() {
        let folder = std::env::temp_dir().join(format!("stores{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("ab").with_extension(EXTENSION);
        let made = StoreIndex::made(CODE, START);
        made.save(&path, 7).expect("a file");
        assert_eq!(StoreIndex::load(&path, 7).as_ref(), Some(&made));
        assert_eq!(StoreIndex::load(&path, 8), None);
        let mut bytes = fs::read(&path).expect("its bytes");
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).expect("a part");
            assert_eq!(StoreIndex::load(&path, 7), None);
        }
        bytes[HEADER] ^= 1;
        fs::write(&path, &bytes).expect("damage");
        assert_eq!(StoreIndex::load(&path, 7), None);
        fs::remove_file(&path).expect("no damage");
        for number in 0..9 {
            let other = folder.join(number.to_string());
            fs::write(other.with_extension(EXTENSION), "1234").expect("a file");
        }
        remove_oldest(&folder, 23);
        assert_eq!(fs::read_dir(&folder).expect("files").count(), 5);
        fs::remove_dir_all(&folder).expect("no folder");
    }
}
