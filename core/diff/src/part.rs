// SPDX-License-Identifier: MIT
//! Where a spinning thread leaves what the normal runs do.
//!
//! The blocks and edges that the thread repeats in its loop are one graph, those of the normal
//! runs' calls in the same context another. Where a branch is in both and the normal runs go on by
//! an edge that the spinning thread no longer takes, they part: best an edge out of the loop; else
//! one from which the normal runs got out without coming back to what is repeated; else any. If the
//! normal runs never came to the loop, the parting is the last branch before it by which the
//! spinning thread left the normal runs' graph, in the innermost open call that they made.

use flagfinder_code::times;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::call_stack::Frame;
use crate::compare::{NormalThread, Side, LEVELS};
use crate::divergence::{ContextMatch, NormalLoop, PartingKind};
use crate::nest::LoopNest;
use crate::profile::{EdgeKey, Profile, Profiles};
use crate::space::{CodeSpace, ExitKind, PlaceId, NO_PLACE};
use crate::spinning::Held;
use crate::targets::Class;

/// All that is known of one spinning thread and of the normal runs.
pub struct Case<'a> {
    pub space: &'a CodeSpace,
    /// The thread's open calls.
    pub open: &'a [Frame],
    pub chain: &'a [Option<u32>],
    pub profiles: &'a Profiles,
    /// Loop nests by target.
    pub nests: &'a [LoopNest],
    /// The loop that holds it.
    pub held: Held,
    /// Another loop holds the thread with more certainty.
    pub second_guess: bool,
    /// Scanned threads of the normal runs.
    pub normals: &'a [NormalThread],
    /// How many normal runs there are.
    pub runs: usize,
    /// The paired thread in each.
    pub paired: &'a [Option<usize>],
}

/// The result, in numbers of places.
pub struct Found {
    pub kind: PartingKind,
    pub frame: usize,
    pub branch: Option<PlaceId>,
    /// Where the normal runs went; [`NO_PLACE`] out of the function.
    pub normal_target: PlaceId,
    pub spin_target: PlaceId,
    /// Other branches, most telling first.
    pub others: Vec<PlaceId>,
    /// How the compared calls were found.
    pub context: ContextMatch,
    /// Index into the normal threads: one that took `normal_target`.
    pub normal: Option<usize>,
    /// What the normal runs did in the loop.
    pub normal_loop: Option<NormalLoop>,
    /// 0..=1.
    pub confidence: f64,
    /// Step by step.
    pub why: Vec<String>,
}

/// An edge by which the normal runs leave what the spinning thread repeats.
struct Leaving {
    edge: EdgeKey,
    rank: Rank,
    runs: usize,
    count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Inside,
    LeadsOut,
    Leaves,
}

