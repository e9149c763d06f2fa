//! Where frames lie, from `.eh_frame`: stripping leaves it in place, as exceptions need it.

use std::ops::Range;
use std::sync::Arc;

use gimli::{BaseAddresses, CfaRule, EhFrame, EndianArcSlice, LittleEndian, UnwindSection};
use object::{Object, ObjectSection};

use crate::debug::Slice;
use crate::register;

pub(crate) struct Unwind {
    frames: EhFrame<Slice>,
    bases: BaseAddresses,
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
        let data = section.uncompressed_data().ok()?;
        let mut bases = BaseAddresses::default().set_eh_frame(section.address());
        if let Some(text) = address(".text") {
            bases = bases.set_text(text);
        }
        if let Some(got) = address(".got") {
            bases = bases.set_got(got);
        }
        let frames = EhFrame::from(EndianArcSlice::new(Arc::from(&*data), LittleEndian));
        Some(Unwind { frames, bases })
    }

    fn entry(&self, pc: u64) -> Option<gimli::FrameDescriptionEntry<Slice>> {
        let parse = |section: &EhFrame<Slice>, bases: &BaseAddresses, offset| {
            section.cie_from_offset(bases, offset)
        };
        self.frames.fde_for_address(&self.bases, pc, parse).ok()
    }

    /// The canonical frame address before the instruction at `pc`: a general register
    /// (x86 numbering) and what is to be added.
    pub fn frame_address(&self, pc: u64) -> Option<(u8, i64)> {
        let mut context = gimli::UnwindContext::new();
        let entry = self.entry(pc)?;
        let row = entry
            .unwind_info_for_address(&self.frames, &self.bases, &mut context, pc)
            .ok()?;
        match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                Some((register::from_dwarf(*register)?, *offset))
            }
            CfaRule::Expression(_) => None,
        }
    }

    /// Extent of the function (or of its part) that holds the address.
    pub fn function(&self, pc: u64) -> Option<Range<u64>> {
        let entry = self.entry(pc)?;
        Some(entry.initial_address()..entry.end_address())
    }
}
