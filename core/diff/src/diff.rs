//! The whole way from runs to a [`Divergence`].

use crate::compare::{nests, NormalThread};
use crate::divergence::*;
use crate::input::{Flow, FlowError, Run};
use crate::locate::{locate, Execution, Wanted};
use crate::pairing::{pair, Pair, Side};
use crate::part::{Case, Found};
use crate::profile::{profile, Profiles};
use crate::progress::{Callback, Meter};
use crate::report::Writer;
use crate::space::{CodeSpace, Program};
use crate::spinning::{held, Held};
use crate::stays::{stays, Stays};
use crate::survey::{survey, Survey};
use crate::targets::{Class, Targets};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

/// What to look at.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Thread ids of the spin run to look at; empty: all that spin.
    pub threads: Vec<u32>,
}

/// A system call that has lasted this long (ns) at the end, and three times as long as any of the last ones
/// with its number, is waiting and no part of a polling loop.
const WAITING: u64 = 100_000_000;
/// `sched_yield` on x86-64 waits for nobody, however long a busy machine takes to come back to the thread.
const YIELD: u32 = 24;
/// Most threads looked at: the busiest ones. Slow pollers execute little, so the bound is a wide one.
const MOST_THREADS: usize = 64;
/// Where neither run has an earlier stay to compare with, a stay is compared with this (ns, blocks).
const ORDINARY: (u64, u64) = (1_000_000, 1000);

/// A run with its blocks numbered and its threads surveyed.
pub(crate) struct Surveyed<'a, F> {
    pub run: &'a Run<F>,
    pub programs: Vec<Program>,
    pub surveys: Vec<Survey>,
}

impl<F> Surveyed<'_, F> {
    pub fn thread_ref(&self, index: usize) -> ThreadRef {
        let thread = &self.run.threads[index];
        ThreadRef {
            pid: self.run.processes[thread.process].pid,
            tid: thread.tid,
            name: thread.name.clone(),
        }
    }

    fn side(&self) -> Side<'_> {
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

    fn end_ts(&self) -> u64 {
        self.surveys
            .iter()
            .map(|survey| survey.span.1)
            .max()
            .unwrap_or(0)
            .max(self.run.end_ts)
    }

    /// For how long (ns) the thread has been waiting in a system call at the end; `None` if it is not.
    fn waiting(&self, thread: usize) -> Option<(u32, u64)> {
        let survey = &self.surveys[thread];
        let (number, began) = survey.pending.filter(|(number, _)| *number != YIELD)?;
        let waiting = self.end_ts().saturating_sub(began);
        (waiting > WAITING && waiting > 3 * survey.longest_recent_call).then_some((number, waiting))
    }
}

/// A spinning (or asked-for) thread, as it is worked on.
struct Suspect {
    thread: usize,
    chain: Vec<Option<u32>>,
    finals: FxHashMap<u64, u32>,
    profiles: Profiles,
    stays: Stays,
}

