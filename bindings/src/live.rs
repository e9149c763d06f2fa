// SPDX-License-Identifier: MIT
//! `spin`, `why`, `poke` and `resolve`: what is done to a live process; its core file; `why` of
//! recordings.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use flagfinder_code as code;
use flagfinder_files::write_private;
use flagfinder_live as engine;
use flagfinder_replica::{CoreFile, Files};
use flagfinder_step::unable_by;
use pyo3::prelude::*;

use crate::errors::{parts, raise};
use crate::trace::{to_json, Trace};
use crate::wait::{wait, wait_with_progress};

/// Keeps what is found out about code in files of this folder.
#[pyfunction]
pub fn keep_indexes_in(folder: PathBuf) {
    code::keep_indexes_in(folder);
}

/// JSON of a `SpinReport`. `threads` empty: those that repeat something. `told` is called
/// with the number of threads and the ids of those about to be stepped; `by_program` with an id,
/// from another thread: what does the program's own code tell of it, "known", "ends" or None?
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "the Python function's keyword arguments"
)]
pub fn spin(
    py: Python<'_>,
    pid: u32,
    threads: Vec<u32>,
    budget: f64,
    most: usize,
    in_place: bool,
    told: Option<Py<PyAny>>,
    by_program: Option<Py<PyAny>>,
) -> PyResult<String> {
    let options = engine::SpinOptions {
        threads,
        budget: Duration::from_secs_f64(budget),
        most,
        in_place,
        ..engine::SpinOptions::default()
    };
    let show = |now: engine::Progress| match &told {
        Some(callback) => callback.call1(py, (now.threads, now.stepped)).map(drop),
        None => Ok(()),
    };
    let by_program = move |tid: u32| {
        let callback = by_program.as_ref()?;
        let told = Python::attach(|py| {
            let told = callback.call1(py, (tid,)).ok()?;
            told.extract::<Option<String>>(py).ok()?
        });
        match told?.as_str() {
            "known" => Some(engine::Told::Known),
            "ends" => Some(engine::Told::Ends),
            _ => None,
        }
    };
    let report = wait_with_progress(py, show, move |reporter| {
        engine::spin(
            pid,
            &options,
            |now| reporter.report(now.clone()),
            by_program,
        )
    })?;
    Ok(to_json(&report.map_err(raise)?))
}

/// JSON of a `WhyReport`. `thread` None: the one that polls, or the first. `told` as in `spin`.
/// `asked` is JSON of a list of `Asked`.
#[pyfunction]
pub fn why(
    py: Python<'_>,
    pid: u32,
    thread: Option<u32>,
    budget: f64,
    asked: &str,
    told: Option<Py<PyAny>>,
) -> PyResult<String> {
    let budget = Duration::from_secs_f64(budget);
    let asked = questions(asked)?;
    let options = engine::WhyOptions {
        thread,
        asked,
        spin: engine::SpinOptions {
            budget,
            ..engine::SpinOptions::default()
        },
    };
    let show = |now: engine::Progress| match &told {
        Some(callback) => callback.call1(py, (now.threads, now.stepped)).map(drop),
        None => Ok(()),
    };
    let report = wait_with_progress(py, show, move |reporter| {
        engine::why(pid, &options, |now| reporter.report(now.clone()))
    })?;
    Ok(to_json(&report.map_err(raise)?))
}

/// For each process that was asked, its number, then the JSON of a `WhyReport` or the four parts of
/// why there is none; and how many were not asked.
type Answers = (Vec<(u32, Option<String>, Option<[String; 4]>)>, usize);

/// As `why`, of each process that no chain of one before it passes.
#[pyfunction]
pub fn why_each(
    py: Python<'_>,
    pids: Vec<u32>,
    asked: &str,
    budget: f64,
    patience: f64,
) -> PyResult<Answers> {
    let asked = questions(asked)?;
    let options = engine::SpinOptions {
        budget: Duration::from_secs_f64(budget),
        ..engine::SpinOptions::default()
    };
    let patience = Duration::from_secs_f64(patience);
    let (found, left) = wait(py, move || {
        engine::why_each(&pids, &asked, &options, patience)
    })?;
    let mut answers = Vec::new();
    for (pid, report) in found {
        answers.push(match report {
            Ok(report) => (pid, Some(to_json(&report)), None),
            Err(error) => (pid, None, Some(parts(error))),
        });
    }
    Ok((answers, left))
}

