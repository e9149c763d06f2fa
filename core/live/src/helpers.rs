// SPDX-License-Identifier: MIT
//! The helpers that look at copies of threads or step threads in place, one for each, and the
//! threads that take over while others are held.
//!
//! A scheduler in user space hands its tasks to whichever thread runs. Once the threads that were
//! busy are stepped, which slows them down a thousand times, one that slept when threads were
//! chosen does their work: it has to be stepped too.

use std::time::{Duration, Instant};

use flagfinder_code::Names;
use flagfinder_failure::Failure;
use flagfinder_flags::{has_flag, Flag, ThreadName};
use flagfinder_linux::proc::threads;
use flagfinder_replica::{count_pages_anew, keep};
use flagfinder_step::{places, Helper, Limits};
use rustc_hash::FxHashMap;

use crate::copied::look_at_copy_of;
use crate::deadline::Deadline;
use crate::report::Via;
use crate::stepping_job::{look, Finding, MANY, MOST, WALL};
use crate::thread_ways::Told;
use flagfinder_waits::proc;

/// How often the threads that run are looked for.
const TICK: Duration = Duration::from_millis(20);
/// A thread that ran for less than this while others were held does not do their work.
const TAKES: Duration = Duration::from_millis(10);
const TAKES_SHARE: u32 = 20;
/// With less time left no thread is begun with.
const LEAST: Duration = Duration::from_millis(100);
/// This part of the budget is left to the copies that try out what was seen.
const TRYING: u32 = 16;
/// How long a helper may take beyond its time: it still has to look for the flag.
const PATIENCE: Duration = Duration::from_secs(20);

/// Helpers at work.
pub struct Helpers<'a> {
    pid: u32,
    names: &'a Names,
    copies: &'a Copies,
    budget: Duration,
    deadline: &'a Deadline,
    begin: Instant,
    started: Vec<(u32, Helper)>,
}

impl<'a> Helpers<'a> {
    /// `copies`: those for which the threads stood still before.
    pub fn new(
        pid: u32,
        names: &'a Names,
        copies: &'a Copies,
        (budget, deadline): (Duration, &'a Deadline),
    ) -> Self {
        Helpers {
            pid,
            names,
            copies,
            budget,
            deadline,
            begin: Instant::now(),
            started: Vec::new(),
        }
    }

    /// The time until all helpers let their threads go.
    fn left(&self) -> Duration {
        let time = WALL.max(self.budget * 2);
        self.deadline
            .at_most(time.saturating_sub(self.begin.elapsed()))
    }

    /// Starts a helper for each of these threads.
    ///
    /// # Errors
    /// When the system gives no process.
    pub fn start(&mut self, threads: &[(u32, String)]) -> Result<(), Failure> {
        let (pid, names) = (self.pid, self.names);
        let time = self.left();
        let held = self.started.iter().map(|(tid, _)| *tid);
        let all: Vec<u32> = held.chain(threads.iter().map(|(tid, _)| *tid)).collect();
        let places = places(&all).into_iter().skip(self.started.len());
        for ((tid, name), processor) in threads.iter().zip(places) {
            let title = format!(
                "ff-step: holds thread {tid} of process {pid}; end it with SIGTERM only, SIGKILL \
                 would hurt that process"
            );
            let limits = Limits {
                pause: (self.budget - self.budget / TRYING).saturating_sub(self.copies.held(*tid)),
                time,
                processor,
                ..Limits::default()
            };
            let helper = Helper::start(&title, || {
                let found = look(pid, *tid, name.clone(), &limits, names);
                found.unwrap_or_else(Finding::failed).into_bytes()
            })?;
            self.started.push((*tid, helper));
        }
        Ok(())
    }

    /// Waits until the first helpers are done. Threads that take over meanwhile are stepped too,
    /// until `most` are; returns those.
    ///
    /// # Errors
    /// When the system gives no process.
    pub fn follow(&mut self, sleepers: &Sleepers, most: usize) -> Result<Vec<u32>, Failure> {
        let first = self.started.len();
        let is_stepping = |(_, helper): &(u32, Helper)| !helper.is_done();
        while self.started[..first].iter().any(is_stepping) {
            if self.left() < LEAST || self.started.len() >= most {
                break;
            }
            let mut awake = sleepers.awake(self.begin.elapsed());
            awake.retain(|(tid, _)| self.started.iter().all(|(known, _)| known != tid));
            awake.truncate(most - self.started.len());
            self.start(&awake)?;
            std::thread::sleep(TICK);
        }
        Ok(self.started[first..].iter().map(|(tid, _)| *tid).collect())
    }

    /// What they found out of which thread.
    pub fn results(self) -> impl Iterator<Item = (u32, Finding)> + use<'a> {
        let patience = WALL + self.budget + PATIENCE;
        let deadline = self.deadline;
        let mut started = self.started.into_iter();
        std::iter::from_fn(move || {
            let (tid, helper) = started.next()?;
            end_together(started.as_slice().iter().map(|(_, one)| one), deadline);
            Some((tid, result(tid, helper, patience, deadline)))
        })
    }
}

