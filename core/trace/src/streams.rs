// SPDX-License-Identifier: MIT
//! Which sections belong together: those of one thread, and of one life of it.

use std::collections::BTreeMap;

use crate::container::{Section, SectionKind};

/// Sections in order of their positions.
pub(crate) type Stream = Vec<Section>;

/// Index of the last start at or before `ts`; the first when there is none.
pub(crate) fn latest(starts: &[u64], ts: u64) -> usize {
    starts
        .partition_point(|&start| start <= ts)
        .saturating_sub(1)
}

/// The streams of one kind, per thread and life.
pub(crate) fn split_streams(group: &[Section], kind: SectionKind) -> Vec<Stream> {
    let mut threads: BTreeMap<u32, Stream> = BTreeMap::new();
    for section in group.iter().filter(|s| s.header.kind == kind as u16) {
        // META belongs to the process, whichever thread handed a chunk over.
        let tid = if kind == SectionKind::Meta {
            0
        } else {
            section.header.tid
        };
        threads.entry(tid).or_default().push(*section);
    }
    threads.values().flat_map(lives).collect()
}

/// Splits the sections of one (pid, tid, kind) into lives: a position that does not
/// grow (for values, a sequence number) begins another one: a tid was reused, or the
/// process called exec.
fn lives(stream: &Stream) -> Vec<Stream> {
    let order = |section: &Section| match section.header.section_kind() {
        Some(SectionKind::Values) => section.header.seq,
        _ => section.header.start_pos,
    };
    let mut sorted = stream.clone();
    sorted.sort_by_key(|section| (section.header.ts_open, order(section)));
    let mut lives: Vec<Stream> = Vec::new();
    for section in sorted {
        match lives.last_mut() {
            Some(life) if order(&life[life.len() - 1]) < order(&section) => life.push(section),
            _ => lives.push(vec![section]),
        }
    }
    lives
}