fn questions(json: &str) -> PyResult<Vec<engine::Asked>> {
    let parsed = serde_json::from_str(json);
    parsed.map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))
}

/// JSON of a `WhyReport` of a core file. `thread` as in `why`.
#[pyfunction]
pub fn why_of_core(
    py: Python<'_>,
    path: PathBuf,
    sysroot: Option<PathBuf>,
    program: Option<PathBuf>,
    thread: Option<u32>,
    budget: f64,
) -> PyResult<String> {
    let budget = Duration::from_secs_f64(budget);
    let report = wait(py, move || {
        let core = Rc::new(CoreFile::open(&path, Files { sysroot, program })?);
        engine::why_of_core(&core, &path, thread, budget)
    })?;
    Ok(to_json(&report.map_err(raise)?))
}

/// Writes a core file of a live process, which goes on; what could not be put into it.
#[pyfunction]
pub fn write_core(py: Python<'_>, pid: u32, path: PathBuf) -> PyResult<Vec<String>> {
    let notes = wait(py, move || {
        let mut notes = Ok(Vec::new());
        let written = write_private(&path, |file| {
            notes = flagfinder_replica::write_core(pid, file);
            match &notes {
                Ok(_) => Ok(()),
                Err(_) => Err(ErrorKind::Other.into()),
            }
        });
        match written {
            Err(error) if notes.is_ok() => Err(unable_by(
                format!("{} can't be created", path.display()),
                &error,
            )),
            _ => notes,
        }
    })?;
    notes.map_err(raise)
}

/// JSON of a `WhyReport` of two recordings. `thread` None: the one that polls, or the first.
#[pyfunction]
pub fn why_recorded(
    py: Python<'_>,
    normal: PyRef<'_, Trace>,
    spin: PyRef<'_, Trace>,
    thread: Option<u32>,
) -> PyResult<String> {
    let (normal, spin) = (normal.inner.clone(), spin.inner.clone());
    let report = wait(py, move || engine::why_recorded(&normal, &spin, thread))?;
    Ok(to_json(&report.map_err(raise)?))
}

/// JSON of a `SpinReport` of a core file. `threads` empty: all of them.
#[pyfunction]
pub fn look_at_core(
    py: Python<'_>,
    path: PathBuf,
    sysroot: Option<PathBuf>,
    program: Option<PathBuf>,
    threads: Vec<u32>,
    budget: f64,
) -> PyResult<String> {
    let budget = Duration::from_secs_f64(budget);
    let report = wait(py, move || {
        // ptrace belongs to the thread that starts the copies.
        let core = CoreFile::open(&path, Files { sysroot, program })?;
        engine::look_at_core(&core, &engine::CoreOptions { threads, budget })
    })?;
    Ok(to_json(&report.map_err(raise)?))
}

/// What was there before, and what was read back (None: the process has ended since).
#[pyfunction]
pub fn poke(
    py: Python<'_>,
    pid: u32,
    start: u64,
    address: u64,
    size: usize,
    value: u64,
) -> PyResult<(u64, Option<u64>)> {
    let poked = wait(py, move || engine::poke(pid, start, address, size, value))?.map_err(raise)?;
    Ok((poked.before, poked.after))
}

/// JSON of a `Tried`: what the thread would do if the word held the value. The process is not
/// changed.
#[pyfunction]
pub fn try_word(
    py: Python<'_>,
    pid: u32,
    tid: u32,
    address: u64,
    size: usize,
    value: u64,
) -> PyResult<String> {
    let tried = wait(py, move || engine::try_word(pid, tid, address, size, value))?;
    Ok(to_json(&tried.map_err(raise)?))
}

/// Run-time address of module + offset in a live process.
#[pyfunction]
pub fn resolve(py: Python<'_>, pid: u32, module: String, offset: u64) -> PyResult<u64> {
    wait(py, move || engine::resolve(pid, &module, offset))?.map_err(raise)
}
