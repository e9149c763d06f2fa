// SPDX-License-Identifier: MIT
//! Where the runs are of different things: other programs, other builds of a file. Such code can't
//! be compared, and a user who mixed files up has to be told.

use crate::divergence::{Parting, ThreadRef};
use crate::input::{BlockHome, Run};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Most builds that are named one by one.
const NAMED: usize = 3;

/// Tells each of these in a sentence. Programs are told by their file names, builds by a name's
/// numbers in `module_names`.
pub fn unlike<F>(normals: &[Run<F>], spin: &Run<F>, module_names: &[String]) -> Vec<String> {
    let mut said = Vec::new();
    let ours = programs(std::slice::from_ref(spin));
    let theirs = programs(normals);
    let one = |names: &FxHashSet<&str>| names.iter().min().copied().unwrap_or_default().to_string();
    if !ours.is_empty() && !theirs.is_empty() && ours.is_disjoint(&theirs) {
        said.push(format!(
            "the recordings are of different programs: {} and {}",
            one(&theirs),
            one(&ours)
        ));
    }
    let (ours, theirs) = (modules(std::slice::from_ref(spin)), modules(normals));
    // By name: whether one build is in both, one only in ours, one only in theirs.
    let mut builds: BTreeMap<&str, [bool; 3]> = BTreeMap::new();
    for (number, name) in (0..).zip(module_names) {
        let which = match (ours.contains(&number), theirs.contains(&number)) {
            (true, true) => 0,
            (true, false) => 1,
            (false, true) => 2,
            (false, false) => continue,
        };
        builds.entry(name).or_default()[which] = true;
    }
    let other: Vec<&str> = builds
        .into_iter()
        .filter(|&(_, builds)| builds == [false, true, true])
        .map(|(name, _)| name)
        .collect();
    if !other.is_empty() {
        let more = match other.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        said.push(format!(
            "not the same build in both runs: {}{more}; no code of it can be compared",
            other[..other.len().min(NAMED)].join(", ")
        ));
    }
    said
}

/// Says how the program that spins was started, where its like in the normal run was started in
/// another way.
pub fn started_otherwise<F>(
    parting: &Parting,
    normals: &[Run<F>],
    spin: &Run<F>,
) -> Option<String> {
    let normal = parting.normal_thread.as_ref()?;
    let image = |run: &Run<F>, thread: &ThreadRef| {
        let mut processes = run.processes.iter();
        let found = processes.find(|p| (p.pid, p.image) == (thread.pid, thread.image))?;
        Some((found.program.clone(), found.started_by.clone()))
    };
    let (program, ours) = image(spin, &parting.thread)?;
    let (other, theirs) = normals.iter().find_map(|run| image(run, normal))?;
    let way = |by: &[String]| match by {
        [] => "directly".to_string(),
        by => format!("through {}", by.join(", by ")),
    };
    (program == other && ours != theirs).then(|| {
        format!(
            "{program} was started {} in the normal run and {} in the spin run; what it did from \
             its own start on is compared",
            way(&theirs),
            way(&ours)
        )
    })
}

fn programs<F>(runs: &[Run<F>]) -> FxHashSet<&str> {
    let processes = runs.iter().flat_map(|run| &run.processes);
    let names = processes.map(|process| process.program.as_str());
    names.filter(|name| !name.is_empty()).collect()
}

/// Modules with code that ran.
fn modules<F>(runs: &[Run<F>]) -> FxHashSet<u32> {
    let processes = runs.iter().flat_map(|run| &run.processes);
    let blocks = processes.flat_map(|process| &process.blocks);
    blocks
        .filter_map(|block| match block.home {
            BlockHome::Module { module, .. } => Some(module),
            BlockHome::Anonymous { .. } => None,
        })
        .collect()
}
