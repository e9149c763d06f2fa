//! Why a thread cannot be stepped.

use thiserror::Error;

/// Four parts: what failed, what was found, how to fix it, what still works.
#[derive(Debug, Error)]
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
    pub(crate) fn system(what: impl Into<String>, error: &std::io::Error) -> StepError {
        let errno = error.raw_os_error();
        let fix = match errno {
            Some(libc::EPERM) => {
                "Run as the process's user with kernel.yama.ptrace_scope=0, or as root; end any debugger on it."
            }
            Some(libc::ESRCH) => "Check the thread id: the thread may have ended.",
            _ => "Try again; if it persists, record the program from its start.",
        };
        StepError {
            what: what.into(),
            found: format!("The system says: {error}."),
            fix: fix.into(),
            still_works: "The process goes on undisturbed; `flagfinder record` needs no attaching."
                .into(),
            errno,
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, StepError>;
