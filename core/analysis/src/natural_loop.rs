// SPDX-License-Identifier: MIT
//! The loop in the code, as opposed to what was seen of it: ways that no iteration took may
//! lead on within the loop.
//!
//! ```c
//!     while (!ready) {           // the other way leaves the loop
//!         if (log_level > 3)     // the other way, never seen either, stays in it
//!             log();
//!         sched_yield();
//!     }
//! ```
//!
//! So does the way on which a function called by the loop returns what it returns anyway.
//!
//! Functions are followed from their entry, so that an inner loop is told from the one around
//! it. Blind spots: functions of unknown extent; jump tables beyond the targets that were seen.

use std::collections::hash_map::Entry;

use flagfinder_code::{Graph, Loop, Loops, Names};
use flagfinder_machine::decoded::{general, Resources};
use flagfinder_machine::Window;
use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Analysis;
use crate::condition::Condition;
use crate::effects::{is_dead, Effect, Kept, RAX, REACH, RESULT};
use crate::exit::Exit;
use crate::later_test;
use crate::never_returns;
use crate::other_way::OtherWay;
use crate::read_code::{ReadCode, LONGEST};
use crate::returned::{answer, is_error, returned, returns_the_same};

/// The exit branches, by address, whose other way does not simply leave.
pub fn other_ways(
    window: &Window,
    analysis: &Analysis,
    names: &Names,
    read: &ReadCode,
) -> FxHashMap<u64, OtherWay> {
    let mut functions: FxHashMap<u64, Option<Function>> = FxHashMap::default();
    let (jumps, frames) = (indirect_jumps(window, analysis), frames(window, analysis));
    let mut found = FxHashMap::default();
    let mut decided: FxHashMap<u64, Vec<u64>> = FxHashMap::default();
    for exit in analysis.exits.iter().filter(|exit| !exit.ends_scan) {
        let Some(other) = exit.other else { continue };
        let pc = window.pc(exit.step);
        let Some((start, end)) = names.function(pc).filter(|(s, e)| e - s <= LONGEST) else {
            continue;
        };
        let function = match functions.entry(start) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Function::follow(start, end, &jumps, read)),
        };
        let Some(function) = function else { continue };
        let way = if returns_the_same(window, exit, other, read) {
            Some(OtherWay::Stays)
        } else if returned(other, None, read).is_some_and(is_error) {
            Some(OtherWay::Fails)
        } else if never_returns::never_returns(other, names, read) {
            Some(OtherWay::Dies)
        } else if is_called(exit, window, analysis)
            && is_required(exit, window)
            && never_returns::reports(other, names, read)
        {
            Some(OtherWay::Reports)
        } else {
            let dies = |pc| never_returns::never_returns(pc, names, read);
            let way = function.other_way(exit, other, window, analysis, &frames, &dies);
            let same =
                || is_called(exit, window, analysis) && function.answers_alike(exit, other, window);
            way.or_else(|| same().then_some(OtherWay::Skips))
        };
        if way == Some(OtherWay::Stays) {
            let later = function.tested_later(exit, other, window, analysis, &frames);
            decided.insert(pc, later);
        }
        if let Some(way) = way {
            found.insert(pc, way);
        }
    }
    later_test::decide(&mut found, decided);
    found
}

/// Targets of indirect jumps, by the jump's address.
type Jumps = FxHashMap<u64, FxHashSet<u64>>;

/// Those that the loop was seen to take.
fn indirect_jumps(window: &Window, analysis: &Analysis) -> Jumps {
    let mut jumps = Jumps::default();
    for step in analysis.spin.first_step()..analysis.spin.end {
        let is_jump = window.code(step).instruction.flow_control() == FlowControl::IndirectBranch;
        if let Some(next) = window.next_pc(step).filter(|_| is_jump) {
            jumps.entry(window.pc(step)).or_default().insert(next);
        }
    }
    jumps
}

/// Addresses of instructions, by the stack pointer.
type Frames = FxHashMap<u64, FxHashSet<u64>>;

/// Those that the last iterations executed.
fn frames(window: &Window, analysis: &Analysis) -> Frames {
    let mut frames = Frames::default();
    let last = analysis.spin.starts.len().saturating_sub(4);
    for step in analysis.spin.starts[last]..analysis.spin.end {
        let frame = frames.entry(window.rsp(step)).or_default();
        frame.insert(window.pc(step));
    }
    frames
}

