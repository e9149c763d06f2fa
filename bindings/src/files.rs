// SPDX-License-Identifier: MIT
//! Creating files that are their owner's only.

use std::os::fd::IntoRawFd;
use std::path::PathBuf;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// A descriptor that the caller closes.
#[pyfunction]
pub fn create_private(path: PathBuf) -> PyResult<i32> {
    match flagfinder_files::create_private(&path) {
        Ok(file) => Ok(file.into_raw_fd()),
        Err(error) => {
            let text = error.to_string();
            let reason = text.split(" (os error").next().unwrap_or_default();
            let number = error.raw_os_error();
            Err(PyOSError::new_err((number, reason.to_owned(), path)))
        }
    }
}
