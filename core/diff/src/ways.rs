// SPDX-License-Identifier: MIT
//! Why a thread never came to what its like did in another run: the branch at which it left the
//! way there.
//!
//! In: an execution of a block in a thread of the normal run, the *goal*, and a thread of the spin
//! run. Out: a [`Left`]. The calls open at the goal are compared from the innermost one outward.
//! In the innermost call that both threads made, the goal (or the call that leads on to it) depends
//! on branches, by the control dependence of Ferrante, Ottenstein, Warren, *The program dependence
//! graph* (TOPLAS 1987), over the edges that either run took. From the goal backward along these,
//! the first branch that the thread executed after it last came to the goal is where it left, if it
//! went another way there the last time; else it is still on its way.
//!
//! Blind spots: a goal in one of many rounds of a loop is told from the other rounds only by being
//! the last; ways that no run ever took.

use flagfinder_code::{Graph, Postdominators};
use flagfinder_trace::Trace;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::call_stack::{CallStack, Frame, Observer};
use crate::cycle::{self, Cyclic};
use crate::divergence::ThreadRef;
use crate::from_trace::{run, ModuleNames, TraceFlow};
use crate::input::{Event, Flow, FlowError, Run, Sink};
use crate::pairing::{pair, Pair};
use crate::profile::{profile, Edge, EdgeKey, Profile};
use crate::progress::{Callback, Meter};
use crate::space::{BlockFacts, CodePlace, CodeSpace, ExitKind, PlaceId, NO_PLACE};
use crate::surveyed::{survey_all, Surveyed};
use crate::targets::{Class, Targets};

/// Leaving the function, as a node of its graph.
const OUT: u32 = u32::MAX;
/// The goal, which comes before the end of its block.
const GOAL: u32 = u32::MAX - 1;

/// Two runs with their threads paired.
pub struct Ways<'a> {
    space: &'a CodeSpace,
    normal: &'a Surveyed<'a, TraceFlow<'a>>,
    spin: &'a Surveyed<'a, TraceFlow<'a>>,
    pairs: Vec<Pair>,
    quiet: Callback<'a>,
}

/// Where a thread is at the end of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It ended, by itself or with its process.
    Ended,
    /// It is in this system call, and has been for so many ns.
    Waits(u32, u64),
    /// It still executes.
    Runs,
}

/// Why it did not come to the goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// It took another way at a branch.
    At(Leaving),
    /// It took no other way: it is in a call on the way, or ended in one. `0` is what it executed
    /// last in the function of the goal, or in one that leads there.
    OnTheWay(CodePlace),
    /// It made none of the calls.
    Unlike,
}

/// An execution of a branch by which the thread left the way to the goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The instruction.
    pub branch: CodePlace,
    /// Where the thread went; `None`: out of the function.
    pub spin_target: Option<CodePlace>,
    /// Where the way to the goal goes on.
    pub normal_target: Option<CodePlace>,
    /// Flow position of the block that ends in the branch.
    pub spin_pos: u64,
    /// The same for the normal thread's last execution that led to the goal.
    pub normal_pos: Option<u64>,
}

/// Pairs the threads of two runs, and hands them to `ask`.
///
/// # Errors
/// When a flow cannot be read.
pub fn ways<T>(
    normal: &Trace,
    spin: &Trace,
    progress: Callback,
    ask: impl FnOnce(&Ways) -> T,
) -> Result<T, FlowError> {
    let mut names = ModuleNames::default();
    let (normal, spin) = (run(normal, &mut names), run(spin, &mut names));
    let runs: [&Run<TraceFlow>; 2] = [&normal, &spin];
    let processes = runs.iter().flat_map(|run| &run.processes);
    let blocks: Vec<_> = processes.map(|process| process.blocks.as_slice()).collect();
    let (space, programs) = CodeSpace::build(names.into_names(), &blocks);
    let surveyed = survey_all(&runs, programs, &space, progress)?;
    let [normal, spin] = &surveyed[..] else {
        return Err(FlowError("two runs are needed".into()));
    };
    Ok(ask(&Ways {
        space: &space,
        normal,
        spin,
        pairs: pair(&normal.side(), &spin.side()),
        quiet: &|_| {},
    }))
}

