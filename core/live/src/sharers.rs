// SPDX-License-Identifier: MIT
//! The other processes that map the same memory.

use std::time::Duration;

use flagfinder_code::{Mapping, Maps, Names, NamesInput};
use flagfinder_linux::proc::{processes, threads};
use flagfinder_linux::syscalls;
use flagfinder_replica::Live;

use crate::memory::Memory;
use crate::others::{Other, Others, Process};
use crate::sample;

/// How long a thread may take to stop so that its registers can be read.
const STOPS: Duration = Duration::from_millis(200);

/// Those that map, for writing, what lies at `address` and is shared, and where it lies there; of
/// this machine's processes as far as they may be looked at.
pub(crate) fn sharers(pid: u32, names: &Names, address: u64) -> Vec<(u32, u64)> {
    let maps = names.input().maps.iter().rev();
    let Some(ours) = maps.filter_map(|maps| maps.at(address)).next() else {
        return Vec::new();
    };
    if !ours.shared || ours.inode == 0 {
        return Vec::new();
    }
    let maps_it = |other: u32| {
        let text = flagfinder_linux::proc::text_of(other, "maps").unwrap_or_default();
        let maps = Maps::parse(&text);
        let found = maps.all().iter().find_map(|m| in_other(ours, m, address));
        Some((other, found?))
    };
    let pids = processes().into_iter();
    pids.filter(|other| *other != pid)
        .filter_map(maps_it)
        .collect()
}

/// Where another process has, in this mapping, what lies at `address` in ours.
fn in_other(ours: &Mapping, other: &Mapping, address: u64) -> Option<u64> {
    let same = (ours.inode, &ours.path) == (other.inode, &other.path);
    let offset = address - ours.start + ours.file_offset;
    let there = offset.checked_sub(other.file_offset)?;
    let inside = there < other.end - other.start;
    (same && inside && other.shared && other.writable).then_some(other.start + there)
}

/// What `look` makes of another process; `None`: it may not be looked at. Each thread stands still
/// while its registers are read.
pub(crate) fn within<T>(pid: u32, look: impl FnOnce(&Process) -> T) -> Option<T> {
    let live = Live::open(pid).ok()?;
    let memory = Memory::open(pid).ok()?;
    let names = Names::new(NamesInput::from_live(pid).ok()?);
    let other = |tid| {
        let activity = sample::now(pid, tid)?;
        Some(Other {
            tid,
            name: activity.name,
            waits: activity.call.map(|call| syscalls::name(call.number)),
            polls: false,
        })
    };
    let tids = threads(pid).ok()?;
    let others = Others {
        list: tids.into_iter().filter_map(other).collect(),
        left_out: None,
    };
    let capture = |tid| {
        let captured = live.capture(tid, STOPS);
        captured.map(|(state, _)| state).map_err(|e| e.to_string())
    };
    Some(look(&Process {
        pid,
        names: &names,
        memory: &memory,
        others: &others,
        capture: &capture,
        learn: &|_| (),
        is_dead: false,
        time: Duration::ZERO,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(line: &str) -> Mapping {
        Maps::parse(line).all()[0].clone()
    }

    #[test]
    fn the_same_page_lies_elsewhere_in_another_process() {
        let ours = mapping("1000-4000 rw-s 00001000 00:05 77 /dev/shm/a");
        let found = |line: &str| in_other(&ours, &mapping(line), 0x2010);
        assert_eq!(
            found("9000-b000 rw-s 00002000 00:05 77 /dev/shm/a"),
            Some(0x9010)
        );
        assert_eq!(found("9000-a000 rw-s 00000000 00:05 77 /dev/shm/a"), None);
        assert_eq!(found("9000-b000 r--s 00002000 00:05 77 /dev/shm/a"), None);
        assert_eq!(found("9000-b000 rw-p 00002000 00:05 77 /dev/shm/a"), None);
        assert_eq!(found("9000-b000 rw-s 00002000 00:05 78 /dev/shm/a"), None);
    }
}