/// As it is listed where the time limit left no time for it.
pub fn what_it_does(tid: u32) -> String {
    format!("what thread {tid} does")
}

/// Those that are not waited for end at the same time.
fn end_together<'h>(helpers: impl Iterator<Item = &'h Helper>, deadline: &Deadline) {
    if deadline.is_over() {
        helpers.for_each(Helper::ask_to_end);
    }
}

pub(crate) fn result(tid: u32, helper: Helper, patience: Duration, deadline: &Deadline) -> Finding {
    match helper.result(deadline.at_most(patience)) {
        Ok(bytes) => Finding::from_bytes(&bytes),
        Err(error) => {
            deadline.leaves_out(|| what_it_does(tid));
            Finding::missing(error.to_string())
        }
    }
}

/// What copies of threads showed.
#[derive(Default)]
pub struct Copies {
    /// Of those that stand for their threads.
    pub fit: Vec<(u32, Finding)>,
    /// The others: for how many ms each stood still, and why it has to be stepped in place.
    pub unfit: FxHashMap<u32, (f64, String)>,
    /// Those of which no copy could be made.
    pub failed: Vec<u32>,
}

impl Copies {
    /// Looks at a copy of each of these threads, all at the same time. `told` is asked meanwhile,
    /// what the program's own code tells. Where that is that the thread's loop comes to an end by
    /// itself, no more is asked of its copy; where it is what the loop waits for, the copy only
    /// has to show where that lies.
    ///
    /// # Errors
    /// When the system gives no process.
    pub fn look(
        pid: u32,
        threads: &[(u32, String)],
        (budget, deadline): (Duration, &Deadline),
        names: &Names,
        told: &dyn Fn(u32) -> Option<Told>,
    ) -> Result<Copies, Failure> {
        count_pages_anew();
        let at_once = u32::try_from(threads.len().max(1)).unwrap_or(u32::MAX);
        let most = (MOST / at_once).max(MANY);
        let start = |(tid, name): &(u32, String)| {
            let title = format!("ff-step: looks at a copy of thread {tid} of process {pid}");
            let (tid, name) = (*tid, name.clone());
            let helper = Helper::start(&title, || {
                let _keeping = keep();
                let found = look_at_copy_of(pid, ThreadName { tid, name }, budget, most, names);
                found.unwrap_or_else(Finding::failed).into_bytes()
            })?;
            Ok((tid, helper))
        };
        let helpers: Vec<(u32, Helper)> =
            threads.iter().map(start).collect::<Result<_, Failure>>()?;
        let patience = WALL + budget * 2 + PATIENCE;
        let mut ending = Vec::new();
        for (tid, helper) in &helpers {
            match told(*tid) {
                Some(Told::Ends) => {
                    ending.push(*tid);
                    helper.ask_to_end();
                }
                Some(Told::Known) => helper.ask_to_hurry(),
                None => {}
            }
        }
        let mut copies = Copies::default();
        let mut helpers = helpers.into_iter();
        while let Some((tid, helper)) = helpers.next() {
            end_together(helpers.as_slice().iter().map(|(_, one)| one), deadline);
            let mut finding = result(tid, helper, patience, deadline);
            if ending.contains(&tid) {
                finding.unlike = true;
                finding.via_reason = "its own code tells that its loop ends by itself".into();
            }
            if !finding.unlike {
                copies.fit.push((tid, finding));
                continue;
            }
            if finding.error.is_some() {
                copies.failed.push(tid);
            }
            let why = match (finding.via_reason, finding.error) {
                (why, _) if !why.is_empty() => why,
                (_, Some(error)) => format!("it could not be copied: {error}"),
                _ => "its copy showed nothing".into(),
            };
            copies.unfit.insert(tid, (finding.pause_ms, why));
        }
        Ok(copies)
    }

