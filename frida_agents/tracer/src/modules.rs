// SPDX-License-Identifier: MIT
//! ELF files that are mapped, from /proc/self/maps and their headers in memory.

use flagfinder_trace::protocol::SegmentRecord;

use crate::sys;

pub struct Module {
    pub start: u64,
    pub end: u64,
    /// Run-time address of ELF vaddr 0.
    pub base: u64,
    pub build_id: Vec<u8>,
    pub path: Vec<u8>,
    pub segments: Vec<SegmentRecord>,
    pub number: u32,
}

#[derive(Clone, Copy)]
pub struct Range {
    start: u64,
    end: u64,
}

impl Range {
    pub fn holds(&self, pc: u64) -> bool {
        (self.start..self.end).contains(&pc)
    }
}

struct Line<'a> {
    start: u64,
    end: u64,
    prot: u32,
    offset: u64,
    path: &'a [u8],
}

fn parse(line: &[u8]) -> Option<Line<'_>> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let (start, end) = text(words.next()?)?.split_once('-')?;
    let flags = words.next()?;
    let offset = text(words.next()?)?;
    let path = words.nth(2).unwrap_or_default();
    let bit = |index: usize, byte: u8, value: u32| {
        if flags.get(index) == Some(&byte) {
            value
        } else {
            0
        }
    };
    Some(Line {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        prot: bit(0, b'r', 1) | bit(1, b'w', 2) | bit(2, b'x', 4),
        offset: u64::from_str_radix(offset, 16).ok()?,
        path: path.trim_ascii(),
    })
}

/// Modules of the program, and where Frida's code and this library lie. `at_start`: the program has
/// not run yet.
pub fn mapped(at_start: bool) -> (Vec<Module>, Vec<Range>) {
    let text = sys::read_file("/proc/self/maps\0");
    let here = mapped as *const () as u64;
    let mut modules: Vec<Module> = Vec::new();
    let mut foreign = Vec::new();
    let lines: Vec<Line> = text
        .split(|&byte| byte == b'\n')
        .filter_map(parse)
        .collect();
    let ours = lines
        .iter()
        .find(|line| (line.start..line.end).contains(&here))
        .map_or(&b""[..], |line| line.path);
    for line in &lines {
        let frida = line
            .path
            .windows(12)
            .any(|part| part == b"frida-agent-" || part == b"memfd:frida-");
        if !line.path.is_empty() && (line.path == ours || frida) {
            foreign.push(Range {
                start: line.start,
                end: line.end,
            });
            continue;
        }
        if !line.path.starts_with(b"/") {
            // Before the program runs, code that lies in no file is Frida's: hooks of libc's exit
            // and the like.
            if at_start && line.path.is_empty() && line.prot & 4 != 0 {
                foreign.push(Range {
                    start: line.start,
                    end: line.end,
                });
            }
            continue;
        }
        let path = line.path.strip_suffix(b" (deleted)").unwrap_or(line.path);
        let segment = SegmentRecord {
            start: line.start,
            end: line.end,
            file_offset: line.offset,
            prot: line.prot,
            reserved: 0,
        };
        match modules
            .last_mut()
            .filter(|last| last.path == path && line.offset != 0)
        {
            Some(last) => {
                last.end = line.end;
                last.segments.push(segment);
            }
            None if line.offset == 0 => {
                if let Some((base, build_id)) = read_elf(line.start) {
                    modules.push(Module {
                        start: line.start,
                        end: line.end,
                        base,
                        build_id,
                        path: path.to_vec(),
                        segments: vec![segment],
                        number: 0,
                    });
                }
            }
            None => {}
        }
    }
    // What is mapped to be looked at only is no code.
    modules.retain(|module| module.segments.iter().any(|segment| segment.prot & 4 != 0));
    (modules, foreign)
}

/// (base, build id) of the ELF file whose header is mapped at `start`.
fn read_elf(start: u64) -> Option<(u64, Vec<u8>)> {
    let mut header = [0u8; 64];
    if sys::peek(start, &mut header) != header.len() || !header.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let word = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
    };
    let half = |bytes: &[u8], at: usize| {
        u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap_or_default())
    };
    let quad = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
    };
    let count = usize::from(half(&header, 56)).min(32);
    let mut table = vec![0u8; count * 56];
    let got = sys::peek(start + word(&header, 32), &mut table);
    let segments = || table[..got].chunks_exact(56);
    const LOAD: u32 = 1;
    const NOTE: u32 = 4;
    let lowest = segments()
        .filter(|one| quad(one, 0) == LOAD)
        .map(|one| word(one, 16))
        .min()?;
    let base = start.wrapping_sub(lowest & !4095);
    let mut build_id = Vec::new();
    for one in segments().filter(|one| quad(one, 0) == NOTE) {
        let mut notes = vec![0u8; (word(one, 32) as usize).min(2048)];
        let got = sys::peek(base.wrapping_add(word(one, 16)), &mut notes);
        let mut at = 0;
        while build_id.is_empty() && at + 12 <= got {
            let (name, content) = (quad(&notes, at) as usize, quad(&notes, at + 4) as usize);
            let body = at + 12 + name.next_multiple_of(4);
            if body + content > got {
                break;
            }
            if quad(&notes, at + 8) == 3 && notes[at + 12..].starts_with(b"GNU\0") && content <= 64
            {
                build_id = notes[body..body + content].to_vec();
            }
            at = body + content.next_multiple_of(4);
        }
    }
    Some((base, build_id))
}
