// SPDX-License-Identifier: MIT
//! What the same instructions read in a normal run, and with what it left the loop.

use std::sync::Arc;

use flagfinder_machine::decoded::Decoded;
use flagfinder_machine::evaluator::Evaluator;
use flagfinder_machine::replayer::{Visitor, Wants};
use rustc_hash::FxHashMap;

use crate::passes::Pass;

/// Most addresses that are remembered for one candidate of the normal run.
const ADDRESSES: usize = 64;

/// A candidate of one of the waiting threads: the thread's number among them, its own number.
pub type CandidateKey = (usize, usize);

/// A way out of the loop in which a thread waits.
pub struct Exit {
    /// Number of the waiting thread.
    pub waiting: usize,
    /// The branch in the spin run.
    pub spin_pc: u64,
    pub leaves: Leaves,
    /// Candidates that decide it.
    pub candidates: Vec<usize>,
}

/// Where this run goes when it leaves by a way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    To(u64),
    /// It goes elsewhere than where it repeats. Code that comes by with other data (a state
    /// machine) goes elsewhere as well, so only a branch that has just repeated counts as left.
    ElsewhereThan(u64),
}

#[derive(Default)]
pub struct Questions {
    /// By pc in this run: candidates it reads.
    pub loads: FxHashMap<u64, Vec<CandidateKey>>,
    /// By the branch's pc in this run.
    pub exits: FxHashMap<u64, Vec<Exit>>,
}

/// A place that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub address: u64,
    /// The thread that reads it; `None` if several do, as threads at a barrier.
    pub reader: Option<u32>,
    /// Its value when an exit was left that had read this place last.
    pub left_with: Option<u64>,
    /// Different values were read there.
    pub varies: bool,
}

/// What was found for one candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Oldest first.
    pub seen: Vec<Seen>,
    /// Address and value when an exit was last left by the other way.
    pub leaving: Option<(u64, u64)>,
    /// Address and value when a branch that it decides was left last, after this branch had
    /// repeated with another value there: what a wait ended with.
    pub let_go: Option<(u64, u64)>,
    last: Option<(u64, u64)>,
    /// It was read; where, or which value, is not known.
    lost: bool,
    /// By branch: address and value when it went round; `None`: then it was left.
    stayed: FxHashMap<u64, Option<(u64, u64)>>,
    /// Branches that were left before they were seen to repeat, with what was read.
    left_first: Vec<(u64, (u64, u64))>,
    /// A branch that it decides was left with the same value with which it had repeated before.
    pub unchanged: bool,
    /// Address and value that were read first.
    first: Option<(u64, u64)>,
    /// An exit was left before anything was read here, so what was read before that counts.
    left_early: bool,
}

impl Read {
    fn see(&mut self, new: Seen) {
        match self.seen.iter_mut().find(|s| s.address == new.address) {
            Some(known) => {
                known.left_with = new.left_with.or(known.left_with);
                known.varies |= new.varies;
                known.reader = known.reader.filter(|_| known.reader == new.reader);
            }
            None => {
                if self.seen.len() >= ADDRESSES {
                    self.seen.remove(0);
                }
                self.seen.push(new);
            }
        }
    }

    /// Another value than the one before at the same place: it was written in between.
    fn value(&mut self, address: u64, value: u64) {
        if self
            .last
            .is_some_and(|(at, old)| at == address && old != value)
        {
            if let Some(seen) = self.seen.iter_mut().find(|s| s.address == address) {
                seen.varies = true;
            }
        }
        self.first = self.first.or(Some((address, value)));
        self.last = Some((address, value));
        self.lost = false;
    }

    /// The next piece begins with this.
    fn read_next(&mut self, word: Option<(u64, u64)>, tid: u32) {
        if let Some((address, value)) = word {
            self.see(Seen {
                address,
                reader: Some(tid),
                left_with: None,
                varies: false,
            });
            self.value(address, value);
        }
    }

