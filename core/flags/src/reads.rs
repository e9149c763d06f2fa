// SPDX-License-Identifier: MIT
//! What the same instructions read in a normal run, and with what it left the loop.

use std::sync::Arc;

use flagfinder_machine::decoded::Decoded;
use flagfinder_machine::evaluator::Evaluator;
use flagfinder_machine::replayer::{Visitor, Wants};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::passes::Pass;

/// Addresses remembered for one candidate of the normal run.
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

/// Where a way out goes when it leaves, in this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    To(u64),
    /// Elsewhere than to where it goes round. Code that comes by with other data (a state machine)
    /// goes elsewhere as well: only who went round just before leaves.
    ElsewhereThan(u64),
}

/// What is asked.
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
    /// The thread that reads it; `None` when several do, as threads at a barrier.
    pub reader: Option<u32>,
    /// Its value when an exit was last left with it as the last one read.
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
    last: Option<(u64, u64)>,
    /// By branch: address and value when it last went round.
    stayed: Vec<(u64, (u64, u64))>,
    /// When a branch that it decides was left, its value was another one than when that branch went
    /// round before.
    pub changed: bool,
    /// It was the same.
    pub unchanged: bool,
    /// Address and value that were read first.
    first: Option<(u64, u64)>,
    /// An exit was left before anything was read here: what was read before that counts.
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
    }

    fn leave(&mut self) {
        let Some((address, value)) = self.last else {
            self.left_early = true;
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
        let before = self.stayed.iter_mut().find(|(at, _)| *at == branch);
        match (before, leaves) {
            (Some((_, before)), false) => *before = last,
            (None, false) => self.stayed.push((branch, last)),
            (Some((_, before)), true) if before.0 == last.0 => {
                self.changed |= before.1 != last.1;
                self.unchanged |= before.1 == last.1;
            }
            (_, true) => {}
        }
    }

    fn absorb(&mut self, later: Read) {
        self.changed |= later.changed;
        self.unchanged |= later.unchanged;
        if later.left_early && self.last.is_some() {
            self.leave();
        }
        if let Some((address, value)) = later.first {
            self.value(address, value);
        }
        for seen in later.seen {
            self.see(seen);
        }
        self.leaving = later.leaving.or(self.leaving);
        self.last = later.last.or(self.last);
    }
}

