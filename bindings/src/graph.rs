//! `EventGraph`: what happened and why, and the diagnosis on it; results cross as JSON.

use std::path::Path;
use std::sync::Arc;

use flagfinder_graph as engine;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::raise;
use crate::events::EventFile;
use crate::trace::to_json;
use crate::wait::wait;

#[pyclass(frozen, module = "flagfinder._core")]
pub struct EventGraph {
    inner: Arc<engine::Graph>,
}

#[pymethods]
impl EventGraph {
    /// `watched`: what `flagfinder watch` wrote, one text for each watch.
    #[staticmethod]
    fn build(py: Python<'_>, file: &EventFile, watched: Vec<String>) -> PyResult<Self> {
        let file = Arc::clone(&file.inner);
        let graph = wait(py, move || engine::build(&file, &watched))?;
        Ok(EventGraph {
            inner: Arc::new(graph),
        })
    }

    #[staticmethod]
    fn open(py: Python<'_>, path: &str) -> PyResult<Self> {
        let graph = py.detach(|| engine::Graph::open(Path::new(path)));
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

    /// Vertices as a JSON list.
    fn query(&self, tid: u32, start: u64, end: u64, limit: usize) -> String {
        engine::query(&self.inner, tid, start, end, limit)
    }

    /// A `Diagnosis` as JSON for a `Request` as JSON; `None`: nothing that could be a hang.
    fn diagnose(&self, py: Python<'_>, request: &str) -> PyResult<Option<String>> {
        let request = serde_json::from_str(request);
        let request: engine::Request =
            request.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let graph = Arc::clone(&self.inner);
        let found = wait(py, move || engine::diagnose(&graph, &request))?;
        Ok(found.map(|diagnosis| to_json(&diagnosis)))
    }
}
