// SPDX-License-Identifier: MIT
//! What the normal runs did in the calls that are open in the spin run.

use crate::divergence::{ContextMatch, NormalLoop};
use crate::nest::{LoopNest, NodeEdge};
use crate::profile::{EdgeKey, Profile, Profiles};
use crate::space::{CodeSpace, PlaceId, NO_PLACE};
use crate::stays::Stays;
use crate::targets::Class;
use rustc_hash::{FxHashMap, FxHashSet};

/// One thread of a normal run, scanned.
pub struct NormalThread {
    pub run: usize,
    pub thread: usize,
    /// Edges by target and class.
    pub profiles: Profiles,
    /// Stays by target, class and loop.
    pub stays: Stays,
    /// When its run began and when its recording ended (ns).
    pub span: (u64, u64),
}

/// The levels of comparison, best first, with the factor each puts on the confidence.
pub const LEVELS: [(ContextMatch, f64); 4] = [
    (ContextMatch::Paired, 1.0),
    (ContextMatch::OtherThread, 0.9),
    (ContextMatch::SameCaller, 0.8),
    (ContextMatch::SameFunction, 0.6),
];

/// The normal runs' calls of one target at one level.
#[derive(Default)]
pub struct Side {
    pub all: Profile,
    pub runs: Vec<FxHashSet<EdgeKey>>,
    /// Indexes into the normal threads that took part.
    pub threads: Vec<usize>,
    /// Classes that took part.
    pub classes: Vec<Class>,
}

impl Side {
    /// Gathers the calls of `target`. `paired` are, per normal run, the thread paired with the
    /// spinning one.
    pub fn gather(
        level: ContextMatch,
        target: u32,
        normals: &[NormalThread],
        runs: usize,
        paired: &[Option<usize>],
    ) -> Side {
        let classes = match level {
            ContextMatch::Paired | ContextMatch::OtherThread => vec![Class::Full],
            ContextMatch::SameCaller => vec![Class::Full, Class::Caller],
            ContextMatch::SameFunction => vec![Class::Full, Class::Caller, Class::Function],
            ContextMatch::None => Vec::new(),
        };
        let mut side = Side {
            runs: vec![FxHashSet::default(); runs],
            ..Side::default()
        };
        for (index, normal) in normals.iter().enumerate() {
            if level == ContextMatch::Paired && paired[normal.run] != Some(normal.thread) {
                continue;
            }
            for &class in &classes {
                if let Some(profile) = normal.profiles.get(&(target, class)) {
                    side.all.merge(profile);
                    side.runs[normal.run].extend(profile.edges.keys());
                    side.threads.push(index);
                }
            }
        }
        side.threads.dedup();
        side.classes = classes;
        side
    }

    /// How many normal runs made the call.
    pub fn runs_with_calls(&self) -> usize {
        self.runs.iter().filter(|edges| !edges.is_empty()).count()
    }

    /// How many normal runs took the edge.
    pub fn runs_taking(&self, edge: EdgeKey) -> usize {
        self.runs
            .iter()
            .filter(|edges| edges.contains(&edge))
            .count()
    }

    pub fn nodes(&self) -> FxHashSet<PlaceId> {
        self.all
            .edges
            .keys()
            .map(|&(from, _)| from)
            .filter(|&from| from != NO_PLACE)
            .collect()
    }

    /// What was done in a loop of the target.
    pub fn loop_facts(
        &self,
        target: u32,
        number: u32,
        normals: &[NormalThread],
    ) -> Option<NormalLoop> {
        let mut facts: Option<NormalLoop> = None;
        for &thread in &self.threads {
            for &class in &self.classes {
                if let Some(stays) = normals[thread].stays.get(&(target, class, number)) {
                    let (began, end) = normals[thread].span;
                    let is_most = |stay: u64| stay > end.saturating_sub(began) / 2;
                    let facts = facts.get_or_insert_with(NormalLoop::default);
                    facts.left += stays.ended;
                    facts.longest = facts.longest.max(stays.longest);
                    facts.longest_ns = facts.longest_ns.max(stays.longest_ns);
                    facts.most_of_run |= is_most(stays.longest_ns);
                    facts.most_iterations = facts.most_iterations.max(stays.most_iterations);
                    if let Some(open) = stays.current {
                        let lasted = end.saturating_sub(open.began_ts);
                        facts.ends_inside = true;
                        facts.most_iterations = facts.most_iterations.max(open.iterations);
                        facts.open_iterations = facts.open_iterations.max(open.iterations);
                        if open.began_ts != 0 {
                            facts.open_ns = facts.open_ns.max(lasted);
                            facts.most_of_run |= is_most(lasted);
                        }
                    }
                }
            }
        }
        facts
    }
}

/// Edges between nodes, with exits and entries kept as [`NO_PLACE`].
pub fn node_edges<'a>(
    space: &CodeSpace,
    edges: impl Iterator<Item = (&'a EdgeKey, u64)>,
    into: &mut FxHashMap<NodeEdge, u64>,
) {
    for (&(from, to), count) in edges {
        *into.entry((from, space.node_at(to))).or_default() += count;
    }
}

/// The loop nest of each target, over what all runs executed of it.
pub fn nests<'a>(
    space: &CodeSpace,
    targets: usize,
    profiles: impl Iterator<Item = &'a Profiles>,
) -> Vec<LoopNest> {
    let mut graphs: Vec<FxHashMap<NodeEdge, u64>> = vec![FxHashMap::default(); targets];
    for profiles in profiles {
        for (&(target, _), profile) in profiles {
            let edges = profile.edges.iter().map(|(key, edge)| (key, edge.count));
            node_edges(space, edges, &mut graphs[target as usize]);
        }
    }
    graphs.iter().map(LoopNest::new).collect()
}
