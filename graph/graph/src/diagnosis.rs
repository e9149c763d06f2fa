// SPDX-License-Identifier: MIT
//! What `flagfinder diagnose` answers, as JSON has it.

use serde::Serialize;

use crate::activity::Class;
use crate::graph::Place;
use crate::hangs::Hang;
use crate::hot::Hot;
use crate::inversion::Inversion;
use crate::question::{Asked, Choice, Question};
use crate::ran::Ran;
use crate::starved::Starved;
use crate::work::Work;

#[derive(Clone, Debug, Serialize)]
pub struct PathStep {
    pub vertex: u32,
    pub tid: u32,
    pub thread: String,
    pub start: u64,
    pub dur: u64,
    /// How it caused the step before; of the first: null.
    pub edge: Option<&'static str>,
    /// Call sites where it blocks in the end, innermost first.
    pub stack: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Culprit {
    pub vertex: u32,
    pub tid: u32,
    pub pid: u32,
    pub thread: String,
    /// Name of its host, in a graph of several.
    pub host: Option<String>,
    pub class: Class,
    pub start: u64,
    pub dur: u64,
    /// What it did: `computing`, `read on pipe:[5]`.
    pub doing: String,
    /// How far from the hang: 1 is a thread that the hang waited for.
    pub depth: usize,
    /// Call sites where it blocked, innermost first; if it computed, where it blocked in the end.
    pub stack: Vec<String>,
    /// Where these are; null: in no file.
    pub places: Vec<Option<Place>>,
    /// The same of where it blocked before that.
    pub places_before: Vec<Option<Place>>,
    /// The call that it blocked in.
    pub call: Option<String>,
    /// Who made it begin with it: sent the message that it works on, woke it, started it.
    pub set_off: Option<SetOff>,
    /// Of HotCalls.
    pub hot: Option<Hot>,
    /// Of one that could run, and mostly had no CPU.
    pub starved: Option<Starved>,
    /// It had the lock that a more urgent thread waited for.
    pub inversion: Option<Inversion>,
    /// What it spent its time on, if it ran.
    pub ran: Option<Ran>,
    /// How it is known that the thread before waited for it.
    pub known: Known,
    /// Of Busy and RepeatedYield: how it divided that time.
    pub work: Option<Work>,
    /// The function, and its line where that is known, in which it worked or waited.
    pub code: Option<String>,
}

/// How it is known that a thread owed a wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Known {
    /// It ended the wait, or it handed on what did.
    Ended,
    /// It was seen to have what was waited for: a lock, its own end.
    Holds,
    /// It alone is at the other end of what was waited on.
    Peer,
    /// It ended such a wait before: it is likely, not known.
    Before,
    /// It was asked for something just before the wait: likely, too.
    Asked,
    /// It is in a deadlock of the same process: likely, too.
    Deadlock,
    /// It wrote the flag that is polled.
    Flag,
    /// It is the hanging thread itself.
    Itself,
}

/// Who made a thread begin with something, and how.
#[derive(Clone, Debug, Serialize)]
pub struct SetOff {
    pub tid: u32,
    pub thread: String,
    pub edge: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    pub tid: u32,
    pub thread: String,
}

/// What `flagfinder diagnose --json` prints beside its schema.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// What the hanging thread did.
    pub class: Class,
    /// The hanging thread, by the vertex that it was in.
    pub thread: PathStep,
    /// In words: `computing`, `read on pipe:[5]`.
    pub doing: String,
    /// CLOCK_MONOTONIC, ns.
    pub start: u64,
    /// How long the hang took, in ns.
    pub dur: u64,
    /// Of HotCalls.
    pub hot: Option<Hot>,
    /// It was still so when the recording ended.
    pub unfinished: bool,
    /// The wait that went well, or null.
    pub baseline: Option<PathStep>,
    /// That wait itself, and who ended it.
    pub compared: Option<Choice>,
    /// From the hang, or its baseline, back to its causes.
    pub path: Vec<PathStep>,
    /// The root cause first; empty if nobody is known to owe the end of the hang.
    pub culprits: Vec<Culprit>,
    /// The culprits wait for each other.
    pub circular: bool,
    /// Who waits for whom: each for the next, the last for the first. Empty without a circle.
    pub circle: Vec<Member>,
    /// Why this stretch was taken.
    pub hang: Hang,
    /// Other stretches that may have been meant, the likeliest first.
    pub others: Vec<Hang>,
    /// What to do next, where the recording can't tell more.
    pub advice: Vec<String>,
    /// How many were asked: none by rule.
    pub questions: usize,
    /// The questions on the way, with their answers.
    pub asked: Vec<Asked>,
    /// Events that the recording is missing, of all threads.
    pub lost: u64,
}

/// What `diagnose` comes to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// All questions are decided.
    Diagnosis(Box<Diagnosis>),
    /// The next question: ask again with one more answer.
    Question(Box<Question>),
}
