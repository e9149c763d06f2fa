// SPDX-License-Identifier: MIT
//! `find_flags`: the verdict, as the JSON that `flagfinder diff --json` prints.

use flagfinder_flags::{find_flags_in, Options};
use pyo3::prelude::*;

use crate::divergence::{show, Divergence};
use crate::errors::raise;
use crate::trace::{to_json, Trace};
use crate::wait::{in_parts, wait_with_progress};

/// JSON of a `Report`, about this thread if one is given. `progress` as of `diff`.
#[pyfunction]
pub fn find_flags(
    py: Python<'_>,
    spin: PyRef<'_, Trace>,
    normals: Vec<PyRef<'_, Trace>>,
    divergence: Option<PyRef<'_, Divergence>>,
    thread: Option<u32>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let spin = spin.inner.clone();
    let normals: Vec<_> = normals.iter().map(|trace| trace.inner.clone()).collect();
    let divergence = divergence.map(|divergence| divergence.inner.clone());
    let report = wait_with_progress(py, show(py, progress), move |reporter| {
        let normals: Vec<_> = normals.iter().map(|trace| &**trace).collect();
        let options = Options {
            thread,
            ..Options::default()
        };
        let divergence = divergence.as_deref();
        in_parts(|| {
            find_flags_in(&spin, &normals, divergence, &options, &|now| {
                reporter.report(now);
            })
        })
    })?;
    Ok(to_json(&report.map_err(raise)?))
}
