// SPDX-License-Identifier: MIT
//! What a helper does: steps one thread, and looks for its flag.

use std::time::{Duration, Instant};

use flagfinder_analysis::tasks::switches;
use flagfinder_analysis::{seen, Seen};
use flagfinder_code::{AddressSpace, Names};
use flagfinder_failure::{Failure, DENIED};
use flagfinder_flags::{
    find_in_live_window, find_in_tasks, has_flag, Report, ThreadName, VirtualMachine,
};
use flagfinder_machine::Window;
use flagfinder_replica::{go_round, Halt, Replica};
use flagfinder_step::{step_thread, Ended, Limits};
use serde::Serialize;
use serde_json::Value;

use crate::memory::{refused, Memory, NamedMemory};
use crate::report::Via;

/// Wall time for stepping one thread; mostly its own sleep.
pub const WALL: Duration = Duration::from_millis(2000);
/// A copy that has made so many instructions has shown enough, if it has shown a few iterations.
pub const MANY: u32 = 200_000;
/// Instructions of a copy, at most: its window takes memory for each. Threads that are looked at
/// together share them. A few rounds of a million instructions fit.
pub const MOST: u32 = 3_000_000;

#[derive(Serialize)]
pub struct Finding {
    report: Option<Report>,
    /// What the thread did, if it has no flag but may run tasks that go on in other threads.
    #[serde(skip)]
    window: Option<Window>,
    gets_on: bool,
    machine: Option<VirtualMachine>,
    apart: Vec<u64>,
    within_poll: Vec<u64>,
    /// Pages that belong to one moment in a copy of the thread: it writes them, or others do.
    held: Vec<u64>,
    steps: u64,
    pause_ms: f64,
    ended: String,
    via: Via,
    via_reason: String,
    /// It is of a copy that does not stand for the thread; `via_reason` tells why.
    unlike: bool,
    /// Other threads move this one, so all have to be seen at the same time.
    moved: bool,
    error: Option<String>,
    /// By the system: this user may not trace it.
    denied: bool,
}

impl Finding {
    /// The finding of a copy. It has no report if the copy is unlike its thread.
    pub fn of_copy(
        seen: Result<(Report, String), Unlike>,
        steps: u32,
        pause: Duration,
        held: Vec<u64>,
    ) -> Finding {
        let (report, why, unlike) = match seen {
            Ok((report, why)) => (Some(report), why, None),
            Err(unlike) => (None, unlike.why, Some(unlike.moved)),
        };
        Finding {
            gets_on: report.as_ref().is_some_and(|report| report.gets_on),
            machine: report.as_ref().and_then(|report| report.machine.clone()),
            apart: report
                .as_ref()
                .map_or_else(Vec::new, |report| report.apart.clone()),
            within_poll: report
                .as_ref()
                .map_or_else(Vec::new, |report| report.within_poll.clone()),
            held,
            report,
            window: None,
            steps: steps.into(),
            pause_ms: milliseconds(pause),
            ended: String::new(),
            via: Via::Replica,
            via_reason: why,
            unlike: unlike.is_some(),
            moved: unlike == Some(true),
            error: None,
            denied: false,
        }
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub fn failed(error: Failure) -> Finding {
        Finding {
            report: None,
            window: None,
            gets_on: false,
            machine: None,
            apart: Vec::new(),
            within_poll: Vec::new(),
            held: Vec::new(),
            steps: 0,
            pause_ms: 0.0,
            ended: String::new(),
            via: Via::InPlace,
            via_reason: String::new(),
            unlike: true,
            moved: false,
            denied: error.exit_code == DENIED,
            error: Some(format!("{}. {}.", error.found, error.fix)),
        }
    }

    /// What a helper hands to the command: the finding without its window as a line of JSON, then
    /// the window, if any.
    pub fn into_bytes(self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(&self).unwrap_or_default();
        if let Some(window) = self.window {
            bytes.push(b'\n');
            bytes.extend(serde_json::to_vec(&window).unwrap_or_default());
        }
        bytes
    }

    /// The reverse; null where a helper wrote nothing that can be read.
    pub fn from_bytes(bytes: &[u8]) -> (Value, Option<Window>) {
        let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
        let finding = lines
            .next()
            .and_then(|line| serde_json::from_slice(line).ok());
        let window = lines
            .next()
            .and_then(|line| serde_json::from_slice(line).ok());
        (finding.unwrap_or_default(), window)
    }
}

/// Why a copy does not stand for its thread.
pub struct Unlike {
    pub why: String,
    /// Other threads go on with what this one does.
    pub moved: bool,
    /// What others do may be missing in this copy, and not in those of other moments.
    pub by_others: bool,
}

impl Unlike {
    pub fn new(why: impl Into<String>) -> Unlike {
        Unlike {
            why: why.into(),
            moved: false,
            by_others: false,
        }
    }

    pub fn by_others(why: impl Into<String>) -> Unlike {
        Unlike {
            by_others: true,
            ..Unlike::new(why)
        }
    }

