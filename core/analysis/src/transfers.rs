// SPDX-License-Identifier: MIT
//! Ways out that no branch with a condition decides: jumps, calls and returns whose target is data.
//!
//! A `switch` over dense states becomes a jump by a table, an interpreter's `goto *labels[op]` and
//! a tail call a jump through a register, a virtual call a call through the object's table. Each
//! goes elsewhere when the words change that its target is computed from. Such a transfer is an
//! exit when it always went to one place.
//!
//! A called function returns to the loop, whichever it was: what it returned is then tested
//! (`slice.rs` goes on from there to the call). Only where nothing is tested that others change is
//! the call itself the way out, by a function that throws, or ends the thread. A return whose
//! address a call pushed is none either: that is a constant of the code.

use flagfinder_linux::syscalls::{self, Role};
use flagfinder_machine::Window;
use iced_x86::FlowControl;
use rustc_hash::FxHashMap;

use crate::dependence::{Dependence, Input};
use crate::exit::{Exit, Source, Transfer};
use crate::spin_loop::SpinLoop;

/// One that always went to one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steady {
    pub transfer: Transfer,
    /// Last execution in a whole iteration.
    pub step: u32,
    /// Iterations that executed it.
    pub rounds: u32,
}

#[derive(Default)]
struct Seen {
    target: Option<u64>,
    varies: bool,
    last: u32,
    last_round: Option<usize>,
    rounds: u32,
}

/// All of the loop, each by its instruction and stack pointer.
pub fn steady(window: &Window, dependence: &Dependence, spin: &SpinLoop) -> Vec<Steady> {
    let whole = spin.starts.last().copied().unwrap_or(0);
    let mut all: FxHashMap<(u32, u64), (Transfer, Seen)> = FxHashMap::default();
    for step in spin.first_step()..spin.end {
        let flow = window.code(step).instruction.flow_control();
        let Some((transfer, next)) = Transfer::of(flow).zip(window.next_pc(step)) else {
            continue;
        };
        let key = (window.code_index(step), window.rsp(step));
        let (_, seen) = all.entry(key).or_insert((transfer, Seen::default()));
        seen.varies |= seen.target.is_some_and(|before| before != next);
        seen.target = Some(next);
        if step < whole {
            seen.last = step;
            let round = Some(spin.round_of(step));
            seen.rounds += u32::from(seen.last_round != round);
            seen.last_round = round;
        }
    }
    let found = all.into_values().filter_map(|(transfer, seen)| {
        let is_steady = !seen.varies && seen.rounds > 0;
        let (step, rounds) = (seen.last, seen.rounds);
        (is_steady && !returns_to_caller(window, dependence, step)).then_some(Steady {
            transfer,
            step,
            rounds,
        })
    });
    found.collect()
}

/// Drops what is no way out of the loop: scans that a count ends; transfers whose target is chosen
/// only by words that nobody can write (`is_fixed`, by step and address); and calls, if something
/// is tested.
pub fn keep_ways_out(window: &Window, exits: &mut Vec<Exit>, is_fixed: &dyn Fn(u32, u64) -> bool) {
    let is_outside = |source: &Source| match *source {
        Source::Load { step, access, .. } => {
            let address = window.accesses(step)[usize::from(access)].address;
            address.is_some_and(|address| !is_fixed(step, address))
        }
        Source::Syscall { step } => window.syscall_at(step).is_some_and(|call| {
            let role = syscalls::role(call.number, &call.args);
            matches!(role, Role::Poll | Role::Work)
        }),
    };
    let depends = |exit: &Exit| exit.sources.iter().any(is_outside);
    let is_test = |exit: &Exit| exit.transfer != Transfer::Call && !exit.induction;
    let is_tested = exits.iter().any(|exit| is_test(exit) && depends(exit));
    exits.retain(|exit| match exit.transfer {
        Transfer::Branch => !(exit.ends_scan && exit.induction),
        Transfer::Jump => depends(exit),
        Transfer::Call => !is_tested && depends(exit),
    });
}

/// Is it a return, to where a call or the time before the window said?
fn returns_to_caller(window: &Window, dependence: &Dependence, step: u32) -> bool {
    let flow = |step: u32| window.code(step).instruction.flow_control();
    let is_pushed =
        |from: u32| !matches!(flow(from), FlowControl::Call | FlowControl::IndirectCall);
    let mut inputs = dependence.inputs(step).iter();
    let by_store =
        inputs.any(|edge| matches!(edge.input, Input::Memory(_)) && is_pushed(edge.from));
    flow(step) == FlowControl::Return && !by_store
}

#[cfg(test)]
#[path = "transfers_tests.rs"]
mod tests;
