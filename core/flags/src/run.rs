// SPDX-License-Identifier: MIT
//! A process of one run with everything that all searches in it share.

use std::sync::OnceLock;

use flagfinder_code::{AllocationLog, CodeMap, Names, NamesInput};
use flagfinder_diff::Callback;
use flagfinder_machine::decoded_blocks::DecodedBlocks;
use flagfinder_trace::{Process, Result};

use crate::block_set::BlockSet;
use crate::contents::Contents;

pub struct Run<'t> {
    pub process: &'t Process,
    pub code: CodeMap<'t>,
    pub blocks: DecodedBlocks<'t>,
    pub names: Names,
    /// Is told how far a search is.
    pub progress: Callback<'t>,
    /// By thread.
    contents: Vec<OnceLock<Contents>>,
}

impl<'t> Run<'t> {
    /// # Errors
    /// When the trace cannot be read.
    pub fn new(process: &'t Process) -> Result<Self> {
        let allocations = AllocationLog::from_process(process)?;
        let mut contents = Vec::new();
        contents.resize_with(process.threads().len(), OnceLock::new);
        Ok(Run {
            process,
            code: CodeMap::new(process),
            blocks: DecodedBlocks::new(process),
            names: Names::new(NamesInput::from_process(process, allocations)),
            progress: &|_| {},
            contents,
        })
    }

    /// The same run, which tells `progress` how far a search is.
    pub fn telling(self, progress: Callback<'t>) -> Self {
        Run { progress, ..self }
    }

    /// What the sections of one of the process's threads executed; read once.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn contents(&self, index: usize) -> Result<&Contents> {
        let cell = &self.contents[index];
        if let Some(known) = cell.get() {
            return Ok(known);
        }
        let read = Contents::read(&self.process.threads()[index])?;
        Ok(cell.get_or_init(|| read))
    }

    /// What a thread repeated for its last `length` blocks.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn repeated(&self, tid: u32, length: u64) -> Result<BlockSet> {
        // If a thread id was used several times, the last of its threads can be the one that waits.
        let threads = self.process.threads();
        match threads.iter().rposition(|thread| thread.tid == tid) {
            Some(index) if length > 0 => Ok(self.contents(index)?.repeated(length)),
            _ => Ok(BlockSet::default()),
        }
    }

    /// Where an instruction of `self` lies in another run; `None` for generated code (see
    /// `twins.rs`).
    pub fn translate(&self, pc: u64, other: &Run) -> Option<u64> {
        let place = self.code.place(pc);
        place.module.as_ref()?;
        other.code.address(&place)
    }

    /// The same blocks, with the same code, in another run.
    pub fn translate_blocks(&self, blocks: &BlockSet, other: &Run) -> BlockSet {
        let theirs = other.process.blocks();
        let mut found = BlockSet::default();
        let places: rustc_hash::FxHashMap<u64, &[u8]> = blocks
            .iter()
            .filter_map(|id| self.process.block(id))
            .filter_map(|block| Some((self.translate(block.pc, other)?, &*block.code)))
            .collect();
        for block in theirs {
            if places
                .get(&block.pc)
                .is_some_and(|code| **code == *block.code)
            {
                found.insert(block.id);
            }
        }
        found
    }
}
