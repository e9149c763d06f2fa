// SPDX-License-Identifier: MIT
//! What a way that comes back into the loop brings with it, and whether a later exit tests that.
//!
//! ```c
//!     while (1) {
//!         lock(list);
//!         item = list.len ? pop(list) : NONE;    // both ways lead on to the same code
//!         unlock(list);
//!         if (item != NONE)                      // but what they leave is tested here
//!             break;
//!         pause();
//!     }
//! ```
//!
//! In: the window behind the place where the ways meet. Blind spots: what is left in memory, and
//! what is computed with before it is tested.

use std::ops::Range;

use flagfinder_machine::decoded::{Resources, ALL_FLAGS};
use flagfinder_machine::Window;
use iced_x86::{FlowControl, Mnemonic};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::effects::KEPT;
use crate::other_way::OtherWay;

/// Ways that stay in the loop, with what leads out of it later, decide something. `decided`: the
/// exits that test it, by way.
pub fn decide(found: &mut FxHashMap<u64, OtherWay>, mut decided: FxHashMap<u64, Vec<u64>>) {
    let leads_out = |found: &FxHashMap<u64, OtherWay>, exit: &u64| {
        matches!(
            found.get(exit),
            None | Some(OtherWay::Tests | OtherWay::Decides)
        )
    };
    loop {
        let decides = |exits: &Vec<u64>| exits.iter().any(|exit| leads_out(found, exit));
        let more: Vec<u64> = decided
            .iter()
            .filter(|(_, exits)| decides(exits))
            .map(|(branch, _)| *branch)
            .collect();
        if more.is_empty() {
            return;
        }
        for branch in more {
            decided.remove(&branch);
            found.insert(branch, OtherWay::Decides);
        }
    }
}

/// The `exits` (address, stack pointer) that test what one of these registers holds in the frame
/// where the steps begin; by address.
pub fn tests(
    window: &Window,
    steps: Range<u32>,
    rsp: u64,
    mut held: Resources,
    exits: &FxHashSet<(u64, u64)>,
) -> Vec<u64> {
    let mut found = Vec::new();
    // The flags come from a test of such a register.
    let mut tested = false;
    for step in steps {
        if held == 0 && !tested {
            break;
        }
        if window.rsp(step) != rsp {
            // A called function may use a register that it need not keep.
            held &= KEPT;
            tested = false;
            continue;
        }
        let code = window.code(step);
        let instruction = &code.instruction;
        if instruction.flow_control() == FlowControl::ConditionalBranch {
            if tested && exits.contains(&(window.pc(step), rsp)) {
                found.push(window.pc(step));
            }
            continue;
        }
        if code.writes & ALL_FLAGS != 0 {
            let compares = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
            tested = compares && code.reads & held != 0;
        }
        let copies = instruction.mnemonic() == Mnemonic::Mov && code.reads & held != 0;
        held &= !code.writes;
        if copies && code.memory.is_empty() {
            held |= code.writes;
        }
    }
    found
}