/// Does the exit lie in a function that the loop calls?
fn is_called(exit: &Exit, window: &Window, analysis: &Analysis) -> bool {
    window.rsp(exit.step) < window.rsp(analysis.spin.first_step())
}

/// Does the loop go on as long as something is not zero, as it should be?
fn is_required(exit: &Exit, window: &Window) -> bool {
    Condition::of(window, exit.step, exit.taken).is_some_and(|test| test.leaves_at_zero())
}

/// How many executions before the last one are looked at for what follows.
const EARLIER: usize = 2;

struct Function {
    start: u64,
    end: u64,
    loops: Loops,
    edges: FxHashMap<u32, Vec<u32>>,
    /// Atomic read-modify-writes.
    atomics: FxHashSet<u32>,
    effects: FxHashMap<u32, Effect>,
}

impl Function {
    fn follow(start: u64, end: u64, jumps: &Jumps, read: &ReadCode) -> Option<Function> {
        let mut code = vec![0u8; (end - start) as usize];
        let got = read(start, &mut code);
        code.truncate(got);
        let mut edges: Vec<(u32, u32)> = Vec::new();
        let mut seen: FxHashSet<u64> = FxHashSet::default();
        let mut atomics = FxHashSet::default();
        let mut effects = FxHashMap::default();
        let mut factory = InstructionInfoFactory::new();
        let mut work = vec![start];
        let inside = |pc: u64| (start..start + got as u64).contains(&pc);
        while let Some(pc) = work.pop() {
            if !inside(pc) || !seen.insert(pc) {
                continue;
            }
            let bytes = &code[(pc - start) as usize..];
            let instruction = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
            let next = instruction.next_ip();
            let jumps_on = match instruction.flow_control() {
                FlowControl::UnconditionalBranch => inside(instruction.near_branch_target()),
                _ => true,
            };
            let effect = Effect::of(&instruction, jumps_on, &mut factory);
            effects.insert((pc - start) as u32, effect);
            let exchanges = instruction.mnemonic() == Mnemonic::Xchg
                && instruction.op_kinds().any(|kind| kind == OpKind::Memory);
            if exchanges || instruction.has_lock_prefix() {
                atomics.insert((pc - start) as u32);
            }
            let targets: Vec<u64> = match instruction.flow_control() {
                FlowControl::UnconditionalBranch => vec![instruction.near_branch_target()],
                FlowControl::ConditionalBranch => vec![instruction.near_branch_target(), next],
                FlowControl::IndirectBranch => {
                    let known = jumps.get(&pc);
                    known.map_or_else(Vec::new, |targets| targets.iter().copied().collect())
                }
                FlowControl::Return | FlowControl::Exception => Vec::new(),
                _ => vec![next],
            };
            for target in targets.into_iter().filter(|t| inside(*t)) {
                edges.push(((pc - start) as u32, (target - start) as u32));
                work.push(target);
            }
        }
        if edges.is_empty() {
            return None;
        }
        let loops = Loops::new(&Graph::new(0, edges.iter().copied()));
        let mut successors: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (from, to) in edges {
            successors.entry(from).or_default().push(to);
        }
        Some(Function {
            start,
            end,
            loops,
            edges: successors,
            atomics,
            effects,
        })
    }

    /// The innermost loop that holds all that was executed in the frame lies around `other` as
    /// well, and `other` leads into the middle of it. (If it leads only to the loop's header, that
    /// may also be the header of an outer loop.)
    fn other_way(
        &self,
        exit: &Exit,
        other: u64,
        window: &Window,
        analysis: &Analysis,
        frames: &Frames,
        dies: &dyn Fn(u64) -> bool,
    ) -> Option<OtherWay> {
        let rsp = window.rsp(exit.step);
        let own = |pc: &u64| (self.start..self.end).contains(pc);
        if !own(&other) || rsp == 0 {
            return None;
        }
        let executed = self.executed(rsp, frames);
        let holds_all = |l: &&Loop| executed.iter().all(|node| l.contains(*node));
        let around = self.loops.all().iter().filter(holds_all);
        let Some(innermost) = around.max_by_key(|l| l.depth) else {
            let start = analysis.spin.starts[analysis.spin.round_of(exit.step)];
            let before: FxHashSet<u32> = (start..exit.step)
                .filter(|&step| window.rsp(step) == rsp)
                .map(|step| window.pc(step))
                .filter(own)
                .map(|pc| (pc - self.start) as u32)
                .collect();
            let other = (other - self.start) as u32;
            if self.turns_back(other, &before, &executed) {
                return Some(OtherWay::Stays);
            }
            return self.skips(exit, other, window, &executed, dies);
        };
        self.beyond((other - self.start) as u32, innermost, &executed, dies)
    }

