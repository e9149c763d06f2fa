// SPDX-License-Identifier: MIT
//! Builds graphs of recordings whose events say anything, and asks them everything: no panic,
//! bounded memory, and a graph that was saved is the one that is opened.
//!
//! Events are packed in a file, so that a change of its bytes does not reach them. Here the input
//! has them as they are, see [`Recording`]; what follows a recording is a second one, to compare
//! with.

use flagfinder_events::container::BlockKind;
use flagfinder_events::{
    check, dump, summary, tally, Event, EventFile, EventWriter, Info, Kind, Question,
};
use flagfinder_graph::{build, profile, top, Graph};
use serde_json::Value;

use super::questions::ask;
use crate::MemoryFile;

/// Bytes of an event in an input.
const RECORD: usize = 40;
/// The number of a line that `flagfinder watch` wrote.
pub const WATCHED: u16 = 99;
/// Kinds of events, by their place.
pub const KINDS: [Kind; 18] = [
    Kind::Switch,
    Kind::Waking,
    Kind::Enter,
    Kind::EnterWide,
    Kind::ExitCall,
    Kind::Fork,
    Kind::Exec,
    Kind::Exit,
    Kind::Rename,
    Kind::Signal,
    Kind::Arm,
    Kind::Fire,
    Kind::Submit,
    Kind::Complete,
    Kind::Yield,
    Kind::Sample,
    Kind::Lost,
    Kind::Refused,
];
/// Most different stacks.
const STACKS: u8 = 8;

/// See the module.
pub fn run(data: &[u8]) {
    let (first, rest) = Recording::parse(data);
    let files = [first.file(), Recording::parse(rest).0.file()];
    for (file, recording) in files.iter().zip([&first, &Recording::default()]) {
        let _ = (summary(file), check(file), profile(file));
        let _ = dump(file, 0, 0, 100, |_| {});
        for question in [
            Question::default(),
            Question {
                results: true,
                stacks: true,
                ..Question::default()
            },
        ] {
            if let Ok(tally) = tally(file, &question) {
                let _ = top(&tally);
            }
        }
        let graph = build(file, &[recording.watched()]);
        let output = MemoryFile::new(&[]).expect("a file in memory");
        graph.save(&output.path()).expect("written to memory");
        let again = Graph::open(&output.path()).expect("what was written can be read");
        assert_eq!(graph.summary(), again.summary());
        assert_eq!(graph.edges(), again.edges());
        ask(&again);
    }
}

/// The length of its facts (2 bytes), these, the number of its events (2 bytes), these.
///
/// A fact is a line: the number of its block's kind, and the block's JSON. An event is its kind,
/// its CPU, its flags, its stack (a byte each), the time since the one before (4), its two threads
/// (4 each), its three words (8 each).
#[derive(Default)]
pub struct Recording {
    /// Kind and JSON.
    pub facts: Vec<(u16, Value)>,
    /// In order of time.
    pub events: Vec<Event>,
}

fn number(bytes: &[u8]) -> u64 {
    let fold = |sum, byte: &u8| sum << 8 | u64::from(*byte);
    bytes.iter().rev().fold(0, fold)
}

fn split(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    bytes.split_at(at.min(bytes.len()))
}

impl Recording {
    /// The one at the beginning of the input, and what follows it.
    fn parse(data: &[u8]) -> (Recording, &[u8]) {
        let (length, rest) = split(data, 2);
        let (text, rest) = split(rest, number(length) as usize);
        let (count, rest) = split(rest, 2);
        let (records, rest) = split(rest, number(count) as usize * RECORD);
        let text = String::from_utf8_lossy(text);
        let fact = |line: &str| {
            let (kind, json) = line.split_once(' ')?;
            Some((kind.parse().ok()?, serde_json::from_str(json).ok()?))
        };
        let mut ts = 1_000_000;
        let mut event = |record: &[u8]| {
            let word = |at: usize, bytes: usize| number(&record[at..at + bytes]);
            ts += word(4, 4);
            Event {
                ts,
                a: word(8, 4) as u32,
                b: word(12, 4) as u32,
                cpu: u16::from(record[1] % 4),
                kind: KINDS[usize::from(record[0]) % KINDS.len()],
                flags: record[2],
                stack: u32::from(record[3] % (STACKS + 1)),
                words: [word(16, 8), word(24, 8), word(32, 8)],
            }
        };
        let recording = Recording {
            facts: text.lines().filter_map(fact).collect(),
            events: records.chunks_exact(RECORD).map(&mut event).collect(),
        };
        (recording, rest)
    }

    /// The reverse.
    pub fn bytes(&self) -> Vec<u8> {
        let line = |(kind, json): &(u16, Value)| format!("{kind} {json}\n");
        let text: String = self.facts.iter().map(line).collect();
        let mut bytes = (text.len() as u16).to_le_bytes().to_vec();
        bytes.extend(text.as_bytes());
        bytes.extend((self.events.len() as u16).to_le_bytes());
        let mut before = 1_000_000;
        for event in &self.events {
            let kind = KINDS.iter().position(|kind| *kind == event.kind);
            bytes.push(kind.unwrap_or_default() as u8);
            bytes.extend([event.cpu as u8, event.flags, event.stack as u8]);
            bytes.extend((event.ts.saturating_sub(before) as u32).to_le_bytes());
            before = event.ts;
            bytes.extend([event.a, event.b].map(u32::to_le_bytes).concat());
            bytes.extend(event.words.map(u64::to_le_bytes).concat());
        }
        bytes
    }

    fn watched(&self) -> String {
        let watched = self.facts.iter().filter(|fact| fact.0 == WATCHED);
        watched.map(|(_, json)| format!("{json}\n")).collect()
    }

    fn file(&self) -> EventFile {
        let info = Info {
            pids: vec![100],
            everything: true,
            syscalls: "all".into(),
            stacks: "all".into(),
            ..Info::default()
        };
        let mut writer = EventWriter::new(Vec::new(), &info).expect("written to memory");
        for stack in 1..=u64::from(STACKS) {
            let words: Vec<u64> = (1..=stack).map(|word| 0x1000 * word).collect();
            writer.stack(&words);
        }
        for (kind, json) in &self.facts {
            let kind = BlockKind::from_u16(*kind);
            let is_json = |kind: &BlockKind| {
                !matches!(
                    kind,
                    BlockKind::Events | BlockKind::Stacks | BlockKind::Dropped
                )
            };
            if let Some(kind) = kind.filter(is_json) {
                writer.fact(kind, json).expect("written to memory");
            }
        }
        for cpu in 0..4 {
            let own = self.events.iter().filter(|event| event.cpu == cpu);
            let own: Vec<Event> = own.copied().collect();
            writer.events(cpu, &own).expect("written to memory");
        }
        let bytes = writer.finish().expect("written to memory");
        let file = MemoryFile::new(&bytes).expect("a file in memory");
        EventFile::open(&file.path()).expect("what was written can be read")
    }
}
