// SPDX-License-Identifier: MIT
//! What this process may do on this machine.

use flagfinder_bpf as bpf;
use flagfinder_privileges::{how_to_get, Capability};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::raise;

/// Raises PermissionDeniedError or UnavailableError where BPF programs can't be loaded.
#[pyfunction]
pub fn check_programs() -> PyResult<()> {
    bpf::check_programs().map_err(raise)
}

/// Raises PermissionDeniedError or UnavailableError where breakpoints can't be set.
#[pyfunction]
pub fn check_breakpoints() -> PyResult<()> {
    bpf::check_breakpoints().map_err(raise)
}

fn capability(name: &str) -> PyResult<Capability> {
    let mut all = Capability::ALL.into_iter();
    let found = all.find(|capability| capability.name() == name);
    found.ok_or_else(|| PyValueError::new_err(format!("no capability {name}")))
}

/// Whether this process has the capability of this name.
#[pyfunction]
pub fn has_capability(name: &str) -> PyResult<bool> {
    let wanted = capability(name)?;
    Ok(flagfinder_privileges::missing(&[wanted]).is_empty())
}

/// How this process gets to look into one of the same user.
#[pyfunction]
pub fn how_to_look() -> String {
    flagfinder_privileges::how_to_look()
}

/// How one command gets the capabilities of these names.
#[pyfunction]
pub fn how_to_get_capabilities(names: Vec<String>) -> PyResult<String> {
    let wanted = names.iter().map(|name| capability(name));
    Ok(how_to_get(&wanted.collect::<PyResult<Vec<_>>>()?))
}