    /// Addresses of the exits that test what the exit's other way leaves in registers when it comes
    /// back to what was executed. (`item = list.len ? pop(list) : NONE; unlock(list); if (item !=
    /// NONE) break;`)
    fn tested_later(
        &self,
        exit: &Exit,
        other: u64,
        window: &Window,
        analysis: &Analysis,
        frames: &Frames,
    ) -> Vec<u64> {
        let own = |pc: &u64| (self.start..self.end).contains(pc);
        if !own(&other) {
            return Vec::new();
        }
        let executed = self.executed(window.rsp(exit.step), frames);
        let mut left: Resources = 0;
        let mut joins = FxHashSet::default();
        let mut seen = FxHashSet::default();
        let mut work = vec![(other - self.start) as u32];
        while let Some(node) = work.pop() {
            if executed.contains(&node) {
                joins.insert(self.start + u64::from(node));
            } else if seen.insert(node) {
                left |= self.effects.get(&node).map_or(0, |effect| effect.writes);
                work.extend(self.edges.get(&node).into_iter().flatten());
            }
        }
        let rsp = window.rsp(exit.step);
        let later = exit.step + 1..window.len().min(exit.step + REACH);
        let is_join = |&step: &u32| joins.contains(&window.pc(step)) && window.rsp(step) == rsp;
        let Some(join) = later.clone().find(is_join) else {
            return Vec::new();
        };
        let branches = analysis.exits.iter().filter(|one| !one.ends_scan);
        let exits: FxHashSet<(u64, u64)> = branches
            .map(|one| (window.pc(one.step), window.rsp(one.step)))
            .collect();
        later_test::tests(window, join..later.end, rsp, left, &exits)
    }

    /// What the last iterations executed of this function in the frame.
    fn executed(&self, rsp: u64, frames: &Frames) -> FxHashSet<u32> {
        let all = frames.get(&rsp).into_iter().flatten();
        let own = all.filter(|pc| (self.start..self.end).contains(*pc));
        own.map(|pc| (pc - self.start) as u32).collect()
    }

    /// In a function that the loop calls: does the way from `other` lead nowhere but back to what
    /// was executed `before`? Then the function just tries again.
    fn turns_back(&self, other: u32, before: &FxHashSet<u32>, executed: &FxHashSet<u32>) -> bool {
        let mut seen = FxHashSet::default();
        let mut work = vec![other];
        while let Some(node) = work.pop() {
            if before.contains(&node) || !seen.insert(node) {
                continue;
            }
            let next = self.edges.get(&node).map_or(&[][..], Vec::as_slice);
            if executed.contains(&node) || self.atomics.contains(&node) || next.is_empty() {
                return false;
            }
            work.extend(next);
        }
        true
    }

    /// In a function that the loop calls: does the way from `other` lead back to where the function
    /// goes on (or to its return), and leave nothing in registers that is used there? (What the
    /// functions do that are called on that way is not known.)
    fn skips(
        &self,
        exit: &Exit,
        other: u32,
        window: &Window,
        executed: &FxHashSet<u32>,
        dies: &dyn Fn(u64) -> bool,
    ) -> Option<OtherWay> {
        let mut kept = Kept::default();
        let mut joins: FxHashSet<Option<u32>> = FxHashSet::default();
        let mut seen = FxHashSet::default();
        let mut work = vec![other];
        while let Some(node) = work.pop() {
            if executed.contains(&node) {
                joins.insert(Some(node));
                continue;
            }
            if !seen.insert(node) {
                continue;
            }
            let effect = self.effects.get(&node)?;
            if effect.stores || self.atomics.contains(&node) {
                return None;
            }
            let next = self.edges.get(&node).map_or(&[][..], Vec::as_slice);
            if next.len() > 1 {
                kept.is_straight = false;
                // A check that fails leads nowhere.
                let lives = |node: &&u32| !dies(self.start + u64::from(**node));
                kept.follow(effect);
                work.extend(next.iter().filter(lives));
                continue;
            }
            if effect.returns {
                joins.insert(None);
                continue;
            }
            if next.is_empty() {
                return None;
            }
            kept.follow(effect);
            work.extend(next);
        }
        let written = kept.written();
        let rsp = window.rsp(exit.step);
        // An execution some way back, so that what follows is seen.
        let code = window.code_index(exit.step);
        let mut executions = (0..=exit.step)
            .rev()
            .filter(|&at| window.code_index(at) == code && window.rsp(at) == rsp);
        let branch = executions.nth(EARLIER).unwrap_or(exit.step);
        let later = || branch + 1..window.len().min(branch + REACH);
        let is_unused = |join: &Option<u32>| match join {
            Some(join) => {
                let pc = self.start + u64::from(*join);
                let step = later().find(|&at| window.pc(at) == pc && window.rsp(at) == rsp);
                step.is_some_and(|step| is_dead(window, step, written))
            }
            None => {
                let step = later().find(|&at| {
                    let flow = window.code(at).instruction.flow_control();
                    flow == FlowControl::Return && window.rsp(at) >= rsp
                });
                let is_same = |step| {
                    let source = kept.result().filter(|_| kept.is_straight)?;
                    let otherwise = window.register_before(branch, source)?;
                    Some(window.register_before(step, RAX)? == otherwise)
                };
                step.is_some_and(|step| {
                    is_same(step) == Some(true) || is_dead(window, step + 1, RESULT)
                })
            }
        };
        let unused = joins.iter().filter(|&join| is_unused(join)).count();
        match unused {
            0 => None,
            _ if unused == joins.len() => Some(OtherWay::Skips),
            _ => Some(OtherWay::Tests),
        }
    }

