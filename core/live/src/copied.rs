// SPDX-License-Identifier: MIT
//! A look at a copy of a live thread, and whether the copy does what the thread does.
//!
//! In: a thread. Out: what its copy shows, and why that is not to be believed, if it is not. The
//! thread stands still while its registers are read, and once more where its copy writes memory
//! beside its stack. A copy stands for its thread where all of this holds: it went on for as long
//! as was wanted; the thread was in code that the copy executed whenever it was looked at; what the
//! copy read, and did not write itself, is still the same in the process, the code as well; it did
//! not change stacks. So what other threads change all the time is never judged by a copy. Blind
//! spot: what changes more seldom than the copy was looked at.

use std::time::{Duration, Instant};

use flagfinder_analysis::tasks::switches;
use flagfinder_analysis::Seen;
use flagfinder_code::Names;
use flagfinder_failure::Failure;
use flagfinder_flags::{find_in_live_window, has_flag, Report, ThreadName};
use flagfinder_linux::{futex, proc};
use flagfinder_machine::Window;
use flagfinder_replica::{Halt, Live, Moment, Pages, Round};
use flagfinder_step::is_abandoned;
use rustc_hash::FxHashSet;

use crate::memory::{refused, Memory, NamedMemory};
use crate::original::{inputs, takes_input, How, Original, TAKES};
use crate::repeated_copies;
use crate::stepping_job::{Finding, Unlike};
use crate::task_copies;
use crate::tried::halted;
use crate::unchanged::changed;
use crate::whereabouts::Whereabouts;

/// How long a copy goes on, unless it has shown enough before.
const TIME: Duration = Duration::from_millis(1000);
/// How often a copy that can't go on is made again: at another moment its thread may be elsewhere,
/// and more of the pages that it uses are known.
const AGAIN: u32 = 4;
/// A thread that takes data of so many sockets serves them: it makes progress.
const SEVERAL: usize = 2;
/// Looks at a copy of at most so many instructions. Runs in the helper.
///
/// # Errors
/// When the thread can't be copied.
pub fn look_at_copy_of(
    pid: u32,
    thread: ThreadName,
    budget: Duration,
    most: u32,
    names: &Names,
) -> Result<Finding, Failure> {
    let mut original = Original::new(pid, thread.tid);
    let (begin, time) = (Instant::now(), TIME.max(budget * 2));
    let how = How {
        moment: Moment::Now,
        time,
        most,
        gives_back: false,
    };
    let mut left = AGAIN;
    // A server whose copy finds one client's request may find another's at the next moment.
    let mut peers = FxHashSet::default();
    let (round, unlike) = loop {
        let live = Live::open(pid)?;
        let pages = Pages::new(&live);
        let several = |window: &Window, _: Option<&Seen>| {
            let more = served(pid, window);
            peers.union(&more).count() >= SEVERAL
        };
        let copied = original.copy(&live, &pages, how, &several, &|_| None)?;
        peers.extend(served(pid, &copied.round.window));
        let halt = stopped(&copied.round);
        let again = halt.is_some_and(|halt| !waits_its_turn(halt))
            && peers.len() < SEVERAL
            && left > 0
            && begin.elapsed() < time / 2;
        if (copied.mixed || again) && !is_abandoned() {
            left -= u32::from(original.has_pages);
            original.learn(&pages);
            continue;
        }
        let unlike = unlike(&copied.round, &live, &pages, &mut original.places);
        break (copied.round, unlike);
    };
    let memory = Memory::open(pid).map_err(|e| refused(pid, &e))?;
    let space = NamedMemory {
        pid: Some(pid),
        memory: &memory,
        names,
    };
    let report = |window: &Window| find_in_live_window(window, names, thread.clone(), &space);
    let of_several = |mut report: Report| {
        if peers.len() >= SEVERAL && !has_flag(&report) {
            report.facts.gets_on = true;
            report.reason = "it takes over data of several peers: it makes progress".into();
        }
        report
    };
    let mut steps = round.window.len();
    let seen = match unlike {
        Some(unlike) => {
            // It took data that was there, whatever others do: it makes progress.
            let seen = takes_input(&round.window).then(|| of_several(report(&round.window)));
            match seen.filter(|report| report.facts.gets_on && !has_flag(report)) {
                Some(report) => Ok((report, TAKES.to_owned())),
                None if unlike.by_others => {
                    match repeated_copies::look(pid, &mut original, &report)? {
                        Ok(agreed) => {
                            steps = agreed.steps;
                            Ok((agreed.report, agreed.why))
                        }
                        Err(more) => Err(unlike.and(&more)),
                    }
                }
                None => Err(unlike),
            }
        }
        None => {
            let looks = original.places.complete();
            let fit = format!(
                "{looks} looks found it where its copy goes; what that reads did not change"
            );
            Ok((of_several(report(&round.window)), fit))
        }
    };
    let seen = match seen {
        Err(unlike) => {
            let task = task_copies::look(pid, &mut original, names, &thread, how)?;
            task.map_or(Err(unlike), |task| {
                steps = task.steps;
                Ok((task.report, task.why))
            })
        }
        seen => seen,
    };
    let held = original.held().collect();
    Ok(Finding::of_copy(seen, steps, original.places.held, held))
}

/// Sockets of which the loop takes data. A loop that waits for one of several takes none, however
/// little of it was seen.
fn served(pid: u32, window: &Window) -> FxHashSet<u64> {
    let mut taken: FxHashSet<u64> = inputs(window).map(|call| call.args[0]).collect();
    taken.retain(|descriptor| {
        proc::link(pid, *descriptor as i32).is_some_and(|target| target.starts_with("socket:"))
    });
    taken
}

/// Why it went no further, unless it touched as much memory as copies may: it has shown what its
/// thread does by then, which works on much memory.
fn stopped(round: &Round) -> Option<&Halt> {
    round
        .halt
        .as_ref()
        .filter(|halt| !matches!(halt, Halt::TooLarge))
}

/// It would wait until another thread gives a lock back, or wakes it.
fn waits_its_turn(halt: &Halt) -> bool {
    matches!(halt, Halt::Blocks { number, .. } if futex::is_futex(*number))
}

/// `None`: it does what the thread does.
fn unlike(round: &Round, live: &Live, pages: &Pages, places: &mut Whereabouts) -> Option<Unlike> {
    if switches(&round.window) {
        return Some(Unlike::new(
            "it changes stacks: a scheduler hands its tasks to other threads",
        ));
    }
    if let Some(halt) = stopped(round) {
        return Some(Unlike {
            by_others: waits_its_turn(halt),
            ..Unlike::new(format!("in a copy {}", halted(halt)))
        });
    }
    if let Some(why) = changed(&round.window, live, || places.look()) {
        return Some(Unlike::by_others(why));
    }
    places.complete();
    if let Some(why) = places.elsewhere(&round.window, live) {
        return Some(Unlike::by_others(why));
    }
    pages
        .changed_code()
        .then(|| Unlike::new("its code changed meanwhile"))
}