    /// The last value that was read is no longer known.
    fn lose(&mut self) {
        self.last = None;
        self.lost = true;
    }

    fn leave(&mut self) {
        let Some((address, value)) = self.last else {
            self.left_early |= !self.lost;
            return;
        };
        self.leaving = self.last;
        if let Some(seen) = self.seen.iter_mut().find(|s| s.address == address) {
            seen.left_with = Some(value);
        }
    }

    /// A branch that it decides was executed, and left the loop or not.
    fn decide(&mut self, branch: u64, leaves: bool) {
        let Some(last) = self.last else { return };
        if !leaves {
            self.stayed.insert(branch, Some(last));
        } else if !self.end_wait(branch, last) {
            self.left_first.push((branch, last));
        }
    }

    /// The branch was left with this. Is it known what it did before?
    fn end_wait(&mut self, branch: u64, last: (u64, u64)) -> bool {
        let before = self.stayed.insert(branch, None);
        if let Some(before) = before.flatten().filter(|before| before.0 == last.0) {
            match before.1 == last.1 {
                true => self.unchanged = true,
                false => self.let_go = Some(last),
            }
        }
        before.is_some()
    }

    /// Another thread read what follows.
    fn forget(&mut self) {
        self.last = None;
        self.lost = false;
        self.stayed.clear();
    }

    fn absorb(&mut self, later: Read) {
        self.unchanged |= later.unchanged;
        if later.left_early && self.last.is_some() {
            self.leave();
        }
        for (branch, last) in later.left_first {
            self.end_wait(branch, last);
        }
        self.stayed.extend(later.stayed);
        if let Some((address, value)) = later.first {
            self.value(address, value);
        }
        for seen in later.seen {
            self.see(seen);
        }
        self.leaving = later.leaving.or(self.leaving);
        self.let_go = later.let_go.or(self.let_go);
        self.last = later.last.or(self.last.filter(|_| !later.lost));
        self.lost = later.lost;
    }
}

#[derive(Clone)]
pub struct Reads {
    questions: Arc<Questions>,
    /// By waiting thread and candidate.
    pub found: Vec<Vec<Read>>,
    /// By waiting thread and pc in the spin run.
    pub other_way: FxHashMap<(usize, u64), u64>,
    tid: u32,
    /// Of jumps, by branch and number within the questions: did it repeat when it was executed
    /// last?
    went_round: FxHashMap<(u64, usize), bool>,
    /// Jumps that went elsewhere before they were seen to repeat, with what their words held.
    elsewhere_first: Vec<((u64, usize), Words)>,
}

/// Of the words that decide an exit: where they were read last, and which value.
type Words = Vec<Option<(u64, u64)>>;

impl Reads {
    /// `candidates`: how many each waiting thread has.
    pub fn new(questions: Questions, candidates: impl Iterator<Item = usize>) -> Self {
        Reads {
            questions: Arc::new(questions),
            found: candidates
                .map(|count| vec![Read::default(); count])
                .collect(),
            other_way: FxHashMap::default(),
            tid: 0,
            went_round: FxHashMap::default(),
            elsewhere_first: Vec::new(),
        }
    }
}

impl Pass for Reads {
    fn begin(&self, tid: u32) -> Self {
        Reads {
            questions: Arc::clone(&self.questions),
            found: self
                .found
                .iter()
                .map(|one| vec![Read::default(); one.len()])
                .collect(),
            other_way: FxHashMap::default(),
            tid,
            went_round: FxHashMap::default(),
            elsewhere_first: Vec::new(),
        }
    }

