// SPDX-License-Identifier: MIT
//! Whether a file keeps what docs/events-format.md promises.

use std::collections::HashMap;

use serde::Serialize;

use crate::continuity::Continuity;
use crate::event::{Event, Kind};
use crate::reader::EventFile;

/// One fault of each kind is told in full.
const MOST: usize = 20;

#[derive(Default)]
struct Checker {
    last: HashMap<u16, u64>,
    lost: u64,
    events: u64,
    violations: Vec<String>,
}

impl Checker {
    fn report(&mut self, text: String) {
        if self.violations.len() < MOST {
            self.violations.push(text);
        }
    }

    fn see(&mut self, event: &Event) {
        let last = self.last.insert(event.cpu, event.ts).unwrap_or(0);
        if event.ts < last {
            self.report(format!("CPU {}: time goes back at {}", event.cpu, event.ts));
        }
        if event.kind == Kind::Lost {
            self.lost += event.words[0];
            return;
        }
        self.events += 1;
        if event.kind == Kind::Switch && event.a == event.b {
            self.report(format!(
                "CPU {}: thread {} is switched to itself at {}",
                event.cpu, event.a, event.ts
            ));
        }
    }
}

/// What [`check`] finds, a line each.
#[derive(Debug, Default, Serialize)]
pub struct Findings {
    /// What is wrong; empty: sound.
    pub violations: Vec<String>,
    /// What the file can't know, without a fault of its own.
    pub notes: Vec<String>,
}

/// Reads all events and judges them.
pub fn check(file: &EventFile) -> Findings {
    let mut checker = Checker::default();
    let mut continuity = Continuity::of(file);
    for damage in file.damage() {
        checker.report(format!(
            "file offset {:#x}: {}, {} bytes",
            damage.offset, damage.what, damage.bytes
        ));
    }
    let bad = file.events(|event| {
        checker.see(event);
        continuity.see(event);
    });
    bad.iter()
        .for_each(|error| checker.report(error.to_string()));
    match &file.end {
        None => checker.report("the last block is missing: the recorder was killed".into()),
        Some(end) => {
            let before = file.info.before;
            let found = before.events + checker.events;
            if end.events != found {
                checker.report(format!("{found} events where {} were recorded", end.events));
            }
            let found = before.lost + checker.lost;
            if end.lost > found {
                checker.report(format!(
                    "{} events were lost, but the file marks {found}",
                    end.lost
                ));
            }
            // If nothing is said to be missing, nothing may be missing.
            if end.lost == 0 && bad.is_empty() && file.damage().is_empty() {
                let hole = continuity.violation();
                hole.into_iter().for_each(|hole| checker.report(hole));
            }
        }
    }
    let not_followed = file.end.as_ref().map_or(0, |end| end.lost_processes);
    let not_followed = (not_followed > 0)
        .then(|| format!("processes that were started but not followed: {not_followed}"));
    Findings {
        violations: checker.violations,
        notes: continuity.note().into_iter().chain(not_followed).collect(),
    }
}
