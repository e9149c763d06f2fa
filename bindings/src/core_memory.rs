// SPDX-License-Identifier: MIT
//! What Python reads of a core file itself.

use std::io::Error;
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};

use flagfinder_code::{AddressSpace, Mapping};
use flagfinder_replica::{CoreFile, Files};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::raise;
use crate::files::as_python;

/// At most so many bytes are read at once.
const MOST: usize = 1 << 24;

/// The memory of a dead process.
#[pyclass(unsendable)]
pub struct CoreMemory(CoreFile);

#[pymethods]
impl CoreMemory {
    #[new]
    fn new(
        path: PathBuf,
        sysroot: Option<PathBuf>,
        program: Option<PathBuf>,
    ) -> PyResult<CoreMemory> {
        let core = CoreFile::open(&path, Files { sysroot, program });
        core.map(CoreMemory).map_err(raise)
    }

    #[getter]
    fn pid(&self) -> u32 {
        self.0.pid()
    }

    #[getter]
    fn threads(&self) -> Vec<u32> {
        self.0.threads().iter().map(|thread| thread.tid).collect()
    }

    /// Start, end, rights as in /proc/PID/maps, offset in the file, and where that lies now.
    fn regions(&self) -> Vec<(u64, u64, String, u64, String)> {
        let region = |mapping: &Mapping| {
            let right = |has: bool, letter: char| if has { letter } else { '-' };
            let rights = [
                right(mapping.readable, 'r'),
                right(mapping.writable, 'w'),
                right(mapping.executable, 'x'),
                if mapping.shared { 's' } else { 'p' },
            ];
            let file = (mapping.inode != 0).then(|| self.0.place(mapping.file()));
            let file = file.flatten().unwrap_or_default();
            (
                mapping.start,
                mapping.end,
                rights.iter().collect(),
                mapping.file_offset,
                file.to_string_lossy().into_owned(),
            )
        };
        self.0.mappings().iter().map(region).collect()
    }

    /// As many bytes as can be read from `address` on.
    fn read<'py>(&self, py: Python<'py>, address: u64, size: usize) -> Bound<'py, PyBytes> {
        let mut bytes = vec![0; size.min(MOST)];
        let got = AddressSpace::read(&self.0, address, &mut bytes);
        PyBytes::new(py, &bytes[..got])
    }

    /// The file that the process knew by this name, if it might read it: a descriptor that the
    /// caller closes.
    fn open(&self, path: &str) -> PyResult<i32> {
        let missing = || Error::from_raw_os_error(libc::ENOENT);
        let place = self.0.place(path).ok_or_else(missing);
        let file = place.and_then(|place| self.0.open_file(&place));
        file.map(IntoRawFd::into_raw_fd)
            .map_err(|error| as_python(&error, Path::new(path)))
    }
}
