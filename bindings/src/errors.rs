// SPDX-License-Identifier: MIT
//! Engine errors become the exceptions of the package, with all four parts.

use flagfinder_failure::{Failure, BAD_FILE, DENIED, UNAVAILABLE};
use pyo3::prelude::*;

fn class_name(exit_code: i32) -> &'static str {
    match exit_code {
        BAD_FILE => "BadTraceError",
        UNAVAILABLE => "UnavailableError",
        DENIED => "PermissionDeniedError",
        _ => "FlagfinderError",
    }
}

pub fn raise(error: impl Into<Failure>) -> PyErr {
    let failure: Failure = error.into();
    Python::attach(|py| {
        let raise = || -> PyResult<PyErr> {
            let class = py
                .import("flagfinder.shared.errors")?
                .getattr(class_name(failure.exit_code))?;
            Ok(PyErr::from_value(
                class.call1(<(_, _, _, _)>::from(parts(failure)))?,
            ))
        };
        raise().unwrap_or_else(|error| error)
    })
}

/// The four parts of a message.
pub fn parts(failure: Failure) -> [String; 4] {
    let Failure {
        what,
        found,
        fix,
        still_works,
        ..
    } = failure;
    [what, found, fix, still_works]
}
