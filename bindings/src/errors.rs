// SPDX-License-Identifier: MIT
//! Engine errors become the exceptions of the package, with all four parts.

use flagfinder_diff::input::FlowError;
use flagfinder_flags::FindError;
use flagfinder_record::RecordError;
use flagfinder_replica::CoreError;
use flagfinder_step::StepError;
use flagfinder_trace::TraceError;
use flagfinder_watch::WatchError;
use pyo3::prelude::*;

/// An error's four parts and its exit code, whichever crate it came from.
pub struct Failure {
    pub exit_code: i32,
    pub parts: [String; 4],
}

impl Failure {
    fn class_name(&self) -> &'static str {
        match self.exit_code {
            65 => "BadTraceError",
            69 => "UnavailableError",
            77 => "PermissionDeniedError",
            _ => "FlagfinderError",
        }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        let parts = [
            error.what(),
            error.found(),
            error.fix(),
            error.still_works(),
        ];
        Failure {
            exit_code: error.exit_code(),
            parts: parts.map(str::to_owned),
        }
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Failure {
            exit_code: error.exit_code(),
            parts: [error.what, error.found, error.fix, error.still_works],
        }
    }
}

impl From<StepError> for Failure {
    fn from(error: StepError) -> Self {
        let denied = matches!(error.errno, Some(1 | 13));
        Failure {
            exit_code: if denied { 77 } else { 69 },
            parts: [error.what, error.found, error.fix, error.still_works]
                .map(|part| part.trim_end_matches('.').to_owned()),
        }
    }
}

impl From<CoreError> for Failure {
    fn from(error: CoreError) -> Self {
        Failure {
            exit_code: 65,
            parts: [error.what, error.found, error.fix, error.still_works]
                .map(|part| part.trim_end_matches('.').to_owned()),
        }
    }
}

impl From<WatchError> for Failure {
    fn from(error: WatchError) -> Self {
        Failure {
            exit_code: error.exit_code,
            parts: [error.what, error.found, error.fix, error.still_works],
        }
    }
}

impl From<FlowError> for Failure {
    fn from(error: FlowError) -> Self {
        Failure {
            exit_code: 65,
            parts: [
                "A thread's flow can't be read".into(),
                error.0,
                "`flagfinder trace check FILE` shows what is damaged. Record the run again.".into(),
                "`flagfinder trace info FILE` and other traces work.".into(),
            ],
        }
    }
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Trace(error) => error.into(),
            FindError::Flow(error) => error.into(),
            FindError::NoThreads => Failure {
                exit_code: 65,
                parts: [
                    "The spin trace can't be searched".into(),
                    "it holds no thread".into(),
                    "Record again, long enough for the loop to be reached.".into(),
                    "`flagfinder trace info FILE` shows what it holds.".into(),
                ],
            },
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| {
            let raise = || -> PyResult<PyErr> {
                let class = py.import("flagfinder")?.getattr(failure.class_name())?;
                let [what, found, fix, still_works] = failure.parts;
                Ok(PyErr::from_value(class.call1((
                    what,
                    found,
                    fix,
                    still_works,
                ))?))
            };
            raise().unwrap_or_else(|error| error)
        })
    }
}

/// For an error type whose crate cannot know [`Failure`].
pub fn raise(error: impl Into<Failure>) -> PyErr {
    error.into().into()
}
