// SPDX-License-Identifier: MIT
//! What the values of one step were made from: the words that were read and the system calls that
//! answered, back to the beginning of the window.
//!
//! A constant was chosen by a branch (`return -1` after a failed call), so what that branch tested
//! is followed as well. What only forms an address is not. Blind spots: constants chosen by code
//! that jumped over others long before.

use flagfinder_machine::Window;
use iced_x86::FlowControl;
use rustc_hash::FxHashSet;

use crate::dependence::{Dependence, Input};

/// Steps followed.
const LIMIT: usize = 20_000;
/// Branches that may have chosen one constant, and how far back they are looked for.
const DECIDERS: usize = 3;
const REACH: u32 = 2000;

/// One of the things that the step was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Memory that this thread did not write within the window.
    Word {
        step: u32,
        address: u64,
        bytes: u32,
        value: Option<u64>,
    },
    /// What a system call returned, or wrote into memory.
    Call { step: u32 },
}

/// The origins of what `step` reads, the nearest first. `choices`: also of what chose constants.
pub fn origins(window: &Window, step: u32, choices: bool) -> Vec<Origin> {
    let dependence = Dependence::new(window);
    let mut found: Vec<Origin> = Vec::new();
    let mut seen: FxHashSet<u32> = FxHashSet::default();
    let mut work = vec![step];
    // Choices come behind what goes in directly.
    let mut chosen = Vec::new();
    while let Some(at) = work.pop().or_else(|| chosen.pop()) {
        if !seen.insert(at) || seen.len() > LIMIT {
            continue;
        }
        if window.syscall_at(at).is_some() {
            add(&mut found, Origin::Call { step: at });
            continue;
        }
        let inputs = dependence.inputs(at);
        for (index, access) in window.accesses(at).iter().enumerate() {
            let Some(address) = access.address.filter(|_| !access.write) else {
                continue;
            };
            let own = inputs.iter().any(|e| e.input == Input::Memory(index as u8));
            if !own {
                let origin = Origin::Word {
                    step: at,
                    address,
                    bytes: access.bytes,
                    value: access.value.get((access.bytes * 8).min(64)),
                };
                add(&mut found, origin);
            }
        }
        let values = inputs.iter().filter(|edge| edge.input != Input::Address);
        work.extend(values.map(|edge| edge.from));
        let code = window.code(at);
        if choices && code.reads == 0 && !code.memory.iter().any(|memory| memory.read) {
            chosen.extend(deciders(window, at));
        }
    }
    found
}

fn add(found: &mut Vec<Origin>, origin: Origin) {
    if !found.contains(&origin) {
        found.push(origin);
    }
}

/// The last branches of its own function before the step.
fn deciders(window: &Window, step: u32) -> Vec<u32> {
    let frame = window.rsp(step);
    let mut found = Vec::new();
    for at in (step.saturating_sub(REACH)..step).rev() {
        let flow = window.code(at).instruction.flow_control();
        let depth = window.rsp(at);
        if flow == FlowControl::ConditionalBranch && depth == frame {
            found.push(at);
        }
        let enters = matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
        if found.len() == DECIDERS || enters && depth > frame && frame != 0 && !found.is_empty() {
            break;
        }
    }
    found
}
