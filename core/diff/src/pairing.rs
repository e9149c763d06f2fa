//! Which thread of one run is which of another.
//!
//! A thread is known by who created it, from where and as the how-manieth; thread ids play no part.
//! Where several were created from one place, their order may differ between runs, so the code they
//! executed decides first and the order breaks ties.

use crate::space::PlaceId;
use crate::survey::Survey;
use std::collections::BTreeMap;

/// Below this likeness two threads from different places of creation are not paired.
const LEAST_LIKENESS: f64 = 0.5;

/// What pairing needs of one run.
pub struct Side<'a> {
    /// Per thread: tid, process (index), creator's tid (0 unknown).
    pub threads: Vec<(u32, usize, u32)>,
    /// Per thread.
    pub surveys: Vec<&'a Survey>,
    /// Per process: pid and program name.
    pub processes: Vec<(u32, &'a str)>,
}

/// One pair; indexes into the sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Thread of the normal run.
    pub normal: usize,
    /// Thread of the spin run.
    pub spin: usize,
    /// 0..=1.
    pub confidence: f64,
    /// In a few words.
    pub why: &'static str,
}

/// Where a thread comes from: its creator (index), the call sites open at the clone, its first block.
type Origin = (Option<usize>, Vec<PlaceId>, PlaceId);

impl Side<'_> {
    fn origins(&self) -> Vec<Origin> {
        let mut found: Vec<Option<(usize, Vec<PlaceId>)>> = vec![None; self.threads.len()];
        for (parent, survey) in self.surveys.iter().enumerate() {
            for birth in &survey.births {
                // Within the creator's process the child's tid; a new process's first thread has its pid.
                let child = (0..self.threads.len()).find(|&index| {
                    self.threads[index].0 == birth.child
                        && index != parent
                        && found[index].is_none()
                });
                if let Some(child) = child {
                    found[child] = Some((parent, birth.stack.clone()));
                }
            }
        }
        found
            .into_iter()
            .enumerate()
            .map(|(index, origin)| {
                let (_, process, creator) = self.threads[index];
                let first = self.surveys[index].first;
                match origin {
                    Some((parent, stack)) => (Some(parent), stack, first),
                    None if creator != 0 => {
                        let parent = self
                            .threads
                            .iter()
                            .position(|thread| thread.0 == creator && thread.1 == process);
                        (parent, Vec::new(), first)
                    }
                    None => (None, Vec::new(), first),
                }
            })
            .collect()
    }
}

/// Where threads were created: call sites open at the clone, first place, program if nobody created them.
type Birthplace<'a> = (&'a [PlaceId], PlaceId, &'a str);
/// Threads of the normal and of the spin run.
type Group = (Vec<usize>, Vec<usize>);

/// Pairs the threads of two runs; those left over are in no pair.
pub fn pair(normal: &Side, spin: &Side) -> Vec<Pair> {
    let (normal_origins, spin_origins) = (normal.origins(), spin.origins());
    let mut pairs: Vec<Pair> = Vec::new();
    let mut normal_taken = vec![false; normal.threads.len()];
    let mut spin_pair: Vec<Option<usize>> = vec![None; spin.threads.len()];
    // Threads without a creator first, then the children of each pair as it is made.
    let mut work: Vec<Option<(usize, usize)>> = vec![None];
    while let Some(parents) = work.pop() {
        // Children by place of creation, in order of creation.
        let mut groups: BTreeMap<Birthplace, Group> = BTreeMap::new();
        for (index, (parent, stack, first)) in normal_origins.iter().enumerate() {
            if *parent == parents.map(|both| both.0) {
                let program = if parent.is_none() {
                    normal.processes[normal.threads[index].1].1
                } else {
                    ""
                };
                groups
                    .entry((stack, *first, program))
                    .or_default()
                    .0
                    .push(index);
            }
        }
        for (index, (parent, stack, first)) in spin_origins.iter().enumerate() {
            if *parent == parents.map(|both| both.1) {
                let program = if parent.is_none() {
                    spin.processes[spin.threads[index].1].1
                } else {
                    ""
                };
                groups
                    .entry((stack, *first, program))
                    .or_default()
                    .1
                    .push(index);
            }
        }
        for (theirs, ours) in groups.into_values() {
            let alone = theirs.len() == 1 && ours.len() == 1;
            for (n, s, score) in best_first(normal, spin, &theirs, &ours, 0.0) {
                if normal_taken[n] || spin_pair[s].is_some() {
                    continue;
                }
                normal_taken[n] = true;
                spin_pair[s] = Some(n);
                let (confidence, why) = match (parents, alone) {
                    (None, true) => (1.0, "first thread of the program"),
                    (Some(_), true) => (0.98, "created by the same call of the same thread"),
                    _ => (
                        0.5 + 0.45 * score,
                        "created at the same place; executed most alike",
                    ),
                };
                pairs.push(Pair {
                    normal: n,
                    spin: s,
                    confidence,
                    why,
                });
                work.push(Some((n, s)));
            }
        }
    }
    let left = |taken: Vec<usize>, len: usize| -> Vec<usize> {
        (0..len).filter(|index| !taken.contains(index)).collect()
    };
    let theirs = left(
        pairs.iter().map(|pair| pair.normal).collect(),
        normal.threads.len(),
    );
    let ours = left(
        pairs.iter().map(|pair| pair.spin).collect(),
        spin.threads.len(),
    );
    for (n, s, score) in best_first(normal, spin, &theirs, &ours, LEAST_LIKENESS) {
        if !normal_taken[n] && spin_pair[s].is_none() {
            normal_taken[n] = true;
            spin_pair[s] = Some(n);
            pairs.push(Pair {
                normal: n,
                spin: s,
                confidence: 0.6 * score,
                why: "created elsewhere; executed alike",
            });
        }
    }
    pairs.sort_by_key(|pair| pair.spin);
    pairs
}

/// All combinations at or above `least`, most alike first; equal ones by how close their ordinals are.
fn best_first(
    normal: &Side,
    spin: &Side,
    theirs: &[usize],
    ours: &[usize],
    least: f64,
) -> Vec<(usize, usize, f64)> {
    let mut all = Vec::new();
    for (i, &n) in theirs.iter().enumerate() {
        for (j, &s) in ours.iter().enumerate() {
            let score = normal.surveys[n].likeness(spin.surveys[s]);
            if score >= least {
                all.push((n, s, score, i.abs_diff(j)));
            }
        }
    }
    // Likeness in steps of a twentieth: a few blocks more or less must not outweigh the order.
    all.sort_by_key(|&(n, s, score, distance)| {
        (
            std::cmp::Reverse((score * 20.0).round() as u32),
            distance,
            n,
            s,
        )
    });
    all.into_iter()
        .map(|(n, s, score, _)| (n, s, score))
        .collect()
}
