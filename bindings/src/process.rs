// SPDX-License-Identifier: MIT
//! `Process`: one image of a recorded process; its modules and block table.

use std::sync::Arc;

use flagfinder_trace as engine;
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::thread::Thread;

/// path, build id in hex, base, start, end.
type ModuleFields = (String, String, u64, u64, u64);
/// pc, module index or -1, offset, bytes, instructions; by block id.
type BlockColumns<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<i32>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
);

#[pyclass(frozen, module = "flagfinder._core")]
pub struct Process {
    trace: Arc<engine::Trace>,
    index: usize,
}

impl Process {
    pub fn new(trace: Arc<engine::Trace>, index: usize) -> Self {
        Process { trace, index }
    }

    fn inner(&self) -> &engine::Process {
        &self.trace.processes()[self.index]
    }
}

#[pymethods]
impl Process {
    #[getter]
    fn pid(&self) -> u32 {
        self.inner().pid
    }

    #[getter]
    fn parent_pid(&self) -> u32 {
        self.inner().parent_pid
    }

    #[getter]
    fn image(&self) -> u32 {
        self.inner().image
    }

    #[getter]
    fn replaced(&self) -> bool {
        self.inner().replaced
    }

    #[getter]
    fn path(&self) -> String {
        self.inner().path.clone()
    }

    fn threads(&self) -> Vec<Thread> {
        let count = self.inner().threads().len();
        (0..count)
            .map(|index| Thread::new(self.trace.clone(), self.index, index))
            .collect()
    }

    fn modules(&self) -> Vec<ModuleFields> {
        let fields = |module: &engine::Module| {
            let build_id = module
                .build_id
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            (
                module.path.clone(),
                build_id,
                module.base,
                module.start,
                module.end,
            )
        };
        self.inner().modules().iter().map(fields).collect()
    }

    fn block_table<'py>(&self, py: Python<'py>) -> BlockColumns<'py> {
        let process = self.inner();
        let rows = process
            .blocks()
            .iter()
            .map(|block| block.id as usize + 1)
            .max()
            .unwrap_or(1);
        let mut pc = vec![0; rows];
        let mut module = vec![-1; rows];
        let mut offset = vec![0; rows];
        let mut size = vec![0; rows];
        let mut instructions = vec![0; rows];
        for block in process.blocks() {
            let row = block.id as usize;
            let home = block
                .module
                .and_then(|id| process.modules().iter().position(|m| m.id == id));
            pc[row] = block.pc;
            module[row] = home.map_or(-1, |index| index as i32);
            offset[row] = block
                .pc
                .wrapping_sub(home.map_or(0, |index| process.modules()[index].base));
            size[row] = block.code.len() as u32;
            instructions[row] = u32::from(block.instruction_count);
        }
        (
            pc.into_pyarray(py),
            module.into_pyarray(py),
            offset.into_pyarray(py),
            size.into_pyarray(py),
            instructions.into_pyarray(py),
        )
    }
}
