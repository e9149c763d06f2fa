// SPDX-License-Identifier: MIT
//! Which blocks each FLOW section of a thread executed: a cheap look at the flow alone, which
//! tells the sections that are worth replaying.

use std::ops::Range;

use flagfinder_trace::{BlockId, DecodedFlow, GapReason, Result, Thread};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::block_set::BlockSet;

/// A stay in a loop has to fill so many sections before anything is concluded from them.
const STAY: usize = 4;
/// A block has to be executed in so many sections to count as a repeated one.
const OFTEN: usize = 3;

struct Section {
    start: u64,
    /// Blocks executed, repeated ones counted.
    executed: u64,
    /// `None`: it could not be read to its end.
    blocks: Option<BlockSet>,
}

pub struct Contents {
    sections: Vec<Section>,
}

impl Contents {
    /// # Errors
    /// When the trace cannot be read.
    pub fn read(thread: &Thread) -> Result<Self> {
        let starts: Vec<u64> = thread
            .flow_section_extents()
            .map(|(start, _)| start)
            .collect();
        let sections = starts.into_par_iter().enumerate().map_init(
            || (thread.flow_decoder(), DecodedFlow::default()),
            |(decoder, flow), (index, start)| {
                decoder.decode_folded(index, flow)?;
                let whole = flow.gap != Some(GapReason::Damaged);
                Ok(Section {
                    start,
                    executed: flow.block_count(),
                    blocks: whole.then(|| flow.blocks.iter().copied().collect()),
                })
            },
        );
        Ok(Contents {
            sections: sections.collect::<Result<_>>()?,
        })
    }

    /// The blocks executed in a stretch of flow positions, and possibly others near it. `None`:
    /// unknown.
    pub fn blocks(&self, stretch: Range<u64>) -> Option<BlockSet> {
        let section = |pos: u64| self.sections.partition_point(|s| s.start <= pos);
        let first = section(stretch.start).saturating_sub(1);
        let end = section(stretch.end.saturating_sub(1)).max(first + 1);
        let mut all = BlockSet::default();
        for section in self.sections.get(first..end)? {
            all.extend(section.blocks.as_ref()?);
        }
        Some(all)
    }

    /// The blocks that belong to what the thread repeated for its last `length` blocks: those that
    /// it executed in section after section. Blocks that it executed once or twice in between are
    /// left out. Empty if it did not stay for long.
    pub fn repeated(&self, length: u64) -> BlockSet {
        let mut left = length;
        let stay = self.sections.iter().rev().take_while(|section| {
            let inside = section.executed <= left;
            left = left.saturating_sub(section.executed);
            inside
        });
        let mut counts: FxHashMap<BlockId, usize> = FxHashMap::default();
        let mut sections = 0;
        for section in stay {
            sections += 1;
            for id in section.blocks.iter().flat_map(BlockSet::iter) {
                *counts.entry(id).or_default() += 1;
            }
        }
        if sections < STAY {
            return BlockSet::default();
        }
        let often = OFTEN.max(sections / 16);
        let repeated = counts.iter().filter(|(_, count)| **count >= often);
        repeated.map(|(id, _)| *id).collect()
    }
}
