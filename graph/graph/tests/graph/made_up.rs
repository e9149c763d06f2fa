// SPDX-License-Identifier: MIT
//! Recordings that are made up: what their graphs say is then known beforehand.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use flagfinder_events::container::BlockKind;
use flagfinder_events::{Call, End, Event, EventFile, EventWriter, Info, Kind, Mark, ThreadFact};
use flagfinder_graph::{build, diagnose, Diagnosis, Graph, Outcome, Request};

pub const READ: u16 = libc::SYS_read as u16;
pub const WRITE: u16 = libc::SYS_write as u16;
pub const POLL: u16 = libc::SYS_poll as u16;
pub const FUTEX: u16 = libc::SYS_futex as u16;
pub const SLEEP: u16 = libc::SYS_clock_nanosleep as u16;
pub const PREEMPTED: u8 = 0;
pub const SLEEPS: u8 = 1;
pub const TASK: u8 = 1;
pub const TIMEOUT: u8 = 6;
pub const MS: u64 = 1_000_000;

/// Events of one CPU, ten ns apart.
#[derive(Default)]
pub struct Recording {
    pub info: Info,
    pub end: Option<End>,
    pub marks: Vec<Mark>,
    /// With their process.
    pub threads: Vec<(u32, u32)>,
    /// The one of them that started the others; 0: none.
    pub parent: u32,
    pub events: Vec<Event>,
    pub stacks: Vec<Vec<u64>>,
    pub running: u32,
    /// The time of the newest event.
    pub now: u64,
}

impl Recording {
    /// A recording of threads, each a process of its own.
    pub fn of(threads: &[u32]) -> Recording {
        Recording {
            threads: threads.iter().map(|&tid| (tid, tid)).collect(),
            running: threads[0],
            ..Recording::default()
        }
    }

    pub fn event(&mut self, kind: Kind, flags: u8, b: u32, word: u64) -> &mut Event {
        self.now += 10;
        self.events.push(Event {
            ts: self.now,
            a: self.running,
            b,
            cpu: 0,
            kind,
            flags,
            stack: 0,
            words: [word, 0, 0],
        });
        self.events.last_mut().unwrap()
    }

    /// Nothing happens for a while.
    pub fn passes(&mut self, ns: u64) {
        self.now += ns;
    }

    pub fn enter(&mut self, number: u16, first: u64) {
        self.event(Kind::Enter, 0, 0, Call { number, first }.pack());
    }

    pub fn returns(&mut self, number: u16, result: u64) {
        let first = result;
        self.event(Kind::ExitCall, 0, 0, Call { number, first }.pack());
    }

    pub fn wakes(&mut self, other: u32, caller: u16) -> &mut Event {
        self.event(Kind::Waking, TASK, other, u64::from(caller) + 1)
    }

    /// The limit of the call that a thread waits in has come.
    pub fn times_out(&mut self, other: u32) {
        self.event(Kind::Waking, TIMEOUT, other, 0);
    }

    /// The running thread blocks in a call, and another goes on.
    pub fn waits(&mut self, number: u16, first: u64, next: u32) -> &mut Event {
        let word = Call { number, first }.pack();
        self.switch(SLEEPS, word, next)
    }

    /// Another goes on, though the running thread could.
    pub fn preempted(&mut self, next: u32) {
        self.switch(PREEMPTED, 0, next);
    }

    fn switch(&mut self, state: u8, word: u64, next: u32) -> &mut Event {
        self.event(Kind::Switch, state, next, word);
        self.running = next;
        self.events.last_mut().unwrap()
    }

    /// The same, with the entry into the call.
    pub fn blocks(&mut self, number: u16, first: u64, next: u32) {
        self.enter(number, first);
        self.waits(number, first, next);
    }

    /// The recording ends so many ns later.
    pub fn ends_after(&mut self, ns: u64) {
        self.passes(ns);
        self.end = Some(End {
            ts: self.now,
            ..End::default()
        });
    }

    /// As a file, with further facts, which is read again.
    pub fn file(&self, facts: impl Fn(&mut EventWriter<std::fs::File>)) -> EventFile {
        let path = scratch("made-up");
        let mut writer = EventWriter::create(&path, &self.info).unwrap();
        let threads = self.threads.iter().map(|&(tid, pid)| ThreadFact {
            tid,
            pid,
            name: format!("thread-{tid}"),
            parent: if tid == self.parent { 0 } else { self.parent },
            ..ThreadFact::default()
        });
        let threads: Vec<ThreadFact> = threads.collect();
        writer.fact(BlockKind::Threads, &threads).unwrap();
        for mark in &self.marks {
            writer.fact(BlockKind::Mark, mark).unwrap();
        }
        for stack in &self.stacks {
            writer.stack(stack);
        }
        facts(&mut writer);
        writer.events(0, &self.events).unwrap();
        if let Some(end) = &self.end {
            writer.fact(BlockKind::End, end).unwrap();
        }
        writer.finish().unwrap();
        let file = EventFile::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    pub fn graph(&self) -> Graph {
        build(&self.file(|_| ()), &[])
    }
}

/// A file name that nobody else uses.
pub fn scratch(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("ff-{name}-{}-{number}", std::process::id()))
}

/// What the rules say of a hang; of one that there must be.
pub fn explained(graph: &Graph, request: &Request) -> Diagnosis {
    match diagnose(graph, request) {
        Some(Outcome::Diagnosis(found)) => *found,
        other => panic!("{other:?}"),
    }
}

/// Thread ids of the culprits, the root first.
pub fn culprits(found: &Diagnosis) -> Vec<u32> {
    found.culprits.iter().map(|culprit| culprit.tid).collect()
}
