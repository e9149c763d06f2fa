// SPDX-License-Identifier: MIT
//! Third scan: how long each loop of interest was stayed in, each time.

use crate::call_stack::{Frame, Observer};
use crate::input::{Flow, FlowError};
use crate::nest::LoopNest;
use crate::progress::Meter;
use crate::scan::{Counts, Scan};
use crate::space::{BlockFacts, PlaceId, Program};
use crate::targets::{tag, untag, Class, Targets};
use rustc_hash::FxHashMap;

/// A stay that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenStay {
    /// Index of its first block.
    pub began: u64,
    /// The last time known before that (ns; 0: none).
    pub began_ts: u64,
    /// Iterations so far.
    pub iterations: u64,
}

/// What one loop did in the calls of one class. Times are as exact as the flow's stamps: a chunk of
/// blocks or a system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopStays {
    /// Stays that ended.
    pub ended: u64,
    /// Longest of them, in blocks (callees' too).
    pub longest: u64,
    pub longest_ns: u64,
    /// All of them together in ns.
    pub total_ns: u64,
    /// Most iterations of one stay.
    pub most_iterations: u64,
    /// Iterations of all stays, unfinished ones too.
    pub iterations: u64,
    /// The stay that goes on at the end of the thread.
    pub current: Option<OpenStay>,
}

/// By target, class and loop number in the target's nest.
pub type Stays = FxHashMap<(u32, Class, u32), LoopStays>;

/// Scans one thread; `nests` are by target.
///
/// # Errors
/// When the flow cannot be read.
pub fn stays<F: Flow>(
    flow: &F,
    program: &Program,
    targets: &Targets,
    nests: &[LoopNest],
    finals: &FxHashMap<u64, u32>,
    meter: &Meter,
) -> Result<Stays, FlowError> {
    let collector = Collector {
        targets,
        nests,
        finals,
        open: FxHashMap::default(),
        stays: Stays::default(),
        now: 0,
        weight: 1,
        weighed_from: 0,
    };
    let scan = Scan::of(flow, program, meter, collector)?;
    let mut stays = scan.counts.stays;
    for frame in scan.stack.frames() {
        let (Some((target, class)), Some(loops)) =
            (untag(frame.tag), scan.counts.open.get(&frame.serial))
        else {
            continue;
        };
        for &(number, stay) in loops {
            let entry = stays.entry((target, class, number)).or_default();
            entry.current = Some(stay);
            entry.iterations += stay.iterations;
        }
    }
    Ok(stays)
}

/// Loops (by number) that a frame is in now, outermost first.
type InLoops = Vec<(u32, OpenStay)>;

struct Collector<'a> {
    targets: &'a Targets,
    nests: &'a [LoopNest],
    finals: &'a FxHashMap<u64, u32>,
    open: FxHashMap<u64, InLoops>,
    stays: Stays,
    /// The last time known.
    now: u64,
    /// How often what happens counts, from which index.
    weight: u64,
    weighed_from: u64,
}

impl Collector<'_> {
    fn end_stay(&mut self, target: u32, class: Class, stay: (u32, OpenStay), index: u64) {
        let (number, stay) = stay;
        let lasted = match stay.began_ts {
            0 => 0,
            began => self.now.saturating_sub(began),
        };
        let entry = self.stays.entry((target, class, number)).or_default();
        entry.ended += self.weight;
        entry.longest = entry.longest.max(index - stay.began);
        entry.longest_ns = entry.longest_ns.max(lasted);
        entry.total_ns += lasted * self.weight;
        entry.most_iterations = entry.most_iterations.max(stay.iterations);
        entry.iterations += stay.iterations * self.weight;
    }
}

impl Counts for Collector<'_> {
    fn weigh(&mut self, times: u64, index: u64) {
        self.weight = times;
        self.weighed_from = index;
    }

    fn is_settled(&self, since: u64) -> bool {
        let mut loops = self.open.values().flatten();
        loops.all(|(_, stay)| stay.began < since)
    }

    fn time(&mut self, ts: u64) {
        self.now = ts.max(self.now);
    }
}

impl Observer for Collector<'_> {
    fn enter(&mut self, stack: &mut [Frame], _index: u64) {
        let Some(top) = stack.last() else { return };
        let found = match self.finals.get(&top.serial) {
            Some(&target) => Some((target, Class::Final)),
            None => self
                .targets
                .classify(stack)
                .map(|(target, class, _)| (target, class)),
        };
        let mark = found
            .filter(|&(target, _)| !self.nests[target as usize].loops.is_empty())
            .map_or(0, |(target, class)| tag(target, class));
        if let Some(top) = stack.last_mut() {
            top.tag = mark;
        }
    }

    fn leave(&mut self, stack: &[Frame], index: u64) {
        let Some(top) = stack.last().filter(|top| top.tag != 0) else {
            return;
        };
        let (Some((target, class)), Some(loops)) = (untag(top.tag), self.open.remove(&top.serial))
        else {
            return;
        };
        for stay in loops {
            self.end_stay(target, class, stay, index);
        }
    }

    #[inline]
    fn step(&mut self, stack: &[Frame], _from: PlaceId, to: &BlockFacts, index: u64) {
        let to = to.node;
        let Some(top) = stack.last().filter(|top| top.tag != 0) else {
            return;
        };
        let Some((target, class)) = untag(top.tag) else {
            return;
        };
        let nest = &self.nests[target as usize];
        let innermost = nest.innermost(to);
        let (weight, weighed_from) = (self.weight, self.weighed_from);
        // A stay that began within a round that counts for many counts as a whole, when it ends.
        let iterate = |(number, stay): &mut (u32, OpenStay)| {
            if nest.loops[*number as usize].header == to {
                stay.iterations += if stay.began < weighed_from { weight } else { 1 };
            }
        };
        let loops = match self.open.get_mut(&top.serial) {
            Some(loops) => loops,
            None if innermost.is_none() => return,
            None => self.open.entry(top.serial).or_default(),
        };
        if loops.last().map(|stay| stay.0) == innermost {
            if let Some(stay) = loops.last_mut() {
                iterate(stay);
            }
            return;
        }
        let mut ended = Vec::new();
        while loops
            .last()
            .is_some_and(|stay| !nest.around(to).any(|number| number == stay.0))
        {
            ended.extend(loops.pop());
        }
        if let Some(stay) = loops.last_mut().filter(|stay| Some(stay.0) == innermost) {
            iterate(stay);
        } else {
            let known = loops.last().map(|stay| stay.0);
            let entered: Vec<u32> = nest
                .around(to)
                .take_while(|&number| Some(number) != known)
                .collect();
            let stay = OpenStay {
                began: index,
                began_ts: self.now,
                iterations: 1,
            };
            loops.extend(entered.into_iter().rev().map(|number| (number, stay)));
        }
        for stay in ended {
            self.end_stay(target, class, stay, index);
        }
    }
}
