// SPDX-License-Identifier: MIT
//! The JSON sections: what was recorded and how it ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the tracers were asked to record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Block ids and events only.
    #[default]
    Flow,
    /// Also what loads read.
    Values,
}

/// The first section: the circumstances of the recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Info {
    /// Version of the recorder that wrote the file.
    pub recorder: String,
    /// `dynamorio`, `lldb`, `synthetic`, or `tenet` for an imported text trace.
    pub tracer: String,
    /// What the tracers recorded.
    pub level: Level,
    /// Program and arguments as the user gave them.
    pub command: Vec<String>,
    /// The recorder's; empty when it could not be told.
    pub working_directory: String,
    /// Facts about the machine: kernel, CPU, ..
    pub machine: BTreeMap<String, serde_json::Value>,
    /// Options of the recording, and findings of its self-test.
    pub options: BTreeMap<String, serde_json::Value>,
}

/// How serious a [`Note`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoteLevel {
    /// The best way did not work, so another one was taken.
    Fallback,
    /// A part of the run is not in the trace.
    Lost,
    /// The user should know it; nothing is lost.
    Warning,
}

/// Something that was announced while recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// How serious it is.
    pub level: NoteLevel,
    /// For people, as it was announced.
    pub text: String,
}

/// Why a recording ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// The target ended, and the children that were waited for.
    #[default]
    TargetEnded,
    /// A thread had been spinning for as long as asked.
    Spinning,
    /// The user ended the recording (a signal to the recorder).
    Interrupted,
    /// As much was recorded as was asked for, or as this tracer can follow.
    Limit,
    /// The program printed the text that was waited for.
    Printed,
    /// The user ended it by a mark, from elsewhere.
    Marked,
    /// The file could not be written any further.
    WriteFailed,
}

/// How one process of the target ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessEnd {
    /// As the recorder's pid namespace has it.
    pub pid: u32,
    /// Exit status, when it exited.
    pub status: Option<i32>,
    /// Signal number, when a signal ended it.
    pub signal: Option<i32>,
    /// It was still running when the recording ended.
    pub running: bool,
}

/// The last section of a recording that was closed in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// The reason that came first.
    pub reason: EndReason,
    /// The target first, then its children; of these it is known only whether they run.
    pub processes: Vec<ProcessEnd>,
    /// Threads found spinning, when that ended the recording.
    pub spinning_threads: Vec<u32>,
    /// Flow bytes that the tracers could not hand over.
    pub dropped_flow_bytes: u64,
    /// VALUES chunks that were dropped because there were more than could be written.
    pub dropped_value_chunks: u64,
    /// Sections that `--last` removed.
    pub dropped_sections: u64,
    /// Sections in the file before this one.
    pub sections: u64,
    /// CLOCK_MONOTONIC ns, before the recorder itself ended anything.
    pub ts: u64,
    /// By thread id: what the program's interpreter ran then, as its reader tells it. Not checked
    /// here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub code: BTreeMap<u32, serde_json::Value>,
}
