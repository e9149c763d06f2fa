// SPDX-License-Identifier: MIT
//! Where threads' `fs:0` points, without stopping them: /proc does not tell, and ptrace would
//! interrupt system calls.
//!
//! The x86-64 ABI makes the word at `fs:0` a pointer to itself, and C libraries keep the thread's
//! id close behind: glibc, which also repeats the pointer at `fs:0x10`, 0x2d0 bytes on, musl 0x30.
//! Memory that could hold such blocks (private, writable, anonymous) is searched for this pattern.
//! Blind spot: programs without a C library (Go) have no such block.

use rustc_hash::FxHashMap;

use crate::address_space::AddressSpace;
use crate::input::ThreadInput;
use crate::maps::Maps;

/// Distance of a thread's id from its `fs:0`, which is its `pthread_t`, in glibc.
pub const GLIBC_ID: usize = 0x2d0;
/// Distances of the thread's id from `fs:0`: glibc, musl. It is looked for only there: in a
/// container ids are small numbers, which stand everywhere.
const ID_AT: [usize; 2] = [GLIBC_ID, 0x30];
/// Bytes from `fs:0` to behind the farther of the two.
const ID_WITHIN: usize = 0x2d4;
/// Blocks are aligned at least so.
const ALIGNMENT: usize = 16;
/// Thread stacks have their block on top, so the ends of all mappings are searched first. Reading
/// hundreds of whole stacks takes seconds.
const TOP: u64 = 64 << 10;
/// Larger mappings are searched at their ends only: arenas have no blocks.
const SEARCHED: u64 = 8 << 20;

/// Fills in `fs_base` of the threads where it is found.
pub(crate) fn find(threads: &mut [ThreadInput], maps: &Maps, memory: &dyn AddressSpace) {
    let mut bytes = Vec::new();
    let unknown = threads.iter().enumerate().rev();
    let unknown = unknown.filter(|(_, thread)| thread.fs_base.is_none());
    let mut unknown: FxHashMap<u32, usize> = unknown.map(|(at, t)| (t.own_id, at)).collect();
    for (start, end) in in_order(&candidates(maps)) {
        if unknown.is_empty() {
            return;
        }
        bytes.resize((end - start) as usize, 0);
        let read = memory.read(start, &mut bytes);
        for (address, block) in blocks(start, &bytes[..read]) {
            let known = ids(block).into_iter();
            let first = known.filter_map(|id| Some((*unknown.get(&id)?, id))).min();
            if let Some((at, id)) = first {
                threads[at].fs_base = Some(address);
                unknown.remove(&id);
            }
        }
    }
}

fn candidates(maps: &Maps) -> Vec<(u64, u64)> {
    let anonymous = maps.all().iter().filter(|m| {
        let nameless = m.path.is_empty() || m.path == "[heap]" || m.path.starts_with("[anon");
        m.writable && m.readable && !m.shared && nameless
    });
    anonymous
        .map(|m| (m.start.max(m.end.saturating_sub(SEARCHED)), m.end))
        .collect()
}

/// The ends of all, then the parts before, small ones first. A block may lie across the border.
fn in_order(all: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let border = |start: u64, end: u64| start.max(end.saturating_sub(TOP));
    let mut parts: Vec<(u64, u64)> = all
        .iter()
        .map(|&(start, end)| (start, border(start, end)))
        .filter(|(start, border)| border > start)
        .map(|(start, border)| (start, border + ID_WITHIN as u64))
        .collect();
    parts.sort_by_key(|(start, end)| end - start);
    let ends = all.iter().map(|&(start, end)| (border(start, end), end));
    ends.chain(parts).collect()
}

/// Address and first bytes of what looks like a thread's block.
fn blocks(start: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let offsets = (0..bytes.len().saturating_sub(8)).step_by(ALIGNMENT);
    offsets.filter_map(move |at| {
        let word: [u8; 8] = bytes[at..at + 8].try_into().ok()?;
        let address = start + at as u64;
        let end = bytes.len().min(at + ID_WITHIN);
        (u64::from_le_bytes(word) == address).then(|| (address, &bytes[at..end]))
    })
}

/// The value at the places where C libraries keep the id.
fn ids(block: &[u8]) -> Vec<u32> {
    let words = ID_AT.iter().filter_map(|&at| block.get(at..at + 4));
    words
        .map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_number_elsewhere_in_the_block_is_no_id() {
        let mut bytes = vec![0; 0x400];
        bytes[0x2d0] = 3;
        bytes[0x30] = 7;
        bytes[0x40] = 2;
        assert_eq!(ids(&bytes), [3, 7]);
        assert_eq!(ids(&bytes[..0x100]), [7]);
    }

    #[test]
    fn ends_come_first_and_borders_are_in_both_parts() {
        let (large, small) = ((0x10_0000, 0x20_0000), (0x1000, 0x2000));
        let middle = (0x30_0000, 0x32_0000);
        assert_eq!(
            in_order(&[large, small, middle]),
            [
                (0x1f_0000, 0x20_0000),
                small,
                (0x31_0000, 0x32_0000),
                (0x30_0000, 0x31_02d4),
                (0x10_0000, 0x1f_02d4),
            ]
        );
    }

    #[test]
    fn a_block_points_to_itself() {
        let mut bytes = vec![0; 256];
        bytes[64..72].copy_from_slice(&0x7000_0040u64.to_le_bytes());
        bytes[128..136].copy_from_slice(&0x7000_0040u64.to_le_bytes());
        let found: Vec<u64> = blocks(0x7000_0000, &bytes).map(|(a, _)| a).collect();
        assert_eq!(found, [0x7000_0040]);
    }
}
