// SPDX-License-Identifier: MIT
//! First scan of a thread: what it executed, where it ends, whom it created.

use crate::call_stack::{CallStack, Frame, Observer};
use crate::cycle::{self, Cyclic};
use crate::input::{Event, Flow, FlowError, Sink};
use crate::progress::Meter;
use crate::space::{ExitKind, PlaceId, Program};
use flagfinder_linux::life;
use rustc_hash::FxHashMap;

/// Call sites kept of the stack at a clone, innermost first.
const CLONE_STACK: usize = 24;
/// A thread or process this thread created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birth {
    /// The new thread's (or process's) id.
    pub child: u32,
    /// Call sites open at the clone, innermost first.
    pub stack: Vec<PlaceId>,
    /// Which block of its creator made it.
    pub index: u64,
}

/// What one scan tells of a thread.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    pub blocks: u64,
    /// One bit per place: the node was executed.
    pub seen: Vec<u64>,
    /// Outcomes of conditional branches by node: (taken, not taken).
    pub outcomes: FxHashMap<PlaceId, (u64, u64)>,
    /// Calls open at the end, outermost first.
    pub open: Vec<Frame>,
    /// Entry place of the thread's first block.
    pub first: PlaceId,
    /// Threads and processes it created, in order.
    pub births: Vec<Birth>,
    /// It ended, by itself or with its process, or by exec.
    pub exited: bool,
    /// The system call that it ended in.
    ended_in: Option<(u32, u64)>,
    /// The system call it is in at the end, with the time it began.
    pub pending: Option<(u32, u64)>,
    /// Longest (ns) of the last system calls with the pending one's number, for judging that one.
    pub longest_recent_call: u64,
    /// First and last time stamp seen; 0 when there is none.
    pub span: (u64, u64),
    /// How often calls and returns did not pair.
    pub mended: u64,
}

impl Survey {
    /// The thread is ending its process.
    pub fn ends_process(&self) -> bool {
        self.pending
            .is_some_and(|(number, _)| life::exits_process(number))
    }

    /// The signal that ended its process ended it, so it still does what it did.
    pub fn outlive_kill(&mut self) {
        let ends_by_itself = |call: &(u32, u64)| life::exits(call.0) || life::executes(call.0);
        if self.exited && !self.ended_in.as_ref().is_some_and(ends_by_itself) {
            self.exited = false;
            self.pending = self.ended_in;
        }
    }

    /// How like the executed code of two threads is, 0..=1 (shared nodes over all nodes).
    pub fn likeness(&self, other: &Survey) -> f64 {
        let (mut shared, mut all) = (0u64, 0u64);
        for (a, b) in self.seen.iter().zip(&other.seen) {
            shared += u64::from((a & b).count_ones());
            all += u64::from((a | b).count_ones());
        }
        if all == 0 {
            1.0
        } else {
            shared as f64 / all as f64
        }
    }
}

/// Scans one thread.
///
/// # Errors
/// When the flow cannot be read.
pub fn survey<F: Flow>(
    flow: &F,
    program: &Program,
    places: usize,
    meter: &Meter,
) -> Result<Survey, FlowError> {
    let mut scan = Scan {
        stack: CallStack::new(program),
        program,
        meter,
        outcomes: vec![(0, 0); places],
        previous: (0, 0, ExitKind::Plain),
        clone_stack: None,
        calls_exec: false,
        recent_calls: [(0, 0); 64],
        calls: 0,
        weight: 1,
        survey: Survey {
            seen: vec![0; places.div_ceil(64)],
            ..Survey::default()
        },
    };
    flow.walk(&mut scan)?;
    let mut survey = scan.survey;
    if scan.calls_exec {
        survey.exited = true;
        survey.ended_in = survey.pending.take();
    }
    survey.blocks = scan.stack.index();
    survey.open = scan.stack.frames().to_vec();
    survey.mended = scan.stack.mended();
    let pending = survey.pending.map(|(number, _)| number);
    let alike = scan
        .recent_calls
        .iter()
        .filter(|(number, _)| Some(*number) == pending);
    survey.longest_recent_call = alike.map(|(_, ns)| *ns).max().unwrap_or(0);
    survey.outcomes = scan
        .outcomes
        .into_iter()
        .enumerate()
        .filter(|(_, counts)| *counts != (0, 0))
        .map(|(node, counts)| (node as PlaceId, counts))
        .collect();
    meter.finish(survey.blocks);
    Ok(survey)
}