/// Aligns the runs. The first normal run is the one that thread pairs are told of; further ones only
/// add to what a good run may do. `module_names` are those that the blocks refer to.
///
/// # Errors
/// When a flow cannot be read.
pub fn align<F: Flow + Send>(
    normals: &[Run<F>],
    spin: &Run<F>,
    module_names: Vec<String>,
    options: &Options,
    progress: Callback,
) -> Result<Divergence, FlowError> {
    let runs: Vec<&Run<F>> = normals.iter().chain([spin]).collect();
    let blocks: Vec<_> = runs
        .iter()
        .flat_map(|run| {
            run.processes
                .iter()
                .map(|process| process.blocks.as_slice())
        })
        .collect();
    let (space, programs) = CodeSpace::build(module_names, &blocks);
    let mut surveyed = survey_all(&runs, programs, &space, progress)?;
    let Some(spin) = surveyed.pop() else {
        return Err(FlowError("no run was given".into()));
    };
    let pairs: Vec<Vec<Pair>> = surveyed
        .iter()
        .map(|normal| pair(&normal.side(), &spin.side()))
        .collect();

    let mut targets = Targets::default();
    let mut suspects = suspects(&spin, options, &mut targets);
    targets.seal();
    let normals = scan_edges(&surveyed, &spin, &mut suspects, &targets, progress)?;
    let all = normals
        .iter()
        .map(|normal| &normal.profiles)
        .chain(suspects.iter().map(|suspect| &suspect.profiles));
    let nests = nests(&space, targets.len(), all);
    let normals = scan_stays(
        &surveyed,
        &spin,
        normals,
        &mut suspects,
        &targets,
        &nests,
        progress,
    )?;

    // (thread, loop, is it a second guess)
    let mut spinning: Vec<(&Suspect, Held, bool)> = Vec::new();
    for suspect in &suspects {
        let survey = &spin.surveys[suspect.thread];
        let end = (survey.blocks, spin.end_ts());
        let found = held(&survey.open, &suspect.chain, &nests, &suspect.stays, end);
        let guesses = found.into_iter().enumerate();
        spinning.extend(guesses.map(|(number, held)| (suspect, held, number > 0)));
    }
    let repeated = spinning
        .iter()
        .flat_map(|(suspect, held, _)| held.repeated(&suspect.profiles, &nests))
        .collect();
    let writer = Writer {
        space: &space,
        normals: &surveyed,
        spin: &spin,
        repeated,
    };
    let branches = writer.branches();
    let mut partings = Vec::new();
    for (suspect, held, second_guess) in spinning {
        let survey = &spin.surveys[suspect.thread];
        let paired: Vec<Option<usize>> = pairs
            .iter()
            .map(|pairs| {
                pairs
                    .iter()
                    .find(|pair| pair.spin == suspect.thread)
                    .map(|pair| pair.normal)
            })
            .collect();
        let case = Case {
            space: &space,
            open: &survey.open,
            chain: &suspect.chain,
            profiles: &suspect.profiles,
            nests: &nests,
            held,
            second_guess,
            normals: &normals,
            runs: surveyed.len(),
            paired: &paired,
        };
        let found = case.part();
        let here = find_in_spin(&spin, suspect, &targets, &found, &held)?;
        let there = find_in_normal(&surveyed, &normals, suspect, &targets, &found)?;
        partings.push(writer.parting(&branches, &case, &found, suspect.thread, here, there));
    }
    partings.sort_by(|a, b| telling(b).total_cmp(&telling(a)));
    let waiting: Vec<(usize, u32, u64)> = (0..spin.surveys.len())
        .filter(|&thread| !spin.surveys[thread].exited)
        .filter_map(|thread| {
            spin.waiting(thread)
                .map(|(syscall, ns)| (thread, syscall, ns))
        })
        .collect();
    Ok(writer.divergence(pairs.first(), partings, &waiting, branches))
}

/// How much a parting tells: a certain one, out of a stay that is long for this loop. How busy the thread
/// is tells nothing: it may sleep between two looks at what it waits for.
fn telling(parting: &Parting) -> f64 {
    let doubt = match (parting.kind, parting.second_guess) {
        (PartingKind::Alike, _) => 0.001,
        (_, true) => 0.1,
        _ => 1.0,
    };
    doubt * parting.confidence * (2.0 + disproportion(&parting.spin_loop)).log2()
}

/// How many times as long the stay is as any that ended, or as one in which a normal run stayed to its end.
fn disproportion(spin: &SpinLoop) -> f64 {
    let normal = spin.normal.unwrap_or_default();
    let ratio = |now: u64, earlier: [u64; 3], ordinary: u64| {
        now as f64 / earlier.into_iter().fold(ordinary, u64::max) as f64
    };
    if spin.lasted > 0 {
        let earlier = [spin.longest_earlier_ns, normal.longest_ns, normal.open_ns];
        ratio(spin.lasted, earlier, ORDINARY.0)
    } else {
        let earlier = [spin.longest_earlier, normal.longest, 0];
        ratio(spin.length, earlier, ORDINARY.1)
    }
}

