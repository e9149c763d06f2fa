// SPDX-License-Identifier: MIT
//! Blocks, slots and the table that finds a block by its id.

use rustc_hash::FxHashMap;

use crate::protocol as p;

/// Within one process, from 1.
pub type BlockId = u32;
/// Within one process, from 1.
pub type ModuleId = u32;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// Value that memory operand `detail` was read with.
    Load,
    /// Value of general register `detail` after the instruction.
    Register,
    /// Effective address of memory operand `detail`.
    Address,
}

/// One recorded value of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Index of the instruction in the block.
    pub instruction: u8,
    /// What the value is.
    pub kind: SlotKind,
    /// Bytes in VALUES: 1, 2, 4 or 8.
    pub size: u8,
    /// x86 number of the register, or index of the memory operand.
    pub detail: u8,
}

/// Straight-line code entered at its top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Given by the tracer, the first time that it saw the block.
    pub id: BlockId,
    /// Run-time address of the first instruction.
    pub pc: u64,
    /// `None`: JIT, stack, vdso.
    pub module: Option<ModuleId>,
    /// The instructions as they stood in memory when the tracer saw the block.
    pub code: Box<[u8]>,
    /// At most 255, as a slot's index has one byte.
    pub instruction_count: u16,
    /// In the order in which their values stand in VALUES.
    pub slots: Box<[Slot]>,
    /// What one execution takes in VALUES: the sum of the slots' sizes.
    pub slot_bytes: u32,
}

impl Block {
    /// Parses `struct ff_block` and what follows it; `Err` says what is wrong.
    pub(crate) fn decode(payload: &[u8]) -> Result<Block, &'static str> {
        let record: p::BlockRecord = p::read(payload).ok_or("block record is too short")?;
        if record.id == 0 || record.id > p::BLOCK_ID_MAX {
            return Err("block id out of range");
        }
        let code_start = std::mem::size_of::<p::BlockRecord>();
        let slots_start = code_start + record.code_bytes as usize;
        let slots_end =
            slots_start + record.slot_count as usize * std::mem::size_of::<p::SlotRecord>();
        let code = payload
            .get(code_start..slots_start)
            .ok_or("block's code is cut")?;
        let encoded = payload
            .get(slots_start..slots_end)
            .ok_or("block's slots are cut")?;
        let mut slot_bytes = 0;
        let mut slots = Vec::with_capacity(record.slot_count as usize);
        for bytes in encoded.chunks_exact(std::mem::size_of::<p::SlotRecord>()) {
            let &[instruction, kind, size, detail] = bytes else {
                unreachable!("chunks of four")
            };
            let kind = match kind {
                p::SLOT_LOAD => SlotKind::Load,
                p::SLOT_REGISTER => SlotKind::Register,
                p::SLOT_ADDRESS => SlotKind::Address,
                _ => return Err("slot of an unknown kind"),
            };
            if !matches!(size, 1 | 2 | 4 | 8) || u16::from(instruction) >= record.instruction_count
            {
                return Err("slot out of range");
            }
            slot_bytes += u32::from(size);
            slots.push(Slot {
                instruction,
                kind,
                size,
                detail,
            });
        }
        Ok(Block {
            id: record.id,
            pc: record.pc,
            module: (record.module != 0).then_some(record.module),
            code: code.into(),
            instruction_count: record.instruction_count,
            slots: slots.into(),
            slot_bytes,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let record = p::BlockRecord {
            id: self.id,
            module: self.module.unwrap_or(0),
            pc: self.pc,
            code_bytes: self.code.len() as u32,
            instruction_count: self.instruction_count,
            slot_count: self.slots.len() as u16,
        };
        let mut slots = Vec::with_capacity(self.slots.len() * 4);
        for slot in &self.slots {
            let kind = match slot.kind {
                SlotKind::Load => p::SLOT_LOAD,
                SlotKind::Register => p::SLOT_REGISTER,
                SlotKind::Address => p::SLOT_ADDRESS,
            };
            slots.extend_from_slice(&[slot.instruction, kind, slot.size, slot.detail]);
        }
        crate::event::encode_record(
            out,
            p::META_BLOCK,
            &[bytemuck::bytes_of(&record), &self.code, &slots],
        );
    }

    /// First address after the code.
    pub fn end(&self) -> u64 {
        self.pc.wrapping_add(self.code.len() as u64)
    }
}

const PAGE: usize = 4096;
/// Ids count from 1. No program has more blocks than these pages hold, and a damaged id must not
/// become a page.
const MOST_PAGES: usize = 4096;

/// A process's blocks. Lookup is two array reads; ids may be sparse (lost META).
#[derive(Debug, Default)]
pub struct BlockTable {
    blocks: Vec<Block>,
    /// id / PAGE -> page; page[id % PAGE] = index into `blocks` + 1, 0 = none.
    pages: Vec<Option<Box<[u32; PAGE]>>>,
    /// The same for ids beyond [`MOST_PAGES`].
    far: FxHashMap<BlockId, u32>,
}

impl BlockTable {
    /// Adds a block. `false`: the id is taken by different code, and stays so.
    pub(crate) fn insert(&mut self, block: Block) -> bool {
        if let Some(known) = self.get(block.id) {
            return *known == block;
        }
        let id = block.id;
        self.blocks.push(block);
        let place = self.blocks.len() as u32;
        let page = id as usize / PAGE;
        if page >= MOST_PAGES {
            self.far.insert(id, place);
            return true;
        }
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let slot = id as usize % PAGE;
        self.pages[page].get_or_insert_with(|| Box::new([0; PAGE]))[slot] = place;
        true
    }

    /// `None`: its record is missing, or nobody gave this id.
    #[inline]
    pub fn get(&self, id: BlockId) -> Option<&Block> {
        let index = match self.pages.get(id as usize / PAGE) {
            Some(page) => page.as_ref()?[id as usize % PAGE],
            None => *self.far.get(&id)?,
        };
        self.blocks.get((index as usize).checked_sub(1)?)
    }

    /// In the order in which they were first built.
    pub fn all(&self) -> &[Block] {
        &self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(id: BlockId) -> Block {
        Block {
            id,
            pc: u64::from(id),
            module: None,
            code: Box::default(),
            instruction_count: 1,
            slots: Box::default(),
            slot_bytes: 0,
        }
    }

    #[test]
    fn ids_that_no_program_has_are_found_and_take_no_pages() {
        let mut table = BlockTable::default();
        let ids = [1, 5000, 1 << 24, 1 << 30, u32::MAX];
        for id in ids {
            assert!(table.insert(block(id)) && table.insert(block(id)));
        }
        let pcs = ids.map(|id| table.get(id).map(|block| block.pc));
        assert_eq!(pcs, ids.map(|id| Some(u64::from(id))));
        assert!(table.get(2).is_none() && table.get(u32::MAX - 1).is_none());
        assert_eq!(table.pages.iter().flatten().count(), 2);
    }
}
