// SPDX-License-Identifier: MIT
//! `EventRecorder`: a recording of events that goes on while Python waits. `EventFile`: what it
//! wrote.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flagfinder_events as engine;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::raise;
use crate::trace::to_json;
use crate::wait::wait;

#[pyclass(frozen, module = "flagfinder._core")]
pub struct EventRecorder {
    /// `None` once finished.
    inner: Mutex<Option<engine::Recorder>>,
}

impl EventRecorder {
    fn lock(&self) -> MutexGuard<'_, Option<engine::Recorder>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, f: impl FnOnce(&engine::Recorder) -> T) -> PyResult<T> {
        let inner = self.lock();
        let recorder = inner.as_ref();
        let recorder =
            recorder.ok_or_else(|| PyValueError::new_err("the recording is finished"))?;
        Ok(f(recorder))
    }
}

#[pymethods]
impl EventRecorder {
    /// Starts recording. `options` is JSON of `Options`, `object` the compiled BPF programs.
    #[new]
    fn new(py: Python<'_>, options: &str, object: Vec<u8>) -> PyResult<Self> {
        let options = serde_json::from_str(options);
        let options: engine::Options =
            options.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let started = py.detach(|| engine::Recorder::start(&options, &object));
        Ok(EventRecorder {
            inner: Mutex::new(Some(started.map_err(raise)?)),
        })
    }

    /// Events so far, bytes of the file, events lost.
    fn progress(&self) -> PyResult<(u64, u64, u64)> {
        self.with(|recorder| {
            let progress = recorder.progress();
            (progress.events, progress.bytes, progress.lost)
        })
    }

    /// Whether the recording has ended because it failed; `finish` then raises why.
    fn failed(&self) -> PyResult<bool> {
        self.with(engine::Recorder::failed)
    }

    /// Whether the processes that were asked for have ended, and all that they started.
    fn is_over(&self) -> PyResult<bool> {
        self.with(engine::Recorder::is_over)
    }

    fn mark(&self, text: &str) -> PyResult<()> {
        self.with(|recorder| recorder.mark(text))
    }

    /// Looks at what the target's threads are in and whom they wait for, before the end.
    fn look(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.with(engine::Recorder::look))
    }

    /// Ends the recording; what it came to, as JSON of `Finished`.
    fn finish(&self, py: Python<'_>, reason: &str, exit_status: Option<i32>) -> PyResult<String> {
        let recorder = self.lock().take();
        let recorder =
            recorder.ok_or_else(|| PyValueError::new_err("the recording is finished"))?;
        let end = py.detach(|| recorder.finish(reason, exit_status));
        Ok(to_json(&end.map_err(raise)?))
    }
}

/// Makes a file of events of what perf or Perfetto recorded; what was taken over, as JSON of
/// `Imported`.
#[pyfunction]
pub fn import_events(py: Python<'_>, input: PathBuf, output: PathBuf) -> PyResult<String> {
    let imported = wait(py, move || engine::import(&input, &output))?;
    Ok(to_json(&imported.map_err(raise)?))
}

/// The kernel counts waits while it lives.
#[pyclass(frozen, module = "flagfinder._core")]
pub struct EventCounting {
    /// `None` once finished.
    inner: Mutex<Option<engine::Counting>>,
}

fn question(text: &str) -> PyResult<engine::Question> {
    let question = serde_json::from_str(text);
    question.map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pymethods]
impl EventCounting {
    /// Starts counting. `asked` is JSON of `Question`, `object` the compiled BPF programs.
    #[new]
    fn new(py: Python<'_>, asked: &str, object: Vec<u8>) -> PyResult<Self> {
        let question = question(asked)?;
        let started = py.detach(|| engine::Counting::start(question, &object));
        Ok(EventCounting {
            inner: Mutex::new(Some(started.map_err(raise)?)),
        })
    }

    /// To be called again and again; whether any process is left.
    fn look(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.as_mut().is_some_and(engine::Counting::look)
        })
    }

    /// Ends the counting; what it came to, as JSON of `Top`.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let counting = inner.take();
        drop(inner);
        let counting = counting.ok_or_else(|| PyValueError::new_err("the counting is finished"))?;
        let tally = py.detach(|| counting.finish()).map_err(raise)?;
        Ok(to_json(&wait(py, move || flagfinder_graph::top(&tally))?))
    }
}

#[pyclass(frozen, module = "flagfinder._core")]
pub struct EventFile {
    pub inner: Arc<engine::EventFile>,
}

#[pymethods]
impl EventFile {
    #[new]
    fn new(py: Python<'_>, path: &str) -> PyResult<Self> {
        let opened = py.detach(|| engine::EventFile::open(Path::new(path)));
        Ok(EventFile {
            inner: Arc::new(opened.map_err(raise)?),
        })
    }

    /// Everything but the events, as JSON.
    fn summary(&self, py: Python<'_>) -> PyResult<String> {
        let file = Arc::clone(&self.inner);
        wait(py, move || engine::summary(&file))
    }

    /// How it was recorded, as JSON of `Info`.
    fn info(&self) -> String {
        to_json(&self.inner.info)
    }

    /// What is wrong and what can't be known, as JSON of `Findings`.
    fn check(&self, py: Python<'_>) -> PyResult<String> {
        let file = Arc::clone(&self.inner);
        let findings = wait(py, move || engine::check(&file))?;
        Ok(to_json(&findings))
    }

    /// Waits and delays summed up, as JSON of `Top`; `asked` is JSON of `Question`.
    fn top(&self, py: Python<'_>, asked: &str) -> PyResult<String> {
        let question = question(asked)?;
        let file = Arc::clone(&self.inner);
        let tally = wait(py, move || engine::tally(&file, &question))?;
        let tally = tally.map_err(raise)?;
        Ok(to_json(&wait(py, move || flagfinder_graph::top(&tally))?))
    }

    /// Call numbers by name.
    #[staticmethod]
    fn calls(names: Vec<String>) -> Vec<Option<u16>> {
        let number = |name: &String| engine::Call::number_of(name);
        names.iter().map(number).collect()
    }

    /// Events as text, from time `start` on, those of thread `tid` (0: all).
    fn dump(&self, py: Python<'_>, tid: u32, start: u64, limit: usize) -> PyResult<Vec<String>> {
        let file = Arc::clone(&self.inner);
        wait(py, move || {
            let mut lines = Vec::new();
            engine::dump(&file, tid, start, limit, |line| lines.push(line.to_owned()));
            lines
        })
    }
}
