// SPDX-License-Identifier: MIT
//! `spin`, `why`, `poke` and `resolve`: what is done to a live process; its core file; `why` of
//! recordings.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use flagfinder_code as code;
use flagfinder_failure::Failure;
use flagfinder_files::write_private;
use flagfinder_live as engine;
use flagfinder_replica::{CoreFile, Files};
use flagfinder_step::unable_by;
use pyo3::prelude::*;
use serde::Serialize;

use crate::errors::{parts, raise};
use crate::trace::{to_json, Trace};
use crate::wait::{wait, wait_with_progress};

/// Keeps what is found out about code in files of this folder.
#[pyfunction]
pub fn keep_indexes_in(folder: PathBuf) {
    code::keep_indexes_in(folder);
}

/// How far a question is, as Python hears it: a call with a thread count and the ids of those about
/// to be stepped, or with the JSON of the report so far, else with None.
enum Heard {
    Begins(usize, Vec<u32>),
    SoFar(String),
}

impl Heard {
    fn of<R: Serialize>(progress: engine::Progress<R>) -> Heard {
        match progress {
            engine::Progress::Begins { threads, stepped } => Heard::Begins(threads, stepped),
            engine::Progress::SoFar(report) => Heard::SoFar(to_json(&*report)),
        }
    }
}

/// JSON of what `ask` reports. Meanwhile `hear`, if there is one, is called as [`Heard`] says.
fn report_of<R: Serialize + Send + 'static>(
    py: Python<'_>,
    hear: Option<Py<PyAny>>,
    ask: impl FnOnce(&dyn Fn(engine::Progress<R>)) -> Result<R, Failure> + Send + 'static,
) -> PyResult<String> {
    let show = |heard| {
        let Some(callback) = &hear else {
            return Ok(());
        };
        match heard {
            Heard::Begins(threads, stepped) => callback.call1(py, (threads, stepped, None::<&str>)),
            Heard::SoFar(json) => callback.call1(py, (0, Vec::<u32>::new(), json)),
        }
        .map(drop)
    };
    let report = wait_with_progress(py, show, move |reporter| {
        ask(&|now| reporter.report(Heard::of(now)))
    })?;
    Ok(to_json(&report.map_err(raise)?))
}

/// `time`: the whole time limit and what is left of it, in seconds; None: none.
fn deadline(time: Option<(f64, f64)>) -> engine::Deadline {
    let seconds = |time: f64| Duration::try_from_secs_f64(time.max(0.0)).unwrap_or(Duration::MAX);
    time.map_or_else(engine::Deadline::default, |(limit, left)| {
        engine::Deadline::of(seconds(limit), seconds(left))
    })
}

/// JSON of a `SpinReport` from one look at what the kernel alone tells.
#[pyfunction]
pub fn spin_at_first(py: Python<'_>, pid: u32) -> PyResult<String> {
    Ok(to_json(&wait(py, move || engine::first_look(pid))?))
}

/// JSON of a `WhyReport` from the same look.
#[pyfunction]
pub fn why_at_first(py: Python<'_>, pid: u32) -> PyResult<String> {
    Ok(to_json(&wait(py, move || engine::why_at_first(pid))?))
}

/// What a thread does, in a few words, as the kernel tells it; None: it has ended.
#[pyfunction]
pub fn at_a_glance(py: Python<'_>, pid: u32, tid: u32) -> Option<String> {
    py.detach(move || engine::at_a_glance(pid, tid))
}

/// JSON of a `SpinReport`. `threads` empty: those that repeat something. `time` and `hear` as in
/// [`deadline`] and [`report_of`]; `by_program` is called with an id, from another thread: what
/// does the program's own code tell of it, "known", "ends" or None?
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
    time: Option<(f64, f64)>,
    hear: Option<Py<PyAny>>,
    by_program: Option<Py<PyAny>>,
) -> PyResult<String> {
    let options = engine::SpinOptions {
        threads,
        budget: Duration::from_secs_f64(budget),
        most,
        in_place,
        deadline: deadline(time),
        ..engine::SpinOptions::default()
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
    report_of(py, hear, move |hear| {
        engine::spin(pid, &options, hear, by_program)
    })
}

/// JSON of a `WhyReport`. `thread` None: the one that polls, or the first. `time` and `hear` as in
/// [`spin`]. `in_source` is JSON of an `InSource`.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "the Python function's keyword arguments"
)]
pub fn why(
    py: Python<'_>,
    pid: u32,
    thread: Option<u32>,
    budget: f64,
    in_source: &str,
    time: Option<(f64, f64)>,
    stacks: bool,
    hear: Option<Py<PyAny>>,
) -> PyResult<String> {
    let budget = Duration::from_secs_f64(budget);
    let in_source = known_in_source(in_source)?;
    let options = engine::WhyOptions {
        thread,
        in_source,
        stacks,
        spin: engine::SpinOptions {
            budget,
            deadline: deadline(time),
            ..engine::SpinOptions::default()
        },
    };
    report_of(py, hear, move |hear| engine::why(pid, &options, hear))
}

