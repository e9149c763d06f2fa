// SPDX-License-Identifier: MIT
//! `EventGraph`: what happened and why, and the diagnosis on it; results cross as JSON.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flagfinder_events::container::FORMAT as RECORDING;
use flagfinder_events::{Call, EventFile as Recording};
use flagfinder_graph as engine;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::de::DeserializeOwned;

use crate::errors::raise;
use crate::events::EventFile;
use crate::trace::to_json;
use crate::wait::wait;

#[pyclass(frozen, module = "flagfinder._core")]
pub struct EventGraph {
    inner: Arc<engine::Graph>,
}

/// What is asked for, as JSON.
fn asked<T: DeserializeOwned>(request: &str) -> PyResult<T> {
    serde_json::from_str(request).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pymethods]
impl EventGraph {
    /// Of the recordings of several hosts, or of one. `watched`: what `flagfinder watch` wrote on
    /// the first, one text for each watch.
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value)] // pyo3 makes the list
    fn build(
        py: Python<'_>,
        files: Vec<PyRef<'_, EventFile>>,
        watched: Vec<String>,
    ) -> PyResult<Self> {
        let files: Vec<_> = files.iter().map(|file| Arc::clone(&file.inner)).collect();
        let built = wait(py, move || match &files[..] {
            [file] => Ok(engine::build(file, &watched)),
            files => {
                let files: Vec<&_> = files.iter().map(AsRef::as_ref).collect();
                engine::build_hosts(&files, &watched)
            }
        })?;
        let graph = built.map_err(raise)?;
        Ok(EventGraph {
            inner: Arc::new(graph),
        })
    }

    /// Of one host: the graph, what was sent and received, as it lies in memory (little-endian,
    /// without padding), and its flows as a JSON list.
    #[staticmethod]
    fn build_with_table<'py>(
        py: Python<'py>,
        file: &EventFile,
    ) -> PyResult<(Self, Bound<'py, PyBytes>, String)> {
        let file = Arc::clone(&file.inner);
        let flows = to_json(&file.flows);
        let (graph, rows) = wait(py, move || engine::build_with_table(&file))?;
        let graph = EventGraph {
            inner: Arc::new(graph),
        };
        let rows = PyBytes::new(py, engine::exchange_records(&rows));
        Ok((graph, rows, flows))
    }

    /// Reads a graph, or builds that of a recording.
    #[staticmethod]
    fn open(py: Python<'_>, path: &str) -> PyResult<Self> {
        let path = PathBuf::from(path);
        let graph = wait(py, move || match RECORDING.open(&path) {
            Ok(_) => Ok(engine::build(&Recording::open(&path)?, &[])),
            Err(_) => engine::Graph::open(&path),
        })?;
        Ok(EventGraph {
            inner: Arc::new(graph.map_err(raise)?),
        })
    }

    fn save(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        py.detach(|| self.inner.save(Path::new(path)))
            .map_err(raise)
    }

    fn summary(&self) -> String {
        self.inner.summary()
    }

    /// Vertices as a JSON list; `request` is JSON, too.
    fn query(&self, request: &str) -> PyResult<String> {
        let request: engine::QueryRequest = asked(request)?;
        Ok(engine::query(&self.inner, &request))
    }

    fn export_perfetto(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        py.detach(|| self.inner.export_perfetto(Path::new(path)))
            .map_err(raise)
    }

    /// Threads, call sites, stacks, as JSON of `Meta`.
    fn meta(&self) -> String {
        to_json(&self.inner.meta)
    }

    /// All vertices, their details and all edges, as they lie in a file: little-endian, without
    /// padding.
    fn records<'py>(
        &self,
        py: Python<'py>,
    ) -> (
        Bound<'py, PyBytes>,
        Bound<'py, PyBytes>,
        Bound<'py, PyBytes>,
    ) {
        let all = &self.inner.vertices;
        let mut vertices = Vec::with_capacity(all.len() * size_of::<engine::Vertex>());
        let Ok(()) = all.records(|piece| -> Result<(), Infallible> {
            vertices.extend_from_slice(piece);
            Ok(())
        });
        let edges = self.inner.edges();
        let edges = engine::edge_records(&edges);
        (
            PyBytes::new(py, &vertices),
            PyBytes::new(py, all.details_records()),
            PyBytes::new(py, edges),
        )
    }

    /// A `CriticalPath` as JSON for a `PathRequest` as JSON; `None`: no such thread.
    fn critical_path(&self, py: Python<'_>, request: &str) -> PyResult<Option<String>> {
        let request: engine::PathRequest = asked(request)?;
        let graph = Arc::clone(&self.inner);
        let found = wait(py, move || engine::critical_path(&graph, &request))?;
        Ok(found.map(|path| to_json(&path)))
    }

    /// A `Bottleneck` as JSON for a `BottleneckRequest` as JSON; `None`: no such thread.
    fn bottleneck(&self, py: Python<'_>, request: &str) -> PyResult<Option<String>> {
        let request: engine::BottleneckRequest = asked(request)?;
        let graph = Arc::clone(&self.inner);
        let found = wait(py, move || engine::bottleneck(&graph, &request))?;
        Ok(found.map(|one| to_json(&one)))
    }

    /// A `Timeline` as JSON for a `TimelineRequest` as JSON.
    fn timeline(&self, py: Python<'_>, request: &str) -> PyResult<String> {
        let request: engine::TimelineRequest = asked(request)?;
        let graph = Arc::clone(&self.inner);
        let found = wait(py, move || engine::timeline(&graph, &request))?;
        Ok(to_json(&found))
    }

    /// An `Outcome` as JSON for a `Request` as JSON; `None`: nothing that could be a hang.
    fn diagnose(&self, py: Python<'_>, request: &str) -> PyResult<Option<String>> {
        let request: engine::Request = asked(request)?;
        let graph = Arc::clone(&self.inner);
        let found = wait(py, move || engine::diagnose(&graph, &request))?;
        Ok(found.map(|outcome| to_json(&outcome)))
    }

    /// A list of `Hang` as JSON for a `Request` as JSON: which stretches may be meant.
    fn hangs(&self, py: Python<'_>, request: &str) -> PyResult<String> {
        let request: engine::Request = asked(request)?;
        let graph = Arc::clone(&self.inner);
        let found = wait(py, move || engine::hangs(&graph, &request))?;
        Ok(to_json(&found))
    }
}

/// What an edge's kind, a number, is called.
#[pyfunction]
pub fn edge_kinds() -> Vec<&'static str> {
    engine::KINDS.iter().map(|kind| kind.name()).collect()
}

#[pyfunction]
pub fn call_name(number: u16) -> String {
    Call::name_of(number)
}

/// A recording's `Profile` as JSON.
#[pyfunction]
pub fn profile(py: Python<'_>, file: &EventFile) -> PyResult<String> {
    let file = Arc::clone(&file.inner);
    let found = wait(py, move || engine::profile(&file))?;
    Ok(to_json(&found))
}
