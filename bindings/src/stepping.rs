// SPDX-License-Identifier: MIT
//! A recording that a debugger feeds.

use std::io::Write;
use std::path::PathBuf;

use flagfinder_export as engine;
use flagfinder_failure::Failure;
use flagfinder_trace::{End, Info, Note};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;

use crate::errors::raise;

fn parse<T: DeserializeOwned>(json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Base, index (-1: none), scale, displacement, relative to fs, bytes.
type Operand = (i8, i8, u8, u64, bool, u8);
/// Kind, reads, registers afterwards, targets.
type Plan = (u8, Vec<Operand>, Vec<u32>, Vec<u64>);

#[pyclass(unsendable, module = "flagfinder._core")]
pub struct Stepping {
    inner: Option<engine::Stepping>,
}

impl Stepping {
    fn open(&mut self) -> PyResult<&mut engine::Stepping> {
        let closed = || PyValueError::new_err("the recording is finished");
        self.inner.as_mut().ok_or_else(closed)
    }
}

#[pymethods]
impl Stepping {
    #[new]
    #[pyo3(signature = (info_json, *, pid, tid, path, name, pc, sp, fs_base, ts))]
    #[expect(
        clippy::too_many_arguments,
        reason = "keyword arguments on the Python side"
    )]
    fn new(
        info_json: &str,
        pid: u32,
        tid: u32,
        path: String,
        name: String,
        pc: u64,
        sp: u64,
        fs_base: u64,
        ts: u64,
    ) -> PyResult<Self> {
        let start = engine::Start {
            pid,
            tid,
            path,
            name,
            pc,
            stack_pointer: sp,
            fs_base,
            ts,
        };
        let inner = engine::Stepping::new(&parse::<Info>(info_json)?, &start).map_err(raise)?;
        Ok(Stepping { inner: Some(inner) })
    }

    /// Start, end and path of all mappings with code.
    fn modules(&mut self) -> PyResult<Vec<(u64, u64, String)>> {
        let mapped = self.open()?.look_for_modules()?;
        let rows = mapped
            .into_iter()
            .map(|m| (m.code.start, m.code.end, m.path));
        Ok(rows.collect())
    }

    fn plan(&mut self, pc: u64, code: &[u8]) -> PyResult<Plan> {
        let plan = self.open()?.plan(pc, code);
        let number = |register: Option<u8>| register.map_or(-1, |number| number as i8);
        let reads = plan.reads.iter().map(|read| {
            (
                number(read.base),
                number(read.index),
                read.scale,
                read.displacement,
                read.in_thread_block,
                read.bytes,
            )
        });
        Ok((
            plan.kind as u8,
            reads.collect(),
            plan.after.iter().map(|&number| u32::from(number)).collect(),
            plan.targets.clone(),
        ))
    }

    fn feed(&mut self, ts: u64, words: &[u8]) -> PyResult<()> {
        let words: Vec<u64> = words
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        let recording = self.open()?;
        let fed = recording.feed(&words);
        recording.now(ts);
        fed.ok_or_else(|| PyValueError::new_err("these are no steps"))
    }

    fn note(&mut self, note_json: &str) -> PyResult<()> {
        let note: Note = parse(note_json)?;
        self.open()?.note(&note).map_err(raise)
    }

    #[getter]
    fn instructions(&mut self) -> PyResult<u64> {
        Ok(self.open()?.instructions())
    }

    /// Bytes written.
    fn finish(&mut self, path: PathBuf, end_json: &str) -> PyResult<u64> {
        let end: End = parse(end_json)?;
        self.open()?;
        let recording = self.inner.take();
        let bytes = recording.map(|recording| recording.finish(end));
        let bytes = bytes.transpose().map_err(raise)?.unwrap_or_default();
        let written = flagfinder_files::write_private(&path, |file| file.write_all(&bytes));
        written.map_err(|error| {
            raise(Failure::io(
                "The trace can't be written",
                &error,
                "Make room on the disk, or choose another path with -o.",
                "What the program did is not kept; other files are unaffected.",
            ))
        })?;
        Ok(bytes.len() as u64)
    }
}
