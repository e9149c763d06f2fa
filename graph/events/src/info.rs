// SPDX-License-Identifier: MIT
//! A file in numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::continuity::Continuity;
use crate::event::Kind;
use crate::facts::{End, Info, Mark, Note};
use crate::reader::EventFile;

#[derive(Debug, Serialize)]
struct Summary<'f> {
    #[serde(flatten)]
    info: &'f Info,
    bytes: u64,
    /// ns from the first event to the end of the recording.
    span: u64,
    events: BTreeMap<&'static str, u64>,
    /// Wakes by the context they came from.
    wakes: BTreeMap<&'static str, u64>,
    /// Events missing, by CPU, as marked among the events.
    lost: BTreeMap<u16, u64>,
    different_stacks: usize,
    descriptors: usize,
    marks: &'f [Mark],
    notes: Vec<Note>,
    damaged_blocks: usize,
    end: &'f Option<End>,
}

/// Everything about the file but the events themselves, as JSON. Reads all events.
pub fn summary(file: &EventFile) -> String {
    let mut events = BTreeMap::new();
    let mut wakes = BTreeMap::new();
    let mut lost = BTreeMap::new();
    let mut continuity = Continuity::of(file);
    let bad = file.events(|event| {
        continuity.see(event);
        if event.kind == Kind::Lost {
            *lost.entry(event.cpu).or_default() += event.words[0];
            return;
        }
        *events.entry(event.kind.name()).or_default() += 1;
        if event.kind == Kind::Waking {
            *wakes.entry(event.context().name()).or_default() += 1;
        }
    });
    let hidden = continuity.note().map(|text| Note {
        level: "note".into(),
        text,
    });
    let (first, last) = file.time();
    let summary = Summary {
        info: &file.info,
        bytes: file.disk_bytes(),
        span: last - first,
        events,
        wakes,
        lost,
        different_stacks: file.stack_count(),
        descriptors: file.descriptors.len(),
        marks: &file.marks,
        notes: file.notes.iter().cloned().chain(hidden).collect(),
        damaged_blocks: file.damage().len() + bad.len(),
        end: &file.end,
    };
    serde_json::to_string(&summary).unwrap_or_else(|_| "null".into())
}