/// See the module.
#[derive(Clone)]
pub struct Reads {
    questions: Arc<Questions>,
    /// By waiting thread and candidate.
    pub found: Vec<Vec<Read>>,
    /// By waiting thread and pc in the spin run.
    pub other_way: FxHashMap<(usize, u64), u64>,
    tid: u32,
    /// Exits, by number within the questions and branch, that went round when they were executed
    /// last.
    going_round: FxHashSet<(u64, usize)>,
}

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
            going_round: FxHashSet::default(),
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
            going_round: FxHashSet::default(),
        }
    }

    fn absorb(&mut self, later: Self) {
        for (exit, count) in later.other_way {
            *self.other_way.entry(exit).or_default() += count;
        }
        let theirs = later.found.into_iter().flatten();
        for (mine, theirs) in self.found.iter_mut().flatten().zip(theirs) {
            if self.tid != later.tid {
                mine.last = None;
            }
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
        let Some(address) = access.address else {
            return;
        };
        let value = access.value.get((access.bytes * 8).min(64));
        for &(waiting, candidate) in candidates {
            let read = &mut self.found[waiting][candidate];
            if read.last.is_none_or(|(last, _)| last != address) {
                read.see(Seen {
                    address,
                    reader: Some(self.tid),
                    left_with: None,
                    varies: false,
                });
            }
            if let Some(value) = value {
                read.value(address, value);
            }
        }
    }

    fn branch(&mut self, code: &Decoded, next: u64) {
        let Some(exits) = self.questions.exits.get(&code.pc()) else {
            return;
        };
        for (number, exit) in exits.iter().enumerate() {
            let key = (code.pc(), number);
            let leaves = match exit.leaves {
                Leaves::To(other) => other == next,
                Leaves::ElsewhereThan(round) if round == next => {
                    self.going_round.insert(key);
                    false
                }
                Leaves::ElsewhereThan(_) => self.going_round.remove(&key),
            };
            let found = &mut self.found[exit.waiting];
            for &candidate in &exit.candidates {
                found[candidate].decide(exit.spin_pc, leaves);
            }
            if leaves {
                let key = (exit.waiting, exit.spin_pc);
                *self.other_way.entry(key).or_default() += 1;
                match exit.leaves {
                    Leaves::To(_) => found.iter_mut().for_each(Read::leave),
                    // A scheduler's jump goes on with another task: the loop goes round later, and
                    // the words that do not decide the jump have not let it go.
                    Leaves::ElsewhereThan(_) => {
                        exit.candidates.iter().for_each(|&at| found[at].leave());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::decoded::Decoded;
    use flagfinder_machine::replayer::Visitor;
    use iced_x86::{Code, Instruction, InstructionInfoFactory, Register};

    use super::{Exit, Leaves, Questions, Read, Reads, Seen};

    fn seen_by(readers: &[u32]) -> Option<u32> {
        let mut read = Read::default();
        for &reader in readers {
            read.see(Seen {
                address: 0x1000,
                reader: Some(reader),
                left_with: None,
                varies: false,
            });
        }
        read.seen[0].reader
    }

    #[test]
    fn a_place_that_several_threads_read_has_no_one_reader() {
        assert_eq!(seen_by(&[7, 7]), Some(7));
        assert_eq!(seen_by(&[7, 8]), None);
        assert_eq!(seen_by(&[7, 8, 7]), None);
    }

    /// Values read by a branch, and whether it then left the loop: was the last of them what let it
    /// go?
    fn lets_go(executions: &[(u64, bool)]) -> (bool, bool) {
        let mut read = Read::default();
        for &(value, leaves) in executions {
            read.last = Some((0x1000, value));
            read.decide(0x2000, leaves);
        }
        (read.changed, read.unchanged)
    }

    #[test]
    fn what_is_the_same_before_and_after_did_not_end_the_wait() {
        assert_eq!(lets_go(&[(0, false), (0, false), (1, true)]), (true, false));
        assert_eq!(lets_go(&[(7, false), (7, true)]), (false, true));
        let taken_each_time = [(0, true), (0, true)];
        assert_eq!(lets_go(&taken_each_time), (false, false), "never waited");
    }

    /// The values that two words had when an exit was left which the first one decides.
    fn left_with(leaves: Leaves) -> [Option<u64>; 2] {
        let mut questions = Questions::default();
        let exit = Exit {
            waiting: 0,
            spin_pc: 0x2000,
            leaves,
            candidates: vec![0],
        };
        questions.exits.insert(0x2000, vec![exit]);
        let mut reads = Reads::new(questions, [2].into_iter());
        for read in &mut reads.found[0] {
            read.value(0x1000, 7);
        }
        let mut jump = Instruction::with1(Code::Jmp_rm64, Register::RBX).expect("a jump");
        jump.set_ip(0x2000);
        let jump = Decoded::new(&jump, &mut InstructionInfoFactory::new());
        reads.branch(&jump, 0x3000);
        reads.branch(&jump, 0x4000);
        [0, 1].map(|word| reads.found[0][word].leaving.map(|(_, value)| value))
    }

    #[test]
    fn a_jump_that_goes_elsewhere_is_left_by_the_words_that_decide_it() {
        assert_eq!(left_with(Leaves::To(0x4000)), [Some(7), Some(7)]);
        let to_another_task = left_with(Leaves::ElsewhereThan(0x3000));
        assert_eq!(to_another_task, [Some(7), None]);
    }

    /// What is known of a place where these values were read, in two pieces of the run.
    fn read(values: [&[u64]; 2]) -> Seen {
        let [mut first, second] = values.map(|values| {
            let mut read = Read::default();
            read.see(Seen {
                address: 0x1000,
                reader: Some(7),
                left_with: None,
                varies: false,
            });
            values.iter().for_each(|value| read.value(0x1000, *value));
            read
        });
        first.absorb(second);
        first.seen[0]
    }

    #[test]
    fn a_place_that_reads_otherwise_was_written() {
        assert!(read([&[0, 0, 1], &[1]]).varies);
        assert!(read([&[0, 0], &[1]]).varies, "between the pieces");
        assert!(!read([&[0, 0], &[0]]).varies);
    }
}
