// SPDX-License-Identifier: MIT
//! `Watch`: watched words of a live process; events come as the JSON lines that `flagfinder watch`
//! writes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flagfinder_watch as engine;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::raise;
use crate::trace::to_json;

#[pyclass(frozen, module = "flagfinder._core")]
pub struct Watch {
    /// `None` once closed.
    inner: Mutex<Option<engine::Watch>>,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Option<engine::Watch>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, f: impl FnOnce(&mut engine::Watch) -> T) -> PyResult<T> {
        let mut inner = self.lock();
        let watch = inner.as_mut();
        Ok(f(watch.ok_or_else(|| {
            PyValueError::new_err("the watch is closed")
        })?))
    }
}

fn lines(events: &[engine::Event]) -> Vec<String> {
    events.iter().map(engine::Event::to_json).collect()
}

#[pymethods]
impl Watch {
    /// Starts watching. `request` is JSON of a `Request`, `object` the compiled BPF programs;
    /// without, `backend` names the helper that feeds hits.
    #[new]
    fn new(
        py: Python<'_>,
        pid: u32,
        request: &str,
        backend: &str,
        object: Option<Vec<u8>>,
    ) -> PyResult<Self> {
        let request = serde_json::from_str(request);
        let request: engine::Request =
            request.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let backend = match &object {
            Some(object) => engine::Backend::Perf(object),
            None => {
                let helper = engine::Helper::named(backend);
                engine::Backend::Fed(helper.ok_or_else(|| PyValueError::new_err("no such helper"))?)
            }
        };
        let watch = py.detach(|| engine::Watch::open(pid, &request, backend));
        Ok(Watch {
            inner: Mutex::new(Some(watch.map_err(raise)?)),
        })
    }

    fn header(&self) -> PyResult<String> {
        self.with(|watch| watch.header())
    }

    /// `struct ff_watch_config`, for a helper inside the process.
    fn config(&self) -> PyResult<Vec<u8>> {
        self.with(|watch| watch.config())
    }

    /// The helper that feeds hits has set its watchpoints.
    fn armed(&self) -> PyResult<()> {
        self.with(engine::Watch::armed)
    }

    /// Takes in records of `struct ff_watch_hit`; `lost` had no room so far.
    fn feed(&self, py: Python<'_>, records: &[u8], lost: u64) -> PyResult<()> {
        py.detach(|| self.with(|watch| watch.feed(records, lost)))
    }

    /// No more records will come.
    fn close_feed(&self) -> PyResult<()> {
        self.with(engine::Watch::close_feed)
    }

    /// Waits up to `seconds`; events as lines, and why the watch ended once it has.
    fn poll(&self, py: Python<'_>, seconds: f64) -> PyResult<(Vec<String>, Option<String>)> {
        let patience = Duration::try_from_secs_f64(seconds);
        let patience = patience.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let polled = py.detach(|| {
            self.with(|watch| {
                let polled = watch.poll(patience);
                polled.map(|(events, ending)| (lines(&events), ending))
            })
        })?;
        let (lines, ending) = polled.map_err(raise)?;
        let ending = ending.map(|ending| to_json(&ending).trim_matches('"').to_owned());
        Ok((lines, ending))
    }

    /// Ends the watch; the events that were still to come.
    fn finish(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        py.detach(|| self.with(|watch| lines(&watch.finish())))
    }

    fn summary(&self) -> PyResult<String> {
        self.with(|watch| watch.summary())
    }

    /// Removes everything from the kernel. May be called twice.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.lock().take()));
    }
}
