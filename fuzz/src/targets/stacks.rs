// SPDX-License-Identifier: MIT
//! Names the words of arbitrary stacks by arbitrary lines of /proc/PID/maps and an arbitrary
//! program: no panic, bounded memory.
//!
//! An input is the length of the lines (2 bytes), the lines, the number of words (1), the words,
//! the program. In the lines [`PROGRAM`] stands for the program's path.

use flagfinder_events::container::BlockKind;
use flagfinder_events::{
    tally, Event, EventFile, EventWriter, Info, Kind, MapsFact, PythonFact, Question, PYTHON,
};
use flagfinder_graph::{build, profile, top};

use super::questions::ask;
use crate::MemoryFile;

/// Stands for the program's path.
pub const PROGRAM: &str = "/@";
const PID: u32 = 100;
/// A program that was written before a recording is believed.
const IN_THE_FUTURE: u64 = u64::MAX >> 1;

/// See the module.
pub fn run(data: &[u8]) {
    let Some((maps, rest)) = take(data, 2) else {
        return;
    };
    let Some((words, program)) = rest
        .split_first()
        .map(|(&count, rest)| rest.split_at((8 * usize::from(count)).min(rest.len())))
    else {
        return;
    };
    let words: Vec<u64> = words
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let program = MemoryFile::new(program).expect("a file in memory");
    let text = String::from_utf8_lossy(maps).replace(PROGRAM, &program.path().to_string_lossy());
    let bytes = recording(text, &words);
    let input = MemoryFile::new(&bytes).expect("a file in memory");
    let file = EventFile::open(&input.path()).expect("what was written can be read");
    ask(&build(&file, &[]));
    let _ = profile(&file);
    let question = Question {
        stacks: true,
        ..Question::default()
    };
    if let Ok(tally) = tally(&file, &question) {
        let _ = top(&tally);
    }
}

/// The bytes behind their length, and what follows them.
fn take(data: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_at_checked(width)?;
    let length = length
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    Some(rest.split_at(length.min(rest.len())))
}

/// A thread that blocks with longer and longer parts of the stack, and is found running at each
/// word.
fn recording(text: String, words: &[u64]) -> Vec<u8> {
    let info = Info {
        pids: vec![PID],
        stacks: "all".into(),
        started_unix_ns: IN_THE_FUTURE,
        ..Info::default()
    };
    let mut writer = EventWriter::new(Vec::new(), &info).expect("written to memory");
    let maps = MapsFact {
        ts: 0,
        pid: PID,
        text,
    };
    let python = PythonFact {
        number: 1,
        name: "Job.run".into(),
        file: "/job.py".into(),
        line: 12,
    };
    writer.fact(BlockKind::Maps, &maps).expect("written");
    writer.fact(BlockKind::Python, &python).expect("written");
    let mut events = Vec::new();
    for (round, word) in (0u64..).zip(words) {
        let length = (round as usize + 1).min(usize::from(u8::MAX));
        let event = |ts: u64, kind: Kind, a: u32, b: u32, stack: u32, word: u64| Event {
            ts: 1_000_000 * round + ts,
            a,
            b,
            cpu: 0,
            kind,
            flags: 1,
            stack,
            words: [word, 0, 0],
        };
        let stack = writer.stack(&words[words.len() - length..]);
        events.push(event(1, Kind::Sample, PID, 0, stack, *word));
        events.push(event(2, Kind::Switch, PID, 0, stack, 0));
        events.push(event(500_000, Kind::Waking, 0, PID, 0, 0));
        events.push(event(500_001, Kind::Switch, 0, PID, 0, 0));
        let mixed = writer.stack(&[*word, PYTHON | 1, PYTHON | 2]);
        events.push(event(600_000, Kind::Yield, PID, 0, mixed, 0));
    }
    writer.events(0, &events).expect("written to memory");
    writer.finish().expect("written to memory")
}