fn index_of<F>(run: &Surveyed<F>, thread: &ThreadRef) -> Option<usize> {
    let is_it = |&index: &usize| {
        let other = run.thread_ref(index);
        (other.pid, other.image, other.tid) == (thread.pid, thread.image, thread.tid)
    };
    // If a thread id was used several times, its last thread counts.
    (0..run.surveys.len()).rev().find(is_it)
}

impl Ways<'_> {
    /// The thread of the spin run that corresponds to one of the normal run.
    pub fn in_spin(&self, normal: &ThreadRef) -> Option<ThreadRef> {
        let index = index_of(self.normal, normal)?;
        let pair = self.pairs.iter().find(|pair| pair.normal == index)?;
        Some(self.spin.thread_ref(pair.spin))
    }

    /// The thread of the normal run that corresponds to one of the spin run.
    pub fn in_normal(&self, spin: &ThreadRef) -> Option<ThreadRef> {
        let index = index_of(self.spin, spin)?;
        let pair = self.pairs.iter().find(|pair| pair.spin == index)?;
        Some(self.normal.thread_ref(pair.normal))
    }

    /// All of the normal run, paired or not.
    pub fn normal_threads(&self) -> impl Iterator<Item = ThreadRef> + '_ {
        (0..self.normal.surveys.len()).map(|index| self.normal.thread_ref(index))
    }

    /// All of the spin run, paired or not.
    pub fn spin_threads(&self) -> impl Iterator<Item = ThreadRef> + '_ {
        (0..self.spin.surveys.len()).map(|index| self.spin.thread_ref(index))
    }

    /// Where a thread of the spin run is at its end.
    pub fn standing(&self, spin: &ThreadRef) -> Standing {
        let index = index_of(self.spin, spin);
        match index {
            Some(index) if !self.spin.surveys[index].exited => match self.spin.waiting(index) {
                Some((call, ns)) => Standing::Waits(call, ns),
                None => Standing::Runs,
            },
            _ => Standing::Ended,
        }
    }

    /// Who created a thread of the normal run, and the flow position of the block that did.
    pub fn creation(&self, normal: &ThreadRef) -> Option<(ThreadRef, u64)> {
        let child = index_of(self.normal, normal)?;
        let surveys = self.normal.surveys.iter().enumerate();
        let (parent, index) =
            surveys
                .filter(|(parent, _)| *parent != child)
                .find_map(|(parent, survey)| {
                    let mut births = survey.births.iter();
                    let birth = births.find(|birth| birth.child == normal.tid)?;
                    Some((parent, birth.index))
                })?;
        let at = self.normal.run.threads[parent].flow.position(index)?;
        Some((self.normal.thread_ref(parent), at))
    }

    /// Flow position of the last block of a thread of the normal run.
    pub fn end(&self, normal: &ThreadRef) -> Option<u64> {
        let index = index_of(self.normal, normal)?;
        let last = self.normal.surveys[index].blocks.checked_sub(1)?;
        self.normal.run.threads[index].flow.position(last)
    }

    /// Why the thread of the spin run did not come to the block at `pos` of the normal run's.
    ///
    /// # Errors
    /// When a flow cannot be read.
    pub fn left(&self, normal: &ThreadRef, pos: u64, spin: &ThreadRef) -> Result<Left, FlowError> {
        let (Some(theirs), Some(ours)) = (index_of(self.normal, normal), index_of(self.spin, spin))
        else {
            return Ok(Left::Unlike);
        };
        let flow = &self.normal.run.threads[theirs].flow;
        let Some(goal) = flow.index(pos) else {
            return Ok(Left::Unlike);
        };
        let program = &self.normal.programs[self.normal.run.threads[theirs].process];
        let mut scan = Until {
            stack: CallStack::new(program),
            goal,
            found: None,
        };
        flow.walk(&mut scan)?;
        let Some((open, first)) = scan.found else {
            return Ok(Left::Unlike);
        };
        let mut targets = Targets::default();
        let chain = targets.add_stack(&open);
        targets.seal();
        let theirs_did = self.profiles(self.normal, theirs, &targets)?;
        let ours_did = self.profiles(self.spin, ours, &targets)?;
        let mut since = None;
        for (frame, target) in open.iter().zip(&chain).rev() {
            let Some(target) = *target else { break };
            let key = (target, Class::Full);
            let (Some(theirs), Some(did)) = (theirs_did.get(&key), ours_did.get(&key)) else {
                continue;
            };
            let is_goals = std::ptr::eq(frame, &open[open.len() - 1]);
            let call = Call {
                space: self.space,
                theirs,
                ours: did,
                goal_index: goal,
                goal: frame.node,
                // A call is the end of its block, wherever that is entered.
                first: if is_goals { first } else { NO_PLACE },
            };
            since = since.max(call.last_at_goal());
            if !call.goes_on(since) {
                continue;
            }
            let found = call.leaving(since);
            return self.told(found, &call, normal, ours);
        }
        Ok(Left::Unlike)
    }

    fn profiles<F: Flow>(
        &self,
        run: &Surveyed<F>,
        thread: usize,
        targets: &Targets,
    ) -> Result<crate::profile::Profiles, FlowError> {
        let input = &run.run.threads[thread];
        let meter = Meter::new(self.quiet, "following a way", 0);
        let program = &run.programs[input.process];
        profile(&input.flow, program, targets, &FxHashMap::default(), &meter)
    }

    fn told(
        &self,
        found: Option<(EdgeKey, EdgeKey)>,
        call: &Call,
        normal: &ThreadRef,
        ours: usize,
    ) -> Result<Left, FlowError> {
        let place = |place: PlaceId| self.space.code_place(place);
        let on_the_way = || Left::OnTheWay(place(call.stands_at()).unwrap_or_default());
        let Some((went, way)) = found else {
            return Ok(on_the_way());
        };
        let flow = &self.spin.run.threads[ours].flow;
        let index = call.ours.edges[&went].last;
        let spin_pos = index.checked_sub(1).and_then(|at| flow.position(at));
        let (Some(spin_pos), Some(branch)) = (spin_pos, place(went.0)) else {
            return Ok(on_the_way());
        };
        let theirs = index_of(self.normal, normal);
        let normal_pos = theirs.and_then(|theirs| {
            let edge = call.theirs.edges.get(&way)?;
            let at = match edge.last <= call.goal_index {
                true => edge.last,
                false => edge.first,
            };
            let flow = &self.normal.run.threads[theirs].flow;
            flow.position(at.checked_sub(1)?)
        });
        Ok(Left::At(Leaving {
            branch,
            spin_target: place(went.1),
            normal_target: place(way.1),
            spin_pos,
            normal_pos,
        }))
    }
}

