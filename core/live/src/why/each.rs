// SPDX-License-Identifier: MIT
//! Why none of several processes goes on: those of a tree.
//!
//! Processes that wait are asked here, one after the other. Those that poll are asked by helpers,
//! some at a time: each is looked at for a second. A chain that leads to one of these goes on with
//! what its helper found. Which test each is in is read before helpers take the processors. Blind
//! spot: the more of them there are, the shorter each is looked at.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use flagfinder_failure::{Failure, UNAVAILABLE};
use flagfinder_linux::clock::Effort;
use flagfinder_linux::proc::{program, Stat};
use flagfinder_step::Helper;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::process::Processes;
use super::report::{Chain, Node, RootKind};
use super::terms::Terms;
use super::{finish, so_far, tested, why, InSource, Search, WhyOptions, WhyReport};
use crate::report::{Source, SpinReport};
use crate::spin::SpinOptions;

/// How long all processes of a tree are watched, at the same time.
const SAMPLE: Duration = Duration::from_millis(200);
/// Most processes that are asked: each is watched by a thread of ours.
const MOST_PROCESSES: usize = 256;
/// Most helpers at work. Half of the time stepping waits for the kernel.
const AT_ONCE: usize = 8;
/// Least time for a process that polls.
const LEAST: Duration = Duration::from_millis(100);
/// Processor time to read which tests processes are in, before one is looked at: libraries of a
/// virtual machine of Java take most of it.
const TESTS: Duration = Duration::from_secs(2);
/// How long the last helper may take once none is started any more.
const PATIENCE: Duration = Duration::from_secs(20);
/// And beyond the time limit, to hand over what it has.
const HANDS_OVER: Duration = Duration::from_millis(500);

/// A process that was asked, and what was found.
pub type Answered = (u32, Result<WhyReport, Failure>);

/// [`why`] for each of these processes that no chain of one before it passes, and how many were not
/// asked, as `patience` was over. `in_source`: of all of them, as in [`WhyOptions`]. `hear` is told
/// of each answer as it comes; those that are returned may say more.
pub fn why_each(
    pids: &[u32],
    in_source: &InSource,
    options: &SpinOptions,
    patience: Duration,
    hear: &dyn Fn(&Answered),
) -> (Vec<Answered>, usize) {
    let deadline = &options.deadline;
    let patience = deadline.at_most(patience);
    let watched = &pids[..pids.len().min(MOST_PROCESSES)];
    let mut processes = Processes::at_once(watched, SAMPLE);
    let (waiting, polling): (Vec<u32>, Vec<u32>) = watched.iter().copied().partition(|pid| {
        let process = processes.get(*pid);
        process.is_some_and(|process| !process.wants_stepping())
    });
    let first = only_tests(&mut processes, &polling, in_source, deadline.at_most(TESTS));
    for (pid, report) in &first {
        hear(&(*pid, Ok(report.clone())));
    }
    let begin = Instant::now();
    let mut helpers = Helpers {
        first,
        left: polling.iter().copied().collect(),
        running: Vec::new(),
        found: Vec::new(),
        options: WhyOptions {
            thread: None,
            spin: share(options, polling.len(), patience),
            in_source: in_source.clone(),
            stacks: false,
        },
        until: begin + patience,
        hear,
    };
    let mut seen: FxHashSet<u32> = FxHashSet::default();
    let mut chains: Vec<WhyReport> = Vec::new();
    let mut not_asked = pids.len() - watched.len();
    for pid in waiting {
        helpers.turn();
        if seen.contains(&pid) {
            continue;
        }
        if begin.elapsed() > patience || deadline.is_over() {
            not_asked += 1;
            continue;
        }
        let terms = Terms {
            deadline,
            hear: &|_| {},
            looks: false,
            core: None,
        };
        let spun = SpinReport::of_live(pid);
        let mut search = Search::begin(spun, &mut processes, None, in_source, terms);
        let found = search.follow();
        let mut report = search.report(found);
        // What is known where no time is left for the rest.
        report.tests = tested::tests(&mut processes, &report.chain(), in_source);
        hear(&(pid, Ok(report.clone())));
        for link in &report.links {
            seen.insert(link.waiter.pid);
            seen.extend(link.owed_by.iter().map(|owed| owed.node.pid));
        }
        chains.push(report);
    }
    while helpers.turn() {
        std::thread::sleep(Duration::from_millis(5));
    }
    not_asked += helpers.left.len();
    let mut found = helpers.found;
    let of_left = helpers.left.iter();
    found.extend(of_left.filter_map(|pid| Some((*pid, Ok(helpers.first.remove(pid)?)))));
    let passed: FxHashSet<u32> = chains
        .iter_mut()
        .filter_map(|report| lead_on(report, &found))
        .collect();
    found.retain(|(pid, _)| !passed.contains(pid));
    for mut report in chains {
        finish(&mut report, &mut processes, in_source);
        report.settle(deadline);
        found.push((report.pid, Ok(report)));
    }
    let order = |pid: &u32| pids.iter().position(|one| one == pid);
    found.sort_by_key(|(pid, _)| order(pid));
    (found, not_asked)
}