    /// For how long a thread stood still of which no copy serves.
    fn held(&self, tid: u32) -> Duration {
        let held = self.unfit.get(&tid).map_or(0.0, |(held, _)| *held);
        Duration::from_secs_f64(held.max(0.0) / 1000.0)
    }

    /// Whether the thread has a copy that does what it does.
    pub fn stands_for(&self, tid: u32) -> bool {
        self.fit.iter().any(|(fit, _)| *fit == tid)
    }

    /// What it waits for, as its copy shows it.
    pub(crate) fn flag(&self, tid: u32) -> Option<&Flag> {
        let (_, finding) = self.fit.iter().find(|(fit, _)| *fit == tid)?;
        let report = finding.report.as_ref().filter(|report| has_flag(report))?;
        report.flags.first()
    }

    /// What its copy showed, which then counts no more. Of one that does not stand for the thread
    /// it is only for how long that stood still.
    pub(crate) fn take(&mut self, tid: u32) -> Option<Finding> {
        if let Some((pause_ms, _)) = self.unfit.remove(&tid) {
            let mut blank = Finding::blank(Via::Replica);
            blank.pause_ms = pause_ms;
            return Some(blank);
        }
        let at = self.fit.iter().position(|(fit, _)| *fit == tid)?;
        Some(self.fit.remove(at).1)
    }

    /// It stood still for longer.
    pub(crate) fn add_pause(&mut self, tid: u32, more: f64) {
        let fit = self.fit.iter_mut().filter(|(fit, _)| *fit == tid);
        fit.for_each(|(_, finding)| finding.pause_ms += more);
        if let Some((held, _)) = self.unfit.get_mut(&tid) {
            *held += more;
        }
    }
}

/// Threads that sleep, and threads that are still to be started.
pub struct Sleepers {
    pid: u32,
    /// ns on a processor by now of those that may be stepped; none of those that may not.
    ran: FxHashMap<u32, Option<u64>>,
}

impl Sleepers {
    /// `may` tells whether a thread may be stepped.
    pub fn new(pid: u32, threads: impl Iterator<Item = (u32, bool)>) -> Self {
        let ran = |tid| proc::look(pid, tid).map(|look| look.ran);
        let ran = threads.map(|(tid, may)| (tid, ran(tid).filter(|_| may)));
        Sleepers {
            pid,
            ran: ran.collect(),
        }
    }

    /// Threads that slept before and run now: id and name.
    fn awake(&self, since: Duration) -> Vec<(u32, String)> {
        let takes = TAKES.max(since / TAKES_SHARE).as_nanos() as u64;
        let tids = threads(self.pid).unwrap_or_default();
        let awake = |tid: u32| {
            let before = self.ran.get(&tid).copied().unwrap_or(Some(0))?;
            let now = proc::look(self.pid, tid)?;
            let runs = now.ran.saturating_sub(before) >= takes && now.tracer == 0;
            runs.then_some((tid, now.name))
        };
        tids.into_iter().filter_map(awake).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// SAFETY: gettid cannot fail.
    fn this_thread() -> u32 {
        unsafe { libc::gettid() as u32 }
    }

    fn compute(time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_running_thread_takes_over_unless_it_may_not_be_stepped() {
        let (pid, tid) = (std::process::id(), this_thread());
        let known = |may| Sleepers::new(pid, [(tid, may)].into_iter());
        let (sleeper, untouchable) = (known(true), known(false));
        let takes_over = |sleepers: &Sleepers, since| {
            let awake = sleepers.awake(since);
            awake.iter().any(|(awake, _)| *awake == tid)
        };
        assert!(!takes_over(&sleeper, Duration::ZERO));
        while !takes_over(&sleeper, Duration::ZERO) {
            compute(TAKES / 2);
        }
        let share = TAKES * TAKES_SHARE;
        assert!(!takes_over(&sleeper, share * 1000), "a small share");
        assert!(!takes_over(&untouchable, Duration::ZERO));
    }

    #[test]
    fn a_thread_that_is_born_meanwhile_takes_over_too() {
        let pid = std::process::id();
        let sleepers = Sleepers::new(pid, std::iter::empty());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let born = scope.spawn(|| {
                let tid = this_thread();
                while !over.load(Ordering::Relaxed) {
                    compute(TAKES);
                    if sleepers.awake(Duration::ZERO).iter().any(|a| a.0 == tid) {
                        return true;
                    }
                }
                false
            });
            let begin = Instant::now();
            while !born.is_finished() && begin.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(TICK);
            }
            over.store(true, Ordering::Relaxed);
            assert!(born.join().expect("no panic"));
        });
    }
}