/// The number of a process that was asked, then the JSON of a `WhyReport` or the four parts of why
/// there is none.
type Answer = (u32, Option<String>, Option<[String; 4]>);

/// As `why`, of each process that no chain of one before it passes; and how many were not asked.
/// `hear` is called with each answer as it comes.
#[pyfunction]
pub fn why_each(
    py: Python<'_>,
    pids: Vec<u32>,
    in_source: &str,
    budget: f64,
    patience: f64,
    time: Option<(f64, f64)>,
    hear: Option<Py<PyAny>>,
) -> PyResult<(Vec<Answer>, usize)> {
    let in_source = known_in_source(in_source)?;
    let options = engine::SpinOptions {
        budget: Duration::from_secs_f64(budget),
        deadline: deadline(time),
        ..engine::SpinOptions::default()
    };
    let patience = Duration::from_secs_f64(patience);
    let show = |answered: Answer| match &hear {
        Some(callback) => callback.call1(py, (answered,)).map(drop),
        None => Ok(()),
    };
    let (found, left) = wait_with_progress(py, show, move |reporter| {
        let hear = |answered: &engine::Answered| reporter.report(answer(answered.clone()));
        engine::why_each(&pids, &in_source, &options, patience, &hear)
    })?;
    Ok((found.into_iter().map(answer).collect(), left))
}

fn answer((pid, report): engine::Answered) -> Answer {
    match report {
        Ok(report) => (pid, Some(to_json(&report)), None),
        Err(error) => (pid, None, Some(parts(error))),
    }
}

fn known_in_source(json: &str) -> PyResult<engine::InSource> {
    let parsed = serde_json::from_str(json);
    parsed.map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))
}

/// JSON of a `WhyReport` of a core file. `thread`, `time` and `hear` as in `why`.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "the Python function's keyword arguments"
)]
pub fn why_of_core(
    py: Python<'_>,
    path: PathBuf,
    sysroot: Option<PathBuf>,
    program: Option<PathBuf>,
    thread: Option<u32>,
    budget: f64,
    time: Option<(f64, f64)>,
    stacks: bool,
    hear: Option<Py<PyAny>>,
) -> PyResult<String> {
    let options = of_core(Vec::new(), Vec::new(), budget, time);
    report_of(py, hear, move |hear| {
        let core = Rc::new(CoreFile::open(&path, Files { sysroot, program })?);
        engine::why_of_core(&core, &path, thread, stacks, &options, hear)
    })
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

fn of_core(
    threads: Vec<u32>,
    of_program: Vec<u32>,
    budget: f64,
    time: Option<(f64, f64)>,
) -> engine::CoreOptions {
    engine::CoreOptions {
        threads,
        of_program,
        budget: Duration::from_secs_f64(budget),
        deadline: deadline(time),
    }
}

/// JSON of a `SpinReport` of a core file. `threads` empty: all of them. `of_program`: those of
/// which the program's own code tells what they wait for. `time` and `hear` as in `spin`.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "the Python function's keyword arguments"
)]
pub fn look_at_core(
    py: Python<'_>,
    path: PathBuf,
    sysroot: Option<PathBuf>,
    program: Option<PathBuf>,
    threads: Vec<u32>,
    of_program: Vec<u32>,
    budget: f64,
    time: Option<(f64, f64)>,
    hear: Option<Py<PyAny>>,
) -> PyResult<String> {
    let options = of_core(threads, of_program, budget, time);
    report_of(py, hear, move |hear| {
        // ptrace belongs to the thread that starts the copies.
        let core = CoreFile::open(&path, Files { sysroot, program })?;
        engine::look_at_core(&core, &options, hear)
    })
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
