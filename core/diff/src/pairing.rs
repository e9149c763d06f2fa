// SPDX-License-Identifier: MIT
//! Which thread of one run is which of another.
//!
//! A thread is known by who created it, from where, and how many were created there before; thread
//! ids play no part.
//! The first thread of a program that was started differently in the two runs is known by the
//! program. Where several were created from one place, their order may differ between runs, so the
//! code they executed decides first and the order breaks ties.

use crate::space::PlaceId;
use crate::survey::Survey;
use std::collections::BTreeMap;

/// Two threads from different places of creation are not paired below this likeness.
const LEAST_LIKENESS: f64 = 0.5;
/// About so many combinations of threads from one place are compared.
const MOST_COMPARED: usize = 1 << 17;

/// What pairing needs to know of one run.
pub struct Side<'a> {
    /// Per thread: tid, process (index), creator's tid (0 unknown).
    pub threads: Vec<(u32, usize, u32)>,
    pub surveys: Vec<&'a Survey>,
    /// Per image of a process: pid and program name.
    pub processes: Vec<(u32, &'a str)>,
}

/// One pair; indexes into the sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub normal: usize,
    pub spin: usize,
    /// 0..=1.
    pub confidence: f64,
    /// In a few words.
    pub why: &'static str,
}

/// Where a thread comes from: its creator (index), the call sites open at the clone, its first
/// block.
type Origin = (Option<usize>, Vec<PlaceId>, PlaceId);

