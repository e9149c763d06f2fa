// SPDX-License-Identifier: MIT
//! Backward slices from the branches that could leave the loop to what decides them.
//!
//! An exit is a conditional branch that always went one way in its frame and whose other
//! successor was never seen, or a transfer to a computed address that always went to one place
//! (`transfers.rs`). Where asked for, so is one that ends a scan: in each iteration it goes one
//! way for some elements, and once the other way, for the last, which keeps the loop going. Its
//! slice goes back at most two iterations. Loads that no store of this thread in the loop covers
//! are the words somebody else must change.

use flagfinder_machine::Window;
use rustc_hash::{FxHashMap, FxHashSet};

use iced_x86::{ConditionCode, FlowControl, Mnemonic, OpKind, Register};

use crate::dependence::{Dependence, Input};
use crate::exit::{Exit, Source, Transfer};
use crate::slice_scratch::Scratch;
use crate::spin_loop::SpinLoop;
use crate::transfers;

/// Most exits that are looked at; in a very large iteration more are noise.
const EXIT_LIMIT: usize = 2000;
/// Most branches that may end a count.
const COUNTED_LIMIT: usize = 200;
/// Most steps in one slice.
const SLICE_LIMIT: usize = 20_000;

/// Slices of one window's loop.
pub struct Slicer<'w> {
    window: &'w Window,
    dependence: &'w Dependence,
    spin: &'w SpinLoop,
    /// Earlier execution of the same instruction at the same depth.
    previous: Vec<u32>,
}

#[derive(Default)]
struct Branch {
    rounds: u32,
    last_round: Option<usize>,
    last: u32,
    taken: [bool; 2],
    /// In the present iteration: how often it went each way, and which way last.
    ways: [u32; 2],
    way: bool,
    /// Iterations in which only the last execution went its way, by that way.
    scans: [u32; 2],
}

impl Branch {
    fn add(&mut self, step: u32, taken: bool, round: usize) {
        if self.last_round != Some(round) {
            self.end_round();
            self.rounds += 1;
            self.last_round = Some(round);
        }
        self.ways[usize::from(taken)] += 1;
        self.way = taken;
        self.last = step;
    }

    fn end_round(&mut self) {
        let (last, others) = (usize::from(self.way), usize::from(!self.way));
        if self.ways[last] == 1 && self.ways[others] > 0 {
            self.scans[last] += 1;
        }
        self.ways = [0, 0];
    }

    /// The way it goes, if it is an exit, and whether it ends a scan.
    fn exit(&self) -> Option<(bool, bool)> {
        match self.taken {
            _ if self.rounds == 0 => None,
            [true, true] if self.scans[usize::from(self.way)] == self.rounds => {
                Some((self.way, true))
            }
            [true, true] => None,
            [_, taken] => Some((taken, false)),
        }
    }
}

impl<'w> Slicer<'w> {
    pub fn new(window: &'w Window, dependence: &'w Dependence, spin: &'w SpinLoop) -> Self {
        let mut last: FxHashMap<(u32, u64), u32> = FxHashMap::default();
        let previous = (0..window.len())
            .map(|step| {
                let key = (window.code_index(step), window.rsp(step));
                last.insert(key, step).unwrap_or(u32::MAX)
            })
            .collect();
        Slicer {
            window,
            dependence,
            spin,
            previous,
        }
    }

    /// Conditional branches by instruction and stack pointer.
    fn branches(&self) -> FxHashMap<(u32, u64), Branch> {
        let window = self.window;
        let mut branches: FxHashMap<(u32, u64), Branch> = FxHashMap::default();
        let whole = self.spin.starts.last().copied().unwrap_or(0);
        for step in self.spin.first_step()..self.spin.end {
            let code = window.code(step);
            let conditional =
                code.instruction.flow_control() == FlowControl::ConditionalBranch && !code.repeated;
            let Some(next) = window.next_pc(step).filter(|_| conditional) else {
                continue;
            };
            let branch = branches
                .entry((window.code_index(step), window.rsp(step)))
                .or_default();
            let taken = next != code.instruction.next_ip();
            branch.taken[usize::from(taken)] = true;
            if step < whole {
                branch.add(step, taken, self.spin.round_of(step));
            }
        }
        for branch in branches.values_mut() {
            branch.end_round();
        }
        branches
    }

