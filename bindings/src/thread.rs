// SPDX-License-Identifier: MIT
//! `Thread`: one recorded thread; its flow and syscalls as arrays.

use std::sync::Arc;

use flagfinder_trace as engine;
use flagfinder_trace::{DecodedFlow, Event};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;

use crate::errors::raise;
use crate::values::Loads;
use crate::wait::wait;

/// flow index, number, enter, exit, arguments, result, returned.
type SyscallColumns<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray2<u64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<bool>>,
);

/// flow index, pc, address, whether it is known, bytes, value.
type LoadColumns<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<bool>>,
    Bound<'py, PyArray1<u8>>,
    Bound<'py, PyArray1<u64>>,
);

#[pyclass(frozen, module = "flagfinder._core")]
pub struct Thread {
    place: Place,
}

/// Where the engine's thread is; cheap to send to a worker.
#[derive(Clone)]
struct Place {
    trace: Arc<engine::Trace>,
    process: usize,
    thread: usize,
}

impl Place {
    fn inner(&self) -> &engine::Thread {
        &self.trace.processes()[self.process].threads()[self.thread]
    }

    /// Walks the flow a section at a time, rounds folded, in bounded memory.
    fn sections(&self, mut visit: impl FnMut(&mut DecodedFlow)) -> engine::Result<()> {
        let thread = self.inner();
        let mut decoder = thread.flow_decoder();
        let mut decoded = DecodedFlow::default();
        for index in 0..thread.flow_section_count() {
            decoder.decode_folded(index, &mut decoded)?;
            visit(&mut decoded);
        }
        Ok(())
    }
}

impl Thread {
    pub fn new(trace: Arc<engine::Trace>, process: usize, thread: usize) -> Self {
        let place = Place {
            trace,
            process,
            thread,
        };
        Thread { place }
    }

    /// Runs `read` on a worker thread; see [`wait`].
    fn reading<T: Send + 'static>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&Place) -> engine::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let place = self.place.clone();
        wait(py, move || read(&place))?.map_err(raise)
    }
}

#[pymethods]
impl Thread {
    #[getter]
    fn tid(&self) -> u32 {
        self.place.inner().tid
    }

    #[getter]
    fn creator_tid(&self) -> Option<u32> {
        self.place.inner().creator_tid()
    }

    #[getter]
    fn name(&self) -> String {
        self.place.inner().name.clone()
    }

    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let blocks = self.reading(py, |place| {
            let mut blocks = Vec::new();
            place.sections(|decoded| match decoded.cycled {
                Some(count) => {
                    let round = decoded.blocks.iter().copied().cycle();
                    blocks.extend(round.take(count as usize));
                }
                None => blocks.extend_from_slice(&decoded.blocks),
            })?;
            Ok(blocks)
        })?;
        Ok(blocks.into_pyarray(py))
    }

    /// Blocks, syscalls, signals, gaps.
    fn summary(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64)> {
        self.reading(py, |place| {
            let (mut blocks, mut syscalls, mut signals, mut gaps) = (0, 0, 0, 0);
            place.sections(|decoded| {
                blocks += decoded.block_count();
                gaps += u64::from(decoded.gap.is_some());
                for (_, _, event) in &decoded.events {
                    match event {
                        Event::SyscallEnter(_) => syscalls += 1,
                        Event::Signal { .. } => signals += 1,
                        Event::Gap { .. } => gaps += 1,
                        _ => {}
                    }
                }
            })?;
            Ok((blocks, syscalls, signals, gaps))
        })
    }

    fn values<'py>(&self, py: Python<'py>) -> PyResult<LoadColumns<'py>> {
        let loads = self.reading(py, |place| {
            Loads::read(&place.trace.processes()[place.process], place.inner())
        })?;
        Ok((
            loads.flow_index.into_pyarray(py),
            loads.pc.into_pyarray(py),
            loads.address.into_pyarray(py),
            loads.address_known.into_pyarray(py),
            loads.size.into_pyarray(py),
            loads.value.into_pyarray(py),
        ))
    }

    fn syscalls<'py>(&self, py: Python<'py>) -> PyResult<SyscallColumns<'py>> {
        let columns = self.reading(py, Syscalls::read)?;
        let rows = columns.number.len();
        Ok((
            columns.flow_index.into_pyarray(py),
            columns.number.into_pyarray(py),
            columns.enter.into_pyarray(py),
            columns.exit.into_pyarray(py),
            columns.arguments.into_pyarray(py).reshape([rows, 6])?,
            columns.result.into_pyarray(py),
            columns.returned.into_pyarray(py),
        ))
    }
}

/// Syscalls in columns; `arguments` has six entries a row.
#[derive(Default)]
struct Syscalls {
    flow_index: Vec<u64>,
    number: Vec<u32>,
    enter: Vec<u64>,
    exit: Vec<u64>,
    arguments: Vec<u64>,
    result: Vec<i64>,
    returned: Vec<bool>,
}

impl Syscalls {
    fn read(place: &Place) -> engine::Result<Self> {
        let mut columns = Syscalls::default();
        let mut blocks_before = 0;
        place.sections(|decoded| {
            for (index, _, event) in &decoded.events {
                columns.event(blocks_before + *index as u64, event);
            }
            blocks_before += decoded.block_count();
        })?;
        Ok(columns)
    }

    fn event(&mut self, flow_index: u64, event: &Event) {
        match event {
            Event::SyscallEnter(enter) => {
                self.flow_index.push(flow_index);
                self.number.push(enter.number);
                self.enter.push(enter.ts);
                self.exit.push(0);
                self.arguments.extend_from_slice(&enter.args);
                self.result.push(0);
                self.returned.push(false);
            }
            // A handler that ran inside a blocking call made calls of its own: take the latest open
            // one.
            Event::SyscallExit { ts, number, result } => {
                let open = (0..self.number.len())
                    .rev()
                    .find(|&row| !self.returned[row]);
                if let Some(row) = open.filter(|&row| self.number[row] == *number) {
                    self.exit[row] = *ts;
                    self.result[row] = *result;
                    self.returned[row] = true;
                }
            }
            _ => {}
        }
    }
}