/// Of each of these processes that is in a test, which one, and no more. What was started last is
/// read first: a runner starts what tests.
fn only_tests(
    processes: &mut Processes,
    pids: &[u32],
    in_source: &InSource,
    time: Duration,
) -> FxHashMap<u32, WhyReport> {
    let effort = Effort::begin();
    let mut first: FxHashMap<u32, WhyReport> = FxHashMap::default();
    let leaves = pids.iter().rev().take_while(|_| !effort.exceeds(time));
    let tests = leaves.flat_map(|pid| tested::tests_within(processes, &[*pid], in_source, time));
    for test in tests.collect::<Vec<_>>() {
        // What started a program that is a test is none itself.
        if test.command.is_some() && !first.is_empty() {
            continue;
        }
        let pid = test.pid;
        let report = first.entry(pid).or_insert_with(|| {
            let main = processes.get(pid).and_then(|one| one.activity(pid));
            let at = Node {
                pid,
                tid: pid,
                name: main.map_or_else(String::new, |main| main.name.clone()),
                task: None,
            };
            so_far(Source::Live, pid, program(pid), at, Vec::new())
        });
        report.tests.push(test);
    }
    first
}

/// A helper's answer with the tests that were read before, of a process that is still there.
fn with_tests(first: Option<&WhyReport>, answer: Answered) -> Answered {
    let Some(first) = first else {
        return answer;
    };
    match answer {
        (pid, Ok(mut report)) => {
            if report.tests.is_empty() {
                report.tests.clone_from(&first.tests);
            }
            (pid, Ok(report))
        }
        (pid, Err(error)) if Stat::of(pid).is_some() => {
            let mut report = first.clone();
            report
                .notes
                .push(format!("{}: {}", error.what, error.found));
            (pid, Ok(report))
        }
        gone => gone,
    }
}

/// A chain that ends with a process that polls goes on with what was found of that. The process.
fn lead_on(report: &mut WhyReport, found: &[Answered]) -> Option<u32> {
    let pid = report.root.pid?;
    let (_, answer) = found.iter().find(|(polls, _)| *polls == pid)?;
    let is_known =
        |answer: &&WhyReport| !answer.links.is_empty() || answer.root.kind != RootKind::Unknown;
    let answer = answer.as_ref().ok().filter(is_known)?;
    let goes_on = report.go_on(Chain {
        links: answer.links.clone(),
        root: answer.root.clone(),
    });
    goes_on.then_some(pid)
}

/// Each process that polls gets its share of the time of all processors.
fn share(options: &SpinOptions, polling: usize, patience: Duration) -> SpinOptions {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let each = patience * processors as u32 / polling.max(1) as u32;
    SpinOptions {
        budget: options.budget.min((each / 3).max(LEAST)),
        copies: options.copies.min((each / 3).max(LEAST)),
        ..options.clone()
    }
}

/// Those that ask processes that poll.
struct Helpers<'a> {
    /// The tests of each, of those that are in one.
    first: FxHashMap<u32, WhyReport>,
    left: VecDeque<u32>,
    running: Vec<(u32, Helper)>,
    found: Vec<Answered>,
    options: WhyOptions,
    /// After this time no helper is started.
    until: Instant,
    hear: &'a dyn Fn(&Answered),
}