struct Scan<'a> {
    stack: CallStack<'a>,
    program: &'a Program,
    meter: &'a Meter<'a>,
    outcomes: Vec<(u64, u64)>,
    /// Node, end address and exit of the block before.
    previous: (PlaceId, u64, ExitKind),
    clone_stack: Option<Vec<PlaceId>>,
    /// It called exec, which has not come back.
    calls_exec: bool,
    /// Number and duration (ns).
    recent_calls: [(u32, u64); 64],
    calls: usize,
    weight: u64,
    survey: Survey,
}

impl<'a> Cyclic<'a> for Scan<'a> {
    fn stack(&mut self) -> &mut CallStack<'a> {
        &mut self.stack
    }

    fn weigh(&mut self, times: u64) {
        self.weight = times;
    }
}

/// Only the shadow stack is wanted.
struct Nothing;

impl Observer for Nothing {}

impl Scan<'_> {
    fn stamp(&mut self, ts: u64) {
        let (first, last) = &mut self.survey.span;
        *first = if *first == 0 { ts } else { *first };
        *last = ts.max(*last);
    }
}

impl Sink for Scan<'_> {
    #[inline]
    fn block(&mut self, id: u32) {
        let facts = self.program.facts(id);
        let (node, end, exit) = self.previous;
        if exit == ExitKind::Conditional {
            let counts = &mut self.outcomes[node as usize];
            if facts.start == end {
                counts.1 += self.weight;
            } else {
                counts.0 += self.weight;
            }
        }
        self.previous = (facts.node, facts.end, facts.exit);
        self.survey.seen[facts.node as usize / 64] |= 1 << (facts.node % 64);
        if self.stack.index() == 0 {
            self.survey.first = facts.first;
        }
        self.stack.block(id, &mut Nothing);
        self.meter.tick(self.stack.index());
    }

    fn cycle(&mut self, round: &[u32], count: u64) {
        cycle::feed(self, round, count);
    }

    fn event(&mut self, event: Event) {
        if let Some(ts) = event.ts() {
            self.stamp(ts);
        }
        match event {
            Event::Start { .. } | Event::Clock { .. } => {}
            Event::Exit { .. } => {
                self.survey.exited = true;
                self.survey.ended_in = self.survey.pending.take();
            }
            Event::SyscallEnter { number, ts } => {
                self.survey.pending = Some((number, ts));
                if life::creates(number) {
                    let sites = self
                        .stack
                        .frames()
                        .iter()
                        .rev()
                        .map(|frame| frame.call_site);
                    self.clone_stack = Some(sites.take(CLONE_STACK).collect());
                }
            }
            Event::Exec => self.calls_exec = true,
            Event::SyscallExit { number, result, ts } => {
                self.calls_exec = false;
                if let Some((_, began)) = self.survey.pending.take() {
                    self.recent_calls[self.calls % 64] = (number, ts.saturating_sub(began));
                    self.calls += 1;
                }
                if life::creates(number) {
                    let stack = self.clone_stack.take();
                    if let (Some(stack), Ok(child)) = (stack, u32::try_from(result)) {
                        if child != 0 {
                            let index = self.stack.index().saturating_sub(1);
                            let birth = Birth {
                                child,
                                stack,
                                index,
                            };
                            self.survey.births.push(birth);
                        }
                    }
                }
            }
            Event::Signal { .. } | Event::SignalReturn | Event::Moved | Event::CalledOver => {
                self.previous = (0, 0, ExitKind::Plain);
            }
        }
        self.stack.event(event, &mut Nothing);
    }
}
