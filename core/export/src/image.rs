// SPDX-License-Identifier: MIT
//! An ELF file at the addresses where a program had it: other tools' traces don't hold the code.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use flagfinder_files::open_regular;
use flagfinder_trace::{Module, Segment};
use object::{Object, ObjectSegment, SegmentFlags};

use crate::error::{foreign, ExportError};

/// The stretches of an ELF file that are loaded, at their run-time addresses.
pub struct Image {
    path: PathBuf,
    /// Run-time address of ELF vaddr 0.
    base: u64,
    build_id: Vec<u8>,
    /// Run-time addresses, their bytes in the file, protection.
    segments: Vec<(Range<u64>, Vec<u8>, u32)>,
}

/// PROT_READ, PROT_WRITE, PROT_EXEC of PF_R 4, PF_W 2, PF_X 1.
fn protection(flags: SegmentFlags) -> u32 {
    match flags {
        SegmentFlags::Elf { p_flags } => (p_flags >> 2 & 1) | (p_flags & 2) | (p_flags & 1) << 2,
        _ => 0,
    }
}

impl Image {
    /// `base` is what was added to the file's addresses; 0 where the trace has the file's own.
    ///
    /// # Errors
    /// When the file can't be read or is no ELF file.
    pub fn open(path: &Path, base: u64) -> Result<Image, ExportError> {
        let mut bytes = Vec::new();
        open_regular(path)?.read_to_end(&mut bytes)?;
        let file = object::File::parse(&*bytes).map_err(|error| {
            foreign(
                &format!("{} can't be used as an image", path.display()),
                error.to_string(),
                "Give the ELF file that the trace was made of.",
                "Images of other files are not affected.",
            )
        })?;
        let segments = file
            .segments()
            .map(|segment| {
                let start = base.wrapping_add(segment.address());
                let held = segment.data().unwrap_or_default().to_vec();
                let range = start..start.wrapping_add(segment.size());
                (range, held, protection(segment.flags()))
            })
            .collect();
        let build_id = file.build_id().ok().flatten().unwrap_or_default().to_vec();
        Ok(Image {
            path: path.to_owned(),
            base,
            build_id,
            segments,
        })
    }

    /// Up to 15 bytes of code at a run-time address; `None`: not in it.
    pub(crate) fn code(&self, pc: u64) -> Option<&[u8]> {
        const LONGEST: usize = 15;
        const EXECUTABLE: u32 = 4;
        let (range, held, _) = self
            .segments
            .iter()
            .find(|(range, _, protection)| range.contains(&pc) && protection & EXECUTABLE != 0)?;
        let from = (pc - range.start) as usize;
        let bytes = held.get(from..)?;
        Some(&bytes[..bytes.len().min(LONGEST)])
    }

    pub(crate) fn module(&self) -> Module {
        let starts = self.segments.iter().map(|(range, ..)| range.start);
        let ends = self.segments.iter().map(|(range, ..)| range.end);
        Module {
            path: self.path.to_string_lossy().into_owned(),
            build_id: self.build_id.clone(),
            base: self.base,
            start: starts.min().unwrap_or(self.base),
            end: ends.max().unwrap_or(self.base),
            segments: self
                .segments
                .iter()
                .map(|(range, _, prot)| Segment {
                    start: range.start,
                    end: range.end,
                    file_offset: 0,
                    prot: *prot,
                })
                .collect(),
            ..Module::default()
        }
    }
}
