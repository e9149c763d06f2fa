// SPDX-License-Identifier: MIT
//! How much an exit speaks for a word that decides it.

use flagfinder_analysis::condition::Condition;
use flagfinder_analysis::expression::Expression;
use flagfinder_analysis::{Analysis, Candidate};
use flagfinder_machine::Window;

use crate::evidence::Outside;
use crate::exit_depths::ExitDepths;
use crate::report::Own;

/// What the exit adds to the word's score, why, and whether its test shows that a virtual machine
/// has the word for itself.
pub fn exit_bonus(
    window: &Window,
    analysis: &Analysis,
    depths: &ExitDepths,
    outside: &Outside,
    candidate: &Candidate,
    index: usize,
) -> (f64, Vec<String>, Option<Own>) {
    let exit = &analysis.exits[index];
    let mut why = Vec::new();
    let mut own = None;
    let mut bonus = 0.0;
    let mentioned = analysis.conditions[index]
        .as_ref()
        .is_some_and(|c| c.mentions(candidate.address, candidate.bytes));
    if mentioned {
        bonus += 0.15;
        why.push("the exit branch compares it directly".into());
    }
    let held = candidate.value.is_some_and(|now| {
        let test = analysis.conditions[index].as_ref();
        test.is_some_and(|c| c.is_held_by_others(candidate.address, candidate.bytes * 8, now))
    });
    if mentioned && held {
        bonus -= 0.25;
        why.push("the others keep the branch as it is, whatever this one holds".into());
    }
    let test = analysis.conditions[index].as_ref().filter(|_| mentioned);
    let now = candidate.value.unwrap_or(u64::MAX);
    let owed =
        test.is_some_and(|c| c.is_owed_by_others(candidate.address, candidate.bytes * 8, now));
    if owed {
        bonus -= 0.12;
        why.push("zero already, it would have to become negative: others owe the change".into());
    }
    if candidate.followed && test.is_some_and(Condition::leaves_at_zero) {
        bonus -= 0.15;
        why.push("the loop reads what it points to: a check for null".into());
    }
    let checked = analysis.conditions[index]
        .as_ref()
        .is_some_and(|c| c.checks_for_one_value());
    if mentioned && checked && !candidate.atomic {
        // Generated code tests the types of objects in the same way.
        let of_type = analysis.generated.is_at(window, exit.step);
        bonus -= if of_type { 0.1 } else { 0.04 };
        why.push("it is compared with the value it has: more likely a check".into());
        own = Some(Own::Check);
    }
    let kinds = test.is_some_and(Condition::asks_for_bits_or_bounds);
    if kinds && outside.live && analysis.is_of_machine() {
        bonus -= 0.1;
        why.push("a virtual machine's loop asks for bits of it, or for bounds: a check".into());
        own = Some(Own::Bits);
    }
    let both = analysis.conditions[index].as_ref().is_some_and(|c| {
        let side = |side: &Expression| side.mentions(candidate.address, candidate.bytes);
        side(&c.left) && side(&c.right)
    });
    if both {
        bonus -= 0.05;
        why.push("it stands on both sides of the comparison: a mask or a bound".into());
    }
    if exit.induction {
        bonus -= 0.3;
        why.push(
            "it is compared with something the loop itself changes (a counter, a bound)".into(),
        );
    }
    // A lock for which the C library itself waits counts like one of the program's own.
    let waits = depths.library_waits && !outside.of_runtime.contains(&candidate.address);
    if depths.runtime[index] && !waits {
        bonus -= 0.25;
        why.push("the exit lies in the C library or language runtime".into());
    }
    if outside.live && depths.is_of_library(candidate) {
        bonus -= 0.1;
        why.push("the exit lies in a library, while the program itself tests other words".into());
    }
    bonus -= 0.04 * f64::from(depths.depth[index].min(5));
    // If many words enter a slice, it says little about each.
    let sources = exit.words as f64;
    bonus -= 0.02 * (sources - 2.0).clamp(0.0, 10.0);
    if exit.ends_scan {
        bonus -= 0.1;
        why.push("a scan ends at it in every iteration".into());
    } else if let Some((by, reason)) = outside.exit(window.pc(exit.step)) {
        bonus += by;
        why.push(reason);
    } else if depths.guard[index] {
        bonus -= 0.2;
        why.push("generated code tests types and bounds like this, and several words here".into());
    }
    (bonus, why, own)
}
