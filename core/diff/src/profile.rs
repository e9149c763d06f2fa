// SPDX-License-Identifier: MIT
//! Second scan: the edges that calls of interest take, one profile per target and class.

use crate::call_stack::{Frame, Observer};
use crate::input::{Flow, FlowError};
use crate::progress::Meter;
use crate::scan::{Counts, Scan};
use crate::shape::Shapes;
use crate::space::{BlockFacts, PlaceId, Program, NO_PLACE};
use crate::targets::{tag, untag, Class, Targets};
use rustc_hash::FxHashMap;

/// Control going from a node to the block that begins at a place, in a frame's own code; to
/// [`NO_PLACE`] is leaving the frame, from it is entering.
pub type EdgeKey = (PlaceId, PlaceId);

/// How often and when an edge was taken (indexes of the thread's blocks).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    pub count: u64,
    pub first: u64,
    pub last: u64,
}

/// A callee under a call site: (call site, function, entry place).
pub type CalleeKey = (PlaceId, u32, PlaceId);

/// What the calls of one target and class did.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    pub frames: u64,
    /// Longest of the calls that ended, in blocks.
    pub longest: u64,
    /// Most callers in agreement with the target.
    pub shared_callers: usize,
    pub edges: FxHashMap<EdgeKey, Edge>,
    pub callees: FxHashMap<CalleeKey, u64>,
    /// Shapes of finished calls by call site and function (see `shape.rs`).
    pub shapes: FxHashMap<(PlaceId, u32, u64), u64>,
}

/// Most shapes that are kept of one profile: enough to tell, and bounded if every call differs.
const SHAPE_LIMIT: usize = 4096;

impl Profile {
    /// Adds another thread's profile. Block indexes of different threads do not compare: they are
    /// only meaningful in profiles that were not merged.
    pub fn merge(&mut self, other: &Profile) {
        self.frames += other.frames;
        self.longest = self.longest.max(other.longest);
        self.shared_callers = self.shared_callers.max(other.shared_callers);
        for (key, edge) in &other.edges {
            self.edges
                .entry(*key)
                .and_modify(|mine| {
                    mine.count += edge.count;
                    mine.first = mine.first.min(edge.first);
                    mine.last = mine.last.max(edge.last);
                })
                .or_insert(*edge);
        }
        for (key, count) in &other.callees {
            *self.callees.entry(*key).or_default() += count;
        }
        for (key, count) in &other.shapes {
            *self.shapes.entry(*key).or_default() += count;
        }
    }
}

/// All profiles of one thread.
pub type Profiles = FxHashMap<(u32, Class), Profile>;

/// Scans one thread. `finals` gives the targets of the frames (by serial) that are open at its end.
///
/// # Errors
/// When the flow cannot be read.
pub fn profile<F: Flow>(
    flow: &F,
    program: &Program,
    targets: &Targets,
    finals: &FxHashMap<u64, u32>,
    meter: &Meter,
) -> Result<Profiles, FlowError> {
    let collector = Collector {
        targets,
        finals,
        slots: Vec::new(),
        index_of: vec![u32::MAX; targets.len() * 4 + 1],
        shapes: Shapes::default(),
        weight: 1,
    };
    let scan = Scan::of(flow, program, meter, collector)?;
    Ok(scan
        .counts
        .slots
        .into_iter()
        .map(|(mark, profile)| (untag(mark).unwrap_or((0, Class::Function)), profile))
        .collect())
}

struct Collector<'a> {
    targets: &'a Targets,
    finals: &'a FxHashMap<u64, u32>,
    slots: Vec<(u32, Profile)>,
    index_of: Vec<u32>,
    shapes: Shapes,
    weight: u64,
}

impl Collector<'_> {
    #[inline]
    fn slot(&mut self, mark: u32) -> &mut Profile {
        let index = &mut self.index_of[mark as usize];
        if *index == u32::MAX {
            *index = self.slots.len() as u32;
            self.slots.push((mark, Profile::default()));
        }
        &mut self.slots[*index as usize].1
    }
}

fn count(profile: &mut Profile, (from, to): EdgeKey, index: u64, weight: u64) {
    profile
        .edges
        .entry((from, to))
        .and_modify(|edge| {
            edge.count += weight;
            edge.last = index;
        })
        .or_insert(Edge {
            count: weight,
            first: index,
            last: index,
        });
}

impl Counts for Collector<'_> {
    fn weigh(&mut self, times: u64, _: u64) {
        self.weight = times;
    }
}

impl Observer for Collector<'_> {
    #[inline]
    fn enter(&mut self, stack: &mut [Frame], _index: u64) {
        let weight = self.weight;
        let Some((top, callers)) = stack.split_last() else {
            return;
        };
        if let Some(parent) = callers.last().filter(|parent| parent.tag != 0) {
            let key = (top.call_site, top.function, top.entry);
            *self.slot(parent.tag).callees.entry(key).or_default() += weight;
        }
        let found = match self.finals.get(&top.serial) {
            Some(&target) => Some((target, Class::Final, stack.len())),
            None => self.targets.classify(stack),
        };
        let mut mark = 0;
        if let Some((target, class, shared)) = found {
            mark = tag(target, class);
            let profile = self.slot(mark);
            profile.frames += weight;
            profile.shared_callers = profile.shared_callers.max(shared);
        }
        if let Some(top) = stack.last_mut() {
            top.tag = mark;
        }
        self.shapes.enter(stack);
    }

    #[inline]
    fn leave(&mut self, stack: &[Frame], index: u64) {
        let shape = self.shapes.leave(stack);
        let weight = self.weight;
        let Some((top, callers)) = stack.split_last() else {
            return;
        };
        if top.tag != 0 {
            let profile = self.slot(top.tag);
            profile.longest = profile.longest.max(index - top.entered);
            count(profile, (top.node, NO_PLACE), index, weight);
        }
        if let Some(parent) = callers.last().filter(|parent| parent.tag != 0) {
            let shapes = &mut self.slot(parent.tag).shapes;
            let key = (top.call_site, top.function, shape);
            if let Some(times) = shapes.get_mut(&key) {
                *times += weight;
            } else if shapes.len() < SHAPE_LIMIT {
                shapes.insert(key, weight);
            }
        }
    }

    #[inline]
    fn step(&mut self, stack: &[Frame], from: PlaceId, to: &BlockFacts, index: u64) {
        self.shapes.step(stack, from, to.node);
        if let Some(top) = stack.last().filter(|top| top.tag != 0) {
            // A move into the middle of a call is no way that the code takes.
            if from == NO_PLACE && index != top.entered {
                return;
            }
            let weight = self.weight;
            count(self.slot(top.tag), (from, to.first), index, weight);
        }
    }
}