    /// Branches, with the way that they went last, at which a count within the iteration ends.
    pub fn counted(&self) -> Vec<(u32, bool)> {
        let branches = self.branches();
        let executed = branches.values().filter(|branch| branch.rounds > 0);
        let (both_ways, one_way): (Vec<&Branch>, Vec<&Branch>) =
            executed.partition(|branch| branch.taken == [true, true]);
        let last = |branch: &&Branch| (branch.last, branch.way);
        let mut found: Vec<(u32, bool)> = both_ways.iter().map(last).collect();
        found.sort_unstable();
        found.truncate(COUNTED_LIMIT);
        let counted = self.counted_steps();
        found.retain(|(step, _)| counted[*step as usize]);
        let one_way = one_way.iter().filter(|branch| !branch.way).map(last);
        found.extend(one_way.filter(|(step, _)| self.counts_to_one(*step)));
        found
    }

    /// Would the branch have led back to what the iteration executed before it, if a count had not
    /// ended at once?
    fn counts_to_one(&self, branch: u32) -> bool {
        let window = self.window;
        let back = window.code(branch).instruction.near_branch_target();
        if back >= window.pc(branch) {
            return false;
        }
        let start = self.spin.starts[self.spin.round_of(branch)];
        let rsp = window.rsp(branch);
        let is_head = |&step: &u32| window.pc(step) == back && window.rsp(step) == rsp;
        let Some(head) = (start..branch).rev().find(is_head) else {
            return false;
        };
        let values = |step: u32| {
            let inputs = self.dependence.inputs(step).iter();
            let values = inputs.filter(|edge| edge.input == Input::Value);
            values.map(|edge| edge.from).filter(|&from| from >= head)
        };
        let counts = |step: u32| {
            let code = &window.code(step).instruction;
            let by_constant = match code.mnemonic() {
                Mnemonic::Inc | Mnemonic::Dec => true,
                Mnemonic::Add | Mnemonic::Sub => code.try_immediate(1).is_ok(),
                _ => false,
            };
            by_constant
                && code.op0_kind() == OpKind::Register
                && code.op0_register() != Register::RSP
        };
        values(branch).any(|test| counts(test) || values(test).any(counts))
    }

    /// All exits with their sources; `scans`: also those that end a scan. `is_fixed`: does the step
    /// load from an address that nobody can write to (the linkage table of a library's functions)?
    /// Such words choose no target.
    pub fn exits(&self, scans: bool, is_fixed: &dyn Fn(u32, u64) -> bool) -> Vec<Exit> {
        let window = self.window;
        let steps = self.spin.first_step()..self.spin.end;
        let seen: FxHashSet<(u64, u64)> = steps
            .map(|step| (window.pc(step), window.rsp(step)))
            .collect();
        let rounds = self.spin.starts.len() as u32 - 1;
        let mut exits: Vec<Exit> = Vec::new();
        for ((code, rsp), branch) in &self.branches() {
            let Some((taken, ends_scan)) = branch.exit() else {
                continue;
            };
            let instruction = &window.code_at(*code).instruction;
            let other = if taken {
                instruction.next_ip()
            } else {
                instruction.near_branch_target()
            };
            let often = branch.rounds * 2 >= rounds.min(8);
            let leads_on = if ends_scan {
                !scans
            } else {
                seen.contains(&(other, *rsp))
            };
            if often && !leads_on && !self.checks_stack(branch.last) {
                exits.push(Exit {
                    step: branch.last,
                    transfer: Transfer::Branch,
                    taken,
                    other: Some(other),
                    sources: Vec::new(),
                    words: 0,
                    induction: false,
                    ends_scan,
                });
            }
        }
        for steady in transfers::steady(window, self.dependence, self.spin) {
            if steady.rounds * 2 >= rounds.min(8) {
                exits.push(Exit {
                    step: steady.step,
                    transfer: steady.transfer,
                    taken: true,
                    other: None,
                    sources: Vec::new(),
                    words: 0,
                    induction: false,
                    ends_scan: false,
                });
            }
        }
        // Outer frames come first: they are what a huge iteration is about. A jump by a table comes
        // before the check of the table's bounds, which says less about the same word.
        exits.sort_by_key(|exit| {
            let rsp = std::cmp::Reverse(window.rsp(exit.step));
            (rsp, exit.transfer == Transfer::Branch, exit.step)
        });
        exits.truncate(EXIT_LIMIT);
        let mut scratch = Scratch::new(window.len());
        let counted = self.counted_steps();
        for exit in &mut exits {
            self.slice(exit, &mut scratch);
            exit.induction |= counted[exit.step as usize];
        }
        transfers::keep_ways_out(window, &mut exits, is_fixed);
        exits
    }

