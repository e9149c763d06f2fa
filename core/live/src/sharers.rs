// SPDX-License-Identifier: MIT
//! The other processes that map the same memory.

use std::fs;

use flagfinder_code::{Maps, Names};
use flagfinder_linux::proc::processes;

/// More are not told.
const MOST: usize = 8;

/// Those that map, for writing, what lies at `address` and is shared; of this machine's processes
/// as far as they may be looked at.
pub(crate) fn sharers(pid: u32, names: &Names, address: u64) -> Vec<u32> {
    let maps = names.input().maps.iter().rev();
    let Some(mapping) = maps.filter_map(|maps| maps.at(address)).next() else {
        return Vec::new();
    };
    if !mapping.shared || mapping.inode == 0 {
        return Vec::new();
    }
    let maps_it = |other: &u32| {
        let text = fs::read_to_string(format!("/proc/{other}/maps")).unwrap_or_default();
        let maps = Maps::parse(&text);
        let same = maps.all().iter().any(|m| {
            m.shared && m.writable && (m.inode, &m.path) == (mapping.inode, &mapping.path)
        });
        same
    };
    let pids = processes().into_iter();
    pids.filter(|other| *other != pid && maps_it(other))
        .take(MOST)
        .collect()
}
