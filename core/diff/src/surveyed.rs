// SPDX-License-Identifier: MIT
//! Every thread of every run looked through once: its calls, how it ends, what it waits for.

use crate::divergence::ThreadRef;
use crate::input::{Flow, FlowError, Run};
use crate::pairing::Side;
use crate::progress::{Callback, Meter};
use crate::space::{CodeSpace, Program};
use crate::survey::{survey, Survey};
use flagfinder_linux::traits;
use rayon::prelude::*;

/// A system call that has lasted this long (ns) at the end, and three times as long as any of the
/// last ones with its number, is waiting and no part of a polling loop.
const WAITING: u64 = 100_000_000;

/// A run with its blocks numbered and its threads surveyed.
pub(crate) struct Surveyed<'a, F> {
    pub run: &'a Run<F>,
    pub programs: Vec<Program>,
    pub surveys: Vec<Survey>,
}

impl<F> Surveyed<'_, F> {
    pub fn thread_ref(&self, index: usize) -> ThreadRef {
        let thread = &self.run.threads[index];
        let process = &self.run.processes[thread.process];
        ThreadRef {
            pid: process.pid,
            image: process.image,
            program: process.program.clone(),
            tid: thread.tid,
            name: thread.name.clone(),
        }
    }

    pub fn side(&self) -> Side<'_> {
        Side {
            threads: self
                .run
                .threads
                .iter()
                .map(|thread| (thread.tid, thread.process, thread.creator))
                .collect(),
            surveys: self.surveys.iter().collect(),
            processes: self
                .run
                .processes
                .iter()
                .map(|process| (process.pid, process.program.as_str()))
                .collect(),
        }
    }

    /// When the run began and ended (ns).
    pub fn span(&self) -> (u64, u64) {
        let began = self
            .surveys
            .iter()
            .map(|survey| survey.span.0)
            .filter(|ts| *ts > 0)
            .min();
        (began.unwrap_or(0), self.end_ts())
    }

    /// When the run ended (ns).
    pub fn end_ts(&self) -> u64 {
        self.surveys
            .iter()
            .map(|survey| survey.span.1)
            .max()
            .unwrap_or(0)
            .max(self.run.end_ts)
    }

    /// For how long (ns) the thread has been waiting in a system call at the end; `None` if it is
    /// not.
    pub fn waiting(&self, thread: usize) -> Option<(u32, u64)> {
        let survey = &self.surveys[thread];
        // A yield waits for nobody, however long a busy machine takes to come back to the thread.
        let (number, began) = survey
            .pending
            .filter(|(number, _)| !traits::yields(*number))?;
        let waiting = self.end_ts().saturating_sub(began);
        (waiting > WAITING && waiting > 3 * survey.longest_recent_call).then_some((number, waiting))
    }
}

/// Surveys all threads of all runs, which `programs` belong to in order.
pub(crate) fn survey_all<'a, F: Flow + Send>(
    runs: &[&'a Run<F>],
    programs: Vec<Program>,
    space: &CodeSpace,
    progress: Callback,
) -> Result<Vec<Surveyed<'a, F>>, FlowError> {
    let threads = runs.iter().flat_map(|run| &run.threads);
    let total = threads.map(|thread| thread.flow.blocks()).sum();
    let meter = Meter::new(progress, "following calls", total);
    let mut programs = programs.into_iter();
    let mut all: Vec<Surveyed<F>> = runs
        .iter()
        .map(|run| Surveyed {
            run,
            programs: programs.by_ref().take(run.processes.len()).collect(),
            surveys: Vec::new(),
        })
        .collect();
    let jobs: Vec<(usize, usize)> = all
        .iter()
        .enumerate()
        .flat_map(|(run, one)| (0..one.run.threads.len()).map(move |thread| (run, thread)))
        .collect();
    let surveys: Vec<Survey> = jobs
        .par_iter()
        .map(|&(run, thread)| {
            let one = &all[run];
            let input = &one.run.threads[thread];
            survey(
                &input.flow,
                &one.programs[input.process],
                space.len(),
                &meter,
            )
        })
        .collect::<Result<_, _>>()?;
    for ((run, _), survey) in jobs.into_iter().zip(surveys) {
        all[run].surveys.push(survey);
    }
    for one in &mut all {
        for process in 0..one.run.processes.len() {
            let of_process = |thread: &usize| one.run.threads[*thread].process == process;
            let members: Vec<usize> = (0..one.surveys.len()).filter(of_process).collect();
            if one.run.processes[process].killed {
                for &thread in &members {
                    one.surveys[thread].outlive_kill();
                }
            }
            let ends = |&thread: &usize| one.surveys[thread].ends_process();
            if one.run.processes[process].replaced || members.iter().any(ends) {
                for thread in members {
                    one.surveys[thread].exited = true;
                }
            }
        }
    }
    Ok(all)
}