    /// Does the function return one and the same number on all ways from the exit's other, the one
    /// that it returned? (`if (log) print(..); return false;`. What it stores on the way is not
    /// known.)
    fn answers_alike(&self, exit: &Exit, other: u64, window: &Window) -> bool {
        if !(self.start..self.end).contains(&other) {
            return false;
        }
        let Some((ending, answer)) = answer(exit, window) else {
            return false;
        };
        if !(self.start..self.end).contains(&window.pc(ending)) {
            return false;
        }
        let mut seen: FxHashSet<(u32, Option<u64>)> = FxHashSet::default();
        let mut work = vec![((other - self.start) as u32, None)];
        let mut returns = false;
        while let Some((node, mut result)) = work.pop() {
            if !seen.insert((node, result)) {
                continue;
            }
            let Some(effect) = self.effects.get(&node) else {
                return false;
            };
            if effect.writes & general(RAX) != 0 {
                result = effect.sets_result;
            }
            if effect.returns {
                if effect.hands_over || result != Some(answer) {
                    return false;
                }
                returns = true;
                continue;
            }
            let next = self.edges.get(&node).map_or(&[][..], Vec::as_slice);
            work.extend(next.iter().map(|&next| (next, result)));
        }
        returns
    }

    /// Does the way from `other` come to an atomic that no iteration made, before it comes to
    /// another test?
    fn takes_at_once(&self, other: u32, around: &Loop, executed: &FxHashSet<u32>) -> bool {
        let mut node = other;
        for _ in 0..self.edges.len() {
            if executed.contains(&node) || !around.contains(node) {
                return false;
            }
            if self.atomics.contains(&node) {
                return true;
            }
            match self.edges.get(&node).map(Vec::as_slice) {
                Some(&[next]) => node = next,
                _ => return false,
            }
        }
        false
    }

    fn beyond(
        &self,
        other: u32,
        around: &Loop,
        executed: &FxHashSet<u32>,
        dies: &dyn Fn(u64) -> bool,
    ) -> Option<OtherWay> {
        let mut node = other;
        for _ in 0..self.edges.len() {
            match self.edges.get(&node).map(Vec::as_slice) {
                _ if !around.contains(node) => return None,
                Some(&[next]) if !executed.contains(&node) => node = next,
                _ => break,
            }
        }
        // The atomic's result decides an exit: a test-and-set behind a test.
        if self.takes_at_once(other, around, executed) {
            return None;
        }
        let mut seen = FxHashSet::default();
        let mut work = vec![other];
        let (mut comes_back, mut leaves) = (false, false);
        while let Some(node) = work.pop() {
            if !around.contains(node) {
                // A check that fails is no way out.
                leaves = leaves || !dies(self.start + u64::from(node));
                continue;
            }
            if around.headers.contains(&node) || !seen.insert(node) {
                continue;
            }
            if executed.contains(&node) {
                comes_back = true;
                continue;
            }
            work.extend(self.edges.get(&node).into_iter().flatten());
        }
        match (leaves, comes_back) {
            (true, _) => Some(OtherWay::Tests),
            (false, true) => Some(OtherWay::Stays),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
#[path = "natural_loop_tests.rs"]
mod tests;
