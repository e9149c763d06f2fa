// SPDX-License-Identifier: MIT
//! What an exit of a loop says of a word that decides it.

use flagfinder_analysis::condition::Condition;
use flagfinder_analysis::expression::Expression;
use flagfinder_analysis::{Analysis, Candidate};
use flagfinder_machine::Window;

use crate::evidence::Outside;
use crate::exit_depths::ExitDepths;
use crate::report::Own;
use crate::rules::{Rule, Signs};

/// Calls below the loop, and words of one test: more of them say no more.
const DEEPEST: u32 = 5;
const MOST_WORDS: usize = 12;

/// The signs of the exit for the word, and whether its test shows that a virtual machine has the
/// word for itself.
pub(crate) fn exit_signs(
    window: &Window,
    analysis: &Analysis,
    depths: &ExitDepths,
    outside: &Outside,
    candidate: &Candidate,
    index: usize,
) -> (Signs, Option<Own>) {
    let exit = &analysis.exits[index];
    let (address, bytes) = (candidate.address, candidate.bytes);
    let (mut signs, mut own) = (Signs::default(), None);
    let test = analysis.conditions[index].as_ref();
    if let Some(test) = test.filter(|test| test.mentions(address, bytes)) {
        signs.add(Rule::Compared);
        let held = |now| test.is_held_by_others(address, bytes * 8, now);
        if candidate.value.is_some_and(held) {
            signs.add(Rule::HeldByOthers);
        }
        let now = candidate.value.unwrap_or(u64::MAX);
        if test.is_owed_by_others(address, bytes * 8, now) {
            signs.add(Rule::OwedByOthers);
        }
        if candidate.followed && test.leaves_at_zero() {
            signs.add(Rule::NullCheck);
        }
        if test.checks_for_one_value() && !candidate.atomic {
            // Generated code tests the types of objects in the same way.
            signs.add(match analysis.generated.is_at(window, exit.step) {
                true => Rule::TypeCheck,
                false => Rule::OneValue,
            });
            own = Some(Own::Check);
        }
        if Condition::asks_for_bits_or_bounds(test) && outside.live && analysis.is_of_machine() {
            signs.add(Rule::BitsOrBounds);
            own = Some(Own::Bits);
        }
    }
    let is_on = |side: &Expression| side.mentions(address, bytes);
    if test.is_some_and(|test| is_on(&test.left) && is_on(&test.right)) {
        signs.add(Rule::BothSides);
    }
    if exit.induction {
        signs.add(Rule::Counter);
    }
    // A lock for which the C library itself waits counts like one of the program's own.
    let waits = depths.library_waits && !outside.of_runtime.contains(&address);
    if depths.runtime[index] && !waits {
        signs.add(Rule::InRuntime);
    }
    if outside.live && depths.is_of_library(candidate) {
        signs.add(Rule::InLibrary);
    }
    let depth = depths.depth[index];
    signs.add_times(Rule::Depth, depth.min(DEEPEST).into(), depth.to_string());
    // If many words enter a slice, it says little about each.
    let beyond = exit.words.min(MOST_WORDS).saturating_sub(2);
    signs.add_times(Rule::ManyWords, beyond as f64, exit.words.to_string());
    if exit.ends_scan {
        signs.add(Rule::EndsScan);
    } else if let Some((rule, about)) = outside.exit(window.pc(exit.step)) {
        signs.add_about(rule, about);
    } else if depths.guard[index] {
        signs.add(Rule::Guard);
    }
    (signs, own)
}