impl<'a> Side<'a> {
    fn program(&self, thread: usize) -> &'a str {
        self.processes[self.threads[thread].1].1
    }

    /// Is it the first thread of a program whose name is known?
    fn begins_program(&self, thread: usize) -> bool {
        let (_, process, _) = self.threads[thread];
        let first = self.threads.iter().position(|other| other.1 == process);
        first == Some(thread) && !self.program(thread).is_empty()
    }

    fn origins(&self) -> Vec<Origin> {
        let mut found: Vec<Option<(usize, Vec<PlaceId>)>> = vec![None; self.threads.len()];
        for (parent, survey) in self.surveys.iter().enumerate() {
            for birth in &survey.births {
                // Within the creator's process the child's tid; a new process's first thread has
                // its pid.
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

/// Where threads were created: call sites open at the clone, first place, program.
type Birthplace<'a> = (&'a [PlaceId], PlaceId, &'a str);
/// Threads of the normal and of the spin run.
type Group = (Vec<usize>, Vec<usize>);

/// Pairs the threads of two runs; those left over are in no pair.
pub fn pair(normal: &Side, spin: &Side) -> Vec<Pair> {
    let mut pairing = Pairing {
        normal,
        spin,
        origins: (normal.origins(), spin.origins()),
        taken: (
            vec![false; normal.threads.len()],
            vec![false; spin.threads.len()],
        ),
        pairs: Vec::new(),
    };
    pairing.families(vec![None]);
    let images = pairing.images();
    pairing.families(images.into_iter().map(Some).collect());
    let alike = pairing.left(|_, _| true);
    for (n, s, score) in best_first(normal, spin, &alike.0, &alike.1, LEAST_LIKENESS) {
        pairing.add(n, s, 0.6 * score, "created elsewhere; executed alike");
    }
    pairing.pairs.sort_by_key(|pair| pair.spin);
    pairing.pairs
}

struct Pairing<'a> {
    normal: &'a Side<'a>,
    spin: &'a Side<'a>,
    /// Origins of the normal run's threads, and of the spin run's.
    origins: (Vec<Origin>, Vec<Origin>),
    taken: (Vec<bool>, Vec<bool>),
    pairs: Vec<Pair>,
}

impl Pairing<'_> {
    /// Pairs the children of each of these pairs (`None`: what nobody created), and their children.
    fn families(&mut self, mut parents: Vec<Option<(usize, usize)>>) {
        while let Some(both) = parents.pop() {
            let origins = std::mem::take(&mut self.origins);
            // By place of creation, in order of creation.
            let mut groups: BTreeMap<Birthplace, Group> = BTreeMap::new();
            for (index, (parent, stack, first)) in origins.0.iter().enumerate() {
                if *parent == both.map(|both| both.0) {
                    let place = (stack.as_slice(), *first, self.normal.program(index));
                    groups.entry(place).or_default().0.push(index);
                }
            }
            for (index, (parent, stack, first)) in origins.1.iter().enumerate() {
                if *parent == both.map(|both| both.1) {
                    let place = (stack.as_slice(), *first, self.spin.program(index));
                    groups.entry(place).or_default().1.push(index);
                }
            }
            for (theirs, ours) in groups.into_values() {
                let alone = theirs.len() == 1 && ours.len() == 1;
                for (n, s, score) in best_first(self.normal, self.spin, &theirs, &ours, 0.0) {
                    let (confidence, why) = match (both, alone) {
                        (None, true) => (1.0, "first thread of the program"),
                        (Some(_), true) => (0.98, "created by the same call of the same thread"),
                        _ => (
                            0.5 + 0.45 * score,
                            "created at the same place; executed most alike",
                        ),
                    };
                    if self.add(n, s, confidence, why) {
                        parents.push(Some((n, s)));
                    }
                }
            }
            self.origins = origins;
        }
    }

    /// Pairs what is left of programs' first threads: one run's program was started in another way
    /// (by a shell, through `env`) than the other's.
    fn images(&mut self) -> Vec<(usize, usize)> {
        let (theirs, ours) = self.left(|side, thread| side.begins_program(thread));
        let mut programs: BTreeMap<&str, Group> = BTreeMap::new();
        for n in theirs {
            programs
                .entry(self.normal.program(n))
                .or_default()
                .0
                .push(n);
        }
        for s in ours {
            programs.entry(self.spin.program(s)).or_default().1.push(s);
        }
        let mut found = Vec::new();
        for (theirs, ours) in programs.into_values() {
            for (n, s, score) in best_first(self.normal, self.spin, &theirs, &ours, 0.0) {
                let why = "first thread of the same program, started in another way";
                if self.add(n, s, 0.5 + 0.45 * score, why) {
                    found.push((n, s));
                }
            }
        }
        found
    }

    /// `false`: one of them is in a pair already.
    fn add(&mut self, normal: usize, spin: usize, confidence: f64, why: &'static str) -> bool {
        if self.taken.0[normal] || self.taken.1[spin] {
            return false;
        }
        self.taken.0[normal] = true;
        self.taken.1[spin] = true;
        self.pairs.push(Pair {
            normal,
            spin,
            confidence,
            why,
        });
        true
    }

    /// Threads in no pair of which `wanted` holds.
    fn left(&self, wanted: impl Fn(&Side, usize) -> bool) -> Group {
        let of = |side: &Side, taken: &[bool]| -> Vec<usize> {
            let threads = 0..side.threads.len();
            threads
                .filter(|&index| !taken[index] && wanted(side, index))
                .collect()
        };
        (of(self.normal, &self.taken.0), of(self.spin, &self.taken.1))
    }
}

/// All combinations at or above `least`, most alike first; equal ones by how close their ordinals
/// are.
fn best_first(
    normal: &Side,
    spin: &Side,
    theirs: &[usize],
    ours: &[usize],
    least: f64,
) -> Vec<(usize, usize, f64)> {
    let mut all = Vec::new();
    // Of very many only those near each other in order.
    let reach = MOST_COMPARED / ours.len().max(1);
    for (i, &n) in theirs.iter().enumerate() {
        let near = i.saturating_sub(reach)..ours.len().min(i + reach + 1);
        for (j, &s) in ours.iter().enumerate().take(near.end).skip(near.start) {
            let score = normal.surveys[n].likeness(spin.surveys[s]);
            if score >= least {
                all.push((n, s, score, i.abs_diff(j)));
            }
        }
    }
    // Likeness in steps of a twentieth, so that a few blocks more or less do not outweigh the
    // order.
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