    pub fn and(self, more: &str) -> Unlike {
        Unlike {
            why: format!("{}; {more}", self.why),
            ..self
        }
    }
}

/// As the time runs out, or after many instructions, fewer iterations are enough.
pub(crate) fn is_enough(seen: &Seen, steps: u32, waited: Duration, time: Duration) -> bool {
    let wanted = match waited {
        _ if waited > time * 3 / 5 || steps >= MANY => 4,
        _ if waited > time / 4 => 12,
        _ => 40,
    };
    seen.shows(wanted)
}

/// Does the window show enough, after this part of the time?
pub fn is_long_enough(window: &Window, waited: Duration, time: Duration) -> bool {
    seen(window).is_some_and(|seen| is_enough(&seen, window.len(), waited, time))
}

/// In ms, rounded to a hundredth.
pub fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e5).round() / 100.0
}

/// Steps the thread and looks for its flag. Runs in the helper.
pub fn look(
    pid: u32,
    tid: u32,
    name: String,
    limits: &Limits,
    names: &Names,
) -> Result<Finding, Failure> {
    let begin = Instant::now();
    let stepped = step_thread(tid, limits, |window| {
        is_long_enough(window, begin.elapsed(), limits.time)
    })?;
    let memory = Memory::open(pid).map_err(|e| refused(pid, &e))?;
    let live = NamedMemory {
        pid: Some(pid),
        memory: &memory,
        names,
    };
    let report = find_in_live_window(&stepped.window, names, ThreadName { tid, name }, &live);
    let steps = u64::from(stepped.window.len());
    let is_part = !has_flag(&report) && switches(&stepped.window);
    Ok(Finding {
        gets_on: report.gets_on,
        machine: report.machine.clone(),
        apart: report.apart.clone(),
        within_poll: report.within_poll.clone(),
        held: Vec::new(),
        report: Some(report),
        window: is_part.then_some(stepped.window),
        steps,
        pause_ms: milliseconds(stepped.pause),
        ended: match stepped.ended {
            Ended::Enough | Ended::Limit => String::new(),
            Ended::Blocked => "a system call did not return meanwhile".into(),
            Ended::Gone => "the thread ended meanwhile".into(),
            Ended::Exec => "the thread executed another program meanwhile".into(),
            Ended::Frozen => "the process was stopped meanwhile".into(),
        },
        via: Via::InPlace,
        via_reason: String::new(),
        unlike: false,
        moved: false,
        error: None,
        denied: false,
    })
}

/// Lets a copy of the thread go round and looks for its flag. Why the copy halted, if it did.
pub fn look_at_copy(
    replica: &mut Replica,
    limits: &Limits,
    names: &Names,
    thread: ThreadName,
    memory: &dyn AddressSpace,
) -> std::io::Result<(Finding, Option<Halt>)> {
    let begin = Instant::now();
    let round = go_round(replica, limits.steps, limits.time, |window| {
        is_long_enough(window, begin.elapsed(), limits.time)
    })?;
    let space = NamedMemory {
        pid: None,
        memory,
        names,
    };
    let report = find_in_live_window(&round.window, names, thread, &space);
    let finding = Finding {
        gets_on: report.gets_on,
        machine: report.machine.clone(),
        apart: report.apart.clone(),
        within_poll: report.within_poll.clone(),
        held: Vec::new(),
        report: Some(report),
        window: None,
        steps: u64::from(round.window.len()),
        pause_ms: 0.0,
        ended: String::new(),
        via: Via::Replica,
        via_reason: String::new(),
        unlike: false,
        moved: false,
        error: None,
        denied: false,
    };
    Ok((finding, round.halt))
}

/// The flag of a task that none of these threads alone shows enough of, since its scheduler hands
/// it from one to the other; and for which of them it is reported.
pub fn look_at_tasks(
    pid: u32,
    parts: Vec<(ThreadName, Window)>,
    names: &Names,
    memory: &Memory,
) -> Option<Report> {
    if parts.len() < 2 {
        return None;
    }
    let (threads, windows): (Vec<ThreadName>, Vec<Window>) = parts.into_iter().unzip();
    let longest = (0..windows.len()).max_by_key(|&index| windows[index].len())?;
    let live = NamedMemory {
        pid: Some(pid),
        memory,
        names,
    };
    let thread = threads[longest].clone();
    let mut report = find_in_tasks(&windows, names, thread, &live)?;
    let tids: Vec<String> = threads
        .iter()
        .map(|thread| thread.tid.to_string())
        .collect();
    report.notes.push(format!(
        "put together from what threads {} did: a scheduler hands the task from one to the other",
        tids.join(", ")
    ));
    Some(report)
}

#[cfg(test)]
mod tests {
    use flagfinder_step::unable;

    use super::*;

    #[test]
    fn a_window_comes_behind_its_finding() {
        let failed = || Finding::failed(unable("Not stepped", "It ended", "None"));
        let mut window = Window::default();
        window.duration = 7;
        let mut with = failed();
        with.window = Some(window);
        let (finding, window) = Finding::from_bytes(&with.into_bytes());
        assert_eq!(finding["steps"], 0);
        assert_eq!(window.map(|window| window.duration), Some(7));
        assert!(Finding::from_bytes(&failed().into_bytes()).1.is_none());
        assert!(Finding::from_bytes(b"").0.is_null());
    }
}
