// SPDX-License-Identifier: MIT
//! How often each conditional branch went each way, in all threads of each run.

use crate::space::{CodePlace, CodeSpace, PlaceId};
use crate::survey::Survey;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

/// Taken and not taken.
type Counts = (u64, u64);

/// A conditional (or indirect) branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchOutcome {
    /// The branch instruction.
    pub instruction: CodePlace,
    /// Its successors, most telling first.
    pub successors: Vec<Successor>,
}

/// One way out of a branch, and how often each run took it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Successor {
    /// First instruction there; `None` is leaving the function.
    pub target: Option<CodePlace>,
    /// All threads of all normal runs.
    pub normal: u64,
    pub spin: u64,
    /// The spinning thread still takes it in the second half of its stay in the loop.
    pub repeated: bool,
}

/// The outcomes of a branch in the surveys of the normal runs and of the spin run; the successor
/// that only the normal runs took comes first. `repeated` are the edges (node, place) that spinning
/// threads still take. `None`: no run executed a conditional branch there.
pub(crate) fn outcome<'a>(
    space: &CodeSpace,
    node: PlaceId,
    normal: impl Iterator<Item = &'a Survey>,
    spin: impl Iterator<Item = &'a Survey>,
    repeated: &FxHashSet<(PlaceId, PlaceId)>,
) -> Option<BranchOutcome> {
    let (taken, not) = space.branch(node)?;
    let (normal, spin) = (counts(node, normal), counts(node, spin));
    if (normal, spin) == Default::default() {
        return None;
    }
    let successor = |place, normal, spin| Successor {
        target: space.code_place(place),
        normal,
        spin,
        repeated: repeated.contains(&(node, place)),
    };
    let mut successors = vec![
        successor(taken, normal.0, spin.0),
        successor(not, normal.1, spin.1),
    ];
    successors.sort_by_key(|way| (way.repeated, std::cmp::Reverse(way.normal)));
    Some(BranchOutcome {
        instruction: space.code_place(node)?,
        successors,
    })
}

fn counts<'a>(node: PlaceId, surveys: impl Iterator<Item = &'a Survey>) -> Counts {
    let counts = surveys.filter_map(|survey| survey.outcomes.get(&node));
    counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}
