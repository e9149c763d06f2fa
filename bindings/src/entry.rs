// SPDX-License-Identifier: MIT
//! A program that is stopped before its own first instruction.

use std::time::Duration;

use flagfinder_step as engine;
use pyo3::prelude::*;

use crate::errors::raise;

#[pyclass(unsendable, module = "flagfinder._core")]
pub struct Entry(engine::Entry);

#[pymethods]
impl Entry {
    /// Follows a child of this process. Only the thread that made it may use it.
    #[new]
    fn new(pid: i32) -> PyResult<Self> {
        engine::Entry::follow(pid).map(Entry).map_err(raise)
    }

    /// The process that stands at the entry of the program with this file name; None: not within
    /// `seconds`.
    fn wait(&mut self, program: &str, seconds: f64) -> PyResult<Option<u32>> {
        let patience = Duration::from_secs_f64(seconds);
        self.0.wait(program, patience).map_err(raise)
    }

    /// All processes have ended.
    fn is_over(&self) -> bool {
        self.0.is_over()
    }
}
