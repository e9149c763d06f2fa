// SPDX-License-Identifier: MIT
//! ELF files that hold nothing but symbols, so that a program's functions and variables have names
//! and ends.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, process};

use flagfinder_code::{ModuleIdentity, ModuleInput};
use flagfinder_trace::Segment;

/// Path and its segments: first address, bytes, rights (1: execute, 2: write, 4: read).
type Layout = (&'static str, &'static [(u64, u64, u32)]);

/// Name, type (8: without contents), flags, address, offset, size, link, info, bytes of an entry.
type Section = (u32, u32, u64, u64, u64, u64, u32, u32, u64);

const SIZE: u64 = 0x1_0000;
const MODULES: [Layout; 3] = [
    (
        "/bin/program",
        &[
            (0x10_0000, SIZE, 5),
            (0x40_0000, SIZE, 4),
            (0x50_0000, SIZE, 6),
        ],
    ),
    ("/lib/libother.so", &[(0x20_0000, SIZE, 5)]),
    (
        "/lib/libc.so.6",
        &[(0x30_0000, SIZE, 5), (0x38_0000, SIZE, 6)],
    ),
];

/// The modules of a process with these symbols (name, address, size).
pub fn all(symbols: &[(String, u64, u64)]) -> Vec<ModuleInput> {
    MODULES
        .iter()
        .map(|layout| module(*layout, symbols))
        .collect()
}

fn module((path, segments): Layout, symbols: &[(String, u64, u64)]) -> ModuleInput {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("flagfinder-rules-{}-{number}", process::id());
    let file: PathBuf = std::env::temp_dir().join(name);
    fs::write(&file, elf(segments, symbols)).expect("a file for symbols");
    ModuleInput {
        identity: ModuleIdentity::new(path, &[]),
        path: path.into(),
        file,
        base: 0,
        segments: segments.iter().map(|one| mapped(*one)).collect(),
        samples: Vec::new(),
    }
}

fn mapped((start, bytes, rights): (u64, u64, u32)) -> Segment {
    Segment {
        start,
        end: start + bytes,
        file_offset: 0,
        prot: rights >> 2 & 1 | rights & 2 | (rights & 1) << 2,
    }
}

/// Sections: none, .text, .data, the symbols, their names, the sections' names.
fn elf(segments: &[(u64, u64, u32)], symbols: &[(String, u64, u64)]) -> Vec<u8> {
    const HEADER: u64 = 64;
    const SEGMENT: u64 = 56;
    const SECTION: u64 = 64;
    const SYMBOL: u64 = 24;
    const SECTION_NAMES: &[u8] = b"\0.text\0.data\0.symtab\0.strtab\0.shstrtab\0";
    let rights = |address: u64| {
        let mut all = segments.iter();
        let held = all.find(|(start, bytes, _)| (*start..start + bytes).contains(&address));
        held.map_or(0, |(.., rights)| *rights)
    };
    let mut names = vec![0u8];
    let mut table = vec![0u8; SYMBOL as usize];
    for (name, address, size) in symbols.iter().filter(|symbol| rights(symbol.1) != 0) {
        // Global; a function (2) in .text (1), or an object (1) in .data (2).
        let (kind, section) = if rights(*address) & 1 == 1 {
            (2u8, 1u16)
        } else {
            (1, 2)
        };
        table.extend((names.len() as u32).to_le_bytes());
        table.extend([1 << 4 | kind, 0]);
        table.extend(section.to_le_bytes());
        table.extend(address.to_le_bytes());
        table.extend(size.to_le_bytes());
        names.extend(name.bytes().chain([0]));
    }
    let count = segments.len() as u64 + u64::from(segments.len() == 3);
    let table_at = HEADER + count * SEGMENT;
    let names_at = table_at + table.len() as u64;
    let section_names_at = names_at + names.len() as u64;
    let sections_at = section_names_at + SECTION_NAMES.len() as u64;

    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]); // an executable for x86-64
    file.extend([0, HEADER, sections_at].map(u64::to_le_bytes).concat());
    file.extend([0; 4]);
    let counts = [HEADER, SEGMENT, count, SECTION, 6, 5];
    file.extend(counts.map(|number| (number as u16).to_le_bytes()).concat());
    // The first module has 64 bytes of thread-local variables.
    let locals = (segments.len() == 3).then_some((7, 4, 0x40_8000, 64, 64));
    let loaded = segments
        .iter()
        .map(|(start, bytes, rights)| (1, *rights, *start, *bytes, 0x1000));
    for (kind, rights, start, bytes, align) in loaded.chain(locals) {
        file.extend([kind, rights].map(u32::to_le_bytes).concat());
        let rest: [u64; 6] = [0, start, start, 0, bytes, align];
        file.extend(rest.map(u64::to_le_bytes).concat());
    }
    file.extend(&table);
    file.extend(&names);
    file.extend(SECTION_NAMES);
    let of = |flags: u32| segments.iter().find(|segment| segment.2 == flags);
    let place = |flags| of(flags).map_or((0, 0), |(start, bytes, _)| (*start, *bytes));
    let (code, data) = (place(5), place(6));
    let sections: [Section; 6] = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, 8, 2 | 4, code.0, 0, code.1, 0, 0, 0),
        (7, 8, 1 | 2, data.0, 0, data.1, 0, 0, 0),
        (13, 2, 0, 0, table_at, table.len() as u64, 4, 1, SYMBOL),
        (21, 3, 0, 0, names_at, names.len() as u64, 0, 0, 0),
        (
            29,
            3,
            0,
            0,
            section_names_at,
            SECTION_NAMES.len() as u64,
            0,
            0,
            0,
        ),
    ];
    for (name, kind, flags, address, offset, size, link, info, entry) in sections {
        file.extend([name, kind].map(u32::to_le_bytes).concat());
        file.extend(
            [flags, address, offset, size]
                .map(u64::to_le_bytes)
                .concat(),
        );
        file.extend([link, info].map(u32::to_le_bytes).concat());
        file.extend([1, entry].map(u64::to_le_bytes).concat());
    }
    file
}
