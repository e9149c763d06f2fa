// SPDX-License-Identifier: MIT
//! Memory of a running process.

use flagfinder_code::AddressSpace;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Longer reads are cut.
const MOST: usize = 1 << 24;

/// As `/proc/PID/cmdline` has them, without waiting for pages that are missing.
#[pyfunction]
pub fn arguments_of(py: Python<'_>, pid: u32) -> PyResult<Bound<'_, PyBytes>> {
    let found = flagfinder_linux::arguments::arguments(pid).map_err(|error| as_python(&error))?;
    Ok(PyBytes::new(py, &found))
}

fn as_python(error: &std::io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, error.to_string())),
        None => PyOSError::new_err(error.to_string()),
    }
}

/// Read so that nobody waits for a page, and the process gets none.
#[pyclass(frozen, module = "flagfinder._core")]
pub struct ProcessMemory(flagfinder_code::ProcessMemory);

#[pymethods]
impl ProcessMemory {
    #[new]
    fn new(pid: u32) -> PyResult<ProcessMemory> {
        let opened = flagfinder_code::ProcessMemory::open(pid);
        opened.map(ProcessMemory).map_err(|error| as_python(&error))
    }

    /// As many bytes as can be read from `address` on.
    fn read<'py>(&self, py: Python<'py>, address: u64, size: usize) -> Bound<'py, PyBytes> {
        let mut bytes = vec![0; size.min(MOST)];
        let got = py.detach(|| self.0.read(address, &mut bytes));
        PyBytes::new(py, &bytes[..got])
    }

    /// The stretches of pages that the process has between two addresses.
    fn there(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.0.there(start, end)
    }
}