/// One call that both threads made, and what each did in it.
struct Call<'a> {
    space: &'a CodeSpace,
    theirs: &'a Profile,
    ours: &'a Profile,
    /// Block of the normal thread that is the goal.
    goal_index: u64,
    /// What leads on to the goal in this call.
    goal: PlaceId,
    /// Where the goal's block begins: it may share its end with a way that misses the goal.
    /// [`NO_PLACE`]: that makes no difference.
    first: PlaceId,
}

impl Call<'_> {
    /// When our thread last came to the goal.
    fn last_at_goal(&self) -> Option<u64> {
        let edges = self.ours.edges.iter();
        let at = edges.filter(|((_, to), _)| self.is_goal(*to));
        at.map(|(_, edge)| edge.last).max()
    }

    /// Does the block that begins there come to the goal?
    fn is_goal(&self, to: PlaceId) -> bool {
        let comes_to = || self.space.place(to).1 <= self.space.place(self.first).1;
        self.space.node_at(to) == self.goal && (self.first == NO_PLACE || comes_to())
    }

    /// Did our thread do anything in it later than that?
    fn goes_on(&self, since: Option<u64>) -> bool {
        let mut edges = self.ours.edges.values();
        edges.any(|edge| is_after(edge, since))
    }

    /// What our thread executed last.
    fn stands_at(&self) -> PlaceId {
        let edges = self.ours.edges.iter();
        let last = edges.max_by_key(|(key, edge)| (edge.last, **key));
        last.map_or(NO_PLACE, |((from, to), _)| match self.space.node_at(*to) {
            NO_PLACE => *from,
            node => node,
        })
    }

    fn node(&self, to: PlaceId) -> u32 {
        match self.space.node_at(to) {
            NO_PLACE => OUT,
            _ if self.is_goal(to) => GOAL,
            node => node,
        }
    }

    /// From the goal backward along its dependences: the edge by which our thread left, and the one
    /// that it should have taken. `None`: it took no other way.
    fn leaving(&self, since: Option<u64>) -> Option<(EdgeKey, EdgeKey)> {
        let all = self.theirs.edges.keys().chain(self.ours.edges.keys());
        let edges = all.map(|&(from, to)| (from, self.node(to)));
        let graph = Graph::new(NO_PLACE, edges.chain([(GOAL, self.goal)]));
        let tree = Postdominators::new(&graph, &[OUT]);
        let leads = |node: u32, from: u32| tree.postdominates(&graph, node, from);
        let mut seen: FxHashSet<u32> = FxHashSet::default();
        let mut work = vec![GOAL];
        let mut best: Option<(u64, EdgeKey, EdgeKey)> = None;
        while let Some(node) = work.pop() {
            if !seen.insert(node) {
                continue;
            }
            let depends = self.theirs.edges.keys().filter(|(from, to)| {
                self.decides(*from)
                    && leads(node, self.node(*to))
                    && (node == *from || node == GOAL && self.goal == *from || !leads(node, *from))
            });
            for &way in depends {
                let taken = self.ours.edges.iter();
                let after = taken.filter(|(key, edge)| key.0 == way.0 && is_after(edge, since));
                match after.max_by_key(|(key, edge)| (edge.last, **key)) {
                    None => work.push(way.0),
                    Some((went, _)) if leads(node, self.node(went.1)) => {}
                    Some((went, edge)) => {
                        let later = best.is_none_or(|(at, ..)| edge.last > at);
                        best = if later {
                            Some((edge.last, *went, way))
                        } else {
                            best
                        };
                    }
                }
            }
        }
        best.map(|(_, went, way)| (went, way))
    }

    fn decides(&self, node: PlaceId) -> bool {
        node != NO_PLACE
            && matches!(
                self.space.exit(node),
                ExitKind::Conditional | ExitKind::IndirectJump
            )
    }
}

