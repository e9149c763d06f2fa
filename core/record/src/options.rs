// SPDX-License-Identifier: MIT
//! What a caller asks of a recording, and what it gets back.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use flagfinder_trace::{End, Level, Note};

/// Stands for the pool file's path in [`TracerCommand::argv`].
pub const POOL_PLACEHOLDER: &str = "{pool}";

/// How the tracer is started. The process must become the target (same pid), so
/// that its exit status and signals are the target's.
#[derive(Clone, Debug)]
pub struct TracerCommand {
    /// Program and arguments; the one that is [`POOL_PLACEHOLDER`] is replaced.
    pub argv: Vec<OsString>,
}

/// What happens to the target when the recording ends before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// It runs on, untraced as far as the tracer can.
    #[default]
    Leave,
    /// SIGKILL.
    Kill,
}

/// A flight recorder's limit: the newest sections stay.
#[derive(Clone, Copy, Debug)]
pub struct Last {
    /// Stored (compressed) bytes.
    pub bytes: u64,
    /// Whether flow is limited too; else only values are.
    pub flow: bool,
}

/// What to record, and until when.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The trace file; replaced when it exists.
    pub output: PathBuf,
    /// The command that becomes the target.
    pub tracer: TracerCommand,
    /// For INFO: `dynamorio`, ..
    pub tracer_name: String,
    /// For INFO: the command as the user gave it.
    pub command: Vec<String>,
    /// What the tracers write.
    pub level: Level,
    /// Wait for traced children that outlive the target.
    pub follow_children: bool,
    /// `None`: everything is kept.
    pub last: Option<Last>,
    /// End the recording once a thread has been spinning for so long.
    pub stop_when_spinning: Option<Duration>,
    /// End the recording after so long.
    pub stop_after: Option<Duration>,
    /// End the recording when the target prints this on stdout or stderr, which go through the
    /// recorder then.
    pub until: Option<Vec<u8>>,
    /// For a recording that ends before its target.
    pub then: Then,
    /// More facts for INFO: the tracer's self-test, options, ..
    pub facts: BTreeMap<String, serde_json::Value>,
    /// What the caller already announced.
    pub notes: Vec<Note>,
}

impl RecordOptions {
    /// Everything, until the target ends; INFO says `dynamorio` and no command.
    pub fn new(output: impl Into<PathBuf>, tracer: TracerCommand, level: Level) -> Self {
        RecordOptions {
            output: output.into(),
            tracer,
            tracer_name: "dynamorio".into(),
            command: Vec::new(),
            level,
            follow_children: false,
            last: None,
            stop_when_spinning: None,
            stop_after: None,
            until: None,
            then: Then::Leave,
            facts: BTreeMap::new(),
            notes: Vec::new(),
        }
    }
}

/// Counts so far; handed to the caller about four times a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Since the target was started.
    pub elapsed: Duration,
    /// Raw bytes taken from the tracers.
    pub flow_bytes: u64,
    /// The same of values.
    pub values_bytes: u64,
    /// Bytes in the file.
    pub stored_bytes: u64,
}

/// Who hears of a recording while it runs, on the thread that called [`crate::record`].
pub trait Listener {
    /// Called about four times a second; a break ends the recording.
    fn progress(&mut self, now: Progress) -> ControlFlow<()>;

    /// The recording ends now, and these processes still run. Returns, by thread id, what their
    /// interpreters run ([`End::code`]).
    fn ending(
        &mut self,
        _processes: &[u32],
        _spinning_threads: &[u32],
    ) -> BTreeMap<u32, serde_json::Value> {
        BTreeMap::new()
    }
}

impl<F: FnMut(Progress) -> ControlFlow<()>> Listener for F {
    fn progress(&mut self, now: Progress) -> ControlFlow<()> {
        self(now)
    }
}

/// How the target was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetExit {
    /// It ended by itself, with this status.
    Exited(i32),
    /// A signal of this number ended it.
    Signaled(i32),
    /// It was left running.
    Running,
}

/// A finished recording. The trace at `RecordOptions::output` is readable.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Of the target, as this process's pid namespace has it.
    pub pid: u32,
    /// How the target ended.
    pub target: TargetExit,
    /// As it stands in the trace, but for `sections`.
    pub end: End,
    /// Everything announced, as it stands in the trace.
    pub notes: Vec<Note>,
    /// How many threads ran something.
    pub threads: usize,
    /// The last counts.
    pub progress: Progress,
}
