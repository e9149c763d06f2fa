// SPDX-License-Identifier: MIT
//! Recordings to and from other tools' formats.

use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flagfinder_export as engine;
use flagfinder_export::{ExportError, Image};
use flagfinder_files::open_regular;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::errors::raise;
use crate::trace::Trace;
use crate::wait::wait;

fn fail(error: ExportError) -> PyErr {
    match error {
        ExportError::Trace(error) => raise(error),
        ExportError::Write(error) => error.into(),
    }
}

fn no_such() -> PyErr {
    PyIndexError::new_err("no such process or thread")
}

/// A file that is not kept when it could not be written as a whole.
fn write<T>(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<T, ExportError>,
) -> Result<T, ExportError> {
    flagfinder_files::write_private(path, |file| {
        let mut output = BufWriter::new(file);
        let filled = fill(&mut output)?;
        output.flush()?;
        Ok(filled)
    })
}

/// Blocks, modules, blocks left out.
#[pyfunction]
pub fn export_drcov(
    py: Python<'_>,
    trace: PyRef<'_, Trace>,
    process: usize,
    path: PathBuf,
) -> PyResult<(u64, u64, u64)> {
    let trace = Arc::clone(&trace.inner);
    let covered = wait(py, move || {
        let process = trace.processes().get(process)?;
        Some(write(&path, |out| engine::drcov(process, out)))
    })?;
    let covered = covered.ok_or_else(no_such)?.map_err(fail)?;
    Ok((covered.blocks, covered.modules, covered.outside))
}

/// Instructions written, instructions left out.
#[pyfunction]
pub fn export_tenet(
    py: Python<'_>,
    trace: PyRef<'_, Trace>,
    process: usize,
    thread: usize,
    count: u64,
    path: PathBuf,
) -> PyResult<(u64, u64)> {
    let trace = Arc::clone(&trace.inner);
    let exported = wait(py, move || {
        let process = trace.processes().get(process)?;
        let thread = process.threads().get(thread)?;
        Some(write(&path, |out| {
            engine::tenet(process, thread, count, out)
        }))
    })?;
    let exported = exported.ok_or_else(no_such)?.map_err(fail)?;
    Ok((exported.instructions, exported.left_out))
}

/// Slices and instants written.
#[pyfunction]
pub fn export_perfetto(py: Python<'_>, trace: PyRef<'_, Trace>, path: PathBuf) -> PyResult<u64> {
    let trace = Arc::clone(&trace.inner);
    wait(py, move || {
        write(&path, |out| engine::perfetto(&trace, out))
    })?
    .map_err(fail)
}

/// Instructions read, instructions outside all images.
#[pyfunction]
pub fn import_tenet(
    py: Python<'_>,
    path: PathBuf,
    images: Vec<(PathBuf, u64)>,
    output: PathBuf,
) -> PyResult<(u64, u64)> {
    let read = move || -> Result<engine::Imported, ExportError> {
        let images: Result<Vec<Image>, ExportError> = images
            .iter()
            .map(|(path, base)| Image::open(path, *base))
            .collect();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut text = BufReader::new(open_regular(&path)?);
        let (bytes, imported) = engine::import_tenet(&mut text, &images?, &name)?;
        write(&output, |out| Ok(out.write_all(&bytes)?))?;
        Ok(imported)
    };
    let imported = wait(py, read)?.map_err(fail)?;
    Ok((imported.instructions, imported.outside))
}