    /// Is it the question how much stack is left, which managed code asks in every loop? It
    /// compares with a word of the runtime, and leaves only to come back.
    fn checks_stack(&self, branch: u32) -> bool {
        let ordered = matches!(
            self.window.code(branch).instruction.condition_code(),
            ConditionCode::b | ConditionCode::be | ConditionCode::a | ConditionCode::ae
        );
        let values = |step: u32| {
            let inputs = self.dependence.inputs(step).iter();
            inputs.filter(|edge| matches!(edge.input, Input::Value))
        };
        ordered
            && values(branch).any(|edge| {
                let compare = &self.window.code(edge.from).instruction;
                let of_pointer = (0..compare.op_count()).any(|op| {
                    compare.op_kind(op) == OpKind::Register
                        && compare.op_register(op) == Register::RSP
                });
                // A large frame's end.
                let of_frame = values(edge.from).any(|edge| {
                    let lea = &self.window.code(edge.from).instruction;
                    lea.mnemonic() == Mnemonic::Lea && lea.memory_base() == Register::RSP
                });
                compare.mnemonic() == Mnemonic::Cmp && (of_pointer || of_frame)
            })
    }

    fn slice(&self, exit: &mut Exit, scratch: &mut Scratch) {
        let window = self.window;
        scratch.begin();
        let round = self.spin.round_of(exit.step);
        let bound = self.spin.starts[round.saturating_sub(1)];
        let mut sources: FxHashSet<Source> = FxHashSet::default();
        // (step, only forms an address)
        let mut work = vec![(exit.step, false)];
        // Branches that chose a constant. What they count (rounds until the next clean-up, for
        // example) is not what the exit tests. If the count ends the wait, they are exits of their
        // own.
        let mut deciders: Vec<u32> = Vec::new();
        let mut of_exit = true;
        // Of a target, what chooses the address of its load as well: the number of a case, the
        // object of a virtual call.
        let mut of_target = exit.transfer != Transfer::Branch;
        loop {
            let Some((step, address_only)) = work.pop() else {
                let Some(branch) = deciders.pop() else { break };
                of_exit = false;
                let flow = window.code(branch).instruction.flow_control();
                of_target = flow == FlowControl::IndirectCall;
                work.push((branch, false));
                continue;
            };
            if !scratch.visit(step, address_only) {
                continue;
            }
            if scratch.visited() > SLICE_LIMIT {
                break;
            }
            if self.window.syscall_at(step).is_some() {
                if !address_only {
                    sources.insert(Source::Syscall { step });
                }
                continue;
            }
            self.loads(step, address_only, &mut sources);
            let own_round = self.spin.starts[self.spin.round_of(step)];
            let mut follow = |from: u32, address_only: bool| {
                let earlier = (self.spin.first_step()..own_round).contains(&from);
                // A counter's start lies before the bound if a round begins behind its step.
                let is_near = from >= bound || window.code_index(from) == window.code_index(step);
                if of_exit && !address_only && earlier && is_near && self.changes(from) {
                    exit.induction = true;
                }
                if from >= bound {
                    work.push((from, address_only));
                }
            };
            for edge in self.dependence.inputs(step) {
                match edge.input {
                    Input::Value | Input::Memory(_) => follow(edge.from, address_only),
                    Input::Address => follow(edge.from, address_only || !of_target),
                }
            }
            if !address_only && self.is_constant(step) {
                let near = self.deciders(step, exit.step, scratch).into_iter();
                deciders
                    .extend(near.filter(|&branch| branch >= bound && !self.checks_stack(branch)));
            }
        }
        exit.sources = sources.into_iter().collect();
        exit.sources.sort_by_key(|source| match source {
            Source::Load { step, access, .. } => (*step, *access),
            Source::Syscall { step } => (*step, 0),
        });
        exit.count_words(window);
    }

