// SPDX-License-Identifier: MIT
//! Copies of tasks that a scheduler hands from thread to thread.
//!
//! In: a live thread that changes stacks. Out: what a task polls that gave its turn away. No copy
//! of the thread shows that for long, as the next thread takes the task up; a copy that begins as
//! if this thread had taken it up shows the task's own rounds. What it read is still the same a
//! little later.

use flagfinder_code::Names;
use flagfinder_failure::Failure;
use flagfinder_flags::{find_in_task, Report, ThreadName};
use flagfinder_replica::{Live, Pages};

use crate::memory::{refused, Memory, NamedMemory};
use crate::original::{How, Original};
use crate::repeated_copies::{shows_rounds, Agreed};
use crate::unchanged::changed;
use crate::why::resumed_goroutines;

/// Tasks are looked for so often: one that runs at a moment has not given its turn away.
const TRIES: usize = 4;

/// `None`: no task polls anything.
///
/// # Errors
/// When the thread can't be copied.
pub fn look(
    pid: u32,
    original: &mut Original,
    names: &Names,
    thread: &ThreadName,
    how: How,
) -> Result<Option<Agreed>, Failure> {
    let memory = Memory::open(pid).map_err(|e| refused(pid, &e))?;
    let space = NamedMemory {
        pid: Some(pid),
        memory: &memory,
        names,
    };
    for _ in 0..TRIES {
        let live = Live::open(pid)?;
        let pages = Pages::new(&live);
        let state = original.state(&live)?;
        for resumed in resumed_goroutines(&memory, names, &state) {
            let followed = original.follow(&pages, &resumed.state, how, &shows_rounds, &|_| None);
            let Ok(copied) = followed else {
                continue;
            };
            let window = copied.round.window;
            let Some(mut report) = find_in_task(&window, names, thread.clone(), &space) else {
                continue;
            };
            if changed(&window, &live, || ()).is_none() {
                is_of_task(&mut report, resumed.id);
                return Ok(Some(Agreed {
                    report,
                    steps: window.len(),
                    why: format!(
                        "a copy goes on with goroutine {}; what that reads did not change",
                        resumed.id
                    ),
                }));
            }
        }
    }
    Ok(None)
}

/// Says so.
pub fn is_of_task(report: &mut Report, task: u64) {
    report.facts.task = Some(task);
    report.notes.push(format!(
        "goroutine {task} polls it: the threads of the scheduler take that up in turn"
    ));
}