impl Case<'_> {
    pub fn part(&self) -> Found {
        let sides: Vec<(ContextMatch, f64, Side)> = LEVELS
            .iter()
            .map(|&(level, factor)| (level, factor, self.side(level, self.held.target)))
            .collect();
        let repeated = self.held.repeated(self.profiles, self.nests);
        // First the best level at which the loop was left, then the best at which it was entered.
        for least in [Rank::LeadsOut, Rank::Inside] {
            for (level, factor, side) in &sides {
                let facts = side.loop_facts(self.held.target, self.held.number, self.normals);
                if facts.is_none() {
                    continue;
                }
                if facts.is_some_and(|facts| self.ends_there_too(&facts)) {
                    return self.alike(*level, *factor, side, facts);
                }
                let leavings = self.leavings(side, &repeated);
                if leavings.first().is_some_and(|best| best.rank >= least) {
                    return self.in_loop(*level, *factor, side, facts, &leavings, &repeated);
                }
            }
        }
        for (level, factor, side) in &sides {
            let facts = side.loop_facts(self.held.target, self.held.number, self.normals);
            if facts.is_some() {
                return self.alike(*level, *factor, side, facts);
            }
        }
        self.before_loop()
    }

    /// A normal run stays in the loop at its end for as long, so that is how this thread idles.
    fn ends_there_too(&self, facts: &NormalLoop) -> bool {
        facts.left > 0
            && self.held.lasted > 0
            && facts.open_ns >= self.held.lasted / 2
            && facts.open_iterations >= self.held.iterations / 8
    }

    /// Branches by which this run itself left the loop before, most often taken first.
    pub fn own_exits(&self) -> Vec<PlaceId> {
        let mut side = Side::default();
        for ((target, _), profile) in self.profiles {
            if *target == self.held.target {
                side.all.merge(profile);
            }
        }
        let repeated = self.held.repeated(self.profiles, self.nests);
        let mut exits = Vec::new();
        for leaving in self.leavings(&side, &repeated) {
            if leaving.rank >= Rank::LeadsOut && !exits.contains(&leaving.edge.0) {
                exits.push(leaving.edge.0);
            }
        }
        exits
    }

    pub(crate) fn side(&self, level: ContextMatch, target: u32) -> Side {
        Side::gather(level, target, self.normals, self.runs, self.paired)
    }

    pub(crate) fn final_profile(&self, target: u32) -> Option<&Profile> {
        self.profiles.get(&(target, Class::Final))
    }

    fn leavings(&self, side: &Side, repeated: &FxHashSet<EdgeKey>) -> Vec<Leaving> {
        let sources: FxHashSet<PlaceId> = repeated.iter().map(|&(from, _)| from).collect();
        let inside = &self.nests[self.held.target as usize].loops[self.held.number as usize].nodes;
        let mut successors: FxHashMap<PlaceId, Vec<PlaceId>> = FxHashMap::default();
        for &(from, to) in side.all.edges.keys() {
            successors
                .entry(from)
                .or_default()
                .push(self.space.node_at(to));
        }
        let mut found: Vec<Leaving> = side
            .all
            .edges
            .iter()
            .filter(|(edge, _)| {
                sources.contains(&edge.0) && !repeated.contains(edge) && self.decides(edge.0)
            })
            .map(|(&edge, facts)| {
                let node = self.space.node_at(edge.1);
                let rank = if node == NO_PLACE || !inside.contains(&node) {
                    Rank::Leaves
                } else if leads_out(&successors, node, inside, &sources) {
                    Rank::LeadsOut
                } else {
                    Rank::Inside
                };
                Leaving {
                    edge,
                    rank,
                    runs: side.runs_taking(edge),
                    count: facts.count,
                }
            })
            .collect();
        let order = self.order_in_lap();
        found.sort_by_key(|leaving| {
            // Of ways out the one that the normal runs agree on and take most. Of ways within the
            // loop the first in an iteration, as what follows may be its consequence.
            let first = match leaving.rank {
                Rank::Inside => order.get(&leaving.edge.0).copied().unwrap_or_default(),
                Rank::LeadsOut | Rank::Leaves => (false, 0),
            };
            (
                std::cmp::Reverse((leaving.rank, leaving.runs)),
                first,
                std::cmp::Reverse(leaving.count),
                leaving.edge,
            )
        });
        found
    }

    /// Sorts the spinning loop's nodes by when they are executed in an iteration: those since the
    /// last execution of the header (false), then the ones before it, from the previous iteration.
    fn order_in_lap(&self) -> FxHashMap<PlaceId, (bool, u64)> {
        let header = self.nests[self.held.target as usize].loops[self.held.number as usize].header;
        let mut last: FxHashMap<PlaceId, u64> = FxHashMap::default();
        for (edge, facts) in self
            .final_profile(self.held.target)
            .iter()
            .flat_map(|profile| &profile.edges)
        {
            let time = last.entry(edge.0).or_default();
            *time = facts.last.max(*time);
        }
        let began = last.get(&header).copied().unwrap_or_default();
        last.into_iter()
            .map(|(node, time)| (node, (time < began, time)))
            .collect()
    }

    pub(crate) fn decides(&self, node: PlaceId) -> bool {
        matches!(
            self.space.exit(node),
            ExitKind::Conditional | ExitKind::IndirectJump
        )
    }

    fn in_loop(
        &self,
        context: ContextMatch,
        factor: f64,
        side: &Side,
        normal_loop: Option<NormalLoop>,
        leavings: &[Leaving],
        repeated: &FxHashSet<EdgeKey>,
    ) -> Found {
        let best = &leavings[0];
        let branch = best.edge.0;
        let counts = self.final_profile(self.held.target);
        let spin_target = repeated
            .iter()
            .filter(|(from, _)| *from == branch)
            .max_by_key(|&&edge| {
                (
                    counts
                        .and_then(|profile| profile.edges.get(&edge))
                        .map_or(0, |edge| edge.count),
                    edge.1,
                )
            })
            .map_or(NO_PLACE, |edge| edge.1);
        let (kind, certainty) = match best.rank {
            Rank::Leaves => (PartingKind::LoopExit, 0.97),
            Rank::LeadsOut => (PartingKind::LoopExit, 0.85),
            Rank::Inside => (PartingKind::InsideLoop, 0.5),
        };
        let agreeing = best.runs as f64 / side.runs_with_calls().max(1) as f64;
        let mut others: Vec<PlaceId> = Vec::new();
        for leaving in leavings.iter().skip(1) {
            if leaving.edge.0 != branch && !others.contains(&leaving.edge.0) {
                others.push(leaving.edge.0);
            }
        }
        let facts = normal_loop.unwrap_or_default();
        let mut why = vec![self.describe_held(), describe_context(context)];
        why.push(format!(
            "the normal {} this loop {} time{}, after {} iterations at most",
            if kind == PartingKind::LoopExit {
                "run left"
            } else {
                "run ended"
            },
            facts.left,
            if facts.left == 1 { "" } else { "s" },
            facts.most_iterations
        ));
        why.push(match best.rank {
            Rank::Leaves => format!(
                "this branch leaves the loop: taken {} in the normal run, never again here",
                times(best.count)
            ),
            Rank::LeadsOut => format!(
                "this branch leads out of the loop: so {} in the normal run, never again here",
                times(best.count)
            ),
            Rank::Inside => format!(
                "within the loop the normal run went the other way {}; here never again",
                times(best.count)
            ),
        });
        if self.runs > 1 {
            why.push(format!(
                "{} of {} normal runs with this call agree",
                best.runs,
                side.runs_with_calls()
            ));
        }
        Found {
            kind,
            frame: self.held.frame,
            branch: Some(branch),
            normal_target: best.edge.1,
            spin_target,
            others,
            context,
            normal: side
                .threads
                .iter()
                .copied()
                .find(|&thread| self.takes(thread, side, self.held.target, best.edge)),
            normal_loop,
            confidence: certainty * factor * agreeing.max(0.3),
            why,
        }
    }

    fn takes(&self, thread: usize, side: &Side, target: u32, edge: EdgeKey) -> bool {
        side.classes.iter().any(|&class| {
            self.normals[thread]
                .profiles
                .get(&(target, class))
                .is_some_and(|profile| profile.edges.contains_key(&edge))
        })
    }

    pub(crate) fn describe_held(&self) -> String {
        let held = &self.held;
        let earlier = match held.earlier {
            0 => "never left before in this run".to_string(),
            count => format!(
                "left {} before, after {} blocks and {} ms at most",
                times(count),
                held.longest_earlier,
                held.longest_earlier_ns / 1_000_000
            ),
        };
        format!(
            "the thread stays in a loop of frame {}: {} iterations, {} blocks, {} ms; {earlier}",
            held.frame,
            held.iterations,
            held.length,
            held.lasted / 1_000_000
        )
    }

    fn alike(
        &self,
        context: ContextMatch,
        factor: f64,
        side: &Side,
        normal_loop: Option<NormalLoop>,
    ) -> Found {
        let why = vec![
            self.describe_held(),
            describe_context(context),
            match normal_loop {
                Some(facts) if self.ends_there_too(&facts) => {
                    "the normal run ends in this loop as well, having been there for as long"
                }
                _ => "the normal run repeats the same branches in this loop with the same outcomes",
            }
            .to_string(),
        ];
        Found {
            kind: PartingKind::Alike,
            frame: self.held.frame,
            branch: None,
            normal_target: NO_PLACE,
            spin_target: NO_PLACE,
            others: Vec::new(),
            context,
            normal: side.threads.first().copied(),
            normal_loop,
            confidence: 0.5 * factor,
            why,
        }
    }
}

/// From `start` the normal runs got out of the loop without coming back to what is repeated.
fn leads_out(
    successors: &FxHashMap<PlaceId, Vec<PlaceId>>,
    start: PlaceId,
    inside: &FxHashSet<PlaceId>,
    repeated: &FxHashSet<PlaceId>,
) -> bool {
    let mut seen = FxHashSet::default();
    let mut work = vec![start];
    while let Some(node) = work.pop() {
        if node == NO_PLACE || !inside.contains(&node) {
            return true;
        }
        if !repeated.contains(&node) && seen.insert(node) {
            work.extend(successors.get(&node).into_iter().flatten());
        }
    }
    false
}

pub(crate) fn describe_context(context: ContextMatch) -> String {
    match context {
        ContextMatch::Paired => "compared with the same calls of the paired thread",
        ContextMatch::OtherThread => {
            "compared with the same calls of other threads: the paired one did not do this (roles \
             may change between runs)"
        }
        ContextMatch::SameCaller => {
            "compared with calls from the same place that was reached another way"
        }
        ContextMatch::SameFunction => "compared with calls of the same function from elsewhere",
        ContextMatch::None => "nothing to compare with",
    }
    .to_string()
}
