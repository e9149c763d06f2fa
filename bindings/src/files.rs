// SPDX-License-Identifier: MIT
//! Files that processes name, and files that are their owner's only.

use std::io::{Error, ErrorKind, Read};
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// From now on this process is killed when the thread that started it ends.
#[pyfunction]
pub fn end_with_parent() {
    // SAFETY: takes numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

/// Lets this process and what it starts trace us, besides our ancestors; 0: nobody.
#[pyfunction]
pub fn let_trace(pid: u64) {
    // SAFETY: takes numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_PTRACER, pid);
    }
}

/// A descriptor that the caller closes.
#[pyfunction]
pub fn create_private(path: PathBuf) -> PyResult<i32> {
    match flagfinder_files::create_private(&path) {
        Ok(file) => Ok(file.into_raw_fd()),
        Err(error) => Err(as_python(&error, &path)),
    }
}

/// What a process calls `name`: the first `most` bytes, and when it was written, in seconds since
/// 1970. Only if the process itself may read it.
#[pyfunction]
pub fn read_file_of<'py>(
    py: Python<'py>,
    pid: u32,
    name: PathBuf,
    most: u64,
) -> PyResult<(Bound<'py, PyBytes>, f64)> {
    let opened = py.detach(|| {
        let opened = flagfinder_files::open_of_process(pid, &name)?;
        read(opened, most)
    });
    let (bytes, facts) = opened.map_err(|error| as_python(&error, &name))?;
    let modified = facts.modified as f64 + facts.modified_ns as f64 / 1e9;
    Ok((PyBytes::new(py, &bytes), modified))
}

/// The first `most` bytes of the file that a process has open as `fd`.
#[pyfunction]
pub fn read_open_file_of(
    py: Python<'_>,
    pid: u32,
    fd: i32,
    most: u64,
) -> PyResult<Bound<'_, PyBytes>> {
    let path = PathBuf::from(format!("/proc/{pid}/fd/{fd}"));
    let opened = py.detach(|| read(flagfinder_files::open_if_it_may(pid, &path)?, most));
    let (bytes, _) = opened.map_err(|error| as_python(&error, &path))?;
    Ok(PyBytes::new(py, &bytes))
}

/// A file that a process, a core or a trace names, as a descriptor to read that the caller closes.
#[pyfunction]
pub fn open_named(py: Python<'_>, path: PathBuf) -> PyResult<i32> {
    let opened = py.detach(|| flagfinder_files::open_named(&path));
    opened
        .map(IntoRawFd::into_raw_fd)
        .map_err(|error| as_python(&error, &path))
}

/// Does a file that a process names hold debug information, or does one beside it?
#[pyfunction]
pub fn has_debug_info(py: Python<'_>, path: PathBuf) -> bool {
    py.detach(|| flagfinder_code::has_debug_info(&path))
}

/// What to say if the file system of a path does not answer.
#[pyfunction]
pub fn silence_of(py: Python<'_>, path: PathBuf) -> Option<String> {
    py.detach(|| {
        let asked = flagfinder_files::facts_of(&path).map(|_| ());
        // What the kernel remembers of a file does not need its server.
        let asked = asked.and_then(|()| flagfinder_files::open_named(&path).map(|_| ()));
        let error = asked.err()?;
        (error.kind() == ErrorKind::TimedOut).then(|| error.to_string())
    })
}

/// Is a file system mounted whose answers come from a process or from another machine?
#[pyfunction]
pub fn servers_may_be_silent() -> bool {
    let mounts = flagfinder_linux::proc::text_of(std::process::id(), "mountinfo");
    let mounts = mounts.unwrap_or_default();
    let mut all = flagfinder_linux::mounts::all(&mounts);
    all.any(|mount| mount.may_hang())
}

/// Processes of ours that open files, those that a silent file system holds among them.
#[pyfunction]
pub fn file_openers() -> Vec<u32> {
    flagfinder_files::openers()
}

fn read(
    opened: flagfinder_files::Opened,
    most: u64,
) -> std::io::Result<(Vec<u8>, flagfinder_files::Facts)> {
    let mut bytes = Vec::new();
    opened.file.take(most).read_to_end(&mut bytes)?;
    Ok((bytes, opened.facts))
}

pub(crate) fn as_python(error: &Error, path: &Path) -> PyErr {
    let text = error.to_string();
    let reason = text.split(" (os error").next().unwrap_or_default();
    let number = error.raw_os_error().or(match error.kind() {
        ErrorKind::TimedOut => Some(libc::ETIMEDOUT),
        ErrorKind::PermissionDenied => Some(libc::EACCES),
        _ => None,
    });
    PyOSError::new_err((number, reason.to_owned(), path.to_owned()))
}

/// Ends those that are kept for the next file. A process that ends by `os._exit` calls it.
#[pyfunction]
pub fn end_file_openers() {
    flagfinder_files::end_openers();
}
