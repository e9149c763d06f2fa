// SPDX-License-Identifier: MIT
//! A process of which only the lines of /proc/PID/maps were kept: names out of the files, if those
//! are still the same.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flagfinder_files::{facts_of, open_named};
use flagfinder_trace::Segment;
use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};

use crate::input::{ModuleInput, NamesInput};
use crate::maps::{Mapping, Maps};
use crate::module::ModuleIdentity;
use crate::names::Names;

const READ_AND_EXECUTE: u32 = 1 | 4;

impl NamesInput {
    /// Of the executable lines of /proc/PID/maps. Files that changed after `recorded` (seconds
    /// since 1970) are not believed: their code is then called by the offset into the file.
    pub fn from_code_maps(text: &str, recorded: i64) -> NamesInput {
        let maps = Maps::parse(text);
        let code = maps
            .all()
            .iter()
            .filter(|m| m.executable && !m.path.is_empty());
        NamesInput {
            modules: code.map(|mapping| module(mapping, recorded)).collect(),
            maps: vec![maps.clone()],
            ..NamesInput::default()
        }
    }
}

fn module(mapping: &Mapping, recorded: i64) -> ModuleInput {
    let path = Path::new(mapping.file());
    let unchanged = facts_of(path).is_ok_and(|facts| facts.changed <= recorded);
    let virtual_address = unchanged.then(|| virtual_address(path, mapping.file_offset));
    let found = virtual_address.flatten();
    ModuleInput {
        identity: ModuleIdentity::new(&mapping.path, &[]),
        path: mapping.file().to_owned(),
        file: found.map_or(PathBuf::new(), |_| path.to_owned()),
        base: mapping
            .start
            .wrapping_sub(found.unwrap_or(mapping.file_offset)),
        segments: vec![Segment {
            start: mapping.start,
            end: mapping.end,
            file_offset: mapping.file_offset,
            prot: READ_AND_EXECUTE,
        }],
        samples: Vec::new(),
    }
}

/// The ELF virtual address of a place in the file; `None`: no such file, or the place is in no
/// segment.
fn virtual_address(path: &Path, offset: u64) -> Option<u64> {
    let data = ReadCache::new(open_named(path).ok()?);
    let header = FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let mut segments = header.program_headers(endian, &data).ok()?.iter();
    segments.find_map(|segment| {
        // Mappings begin at whole pages, so before the segment's own first byte.
        let distance = segment
            .p_vaddr(endian)
            .wrapping_sub(segment.p_offset(endian));
        let end = segment.p_offset(endian) + segment.p_filesz(endian);
        let first = segment.p_offset(endian) & !0xfff;
        let is_code = segment.p_type(endian) == PT_LOAD && segment.p_flags(endian) & PF_X != 0;
        (is_code && (first..end).contains(&offset)).then(|| offset.wrapping_add(distance))
    })
}

impl Names {
    /// Code as it is in the module's file; shorter or empty where there is none.
    pub fn file_code(&self, address: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let read = self.read_file(address, &mut bytes).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    fn read_file(&self, address: u64, bytes: &mut [u8]) -> Option<usize> {
        let mut modules = self.input.modules.iter();
        let (module, segment) = modules.find_map(|module| {
            let mut segments = module.segments.iter();
            let segment = segments.find(|s| (s.start..s.end).contains(&address))?;
            Some((module, segment))
        })?;
        let offset = address - segment.start + segment.file_offset;
        let file = open_named(&module.file).ok()?;
        file.read_at(bytes, offset).ok()
    }
}