    /// Loads at the step that no store within the loop covers.
    fn loads(&self, step: u32, address_only: bool, sources: &mut FxHashSet<Source>) {
        let first = self.spin.first_step();
        for (index, access) in self.window.accesses(step).iter().enumerate() {
            if access.write || access.address.is_none() {
                continue;
            }
            let input = Input::Memory(index as u8);
            let own = self
                .dependence
                .inputs(step)
                .iter()
                .any(|edge| edge.input == input && edge.from >= first);
            if !own {
                sources.insert(Source::Load {
                    step,
                    access: index as u8,
                    address_only,
                });
            }
        }
    }

    /// Does the step yield something else than its execution before?
    fn changes(&self, step: u32) -> bool {
        let before = self.previous[step as usize];
        if before == u32::MAX {
            return false;
        }
        let window = self.window;
        let stored = |step: u32| {
            let stores = window.accesses(step).iter().filter(|a| a.write);
            stores.map(|a| a.value).collect::<Vec<_>>()
        };
        window.results(step) != window.results(before) || stored(step) != stored(before)
    }

    /// By step: does it depend on a count within its iteration?
    fn counted_steps(&self) -> Vec<bool> {
        let mut counted = vec![false; self.window.len() as usize];
        for (round, &start) in self.spin.starts.iter().enumerate() {
            let end = self
                .spin
                .starts
                .get(round + 1)
                .copied()
                .unwrap_or(self.window.len());
            for step in start..end {
                let inputs = self.dependence.inputs(step).iter();
                let mut values = inputs.filter(|edge| edge.input != Input::Address);
                counted[step as usize] = self.counts(step)
                    || values.any(|edge| edge.from >= start && counted[edge.from as usize]);
            }
        }
        counted
    }

    /// Does the step change what it left there the last time in the iteration, and depend on
    /// nothing else?
    fn counts(&self, step: u32) -> bool {
        let before = self.previous[step as usize];
        let mut inputs = self.dependence.inputs(step).iter();
        let own = inputs.next().map(|edge| edge.from) == Some(before)
            && inputs.all(|edge| edge.from == before);
        own && self.window.code(step).memory.is_empty()
            && self.spin.round_of(before) == self.spin.round_of(step)
            && self.changes(step)
    }

    /// A definition that depends on nothing: a branch decided which of several it is.
    fn is_constant(&self, step: u32) -> bool {
        let code = self.window.code(step);
        code.reads == 0 && !code.memory.iter().any(|m| m.read)
    }

    /// The one-sided branches that led to `step`, if it is in a function called below
    /// the exit's: `if (x) return 1`. Without one, the call, if its target is data.
    fn deciders(&self, step: u32, exit: u32, scratch: &mut Scratch) -> Vec<u32> {
        let window = self.window;
        let (frame, outer) = (window.rsp(step), window.rsp(exit));
        if frame == 0 || frame >= outer {
            return Vec::new();
        }
        let near = scratch.near(step, || self.near(step));
        let within = near.iter().filter(|&&branch| window.rsp(branch) <= outer);
        within.copied().collect()
    }

    /// The last branches before the step in its function, else the call of that by a pointer.
    fn near(&self, step: u32) -> Vec<u32> {
        let window = self.window;
        let frame = window.rsp(step);
        let mut found = Vec::new();
        let start = self.spin.starts[self.spin.round_of(step)];
        let mut at = step;
        while at > start && found.len() < 4 && step - at < 2000 {
            at -= 1;
            let code = window.code(at);
            if code.instruction.flow_control() == FlowControl::ConditionalBranch {
                // Before that it decided about another element of a scan.
                let same = |&later: &u32| window.code_index(later) == window.code_index(at);
                if found.iter().any(same) {
                    break;
                }
                found.push(at);
            }
            let calls = matches!(
                code.instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            );
            if calls && window.rsp(at) > frame {
                // The function's own call: if the function tested nothing, the choice of the
                // function counts.
                if found.is_empty() && code.instruction.flow_control() == FlowControl::IndirectCall
                {
                    found.push(at);
                }
                break;
            }
        }
        found
    }
}

#[cfg(test)]
#[path = "slice_tests.rs"]
mod tests;