impl Helpers<'_> {
    /// Takes in what is done, and begins more; whether some are at work.
    fn turn(&mut self) -> bool {
        // At the limit each helper hands over what it has by then.
        let deadline = &self.options.spin.deadline;
        let late = Instant::now() > self.until + deadline.at_most(PATIENCE) + HANDS_OVER;
        let running = std::mem::take(&mut self.running);
        if late {
            running.iter().for_each(|(_, helper)| helper.ask_to_end());
        }
        for (pid, helper) in running {
            match late || helper.is_done() {
                true => {
                    self.take(pid, answer(helper));
                }
                false => self.running.push((pid, helper)),
            }
        }
        while self.running.len() < AT_ONCE && Instant::now() < self.until {
            let Some(pid) = self.left.pop_front() else {
                break;
            };
            let mut options = self.options.clone();
            options.spin.deadline = options.spin.deadline.elsewhere();
            let title = format!("ff-why: asks process {pid}");
            let started = Helper::start(&title, || {
                let found = match why(pid, &options, &|_| {}) {
                    Ok(report) => Handed::Report(Box::new(report)),
                    Err(error) => Handed::Failed(
                        error.exit_code,
                        [error.what, error.found, error.fix, error.still_works],
                    ),
                };
                serde_json::to_vec(&found).unwrap_or_default()
            });
            match started {
                Ok(helper) => self.running.push((pid, helper)),
                Err(error) => self.take(pid, Err(error)),
            }
        }
        !self.running.is_empty()
    }

    fn take(&mut self, pid: u32, answer: Result<WhyReport, Failure>) {
        let answered = with_tests(self.first.get(&pid), (pid, answer));
        (self.hear)(&answered);
        self.found.push(answered);
    }
}

/// The answer of a helper that is done or late.
fn answer(helper: Helper) -> Result<WhyReport, Failure> {
    let bytes = helper.result(Duration::from_secs(2))?;
    match serde_json::from_slice(&bytes) {
        Ok(Handed::Report(report)) => Ok(*report),
        Ok(Handed::Failed(code, [what, found, fix, still_works])) => {
            Err(Failure::new(code, what, found, fix, still_works))
        }
        Err(error) => Err(Failure::new(
            UNAVAILABLE,
            "The process was not asked",
            format!("its helper told nothing: {error}"),
            "Ask it alone: `flagfinder why PID`.",
            "The other processes were asked.",
        )),
    }
}

/// What a helper hands to the command: a report, or an exit code and the four parts of an error.
#[derive(Serialize, Deserialize)]
enum Handed {
    Report(Box<WhyReport>),
    Failed(i32, [String; 4]),
}

#[cfg(test)]
mod tests {
    use super::super::report::Tested;
    use super::*;

    #[test]
    fn the_more_processes_poll_the_shorter_each_is_looked_at() {
        let whole = SpinOptions::default();
        let patience = Duration::from_secs(6);
        assert_eq!(share(&whole, 1, patience).budget, whole.budget);
        let many = share(&whole, 1_000_000, patience);
        assert_eq!((many.budget, many.copies), (LEAST, LEAST));
    }

    #[test]
    fn a_helper_that_does_not_answer_leaves_the_test_that_was_read_before() {
        let pid = std::process::id();
        let at = Node {
            pid,
            ..Node::thread(pid)
        };
        let mut first = so_far(Source::Live, pid, String::new(), at, Vec::new());
        first.tests.push(Tested::command(pid, "./checks"));
        let late = || Failure::new(UNAVAILABLE, "Not asked", "late", "", "");
        let (_, told) = with_tests(Some(&first), (pid, Err(late())));
        let told = told.unwrap();
        assert_eq!(told.tests, first.tests);
        assert_eq!(told.notes, ["Not asked: late"]);
        let mut other = first.clone();
        other.tests.clear();
        let (_, told) = with_tests(Some(&first), (pid, Ok(other)));
        assert_eq!(told.unwrap().tests, first.tests);
        let gone = i32::MAX as u32;
        assert!(with_tests(Some(&first), (gone, Err(late()))).1.is_err());
        assert!(with_tests(None, (pid, Err(late()))).1.is_err());
    }
}
