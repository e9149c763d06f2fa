// SPDX-License-Identifier: MIT
//! How often each conditional branch went each way, in all threads of each run.

use crate::space::{CodePlace, CodeSpace, PlaceId};
use crate::survey::Survey;
use rustc_hash::{FxHashMap, FxHashSet};
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

/// All conditional branches executed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BranchTable {
    modules: Vec<String>,
    /// (module, offset) -> where it goes taken and not taken (offsets in the same module), counts
    /// of the normal and the spin run, and which ways are still repeated.
    rows: FxHashMap<(u32, u64), Row>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    targets: (u64, u64),
    normal: Counts,
    spin: Counts,
    repeated: (bool, bool),
}

impl BranchTable {
    /// Sums up surveys. `repeated` are the edges (node, place) that spinning threads still take.
    pub(crate) fn new<'a>(
        space: &CodeSpace,
        normal: impl Iterator<Item = &'a Survey>,
        spin: impl Iterator<Item = &'a Survey>,
        repeated: &FxHashSet<(PlaceId, PlaceId)>,
    ) -> BranchTable {
        let mut table = BranchTable::default();
        let mut modules: FxHashMap<String, u32> = FxHashMap::default();
        let sides = normal
            .map(|survey| (true, survey))
            .chain(spin.map(|survey| (false, survey)));
        for (is_normal, survey) in sides {
            for (&node, &(taken, not)) in &survey.outcomes {
                let Some(targets) = space.branch(node) else {
                    continue;
                };
                let (name, offset) = space.place(node);
                let module = match modules.get(name) {
                    Some(&module) => module,
                    None => {
                        table.modules.push(name.to_string());
                        modules.insert(name.to_string(), table.modules.len() as u32 - 1);
                        table.modules.len() as u32 - 1
                    }
                };
                let row = table.rows.entry((module, offset)).or_insert_with(|| Row {
                    targets: (space.place(targets.0).1, space.place(targets.1).1),
                    repeated: (
                        repeated.contains(&(node, targets.0)),
                        repeated.contains(&(node, targets.1)),
                    ),
                    ..Row::default()
                });
                let counts = if is_normal {
                    &mut row.normal
                } else {
                    &mut row.spin
                };
                counts.0 += taken;
                counts.1 += not;
            }
        }
        table
    }

    /// The outcomes of the branch at a place; the successor only the normal run took comes first.
    pub fn get(&self, place: &CodePlace) -> Option<BranchOutcome> {
        let module = self.modules.iter().position(|name| *name == place.module)? as u32;
        let row = self.rows.get(&(module, place.offset))?;
        let successor = |offset, normal, spin, repeated| Successor {
            target: Some(CodePlace {
                module: place.module.clone(),
                offset,
            }),
            normal,
            spin,
            repeated,
        };
        let mut successors = vec![
            successor(row.targets.0, row.normal.0, row.spin.0, row.repeated.0),
            successor(row.targets.1, row.normal.1, row.spin.1, row.repeated.1),
        ];
        successors.sort_by_key(|way| (way.repeated, std::cmp::Reverse(way.normal)));
        Some(BranchOutcome {
            instruction: place.clone(),
            successors,
        })
    }
}
