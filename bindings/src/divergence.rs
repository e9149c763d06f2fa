// SPDX-License-Identifier: MIT
//! `Divergence`, and `diff`, which makes it.

use std::sync::Arc;

use flagfinder_diff as engine;
use pyo3::prelude::*;

use crate::errors::raise;
use crate::trace::{to_json, Trace};
use crate::wait::{in_parts, wait_with_progress};

#[pyclass(frozen, module = "flagfinder._core")]
pub struct Divergence {
    pub inner: Arc<engine::Divergence>,
}

#[pymethods]
impl Divergence {
    fn to_json(&self) -> String {
        to_json(&*self.inner)
    }
}

/// Looks at `thread` only, if one is given. `progress` is called with stage, blocks scanned, blocks
/// in all (0: not known yet).
#[pyfunction]
pub fn diff(
    py: Python<'_>,
    normals: Vec<PyRef<'_, Trace>>,
    spin: PyRef<'_, Trace>,
    thread: Option<u32>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Divergence> {
    let normals: Vec<_> = normals.iter().map(|trace| trace.inner.clone()).collect();
    let spin = spin.inner.clone();
    let inner = wait_with_progress(py, show(py, progress), move |reporter| {
        let normals: Vec<_> = normals.iter().map(|trace| &**trace).collect();
        let options = engine::Options {
            threads: thread.into_iter().collect(),
        };
        in_parts(|| engine::diff(&normals, &spin, &options, &|now| reporter.report(now)))
    })?
    .map_err(raise)?;
    Ok(Divergence {
        inner: Arc::new(inner),
    })
}

/// Calls `progress`, if there is one.
pub fn show(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
) -> impl FnMut(engine::Progress) -> PyResult<()> + '_ {
    move |now| match &progress {
        Some(callback) => callback
            .call1(py, (now.stage, now.blocks, now.total))
            .map(drop),
        None => Ok(()),
    }
}
