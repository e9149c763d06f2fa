// SPDX-License-Identifier: MIT
//! From place numbers to the types that are handed on.

use crate::call_stack::{Frame, FrameKind};
use crate::divergence::*;
use crate::locate::Execution;
use crate::outcomes::{outcome, BranchOutcome};
use crate::pairing::Pair;
use crate::part::{Case, Found};
use crate::profile::Profile;
use crate::space::{CodePlace, CodeSpace, PlaceId};
use crate::surveyed::Surveyed;
use crate::targets::Class;
use rustc_hash::FxHashSet;

/// Most entries of the lists that only people read.
const LIST_LIMIT: usize = 16;

pub(crate) struct Writer<'a, F> {
    pub space: &'a CodeSpace,
    pub normals: &'a [Surveyed<'a, F>],
    pub spin: &'a Surveyed<'a, F>,
    /// Edges that some spinning thread still repeats.
    pub repeated: FxHashSet<(PlaceId, PlaceId)>,
}

/// Normal run, thread of it, and the execution of the branch that went the other way.
pub(crate) type There = (usize, usize, Option<Execution>);

impl<F> Writer<'_, F> {
    fn place(&self, place: PlaceId) -> Option<CodePlace> {
        self.space.code_place(place)
    }

    fn known(&self, place: PlaceId) -> CodePlace {
        self.place(place).unwrap_or_default()
    }

    fn stack(&self, open: &[Frame]) -> Vec<OpenFrame> {
        open.iter()
            .map(|frame| OpenFrame {
                call_site: self.place(frame.call_site),
                function: self.known(frame.entry),
                at: self.known(frame.node),
                signal_handler: frame.kind == FrameKind::Signal,
            })
            .collect()
    }

    pub fn parting(
        &self,
        case: &Case,
        found: &Found,
        thread: usize,
        here: Option<(Execution, Option<u64>)>,
        there: Option<There>,
    ) -> Parting {
        let held = &case.held;
        let lap = &case.nests[held.target as usize].loops[held.number as usize];
        let mut blocks: Vec<CodePlace> = lap.nodes.iter().map(|&node| self.known(node)).collect();
        blocks.sort();
        let (execution, position) = here.unwrap_or_default();
        Parting {
            thread: self.spin.thread_ref(thread),
            normal_thread: there
                .map(|(run, thread, _)| self.normals[run].thread_ref(thread))
                .or_else(|| {
                    case.paired
                        .first()
                        .copied()
                        .flatten()
                        .map(|thread| self.normals[0].thread_ref(thread))
                }),
            kind: found.kind,
            branch: found.branch.and_then(|branch| self.place(branch)),
            block: self.place(execution.block),
            normal_target: self.place(found.normal_target),
            spin_target: self.place(found.spin_target),
            occurrence: execution.occurrence,
            spin_index: execution.index,
            spin_pos: position,
            normal_index: there
                .and_then(|(_, _, execution)| execution)
                .map(|execution| execution.index),
            frame: found.frame,
            loop_frame: held.frame,
            context: found.context,
            stack: self.stack(case.open),
            spin_loop: SpinLoop {
                header: self.known(lap.header),
                blocks,
                iterations: held.iterations,
                entered: held.entered,
                length: held.length,
                earlier_stays: held.earlier,
                longest_earlier: held.longest_earlier,
                lasted: held.lasted,
                longest_earlier_ns: held.longest_earlier_ns,
                normal: found.normal_loop,
            },
            others: self.outcomes(&found.others),
            own_exits: self.outcomes(&case.own_exits()),
            closed: self.closed(case, found),
            second_guess: case.second_guess,
            confidence: found.confidence,
            why: found.why.clone(),
        }
    }

    fn outcomes(&self, nodes: &[PlaceId]) -> Vec<BranchOutcome> {
        let outcome_at = |&node: &PlaceId| {
            let normal = self.normals.iter().flat_map(|run| &run.surveys);
            let spin = self.spin.surveys.iter();
            outcome(self.space, node, normal, spin, &self.repeated)
        };
        let outcomes = nodes.iter().filter_map(outcome_at);
        outcomes.take(LIST_LIMIT).collect()
    }

    /// Calls, finished before the loop, that did in the spin run what they never did in a normal
    /// run.
    fn closed(&self, case: &Case, found: &Found) -> Vec<ClosedDifference> {
        let mut differences = Vec::new();
        for frame in 0..=case.held.frame {
            let Some(target) = case.chain[frame] else {
                continue;
            };
            let Some(ours) = case.profiles.get(&(target, Class::Final)) else {
                continue;
            };
            let theirs: Vec<&Profile> = case
                .normals
                .iter()
                .filter_map(|normal| normal.profiles.get(&(target, Class::Full)))
                .collect();
            if theirs.is_empty() {
                continue;
            }
            let sites: FxHashSet<(PlaceId, u32)> =
                ours.shapes.keys().map(|key| (key.0, key.1)).collect();
            for (site, function) in sites {
                let of = |profile: &Profile| -> FxHashSet<u64> {
                    profile
                        .shapes
                        .keys()
                        .filter(|key| (key.0, key.1) == (site, function))
                        .map(|key| key.2)
                        .collect()
                };
                let spin = of(ours);
                let normal: FxHashSet<u64> =
                    theirs.iter().flat_map(|profile| of(profile)).collect();
                let shared = spin.intersection(&normal).count() as u64;
                if !normal.is_empty() && spin.len() as u64 > shared {
                    differences.push(ClosedDifference {
                        frame,
                        call_site: self.known(site),
                        spin_only: spin.len() as u64 - shared,
                        normal_only: normal.len() as u64 - shared,
                        shared,
                    });
                }
            }
        }
        // Inner frames first; call sites that never agree (noise in every call) last.
        differences.sort_by_key(|difference| {
            (
                difference.shared == 0,
                found.frame.abs_diff(difference.frame),
                difference.call_site.clone(),
            )
        });
        differences.truncate(LIST_LIMIT);
        differences
    }

    fn threads(&self, pairs: &[Pair]) -> Vec<ThreadPair> {
        let normal = &self.normals[0];
        let mut threads: Vec<ThreadPair> = pairs
            .iter()
            .map(|pair| ThreadPair {
                normal: Some(normal.thread_ref(pair.normal)),
                spin: Some(self.spin.thread_ref(pair.spin)),
                confidence: pair.confidence,
                why: pair.why.to_string(),
            })
            .collect();
        for spin in
            (0..self.spin.surveys.len()).filter(|spin| !pairs.iter().any(|pair| pair.spin == *spin))
        {
            let why = "only in the spin run".to_string();
            threads.push(ThreadPair {
                normal: None,
                spin: Some(self.spin.thread_ref(spin)),
                confidence: 1.0,
                why,
            });
        }
        for thread in (0..normal.surveys.len())
            .filter(|thread| !pairs.iter().any(|pair| pair.normal == *thread))
        {
            let why = "only in the normal run".to_string();
            threads.push(ThreadPair {
                normal: Some(normal.thread_ref(thread)),
                spin: None,
                confidence: 1.0,
                why,
            });
        }
        threads
    }

    fn notes(&self) -> Vec<String> {
        let named = self
            .normals
            .iter()
            .map(|run| ("normal", run))
            .chain([("spin", self.spin)]);
        let mut notes = Vec::new();
        for (name, run) in named {
            let blocks: u64 = run.surveys.iter().map(|survey| survey.blocks).sum();
            let mended: u64 = run.surveys.iter().map(|survey| survey.mended).sum();
            notes.push(format!(
                "{name} run: {} thread{}, {blocks} blocks",
                run.surveys.len(),
                if run.surveys.len() == 1 { "" } else { "s" }
            ));
            if mended * 100 > blocks {
                notes.push(format!(
                    "{name} run: {mended} calls and returns did not pair; contexts are less certain"
                ));
            }
        }
        notes
    }

    pub fn divergence(
        &self,
        pairs: Option<&Vec<Pair>>,
        partings: Vec<Parting>,
        waiting: &[(usize, u32, u64)],
    ) -> Divergence {
        let (verdict, reason) = self.verdict(&partings, waiting);
        Divergence {
            verdict,
            reason,
            threads: pairs.map_or_else(Vec::new, |pairs| self.threads(pairs)),
            partings,
            blocked: waiting
                .iter()
                .map(|&(thread, syscall, waiting)| BlockedThread {
                    thread: self.spin.thread_ref(thread),
                    syscall,
                    waiting,
                    stack: self.stack(&self.spin.surveys[thread].open),
                })
                .collect(),
            notes: self.notes(),
            unlike: Vec::new(),
        }
    }

    fn verdict(&self, partings: &[Parting], waiting: &[(usize, u32, u64)]) -> (Verdict, String) {
        let alive = self
            .spin
            .surveys
            .iter()
            .filter(|survey| !survey.exited)
            .count();
        let Some(best) = partings.first() else {
            let reason = match (alive, waiting.len()) {
                (0, _) if self.normals.iter().any(loops_at_end) => {
                    "every thread of the spin run ended by itself, but one \
                    of the normal run loops at its end: are the two in the wrong order?"
                        .to_string()
                }
                (0, _) => "every thread of the spin run ended by itself".to_string(),
                (alive, waits) if waits == alive => format!(
                    "all {alive} threads alive at the end wait in a system call; none loops"
                ),
                _ => "no thread of the spin run repeats a loop at its end".to_string(),
            };
            return (Verdict::NoDivergence, reason);
        };
        let name = if best.thread.name.is_empty() {
            best.thread.tid.to_string()
        } else {
            best.thread.name.clone()
        };
        let reason = match best.kind {
            PartingKind::LoopExit => {
                format!("thread {name} never again leaves a loop that the normal run left")
            }
            PartingKind::InsideLoop => format!(
                "thread {name} repeats one way through a loop; the normal run also took another"
            ),
            PartingKind::PathToLoop => {
                format!("thread {name} went into a loop that the normal run passed by")
            }
            PartingKind::PathToCall => {
                format!("thread {name} loops in a call that the normal run never made")
            }
            PartingKind::Callee => format!(
                "thread {name} loops in a function that the normal run did not call from there"
            ),
            PartingKind::OnlyInSpin => {
                format!("thread {name} loops in code that the normal run never ran")
            }
            PartingKind::Alike => {
                format!("the normal run repeats the loop of thread {name} in just the same way")
            }
        };
        let verdict = if best.kind == PartingKind::Alike {
            Verdict::NoDivergence
        } else {
            Verdict::Parted
        };
        (verdict, reason)
    }
}

/// Whether a thread is left that does not wait in a system call.
fn loops_at_end<F>(run: &Surveyed<F>) -> bool {
    let alive =
        |&thread: &usize| !run.surveys[thread].exited && !run.surveys[thread].open.is_empty();
    (0..run.surveys.len())
        .filter(alive)
        .any(|thread| run.waiting(thread).is_none())
}
