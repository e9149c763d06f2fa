// SPDX-License-Identifier: MIT
//! Where frames lie, from `.eh_frame`: stripping leaves it in place, as exceptions need it.

use std::ops::Range;
use std::sync::Arc;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameOffset, EndianArcSlice, LittleEndian,
    RegisterRule, UnwindSection,
};
use object::{Object, ObjectSection};
use rustc_hash::FxHashMap;

use crate::debug::Slice;
use crate::file_bytes::unpacked;
use crate::memo::Memo;
use crate::register;

/// Where a function keeps a register of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    /// It is as it was.
    Kept,
    /// So far from the canonical frame address.
    At(i64),
    Lost,
}

/// How to get from a frame to its caller's; registers in x86 numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The canonical frame address: a register and what is to be added.
    pub frame: (u8, i64),
    pub saved: [Saved; 16],
    /// `None`: nobody called it.
    pub return_address: Option<i64>,
}

pub(crate) struct Unwind {
    frames: EhFrame<Slice>,
    bases: BaseAddresses,
    /// Extents of functions (or of their parts) and where they are described, by start.
    functions: Vec<(Range<u64>, EhFrameOffset)>,
    known: Memo<u64, Option<Rules>>,
}

impl std::fmt::Debug for Unwind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwind").finish_non_exhaustive()
    }
}

impl Unwind {
    /// `None` when the file has no such section.
    pub fn load(bytes: &[u8]) -> Option<Unwind> {
        let file = object::File::parse(bytes).ok()?;
        let address = |name: &str| file.section_by_name(name).map(|s| s.address());
        let section = file.section_by_name(".eh_frame")?;
        let data = unpacked(&section)?;
        let mut bases = BaseAddresses::default().set_eh_frame(section.address());
        if let Some(text) = address(".text") {
            bases = bases.set_text(text);
        }
        if let Some(got) = address(".got") {
            bases = bases.set_got(got);
        }
        let frames = EhFrame::from(EndianArcSlice::new(Arc::from(&*data), LittleEndian));
        let functions = functions(&frames, &bases);
        Some(Unwind {
            frames,
            bases,
            functions,
            known: Memo::default(),
        })
    }

    fn at(&self, pc: u64) -> Option<&(Range<u64>, EhFrameOffset)> {
        let after = self.functions.partition_point(|(f, _)| f.start <= pc);
        let found = self.functions[..after].last()?;
        found.0.contains(&pc).then_some(found)
    }

    /// The canonical frame address before the instruction at `pc`: a general register
    /// (x86 numbering) and what is to be added.
    pub fn frame_address(&self, pc: u64) -> Option<(u8, i64)> {
        Some(self.rules(pc)?.frame)
    }

    /// How to find the caller's registers at the instruction at `pc`.
    pub fn rules(&self, pc: u64) -> Option<Rules> {
        self.known.get(pc, || self.find_rules(pc))
    }

    fn find_rules(&self, pc: u64) -> Option<Rules> {
        let mut context = gimli::UnwindContext::new();
        let (_, place) = self.at(pc)?;
        let entry = self
            .frames
            .fde_from_offset(&self.bases, *place, EhFrame::cie_from_offset)
            .ok()?;
        let row = entry
            .unwind_info_for_address(&self.frames, &self.bases, &mut context, pc)
            .ok()?;
        let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
            return None;
        };
        let mut rules = Rules {
            frame: (register::from_dwarf(*register)?, *offset),
            saved: [Saved::Kept; 16],
            return_address: None,
        };
        for (register, rule) in row.registers() {
            let saved = match rule {
                RegisterRule::Offset(offset) => Saved::At(*offset),
                RegisterRule::SameValue => Saved::Kept,
                _ => Saved::Lost,
            };
            match (register::from_dwarf(*register), saved) {
                (Some(number), saved) => rules.saved[usize::from(number)] = saved,
                (None, Saved::At(offset)) if *register == entry.cie().return_address_register() => {
                    rules.return_address = Some(offset);
                }
                (None, _) => {}
            }
        }
        Some(rules)
    }

    /// Extent of the function (or of its part) that holds the address.
    pub fn function(&self, pc: u64) -> Option<Range<u64>> {
        Some(self.at(pc)?.0.clone())
    }
}

/// All that the section describes, up to where it is damaged. It is asked for by address again and
/// again, while the section can only be read from its beginning (not every file has the table in
/// `.eh_frame_hdr`).
fn functions(frames: &EhFrame<Slice>, bases: &BaseAddresses) -> Vec<(Range<u64>, EhFrameOffset)> {
    let mut common = FxHashMap::default();
    let mut found = Vec::new();
    let mut entries = frames.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let place = EhFrameOffset(partial.offset());
        let parsed = partial.parse(|section, bases, offset| {
            if let Some(known) = common.get(&offset) {
                return Ok(gimli::CommonInformationEntry::clone(known));
            }
            let entry = section.cie_from_offset(bases, offset)?;
            common.insert(offset, entry.clone());
            Ok(entry)
        });
        if let Ok(function) = parsed {
            let extent = function.initial_address()..function.end_address();
            if !extent.is_empty() {
                found.push((extent, place));
            }
        }
    }
    found.sort_by_key(|(extent, _)| extent.start);
    found
}