fn is_after(edge: &Edge, since: Option<u64>) -> bool {
    since.is_none_or(|since| edge.last > since)
}

/// The calls open at one block.
struct Until<'a> {
    stack: CallStack<'a>,
    goal: u64,
    /// Those calls, and the first place of that block.
    found: Option<(Vec<Frame>, PlaceId)>,
}

/// First place of the block that runs.
#[derive(Default)]
struct Begins(PlaceId);

impl Observer for Begins {
    fn step(&mut self, _: &[Frame], _: PlaceId, to: &BlockFacts, _: u64) {
        self.0 = to.first;
    }
}

impl Sink for Until<'_> {
    fn block(&mut self, id: u32) {
        if self.found.is_some() {
            return;
        }
        let mut begins = Begins::default();
        self.stack.block(id, &mut begins);
        if self.stack.index() == self.goal + 1 {
            self.found = Some((self.stack.frames().to_vec(), begins.0));
        }
    }

    fn cycle(&mut self, round: &[u32], count: u64) {
        if self.found.is_some() {
            return;
        }
        let next = self.stack.index();
        match (next..next + count).contains(&self.goal) {
            true => (0..count).for_each(|at| self.block(round[(at % round.len() as u64) as usize])),
            false => cycle::feed(self, round, count),
        }
    }

    fn event(&mut self, event: Event) {
        if self.found.is_none() {
            self.stack.event(event, &mut Begins::default());
        }
    }
}

impl<'a> Cyclic<'a> for Until<'a> {
    fn stack(&mut self) -> &mut CallStack<'a> {
        &mut self.stack
    }
}

#[cfg(test)]
#[path = "ways_tests.rs"]
mod tests;
