// SPDX-License-Identifier: MIT
//! The whole way from runs to a [`Divergence`].

use crate::compare::{nests, NormalThread};
use crate::divergence::*;
use crate::input::{Flow, FlowError, Run};
use crate::locate::{locate, Execution, Wanted};
use crate::pairing::{pair, Pair};
use crate::part::{Case, Found};
use crate::progress::Callback;
use crate::report::Writer;
use crate::scans::{scan_edges, scan_stays, suspects, Suspect};
use crate::space::CodeSpace;
use crate::spinning::{held, Held};
use crate::surveyed::{survey_all, Surveyed};
use crate::targets::{Class, Targets};
use crate::unlike::{started_otherwise, unlike};
use rustc_hash::FxHashMap;

/// What to look at.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Thread ids of the spin run to look at; empty: all that spin.
    pub threads: Vec<u32>,
}

/// If neither run has an earlier stay to compare with, a stay is compared with this (ns, blocks).
const ORDINARY: (u64, u64) = (1_000_000, 1000);

/// Aligns the runs. The first normal run is the one that thread pairs are told of; further ones
/// only add to what a good run may do. `module_names` are those that the blocks refer to.
///
/// # Errors
/// When a flow cannot be read.
pub fn align<F: Flow + Send>(
    normal_runs: &[Run<F>],
    spin_run: &Run<F>,
    module_names: Vec<String>,
    options: &Options,
    progress: Callback,
) -> Result<Divergence, FlowError> {
    let runs: Vec<&Run<F>> = normal_runs.iter().chain([spin_run]).collect();
    let mut unlike = unlike(normal_runs, spin_run, &module_names);
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
    let mut suspects = suspects(&spin, &options.threads, &mut targets);
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
        // Each of these goes through a whole flow.
        let (here, there) = rayon::join(
            || find_in_spin(&spin, suspect, &targets, &found, &held),
            || find_in_normal(&surveyed, &normals, suspect, &targets, &found),
        );
        partings.push(writer.parting(&case, &found, suspect.thread, here?, there?));
    }
    partings.sort_by(|a, b| telling(b).total_cmp(&telling(a)));
    let best = partings.first();
    unlike.extend(best.and_then(|best| started_otherwise(best, normal_runs, spin_run)));
    let waiting: Vec<(usize, u32, u64)> = (0..spin.surveys.len())
        .filter(|&thread| !spin.surveys[thread].exited)
        .filter_map(|thread| {
            spin.waiting(thread)
                .map(|(syscall, ns)| (thread, syscall, ns))
        })
        .collect();
    Ok(Divergence {
        unlike,
        ..writer.divergence(pairs.first(), partings, &waiting)
    })
}

/// How much a parting says: a certain one says more, and one after a stay that is long for this
/// loop. How busy the thread is says nothing: it may sleep between two reads of the word that it
/// waits for.
fn telling(parting: &Parting) -> f64 {
    let doubt = match (parting.kind, parting.second_guess) {
        (PartingKind::Alike, _) => 0.001,
        (_, true) => 0.1,
        _ => 1.0,
    };
    doubt * parting.confidence * (2.0 + disproportion(&parting.spin_loop)).log2()
}

/// How many times as long the stay is as any stay that ended, or that lasted to the end of a normal
/// run. If one took most of a normal run (a thread's main loop, which tests whether to stop), a
/// stay as long as this run is nothing unusual, whichever run was given more time.
fn disproportion(spin: &SpinLoop) -> f64 {
    let normal = spin.normal.unwrap_or_default();
    if normal.most_of_run {
        return 1.0;
    }
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