    fn absorb(&mut self, later: Self) {
        for (exit, count) in later.other_way {
            *self.other_way.entry(exit).or_default() += count;
        }
        if self.tid != later.tid {
            self.found.iter_mut().flatten().for_each(Read::forget);
            self.went_round.clear();
        }
        for (key, words) in later.elsewhere_first {
            let mut exits = self.questions.exits.get(&key.0).into_iter().flatten();
            let went_round = self.went_round.get(&key) == Some(&true);
            let Some(exit) = exits.nth(key.1).filter(|_| went_round) else {
                continue;
            };
            let found = &mut self.found[exit.waiting];
            for (&candidate, &word) in exit.candidates.iter().zip(&words) {
                found[candidate].read_next(word, later.tid);
            }
            exit.count(&mut self.other_way);
            exit.leave(found);
        }
        self.went_round.extend(later.went_round);
        let theirs = later.found.into_iter().flatten();
        for (mine, theirs) in self.found.iter_mut().flatten().zip(theirs) {
            mine.absorb(theirs);
        }
        self.tid = later.tid;
    }

    fn is_idle(&self, code: &[Decoded]) -> bool {
        !code.iter().map(Decoded::pc).any(|pc| {
            self.questions.loads.contains_key(&pc) || self.questions.exits.contains_key(&pc)
        })
    }
}

impl Visitor for Reads {
    fn wants(&self) -> Wants {
        Wants::Chosen
    }

    #[inline]
    fn chooses(&self, code: &Decoded) -> bool {
        !code.memory.is_empty() && self.questions.loads.contains_key(&code.pc())
    }

    fn after(&mut self, code: &Decoded, evaluator: &Evaluator) {
        let Some(candidates) = self.questions.loads.get(&code.pc()) else {
            return;
        };
        let Some(access) = evaluator.accesses().iter().find(|a| !a.write) else {
            return;
        };
        let value = access.value.get((access.bytes * 8).min(64));
        for &(waiting, candidate) in candidates {
            let read = &mut self.found[waiting][candidate];
            let Some(address) = access.address else {
                read.lose();
                continue;
            };
            if read.last.is_none_or(|(last, _)| last != address) {
                read.see(Seen {
                    address,
                    reader: Some(self.tid),
                    left_with: None,
                    varies: false,
                });
            }
            match value {
                Some(value) => read.value(address, value),
                None => read.lose(),
            }
        }
    }

    fn branch(&mut self, code: &Decoded, next: u64) {
        let Some(exits) = self.questions.exits.get(&code.pc()) else {
            return;
        };
        for (number, exit) in exits.iter().enumerate() {
            let key = (code.pc(), number);
            let found = &mut self.found[exit.waiting];
            match exit.leaves {
                Leaves::To(other) => {
                    let leaves = other == next;
                    exit.decide(found, leaves);
                    if leaves {
                        exit.count(&mut self.other_way);
                        found.iter_mut().for_each(Read::leave);
                    }
                }
                Leaves::ElsewhereThan(round) if round == next => {
                    self.went_round.insert(key, true);
                    exit.decide(found, false);
                }
                Leaves::ElsewhereThan(_) => match self.went_round.insert(key, false) {
                    Some(true) => {
                        exit.count(&mut self.other_way);
                        exit.leave(found);
                    }
                    Some(false) => {}
                    None => {
                        let words = exit.candidates.iter().map(|&at| found[at].last);
                        self.elsewhere_first.push((key, words.collect()));
                    }
                },
            }
        }
    }
}

impl Exit {
    fn count(&self, other_way: &mut FxHashMap<(usize, u64), u64>) {
        *other_way.entry((self.waiting, self.spin_pc)).or_default() += 1;
    }

    /// It was executed, and left the loop or not.
    fn decide(&self, found: &mut [Read], leaves: bool) {
        for &candidate in &self.candidates {
            found[candidate].decide(self.spin_pc, leaves);
        }
    }

    /// It went elsewhere. A scheduler's jump goes on with another task, and the loop repeats later:
    /// words that do not decide the jump have not ended the loop.
    fn leave(&self, found: &mut [Read]) {
        self.decide(found, true);
        self.candidates.iter().for_each(|&at| found[at].leave());
    }
}

#[cfg(test)]
#[path = "reads_tests.rs"]
mod tests;
