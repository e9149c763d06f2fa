// SPDX-License-Identifier: MIT
//! Asks made-up programs of Java, Go and JavaScript what `why --core` asks of their virtual
//! machines and schedulers: no panic, bounded memory.
//!
//! An input is which of them it is (a byte); of each of three threads its call, that one's first
//! argument, its instruction and its stack (8 bytes each); the length of a source map (2), the map;
//! the program, which lies in memory as in its file. The map stands, as the comment of a script has
//! it, behind [`MAP`].

use std::time::Duration;

use flagfinder_live::why_of_core;

use super::cores::{opened, options};
use crate::core_writer::{core, Stretch, Thread};
use crate::MemoryFile;

/// Paths by which programs are told, in the order of their numbers.
pub const PROGRAMS: [&str; 3] = ["/bin/libjvm.so", "/bin/goes", "/bin/node"];
/// Where they lie.
pub const BASE: u64 = 0x40_0000;
/// What a map stands behind, and the room for it.
pub const MAP: &[u8] = b"json;base64,";
pub const ROOM: usize = 2048;
const THREADS: usize = 3;
/// For how long a copy goes on: what copies do is asked by the target `dead`.
const BUDGET: Duration = Duration::from_millis(1);

/// See the module.
pub fn run(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else {
        return;
    };
    let Some((words, rest)) = rest.split_at_checked(THREADS * 32) else {
        return;
    };
    let Some((length, rest)) = rest.split_first_chunk::<2>() else {
        return;
    };
    let (map, program) = rest.split_at(rest.len().min(u16::from_le_bytes(*length).into()));
    let program = with_map(program, map);
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let threads = words.chunks_exact(32).map(|one| Thread {
        call: word(&one[..8]),
        first_argument: word(&one[8..16]),
        pc: word(&one[16..24]),
        sp: word(&one[24..]),
    });
    let memory = [Stretch {
        start: BASE,
        rights: 7,
        content: &program,
        in_file: Some(0),
    }];
    let path = PROGRAMS[usize::from(kind) % PROGRAMS.len()];
    let bytes = core(path, &threads.collect::<Vec<_>>(), &memory);
    let file = MemoryFile::new(&bytes).expect("a file in memory");
    let program = MemoryFile::new(&program).expect("a file in memory");
    let path = file.path();
    let Some(core) = opened(&path, Some(program.path())) else {
        return;
    };
    for thread in core.threads() {
        let tid = Some(thread.tid);
        let _ = why_of_core(&core, &path, tid, true, &options(BUDGET), &|_| ());
    }
}

/// The program with the map, in base64, where its script has one.
fn with_map(program: &[u8], map: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut program = program.to_vec();
    let found = program.windows(MAP.len()).position(|part| part == MAP);
    let room = found.and_then(|at| program.get_mut(at + MAP.len()..)?.get_mut(..ROOM));
    let digits = map.chunks_exact(3).flat_map(|three| {
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        [18, 12, 6, 0].map(|shift| DIGITS[(bits >> shift) as usize & 63])
    });
    for (place, digit) in room.into_iter().flatten().zip(digits) {
        *place = digit;
    }
    program
}
