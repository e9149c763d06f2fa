// SPDX-License-Identifier: MIT
//! Busy threads of which no copy tells what they wait for: their calls alone are counted.
//!
//! In: what copies of the threads showed. Out: the findings of those that make a call in vain,
//! again and again; and of those whose copies repeat one, where it is about something else each
//! time. A copy does not serve where rounds are long, where a scheduler hands tasks from thread to
//! thread, or where an interpreter's loop does not say what its program asks. Calls about
//! descriptors by which the process's threads wake each other do not count: most are the sleep of a
//! virtual machine's thread. Blind spots: those of `step::watch_calls` and of
//! `flags::find_in_calls`; a thread that sleeps between two tries.

use std::time::Duration;

use flagfinder_code::Names;
use flagfinder_failure::Failure;
use flagfinder_flags::{asks_anew, find_in_calls, AskedCall, Report, ThreadName, Verdict};
use flagfinder_linux::syscalls;
use flagfinder_machine::MadeCall;
use flagfinder_step::{watch_calls, Helper};
use flagfinder_waits::descriptor::wakes_itself;
use rustc_hash::FxHashMap;

use crate::chosen_threads::Choice;
use crate::deadline::Deadline;
use crate::helpers::{result, Copies};
use crate::report::Via;
use crate::stepping_job::{milliseconds, Finding};

/// A thread that wants less of a processor is not busy.
const BUSY: f64 = 0.1;
/// How long a helper may take: it watches for less than a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks at the calls of all such threads at the same time. What is found takes the place of what
/// their copies told.
///
/// # Errors
/// When the system gives no process.
pub(crate) fn look(
    pid: u32,
    choice: &Choice,
    copies: &mut Copies,
    (names, deadline): (&Names, &Deadline),
) -> Result<Vec<(u32, Finding)>, Failure> {
    let mut helpers = Vec::new();
    for (tid, name) in choice.named() {
        let is_busy = choice.get(tid).is_some_and(|(one, _)| one.wants >= BUSY);
        let asked = match copies.flag(tid) {
            None => None,
            Some(flag) => match &flag.call {
                Some(call) => Some(call.clone()),
                // A word is what it polls.
                None => continue,
            },
        };
        if !is_busy || deadline.is_over() {
            continue;
        }
        let title = format!("ff-step: counts the calls of thread {tid} of process {pid}");
        let helper = Helper::start(&title, || {
            let thread = ThreadName { tid, name };
            finding(pid, thread, asked.as_ref(), names).into_bytes()
        })?;
        helpers.push((tid, helper));
    }
    let mut found = Vec::new();
    for (tid, helper) in helpers {
        let mut finding = result(tid, helper, PATIENCE, deadline);
        let Some(report) = finding.report.as_mut() else {
            copies.add_pause(tid, finding.pause_ms);
            continue;
        };
        if let Some(copy) = copies.take(tid) {
            report.spin_loop = copy.report.and_then(|report| report.spin_loop);
            finding.steps = copy.steps;
            finding.pause_ms += copy.pause_ms;
            finding.via_reason = copy.via_reason;
        }
        found.push((tid, finding));
    }
    Ok(found)
}

/// `asked`: the call that its copy repeats.
fn finding(pid: u32, thread: ThreadName, asked: Option<&AskedCall>, names: &Names) -> Finding {
    let mut watched = match watch_calls(thread.tid) {
        Ok(watched) => watched,
        Err(error) => return Finding::failed(error),
    };
    leave_wakeups(&mut watched.calls, &|fd| wakes_itself(pid, fd));
    let calls = &watched.calls;
    let ran = watched.time.saturating_sub(watched.pause);
    let mut finding = Finding::blank(Via::Replica);
    finding.pause_ms = milliseconds(watched.pause);
    finding.report = match asked {
        None => find_in_calls(calls, ran, names, thread),
        Some(asked) if asks_anew(calls, asked.number) => Some(goes_on(asked)),
        Some(_) => None,
    };
    finding
}

/// Leaves out calls about nothing but descriptors by which threads of the process wake each other.
fn leave_wakeups(calls: &mut Vec<MadeCall>, is_own: &dyn Fn(i32) -> bool) {
    let mut known = FxHashMap::default();
    let mut is_own = |fd: &i32| *known.entry(*fd).or_insert_with(|| is_own(*fd));
    calls.retain(|call| {
        let about = &call.descriptors;
        about.is_empty() || !about.iter().all(&mut is_own)
    });
}

fn goes_on(asked: &AskedCall) -> Report {
    let name = syscalls::name(asked.number);
    let reason = format!("it makes progress: {name} is about something else each time");
    let mut report = Report::nothing(Verdict::NoFlag, reason);
    report.facts.gets_on = true;
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_about_the_own_wake_up_alone_is_left_out() {
        let about = |descriptors: &[i32]| MadeCall {
            number: libc::SYS_ppoll as u32,
            args: [0; 6],
            pc: 0,
            result: 0,
            about: Vec::new(),
            descriptors: descriptors.to_vec(),
            after: Duration::ZERO,
            took: Duration::ZERO,
            ran: Duration::ZERO,
        };
        let mut calls = vec![about(&[3]), about(&[3, 5]), about(&[5]), about(&[])];
        leave_wakeups(&mut calls, &|fd| fd == 3);
        let left: Vec<&[i32]> = calls.iter().map(|call| &*call.descriptors).collect();
        assert_eq!(left, [&[3, 5][..], &[5], &[]]);
    }
}
