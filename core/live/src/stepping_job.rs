// SPDX-License-Identifier: MIT
//! What a helper does: steps one thread, and looks for its flag.

use std::time::{Duration, Instant};

use flagfinder_analysis::{seen, Seen};
use flagfinder_code::Names;
use flagfinder_failure::{Failure, DENIED};
use flagfinder_flags::{find_in_live_window, Facts, Report, ThreadName};
use flagfinder_machine::Window;
use flagfinder_step::{step_thread, Ended, Limits, Stepped};
use serde::{Deserialize, Serialize};

use crate::memory::{refused, Memory, NamedMemory};
use crate::report::Via;

/// Wall time for stepping one thread; mostly its own sleep.
pub const WALL: Duration = Duration::from_millis(2000);
/// A copy that has made so many instructions has shown enough, if it has shown a few iterations.
pub const MANY: u32 = 200_000;
/// Instructions of a copy, at most: its window takes memory for each. Threads that are looked at
/// together share them. A few rounds of a million instructions fit.
pub const MOST: u32 = 3_000_000;

/// What a helper found out about its thread.
#[derive(Clone, Deserialize, Serialize)]
pub struct Finding {
    pub report: Option<Report>,
    /// See [`Report::facts`], which the report of a helper does not hold.
    facts: Facts,
    /// Pages that belong to one moment in a copy of the thread: it writes them, or others do.
    pub held: Vec<u64>,
    pub steps: u64,
    pub pause_ms: f64,
    /// Why it stood still for longer than it was to; empty: it did not.
    pub late: String,
    pub ended: String,
    /// Why its copy went no further, where the copy is all there is.
    pub halted: Option<String>,
    /// Its copy was given an answer that is not known to be the true one.
    pub is_assumed: bool,
    pub via: Via,
    pub via_reason: String,
    /// It is of a copy that does not stand for the thread; `via_reason` tells why.
    pub unlike: bool,
    pub error: Option<String>,
    /// By the system: this user may not trace it.
    pub denied: bool,
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
            Ok((report, why)) => (Some(report), why, false),
            Err(unlike) => (None, unlike.why, true),
        };
        Finding {
            report,
            held,
            steps: steps.into(),
            pause_ms: milliseconds(pause),
            via_reason: why,
            unlike,
            ..Finding::blank(Via::Replica)
        }
    }

    pub fn blank(via: Via) -> Finding {
        Finding {
            report: None,
            facts: Facts::default(),
            held: Vec::new(),
            steps: 0,
            pause_ms: 0.0,
            late: String::new(),
            ended: String::new(),
            halted: None,
            is_assumed: false,
            via,
            via_reason: String::new(),
            unlike: false,
            error: None,
            denied: false,
        }
    }

    pub fn failed(error: Failure) -> Finding {
        Finding {
            unlike: true,
            denied: error.exit_code == DENIED,
            error: Some(format!("{}. {}.", error.found, error.fix)),
            ..Finding::blank(Via::InPlace)
        }
    }

    /// Of a helper that told nothing.
    pub fn missing(why: impl Into<String>) -> Finding {
        Finding {
            unlike: true,
            error: Some(why.into()),
            ..Finding::blank(Via::InPlace)
        }
    }

    /// What a helper hands to the command.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.facts = self
            .report
            .as_ref()
            .map(|report| report.facts.clone())
            .unwrap_or_default();
        serde_json::to_vec(&self).unwrap_or_default()
    }

    /// The reverse.
    pub fn from_bytes(bytes: &[u8]) -> Finding {
        let mut finding: Finding = match serde_json::from_slice(bytes) {
            Ok(finding) => finding,
            Err(error) => return Finding::missing(format!("its helper told nothing: {error}")),
        };
        if let Some(report) = &mut finding.report {
            report.facts = std::mem::take(&mut finding.facts);
        }
        finding
    }
}

/// Why a copy does not stand for its thread.
pub struct Unlike {
    pub why: String,
    /// What others do may be missing in this copy, and not in those of other moments.
    pub by_others: bool,
}

impl Unlike {
    pub fn new(why: impl Into<String>) -> Unlike {
        Unlike {
            why: why.into(),
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

/// Why stepping held a thread for longer than it was to; empty: it did not.
fn late(stepped: &Stepped, limits: &Limits) -> String {
    let beyond = stepped.pause.saturating_sub(limits.pause);
    match stepped.waited >= beyond / 2 {
        _ if beyond.is_zero() => String::new(),
        true => format!(
            "flagfinder waited for a processor for {:.0} ms of them",
            milliseconds(stepped.waited.min(stepped.pause))
        ),
        false => "a single step of it took so long".into(),
    }
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
    let late = late(&stepped, limits);
    Ok(Finding {
        report: Some(report),
        steps,
        pause_ms: milliseconds(stepped.pause),
        late,
        ended: match stepped.ended {
            Ended::Enough | Ended::Limit => String::new(),
            Ended::Blocked => "a system call did not return meanwhile".into(),
            Ended::Gone => "the thread ended meanwhile".into(),
            Ended::Exec => "the thread executes another program".into(),
            Ended::Frozen => "the process was stopped, or told to go on, meanwhile".into(),
            Ended::Trap => "a step would have changed what the program does with SIGTRAP".into(),
            Ended::Foreign => {
                "it runs 32-bit code, or makes a system call as such code does".into()
            }
        },
        ..Finding::blank(Via::InPlace)
    })
}

#[cfg(test)]
mod tests {
    use flagfinder_step::unable;

    use super::*;

    #[test]
    fn a_stop_that_was_too_long_has_a_cause() {
        let limits = Limits::default();
        let after = |milliseconds: u64, waited: u64| {
            let stepped = Stepped {
                window: Window::default(),
                pause: Duration::from_millis(milliseconds),
                waited: Duration::from_millis(waited),
                ended: Ended::Limit,
            };
            late(&stepped, &limits)
        };
        assert_eq!(after(800, 500), "");
        let waited = "flagfinder waited for a processor for 190 ms of them";
        assert_eq!(after(1000, 190), waited);
        assert_eq!(after(1000, 10), "a single step of it took so long");
    }

    #[test]
    fn a_helper_s_finding_arrives_and_so_does_that_it_told_nothing() {
        let failed = Finding::failed(unable("Not stepped", "It ended", "None"));
        let finding = Finding::from_bytes(&failed.into_bytes());
        assert_eq!(finding.error.as_deref(), Some("It ended. None."));
        assert!(Finding::from_bytes(b"").error.is_some());
    }
}
