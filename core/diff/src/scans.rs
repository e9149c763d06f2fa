// SPDX-License-Identifier: MIT
//! The threads that are suspected of spinning, and the scans of their flow and of the normal runs'.

use crate::compare::NormalThread;
use crate::input::{Flow, FlowError};
use crate::nest::LoopNest;
use crate::profile::{profile, Profiles};
use crate::progress::{Callback, Meter};
use crate::stays::{stays, Stays};
use crate::surveyed::Surveyed;
use crate::targets::Targets;
use rayon::prelude::*;
use rustc_hash::FxHashMap;

/// Most threads looked at: the busiest ones. Slow pollers execute little, so the bound is a wide
/// one.
const MOST_THREADS: usize = 64;

/// A spinning (or asked-for) thread, as it is worked on.
pub(crate) struct Suspect {
    pub thread: usize,
    pub chain: Vec<Option<u32>>,
    pub finals: FxHashMap<u64, u32>,
    pub profiles: Profiles,
    pub stays: Stays,
}

/// The threads to look at, longest first, and their open calls as targets: those of the named ids,
/// else all that seem to spin.
pub(crate) fn suspects<F>(
    spin: &Surveyed<F>,
    named: &[u32],
    targets: &mut Targets,
) -> Vec<Suspect> {
    let mut threads: Vec<usize> = (0..spin.surveys.len())
        .filter(|&thread| match named {
            [] => !spin.surveys[thread].exited && spin.waiting(thread).is_none(),
            _ => named.contains(&spin.run.threads[thread].tid),
        })
        .filter(|&thread| !spin.surveys[thread].open.is_empty())
        .collect();
    threads.sort_by_key(|&thread| std::cmp::Reverse(spin.surveys[thread].blocks));
    threads.truncate(MOST_THREADS);
    threads
        .into_iter()
        .map(|thread| {
            let open = &spin.surveys[thread].open;
            let chain = targets.add_stack(open);
            let finals = open
                .iter()
                .zip(&chain)
                .filter_map(|(frame, target)| target.map(|target| (frame.serial, target)))
                .collect();
            Suspect {
                thread,
                chain,
                finals,
                profiles: Profiles::default(),
                stays: Stays::default(),
            }
        })
        .collect()
}

/// Which scan a parallel job is for.
#[derive(Clone, Copy)]
enum Job {
    Normal(usize, usize),
    Suspect(usize),
}

fn jobs<F>(normals: &[Surveyed<F>], suspects: &[Suspect]) -> Vec<Job> {
    let theirs = normals.iter().enumerate().flat_map(|(run, one)| {
        (0..one.run.threads.len()).map(move |thread| Job::Normal(run, thread))
    });
    (0..suspects.len())
        .map(Job::Suspect)
        .chain(theirs)
        .collect()
}

fn total<F>(normals: &[Surveyed<F>], spin: &Surveyed<F>, suspects: &[Suspect]) -> u64 {
    let theirs: u64 = normals
        .iter()
        .flat_map(|one| &one.surveys)
        .map(|survey| survey.blocks)
        .sum();
    theirs
        + suspects
            .iter()
            .map(|suspect| spin.surveys[suspect.thread].blocks)
            .sum::<u64>()
}

/// What each thread did in the targets' calls.
pub(crate) fn scan_edges<F: Flow + Send>(
    normals: &[Surveyed<F>],
    spin: &Surveyed<F>,
    suspects: &mut [Suspect],
    targets: &Targets,
    progress: Callback,
) -> Result<Vec<NormalThread>, FlowError> {
    if suspects.is_empty() {
        return Ok(Vec::new());
    }
    let meter = Meter::new(progress, "comparing calls", total(normals, spin, suspects));
    let jobs = jobs(normals, suspects);
    let none = FxHashMap::default();
    let scanned: Vec<Profiles> = jobs
        .par_iter()
        .map(|job| {
            let (one, thread, finals) = match *job {
                Job::Normal(run, thread) => (&normals[run], thread, &none),
                Job::Suspect(index) => (spin, suspects[index].thread, &suspects[index].finals),
            };
            let input = &one.run.threads[thread];
            profile(
                &input.flow,
                &one.programs[input.process],
                targets,
                finals,
                &meter,
            )
        })
        .collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    for (job, profiles) in jobs.into_iter().zip(scanned) {
        match job {
            Job::Normal(run, thread) => found.push(NormalThread {
                run,
                thread,
                profiles,
                stays: Stays::default(),
                span: normals[run].span(),
            }),
            Job::Suspect(index) => suspects[index].profiles = profiles,
        }
    }
    Ok(found)
}

/// How long each thread stayed in the nests' loops.
pub(crate) fn scan_stays<F: Flow + Send>(
    surveyed: &[Surveyed<F>],
    spin: &Surveyed<F>,
    mut normals: Vec<NormalThread>,
    suspects: &mut [Suspect],
    targets: &Targets,
    nests: &[LoopNest],
    progress: Callback,
) -> Result<Vec<NormalThread>, FlowError> {
    // Only threads that made one of the calls need another look.
    normals.retain(|normal| !normal.profiles.is_empty());
    let theirs: u64 = normals
        .iter()
        .map(|normal| surveyed[normal.run].surveys[normal.thread].blocks)
        .sum();
    let ours: u64 = suspects
        .iter()
        .map(|suspect| spin.surveys[suspect.thread].blocks)
        .sum();
    let meter = Meter::new(progress, "timing loops", theirs + ours);
    let none = FxHashMap::default();
    let scan = |one: &Surveyed<F>, thread: usize, finals: &FxHashMap<u64, u32>| {
        let input = &one.run.threads[thread];
        stays(
            &input.flow,
            &one.programs[input.process],
            targets,
            nests,
            finals,
            &meter,
        )
    };
    let mut work: Vec<(Job, Result<Stays, FlowError>)> = (0..suspects.len())
        .map(Job::Suspect)
        .chain((0..normals.len()).map(|index| Job::Normal(0, index)))
        .map(|job| (job, Ok(Stays::default())))
        .collect();
    work.par_iter_mut().for_each(|(job, result)| {
        *result = match *job {
            Job::Normal(_, index) => {
                scan(&surveyed[normals[index].run], normals[index].thread, &none)
            }
            Job::Suspect(index) => scan(spin, suspects[index].thread, &suspects[index].finals),
        }
    });
    for (job, result) in work {
        match job {
            Job::Normal(_, index) => normals[index].stays = result?,
            Job::Suspect(index) => suspects[index].stays = result?,
        }
    }
    Ok(normals)
}
