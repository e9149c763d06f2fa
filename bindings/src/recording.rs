// SPDX-License-Identifier: MIT
//! `record` and its `Outcome`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use flagfinder_record as engine;
use flagfinder_record::{Last, Listener, Progress, RecordOptions, TargetExit, Then, TracerCommand};
use flagfinder_trace::{EndReason, Level, Note, NoteLevel};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;

use crate::errors::raise;
use crate::trace::note_fields;

#[pyclass(frozen, get_all, module = "flagfinder._core")]
pub struct Outcome {
    pid: u32,
    ended: &'static str,
    status: Option<i32>,
    signal: Option<i32>,
    threads: usize,
    ns: u64,
    stored_bytes: u64,
    flow_bytes: u64,
    values_bytes: u64,
    lost_flow_bytes: u64,
    lost_value_chunks: u64,
    spinning_threads: Vec<u32>,
    notes: Vec<(&'static str, String)>,
}

impl From<engine::Outcome> for Outcome {
    fn from(outcome: engine::Outcome) -> Self {
        let (status, signal) = match outcome.target {
            TargetExit::Exited(status) => (Some(status), None),
            TargetExit::Signaled(signal) => (None, Some(signal)),
            TargetExit::Running => (None, None),
        };
        Outcome {
            pid: outcome.pid,
            ended: match outcome.end.reason {
                EndReason::TargetEnded => "target-ended",
                EndReason::Spinning => "spinning",
                EndReason::Interrupted => "interrupted",
                EndReason::Limit => "limit",
                EndReason::Printed => "printed",
                EndReason::Marked => "marked",
                EndReason::WriteFailed => "write-failed",
            },
            status,
            signal,
            threads: outcome.threads,
            ns: outcome.progress.elapsed.as_nanos() as u64,
            stored_bytes: outcome.progress.stored_bytes,
            flow_bytes: outcome.progress.flow_bytes,
            values_bytes: outcome.progress.values_bytes,
            lost_flow_bytes: outcome.end.dropped_flow_bytes,
            lost_value_chunks: outcome.end.dropped_value_chunks,
            spinning_threads: outcome.end.spinning_threads,
            notes: outcome.notes.iter().map(note_fields).collect(),
        }
    }
}

/// Records on the calling thread, GIL released. The recorder catches SIGINT itself, so that a
/// recording ends cleanly; what a callback raises is raised when the recording is over. It ends as
/// marked when `progress` returns something true. `ending` gets the processes that still run then
/// and the threads that spin; it returns `End::code` as JSON.
#[pyfunction]
#[pyo3(signature = (*, output, command, tracer_argv, tracer, level, last, stop_when_spinning,
    stop_after, until, kill_target, follow_children, facts_json, fallbacks, progress, ending))]
#[expect(
    clippy::too_many_arguments,
    reason = "keyword arguments on the Python side"
)]
pub fn record(
    py: Python<'_>,
    output: PathBuf,
    command: Vec<String>,
    tracer_argv: Vec<OsString>,
    tracer: &str,
    level: &str,
    last: Option<u64>,
    stop_when_spinning: Option<f64>,
    stop_after: Option<f64>,
    until: Option<Vec<u8>>,
    kill_target: bool,
    follow_children: bool,
    facts_json: &str,
    fallbacks: Vec<String>,
    progress: Option<Py<PyAny>>,
    ending: Option<Py<PyAny>>,
) -> PyResult<Outcome> {
    let level = match level {
        "flow" => Level::Flow,
        "values" => Level::Values,
        _ => return Err(PyValueError::new_err("level is flow or values")),
    };
    let bad = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
    let seconds = |given: Option<f64>| {
        let given = given.map(Duration::try_from_secs_f64).transpose();
        given.map_err(|error| bad(&error))
    };
    let options = RecordOptions {
        command,
        tracer_name: tracer.to_owned(),
        follow_children,
        last: last.map(|bytes| Last { bytes, flow: true }),
        stop_when_spinning: seconds(stop_when_spinning)?,
        stop_after: seconds(stop_after)?,
        until,
        then: if kill_target { Then::Kill } else { Then::Leave },
        notes: fallbacks
            .into_iter()
            .map(|text| Note {
                level: NoteLevel::Fallback,
                text,
            })
            .collect(),
        facts: serde_json::from_str(facts_json).map_err(|error| bad(&error))?,
        ..RecordOptions::new(output, TracerCommand { argv: tracer_argv }, level)
    };
    let mut callbacks = Callbacks {
        progress,
        ending,
        raised: None,
    };
    let result = py.detach(|| engine::record(&options, &mut callbacks));
    match callbacks.raised {
        Some(error) => Err(error),
        None => Ok(result.map_err(raise)?.into()),
    }
}

/// The listener is Python's. What it raises is kept until the recording is over.
struct Callbacks {
    progress: Option<Py<PyAny>>,
    ending: Option<Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Listener for Callbacks {
    fn progress(&mut self, now: Progress) -> ControlFlow<()> {
        let Some(callback) = &self.progress else {
            return ControlFlow::Continue(());
        };
        let raw_bytes = now.flow_bytes + now.values_bytes;
        let fields = (now.elapsed.as_nanos() as u64, now.stored_bytes, raw_bytes);
        match Python::attach(|py| callback.call1(py, fields)?.is_truthy(py)) {
            Ok(true) => return ControlFlow::Break(()),
            Ok(false) => {}
            Err(error) => self.raised = Some(error),
        }
        ControlFlow::Continue(())
    }

    fn ending(&mut self, processes: &[u32], spinning_threads: &[u32]) -> BTreeMap<u32, Value> {
        let Some(callback) = &self.ending else {
            return BTreeMap::new();
        };
        let told = Python::attach(|py| -> PyResult<String> {
            let told = callback.call1(py, (processes, spinning_threads))?;
            told.extract(py)
        });
        let bad = |error: serde_json::Error| PyValueError::new_err(error.to_string());
        told.and_then(|text| serde_json::from_str(&text).map_err(bad))
            .unwrap_or_else(|error| {
                self.raised = Some(error);
                BTreeMap::new()
            })
    }
}