fn survey_all<'a, F: Flow + Send>(
    runs: &[&'a Run<F>],
    programs: Vec<Program>,
    space: &CodeSpace,
    progress: Callback,
) -> Result<Vec<Surveyed<'a, F>>, FlowError> {
    let meter = Meter::new(progress, "following calls", 0);
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
            if members
                .iter()
                .any(|&thread| one.surveys[thread].ends_process())
            {
                for thread in members {
                    one.surveys[thread].exited = true;
                }
            }
        }
    }
    Ok(all)
}

/// The threads to look at, longest first, and their open calls as targets.
fn suspects<F>(spin: &Surveyed<F>, options: &Options, targets: &mut Targets) -> Vec<Suspect> {
    let mut threads: Vec<usize> = (0..spin.surveys.len())
        .filter(|&thread| match options.threads.as_slice() {
            [] => !spin.surveys[thread].exited && spin.waiting(thread).is_none(),
            named => named.contains(&spin.run.threads[thread].tid),
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

fn scan_edges<F: Flow + Send>(
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
                end_ts: normals[run].end_ts(),
            }),
            Job::Suspect(index) => suspects[index].profiles = profiles,
        }
    }
    Ok(found)
}

fn scan_stays<F: Flow + Send>(
    surveyed: &[Surveyed<F>],
    spin: &Surveyed<F>,
    mut normals: Vec<NormalThread>,
    suspects: &mut [Suspect],
    targets: &Targets,
    nests: &[crate::nest::LoopNest],
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

fn find_in_spin<F: Flow>(
    spin: &Surveyed<F>,
    suspect: &Suspect,
    targets: &Targets,
    found: &Found,
    held: &Held,
) -> Result<Option<(Execution, Option<u64>)>, FlowError> {
    let (Some(branch), Some(target)) = (found.branch, suspect.chain[found.frame]) else {
        return Ok(None);
    };
    let wanted = match found.kind {
        PartingKind::LoopExit | PartingKind::InsideLoop => Wanted::FirstFrom(held.entered),
        PartingKind::Callee => {
            let call = spin.surveys[suspect.thread]
                .open
                .get(found.frame + 1)
                .map_or(0, |frame| frame.entered);
            Wanted::FirstFrom(call.saturating_sub(1))
        }
        _ => Wanted::LastTo(found.spin_target),
    };
    let input = &spin.run.threads[suspect.thread];
    let execution = locate(
        &input.flow,
        &spin.programs[input.process],
        targets,
        &suspect.finals,
        (target, branch),
        wanted,
    )?;
    Ok(execution.map(|execution| (execution, input.flow.position(execution.index))))
}

fn find_in_normal<F: Flow>(
    surveyed: &[Surveyed<F>],
    normals: &[NormalThread],
    suspect: &Suspect,
    targets: &Targets,
    found: &Found,
) -> Result<Option<(usize, usize, Option<Execution>)>, FlowError> {
    let Some(normal) = found.normal.map(|index| &normals[index]) else {
        return Ok(None);
    };
    let place = (normal.run, normal.thread);
    let branch = found.branch.filter(|_| found.kind != PartingKind::Callee);
    let (Some(branch), Some(target)) = (branch, suspect.chain[found.frame]) else {
        return Ok(Some((place.0, place.1, None)));
    };
    let class = match found.context {
        ContextMatch::Paired | ContextMatch::OtherThread => Class::Full,
        ContextMatch::SameCaller => Class::Caller,
        ContextMatch::SameFunction | ContextMatch::None => Class::Function,
    };
    let one = &surveyed[normal.run];
    let input = &one.run.threads[normal.thread];
    let wanted = Wanted::LastLikeTo(class, found.normal_target);
    let none = FxHashMap::default();
    let execution = locate(
        &input.flow,
        &one.programs[input.process],
        targets,
        &none,
        (target, branch),
        wanted,
    )?;
    Ok(Some((place.0, place.1, execution)))
}
