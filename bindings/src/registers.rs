// SPDX-License-Identifier: MIT
//! `registers_before`: the registers at the last blocks before two runs part.

use flagfinder_machine::registers::{self, BlockPlace};
use pyo3::prelude::*;

use crate::divergence::Divergence;
use crate::errors::raise;
use crate::trace::{to_json, Trace};
use crate::wait::wait;

/// JSON of a `RegisterHistory`; `None` when the runs do not part.
#[pyfunction]
pub fn registers_before(
    py: Python<'_>,
    spin: PyRef<'_, Trace>,
    divergence: PyRef<'_, Divergence>,
    blocks: u64,
) -> PyResult<Option<String>> {
    let (spin, divergence) = (spin.inner.clone(), divergence.inner.clone());
    let Some(parting) = divergence.partings.first() else {
        return Ok(None);
    };
    let place = BlockPlace {
        pid: parting.thread.pid,
        image: parting.thread.image,
        tid: parting.thread.tid,
        index: parting.spin_index,
    };
    let found = wait(py, move || {
        registers::registers_before(&spin, &place, blocks)
    })?;
    Ok(found.map_err(raise)?.map(|history| to_json(&history)))
}
