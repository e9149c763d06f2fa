// SPDX-License-Identifier: MIT
//! Why a process or a thread of it can't be looked at, stepped or copied. It goes on.

use flagfinder_failure::{Failure, DENIED};
use flagfinder_linux::proc;
use flagfinder_privileges::how_to_look;

const STILL_WORKS: &str = "The process goes on undisturbed";

/// What, why, and what helps; the fourth part says that the process goes on.
pub fn unable(
    what: impl Into<String>,
    found: impl Into<String>,
    fix: impl Into<String>,
) -> Failure {
    Failure::unavailable(what, found, fix, STILL_WORKS)
}

/// As `unable`, with an error of the system for a reason.
pub fn unable_by(what: impl Into<String>, error: &std::io::Error) -> Failure {
    let (denied, fix) = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            (true, format!("End any debugger on it. {}", how_to_look()))
        }
        Some(libc::ESRCH) => (
            false,
            "Check the thread id: the thread may have ended".into(),
        ),
        _ => (
            false,
            "Try again; if it persists, record the program from its start".into(),
        ),
    };
    let mut failure = unable(what, format!("The system says: {error}"), fix);
    failure.still_works = format!("{STILL_WORKS}. `flagfinder record` needs no attaching");
    if denied {
        failure.exit_code = DENIED;
    }
    failure
}

pub(crate) fn is_held(tid: i32, tracer: u32) -> Failure {
    let name = proc::name(tracer, tracer).unwrap_or_default();
    unable(
        format!("Thread {tid} cannot be traced"),
        format!("It is held by its tracer, process {tracer} ({name})"),
        match proc::is_helper(&name) {
            true => "Try again when that look of flagfinder is over",
            false => "End that first: a thread has one tracer at most",
        },
    )
}

pub(crate) fn frozen(tid: i32) -> Failure {
    unable(
        format!("Thread {tid} is not stepped"),
        "Its process is stopped (SIGSTOP, or Ctrl-Z)",
        "Let it go on with `kill -CONT`, then try again",
    )
}

pub(crate) fn does_not_stop(tid: i32, gone: bool) -> Failure {
    let found = if gone {
        "It ended meanwhile"
    } else {
        "It is in an uninterruptible state (D in ps), or frozen by a control group"
    };
    unable(
        format!("Thread {tid} is not stepped"),
        found,
        "Try again later, or choose another thread",
    )
}

pub(crate) fn would_notice(tid: i32, call: Option<&str>) -> Failure {
    let found = match call {
        Some(call) => format!("It sleeps in {call}, which a stop may end early"),
        None => "It sleeps in the kernel, and a stop may end that early".to_owned(),
    };
    unable(
        format!("Thread {tid} is not stopped"),
        found,
        "Try again later, or choose another thread",
    )
}

pub(crate) fn not_64_bit(tid: i32) -> Failure {
    unable(
        format!("Thread {tid} is not stepped"),
        "It runs 32-bit code",
        "Only 64-bit programs are understood",
    )
}

pub(crate) fn ignores_traps(tid: i32) -> Failure {
    unable(
        format!("Thread {tid} is not stepped"),
        "Its process ignores SIGTRAP, which the kernel would make it forget at the first step",
        "`flagfinder spin` without --in-place looks at a copy of the thread, which changes nothing",
    )
}

pub(crate) fn trap_waits(tid: i32) -> Failure {
    unable(
        format!("Thread {tid} is not stepped"),
        "A SIGTRAP of its own waits, which a step would take or deliver",
        "Try again once it has taken that signal",
    )
}

pub(crate) fn keeps_its_mask(tid: i32) -> Failure {
    unable(
        format!("Thread {tid} is not stepped"),
        "The system does not let its signals wait meanwhile",
        "`flagfinder spin` without --in-place looks at a copy of the thread, which changes nothing",
    )
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;
