// SPDX-License-Identifier: MIT
//! `discover`: the flags of one run, as the JSON that `flagfinder discover --json` prints.

use pyo3::prelude::*;

use crate::divergence::show;
use crate::errors::raise;
use crate::trace::{to_json, Trace};
use crate::wait::{in_parts, wait_with_progress};

/// JSON of a `Discovery`. `progress` as of `diff`.
#[pyfunction]
pub fn discover(
    py: Python<'_>,
    trace: PyRef<'_, Trace>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let trace = trace.inner.clone();
    let found = wait_with_progress(py, show(py, progress), move |reporter| {
        in_parts(|| flagfinder_flags::discover(&trace, &|now| reporter.report(now)))
    })?;
    Ok(to_json(&found.map_err(raise)?))
}
