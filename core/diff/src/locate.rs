// SPDX-License-Identifier: MIT
//! Last scan: which execution of the branch is the one.

use crate::call_stack::{CallStack, Frame, Observer};
use crate::cycle::{self, Cyclic};
use crate::input::{Event, Flow, FlowError, Sink};
use crate::space::{BlockFacts, PlaceId, Program};
use crate::targets::{Class, Targets};
use rustc_hash::FxHashMap;

/// An execution of a branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// Which one in the thread, from 1; calls of any context count.
    pub occurrence: u64,
    /// Index of its block in the thread's blocks.
    pub index: u64,
    /// First place of that block.
    pub block: PlaceId,
}

#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// The first in the frame that is open at the end, at or after this index.
    FirstFrom(u64),
    /// The last in the frame that is open at the end that goes to this place.
    LastTo(PlaceId),
    /// In frames of this class or better, the last that goes to this place.
    LastLikeTo(Class, PlaceId),
}

/// Finds an execution of the branch at `node` in frames of `target`.
///
/// # Errors
/// When the flow cannot be read.
pub fn locate<F: Flow>(
    flow: &F,
    program: &Program,
    targets: &Targets,
    finals: &FxHashMap<u64, u32>,
    (target, node): (u32, PlaceId),
    wanted: Wanted,
) -> Result<Option<Execution>, FlowError> {
    let search = Search {
        targets,
        finals,
        target,
        node,
        wanted,
        seen: 0,
        weight: 1,
        at_branch: None,
        found: None,
    };
    let mut scan = Scan {
        stack: CallStack::new(program),
        search,
    };
    flow.walk(&mut scan)?;
    Ok(scan.search.found)
}

struct Scan<'a> {
    stack: CallStack<'a>,
    search: Search<'a>,
}

impl Sink for Scan<'_> {
    #[inline]
    fn block(&mut self, id: u32) {
        self.stack.block(id, &mut self.search);
    }

    fn cycle(&mut self, round: &[u32], count: u64) {
        let next = self.stack.index();
        match self.search.wanted {
            // The one execution that is looked for may be in any of the rounds.
            Wanted::FirstFrom(from) if (next + 1..next + count).contains(&from) => {
                for index in 0..count {
                    self.block(round[(index % round.len() as u64) as usize]);
                }
            }
            _ => cycle::feed(self, round, count),
        }
    }

    fn event(&mut self, event: Event) {
        self.stack.event(event, &mut self.search);
    }
}

impl<'a> Cyclic<'a> for Scan<'a> {
    fn stack(&mut self) -> &mut CallStack<'a> {
        &mut self.stack
    }

    fn weigh(&mut self, times: u64) {
        self.search.weight = times;
    }
}

struct Search<'a> {
    targets: &'a Targets,
    finals: &'a FxHashMap<u64, u32>,
    target: u32,
    node: PlaceId,
    wanted: Wanted,
    seen: u64,
    weight: u64,
    /// The execution that was just made, and its frame.
    at_branch: Option<(Execution, u64)>,
    found: Option<Execution>,
}

impl Search<'_> {
    /// Control goes on to `to` in (or, leaving, out of) the last frame.
    fn goes_to(&mut self, serial: u64, to: PlaceId) {
        let Some((execution, of)) = self.at_branch.filter(|(_, of)| *of == serial) else {
            return;
        };
        debug_assert_eq!(of, serial);
        self.at_branch = None;
        if matches!(
            self.wanted,
            Wanted::LastTo(place) | Wanted::LastLikeTo(_, place) if place == to
        ) {
            self.found = Some(execution);
        }
    }
}

impl Observer for Search<'_> {
    fn enter(&mut self, stack: &mut [Frame], _index: u64) {
        let Some(top) = stack.last() else { return };
        let of_interest = match (self.wanted, self.finals.get(&top.serial)) {
            (_, Some(&target)) => target == self.target,
            (Wanted::LastLikeTo(least, _), None) => self
                .targets
                .classify(stack)
                .is_some_and(|(target, class, _)| target == self.target && class <= least),
            _ => false,
        };
        if let Some(top) = stack.last_mut() {
            top.tag = u32::from(of_interest);
        }
    }

    #[inline]
    fn leave(&mut self, stack: &[Frame], _index: u64) {
        if let Some(top) = stack.last().filter(|top| top.tag != 0) {
            self.goes_to(top.serial, crate::space::NO_PLACE);
        }
    }

    #[inline]
    fn step(&mut self, stack: &[Frame], _from: PlaceId, to: &BlockFacts, index: u64) {
        let Some(top) = stack.last() else { return };
        if top.tag != 0 {
            self.goes_to(top.serial, to.first);
        }
        if to.node != self.node {
            return;
        }
        self.seen += self.weight;
        if top.tag == 0 {
            return;
        }
        let execution = Execution {
            occurrence: self.seen,
            index,
            block: to.first,
        };
        match self.wanted {
            Wanted::FirstFrom(from) if index >= from && self.found.is_none() => {
                self.found = Some(execution)
            }
            Wanted::FirstFrom(_) => {}
            Wanted::LastTo(_) | Wanted::LastLikeTo(..) => {
                self.at_branch = Some((execution, top.serial))
            }
        }
    }
}
