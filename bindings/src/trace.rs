// SPDX-License-Identifier: MIT
//! `Trace`: an opened recording.

use std::path::PathBuf;
use std::sync::Arc;

use std::io::Write;

use flagfinder_trace as engine;
use flagfinder_trace::{dump, DumpKind, DumpOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::check::violations;
use crate::dump::TextSink;
use crate::errors::raise;
use crate::process::Process;
use crate::wait::wait;

#[pyclass(frozen, module = "flagfinder._core")]
pub struct Trace {
    pub inner: Arc<engine::Trace>,
}

#[pymethods]
impl Trace {
    #[classmethod]
    fn open(_class: &Bound<'_, PyType>, py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let inner = wait(py, move || engine::Trace::open(&path))?.map_err(raise)?;
        Ok(Trace {
            inner: Arc::new(inner),
        })
    }

    #[getter]
    fn is_complete(&self) -> bool {
        self.inner.is_complete()
    }

    fn info_json(&self) -> String {
        to_json(self.inner.info())
    }

    fn end_json(&self) -> Option<String> {
        self.inner.end().map(to_json)
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        self.inner.notes().iter().map(note_fields).collect()
    }

    /// The lines of the invariant checker; empty for a sound trace.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let trace = self.inner.clone();
        wait(py, move || violations(&trace))?.map_err(raise)
    }

    fn dump(
        &self,
        py: Python<'_>,
        what: &str,
        tid: Option<u32>,
        from: u64,
        limit: usize,
        write: Py<PyAny>,
    ) -> PyResult<()> {
        let kind = match what {
            "flow" => DumpKind::Flow,
            "events" => DumpKind::Events,
            "values" => DumpKind::Values,
            "blocks" => DumpKind::Blocks,
            "modules" => DumpKind::Modules,
            _ => {
                return Err(PyValueError::new_err(
                    "what is flow, events, values, blocks or modules",
                ))
            }
        };
        let options = DumpOptions {
            kind,
            pid: None,
            tid,
            from,
            limit,
        };
        let mut sink = TextSink::new(&write);
        let result =
            py.detach(|| dump(&self.inner, &options, &mut sink).and_then(|()| sink.flush()));
        match sink.raised.take() {
            Some(error) => Err(error),
            None => result.map_err(unreadable),
        }
    }

    fn processes(&self) -> Vec<Process> {
        let count = self.inner.processes().len();
        (0..count)
            .map(|index| Process::new(self.inner.clone(), index))
            .collect()
    }
}

/// `dump` fails on reading only, once writing has not.
fn unreadable(error: std::io::Error) -> PyErr {
    match error.downcast::<engine::Failure>() {
        Ok(error) => raise(error),
        Err(error) => error.into(),
    }
}

/// Level and text.
pub fn note_fields(note: &engine::Note) -> (&'static str, String) {
    let level = match note.level {
        engine::NoteLevel::Fallback => "fallback",
        engine::NoteLevel::Lost => "lost",
        engine::NoteLevel::Warning => "warning",
    };
    (level, note.text.clone())
}

/// The engine's own serialisation, which only fails on types that it does not have.
pub fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
