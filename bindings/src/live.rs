//! `spin`, `poke` and `resolve`: what is done to a live process.

use std::time::Duration;

use flagfinder_live as engine;
use pyo3::prelude::*;

use crate::errors::raise;
use crate::trace::to_json;
use crate::wait::{wait, wait_with_progress};

/// JSON of a `SpinReport`. `threads` empty: those that repeat something. `told` is called
/// with the number of threads and the ids of those about to be stepped.
#[pyfunction]
pub fn spin(
    py: Python<'_>,
    pid: u32,
    threads: Vec<u32>,
    budget: f64,
    most: usize,
    told: Option<Py<PyAny>>,
) -> PyResult<String> {
    let options = engine::SpinOptions {
        threads,
        budget: Duration::from_secs_f64(budget),
        most,
    };
    let show = |now: engine::Progress| match &told {
        Some(callback) => callback.call1(py, (now.threads, now.stepped)).map(drop),
        None => Ok(()),
    };
    let report = wait_with_progress(py, show, move |reporter| {
        engine::spin(pid, &options, |now| reporter.report(now.clone()))
    })?;
    Ok(to_json(&report.map_err(raise)?))
}

/// What was there before, and what was read back (None: the process has ended since).
#[pyfunction]
pub fn poke(
    py: Python<'_>,
    pid: u32,
    address: u64,
    size: usize,
    value: u64,
) -> PyResult<(u64, Option<u64>)> {
    let poked = wait(py, move || engine::poke(pid, address, size, value))?.map_err(raise)?;
    Ok((poked.before, poked.after))
}

/// Run-time address of module + offset in a live process.
#[pyfunction]
pub fn resolve(py: Python<'_>, pid: u32, module: String, offset: u64) -> PyResult<u64> {
    wait(py, move || engine::resolve(pid, &module, offset))?.map_err(raise)
}
