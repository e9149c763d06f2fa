// SPDX-License-Identifier: MIT
//! Where frames lie, from `.eh_frame`, which stripping leaves in place, as exceptions need it, and
//! from `.debug_frame`, the only one that Go's compiler makes.

use std::ops::Range;
use std::sync::Arc;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianArcSlice, LittleEndian,
    RegisterRule, UnwindOffset, UnwindSection,
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

/// One section.
struct Table<S> {
    section: S,
    bases: BaseAddresses,
    /// Extents of functions (or of their parts) and where they are described, by start.
    functions: Vec<(Range<u64>, usize)>,
}

pub(crate) struct Unwind {
    kept: Option<Table<EhFrame<Slice>>>,
    of_debugger: Option<Table<DebugFrame<Slice>>>,
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
        let mut bases = BaseAddresses::default();
        if let Some(text) = address(".text") {
            bases = bases.set_text(text);
        }
        if let Some(got) = address(".got") {
            bases = bases.set_got(got);
        }
        if let Some(own) = address(".eh_frame") {
            bases = bases.set_eh_frame(own);
        }
        let data = |name: &str| {
            let data = unpacked(&file.section_by_name(name)?)?;
            Some(EndianArcSlice::new(Arc::from(&*data), LittleEndian))
        };
        let kept = data(".eh_frame").map(|data| Table::new(EhFrame::from(data), bases.clone()));
        let of_debugger = data(".debug_frame").map(|data| {
            let mut section = DebugFrame::from(data);
            section.set_address_size(8);
            Table::new(section, bases)
        });
        (kept.is_some() || of_debugger.is_some()).then(|| Unwind {
            kept,
            of_debugger,
            known: Memo::default(),
        })
    }

    /// The canonical frame address before the instruction at `pc`: a general register
    /// (x86 numbering) and what is to be added.
    pub fn frame_address(&self, pc: u64) -> Option<(u8, i64)> {
        Some(self.rules(pc)?.frame)
    }

    /// How to find the caller's registers at the instruction at `pc`.
    pub fn rules(&self, pc: u64) -> Option<Rules> {
        self.known.get(pc, || {
            let kept = self.kept.as_ref().and_then(|table| table.rules(pc));
            kept.or_else(|| self.of_debugger.as_ref()?.rules(pc))
        })
    }

    /// Extent of the function (or of its part) that holds the address.
    pub fn function(&self, pc: u64) -> Option<Range<u64>> {
        let kept = self.kept.as_ref().and_then(|table| table.at(pc));
        let found = kept.or_else(|| self.of_debugger.as_ref()?.at(pc));
        Some(found?.0.clone())
    }
}

impl<S: UnwindSection<Slice>> Table<S> {
    fn new(section: S, bases: BaseAddresses) -> Table<S> {
        let functions = functions(&section, &bases);
        Table {
            section,
            bases,
            functions,
        }
    }

    fn at(&self, pc: u64) -> Option<&(Range<u64>, usize)> {
        let after = self.functions.partition_point(|(f, _)| f.start <= pc);
        let found = self.functions[..after].last()?;
        found.0.contains(&pc).then_some(found)
    }

    fn rules(&self, pc: u64) -> Option<Rules> {
        let mut context = gimli::UnwindContext::new();
        let (_, place) = self.at(pc)?;
        let entry = self
            .section
            .fde_from_offset(&self.bases, S::Offset::from(*place), S::cie_from_offset)
            .ok()?;
        let row = entry
            .unwind_info_for_address(&self.section, &self.bases, &mut context, pc)
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
}

/// All that the section describes, up to where it is damaged. It is asked for by address again and
/// again, while the section can only be read from its beginning (not every file has the table in
/// `.eh_frame_hdr`).
fn functions<S: UnwindSection<Slice>>(
    section: &S,
    bases: &BaseAddresses,
) -> Vec<(Range<u64>, usize)> {
    let mut common = FxHashMap::default();
    let mut found = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let place = partial.offset();
        let parsed = partial.parse(|section, bases, offset| {
            let number = UnwindOffset::into(offset);
            if let Some(known) = common.get(&number) {
                return Ok(gimli::CommonInformationEntry::clone(known));
            }
            let entry = section.cie_from_offset(bases, offset)?;
            common.insert(number, entry.clone());
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
