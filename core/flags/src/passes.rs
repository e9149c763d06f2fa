// SPDX-License-Identifier: MIT
//! Passes over a run: the values of all its threads through a [`Pass`], on all cores.
//!
//! A thread's values are cut where FLOW sections begin: each piece begins with a checkpoint, so it
//! can be replayed without what came before. Pieces that cannot tell anything are left out (see
//! [`needed`]). Blind spots: knowledge of what a thread stored, and calls that were open, do not
//! reach from one [`GROUP`] of pieces into the next.

use std::ops::ControlFlow;

use flagfinder_diff::Meter;
use flagfinder_machine::decoded::Decoded;
use flagfinder_machine::evaluator::{Access, Evaluator};
use flagfinder_machine::replayer::{replay, Visitor, Wants};
use flagfinder_machine::value::Machine;
use flagfinder_trace::{BlockId, Event, Result, Thread, ValueSpan};
use rayon::prelude::*;

use crate::block_set::BlockSet;
use crate::contents::Contents;
use crate::run::Run;

/// Pieces that are replayed in one go: long enough to keep its call stacks, short enough to share
/// out.
const GROUP: usize = 8;

/// A question to all threads. Parts of a thread are seen by different visitors, whose findings are
/// put together in order.
pub trait Pass: Visitor + Send + Sync {
    /// The same question to the thread `tid`, with nothing found yet.
    fn begin(&self, tid: u32) -> Self;
    /// Takes in what was found later on in the same thread, or in another thread.
    fn absorb(&mut self, later: Self);
    /// Whether this code, executed in whatever state, tells nothing.
    fn is_idle(&self, code: &[Decoded]) -> bool;
}

/// Asks all threads of a run. `waiting`: the blocks of the loop in which the thread waits.
///
/// # Errors
/// When the trace cannot be read.
pub fn ask<P: Pass>(run: &Run, waiting: &BlockSet, pass: &mut P) -> Result<()> {
    ask_in_groups(run, waiting, pass, GROUP)
}

fn ask_in_groups<P: Pass>(run: &Run, waiting: &BlockSet, pass: &mut P, group: usize) -> Result<()> {
    let idle: BlockSet = run
        .process
        .blocks()
        .iter()
        .filter(|block| {
            let codes = run.blocks.get(block);
            codes.is_some_and(|codes| pass.is_idle(&codes.instructions))
        })
        .map(|block| block.id)
        .collect();
    let mut jobs: Vec<(&Thread, ValueSpan)> = Vec::new();
    for (index, thread) in run.process.threads().iter().enumerate() {
        for span in thread.value_spans() {
            let pieces = thread.value_pieces(&span);
            let needed = if pieces.len() > 2 {
                needed(thread, &pieces, run.contents(index)?, &idle, waiting)
            } else {
                vec![true; pieces.len()]
            };
            let spans = join(&pieces, &needed, group);
            jobs.extend(spans.into_iter().map(|span| (thread, span)));
        }
    }
    let flow = |(thread, span): &(&Thread, ValueSpan)| {
        // Most blocks' ids take two bytes.
        let end = span.end_pos.min(thread.flow_end());
        end.saturating_sub(span.start_pos) / 2
    };
    let total = jobs.iter().map(flow).sum();
    let meter = Meter::new(run.progress, "following values", total);
    let asked: &P = pass;
    let found: Vec<Result<P>> = jobs
        .par_iter()
        .map(|job| {
            let (thread, span) = job;
            let mut filter = Filter {
                pass: asked.begin(thread.tid),
                idle: &idle,
                active: false,
            };
            replay(&run.blocks, thread, span, &mut filter)?;
            meter.add(flow(job));
            Ok(filter.pass)
        })
        .collect();
    for one in found {
        pass.absorb(one?);
    }
    Ok(())
}

/// Which pieces have to be replayed. Not those
/// - whose blocks are all idle, or
/// - whose blocks, and whose neighbours' blocks, are all of the loop that waits (or idle). That
///   loop's code, executed over and over, is not what ends the waiting: a thread that ends it, by
///   its write or by leaving, executes something else then or right after, which makes the piece or
///   its neighbour a needed one. So the first and the last piece of every stay are replayed, and
///   whatever is unusual with its surroundings.
fn needed(
    thread: &Thread,
    pieces: &[ValueSpan],
    contents: &Contents,
    idle: &BlockSet,
    waiting: &BlockSet,
) -> Vec<bool> {
    let mut still = idle.clone();
    still.extend(waiting);
    let blocks: Vec<Option<BlockSet>> = pieces
        .iter()
        .enumerate()
        .map(|(index, piece)| {
            let behind = pieces.get(index + 1).map(|next| next.start_pos);
            contents.blocks(piece.start_pos..behind.unwrap_or(thread.flow_end()))
        })
        .collect();
    let is_still = |index: Option<usize>| {
        let blocks = index.and_then(|index| blocks.get(index)?.as_ref());
        blocks.is_some_and(|blocks| blocks.is_subset(&still))
    };
    let mut needed = Vec::with_capacity(pieces.len());
    for (index, blocks) in blocks.iter().enumerate() {
        let all_idle = blocks.as_ref().is_some_and(|all| all.is_subset(idle));
        let around = [index.checked_sub(1), Some(index), Some(index + 1)];
        needed.push(!all_idle && !around.into_iter().all(is_still));
    }
    needed
}

/// Needed pieces that follow each other, as spans of at most `group` pieces.
fn join(pieces: &[ValueSpan], needed: &[bool], group: usize) -> Vec<ValueSpan> {
    let mut spans: Vec<ValueSpan> = Vec::new();
    let (mut joined, mut open) = (0, false);
    for (piece, &needed) in pieces.iter().zip(needed) {
        match spans.last_mut() {
            Some(span) if needed && open && joined < group => {
                *span = span.with(piece);
                joined += 1;
            }
            _ if needed => {
                spans.push(*piece);
                joined = 1;
            }
            _ => {}
        }
        open = needed;
    }
    spans
}

/// Shows a pass only the blocks that are not idle.
struct Filter<'a, P> {
    pass: P,
    idle: &'a BlockSet,
    active: bool,
}

impl<P: Pass> Visitor for Filter<'_, P> {
    #[inline]
    fn enter(&mut self, id: BlockId, pos: u64, machine: &Machine) -> ControlFlow<()> {
        self.active = !self.idle.contains(id);
        self.pass.enter(id, pos, machine)
    }

    #[inline]
    fn wants(&self) -> Wants {
        match self.active {
            true => self.pass.wants(),
            false => Wants::Nothing,
        }
    }

    #[inline]
    fn before(&mut self, code: &Decoded, machine: &Machine) {
        if self.active {
            self.pass.before(code, machine);
        }
    }

    #[inline]
    fn after(&mut self, code: &Decoded, evaluator: &Evaluator) {
        if self.active {
            self.pass.after(code, evaluator);
        }
    }

    #[inline]
    fn chooses(&self, code: &Decoded) -> bool {
        self.pass.chooses(code)
    }

    #[inline]
    fn stored(&mut self, code: &Decoded, machine: &Machine, store: &Access) {
        if self.active {
            self.pass.stored(code, machine, store);
        }
    }

    #[inline]
    fn branch(&mut self, code: &Decoded, next: u64) {
        if self.active {
            self.pass.branch(code, next);
        }
    }

    fn event(&mut self, event: &Event) {
        self.pass.event(event);
    }
}

#[cfg(test)]
#[path = "passes_tests.rs"]
mod tests;
