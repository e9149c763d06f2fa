// SPDX-License-Identifier: MIT
//! Why a thread cannot be stepped.

use flagfinder_failure::{Failure, DENIED, UNAVAILABLE};
use flagfinder_privileges::{how_to_get, Capability};
use thiserror::Error;

const STILL_WORKS: &str = "The process goes on undisturbed.";

/// Four parts: what failed, what was found, how to fix it, what still works.
#[derive(Clone, Debug, Error)]
#[error("{what} {found} {fix} {still_works}")]
pub struct StepError {
    pub what: String,
    pub found: String,
    pub fix: String,
    pub still_works: String,
    /// The system's error number, if it gave one.
    pub errno: Option<i32>,
}

impl StepError {
    pub fn new(
        what: impl Into<String>,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> StepError {
        StepError {
            what: what.into(),
            found: found.into(),
            fix: fix.into(),
            still_works: STILL_WORKS.into(),
            errno: None,
        }
    }

    pub fn system(what: impl Into<String>, error: &std::io::Error) -> StepError {
        let errno = error.raw_os_error();
        let fix = match errno {
            Some(libc::EPERM | libc::EACCES) => format!(
                "End any debugger on it. For a process of your own, sudo sysctl kernel.yama.ptrace_scope=0 is enough. {}",
                how_to_get(&[Capability::SysPtrace])
            ),
            Some(libc::ESRCH) => "Check the thread id: the thread may have ended.".into(),
            _ => "Try again; if it persists, record the program from its start.".into(),
        };
        StepError {
            errno,
            still_works: format!("{STILL_WORKS} `flagfinder record` needs no attaching."),
            ..StepError::new(what, format!("The system says: {error}."), fix)
        }
    }

    pub(crate) fn frozen(tid: i32) -> StepError {
        StepError::new(
            format!("Thread {tid} is not stepped."),
            "Its process is stopped (SIGSTOP, or Ctrl-Z).",
            "Let it go on with `kill -CONT`, then try again.",
        )
    }

    pub(crate) fn does_not_stop(tid: i32, gone: bool) -> StepError {
        let found = if gone {
            "It ended meanwhile."
        } else {
            "It is in an uninterruptible state (D in ps), or frozen by a control group."
        };
        StepError::new(
            format!("Thread {tid} is not stepped."),
            found,
            "Try again later, or choose another thread with --thread.",
        )
    }

    pub(crate) fn not_64_bit(tid: i32) -> StepError {
        StepError::new(
            format!("Thread {tid} is not stepped."),
            "It runs 32-bit code.",
            "Only 64-bit programs are understood.",
        )
    }
}

/// Its sentences lose their full stops: they stand between colons.
impl From<StepError> for Failure {
    fn from(error: StepError) -> Failure {
        let code = match error.errno {
            Some(libc::EPERM | libc::EACCES) => DENIED,
            _ => UNAVAILABLE,
        };
        let [what, found, fix, still_works] =
            [error.what, error.found, error.fix, error.still_works]
                .map(|part| part.trim_end_matches('.').to_owned());
        Failure::new(code, what, found, fix, still_works)
    }
}

pub(crate) type Result<T> = std::result::Result<T, StepError>;
