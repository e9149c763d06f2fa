// SPDX-License-Identifier: MIT
//! What a changed copy does once it has left its loop, or goes round in it again.
//!
//! In: a copy in which words were changed, and the loop as it was before. Two answers:
//!
//! - *Does it read the words no more?* A loop that waits for one thing after another (each worker
//!   in turn, each slot of a ring) goes on to the next one: then the word ended its wait.
//! - *Does it only wait elsewhere for the words?* A thread that finds a lock taken in an optimistic
//!   look waits for it in another loop, and looks again once the words are as they were.
//!
//! Blind spots: reads by the kernel, and by instructions whose address is not known; a copy that
//! counts its looks in memory that other threads see is taken to go on.

use std::io::Result;
use std::time::Instant;

use flagfinder_step::registers::load;
use rustc_hash::FxHashSet;

use crate::experiment::{Experiment, Outcome, Proof, Word};
use crate::replica::{Event, Replica};
use crate::rounds::LEAST;

/// How many instructions behind the loop are looked at until the copy repeats something there.
const SETTLES: u64 = 6_000;
/// Within so many more instructions a copy that is given the old values comes back.
const COMES_BACK: u64 = 20_000;
/// Calls by which a thread only gives its processor away.
pub(crate) const PAUSES: [i64; 3] = [
    libc::SYS_sched_yield,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
];

impl Experiment<'_> {
    /// Would a copy leave the loop in which nothing is changed? Then the baseline shows no rare
    /// way round yet (what is done at every eighth call, say), and leaving proves nothing.
    ///
    /// # Errors
    /// When the system gives no process.
    pub(crate) fn leaves_unchanged(&self, deadline: Instant) -> Result<bool> {
        if self.is_of_interpreter() {
            return Ok(false);
        }
        let mut proof = Proof::default();
        let mut copy = self.replica().copy()?;
        copy.pretend_output();
        self.follow(&mut copy, &[], deadline, &mut proof)?;
        Ok(proof.outcome == Outcome::Leaves)
    }

    /// Corrects the outcome by what the copy does next. `old`: the words as they were.
    pub(crate) fn look_afterwards(
        &self,
        copy: &mut Replica,
        words: &[Word],
        old: &[Word],
        proof: &mut Proof,
    ) -> Result<()> {
        match proof.outcome {
            Outcome::Returns
                if proof.instructions.is_some() && self.has_moved_on(copy, words)? =>
            {
                proof.outcome = Outcome::Leaves;
            }
            Outcome::Leaves
                if self.waits_elsewhere(copy, old)? && !self.acts(words, proof.followed)? =>
            {
                proof.hand_over();
            }
            _ => {}
        }
        Ok(())
    }

    /// Has the copy, which goes round again, stopped reading the words that its loop reads?
    ///
    /// # Errors
    /// When the process is gone.
    fn has_moved_on(&self, copy: &mut Replica, words: &[Word]) -> Result<bool> {
        let stretch = self.stretch();
        if reads_within(copy, words, stretch)? != Some(false) {
            return Ok(false);
        }
        let mut unchanged = self.replica().copy()?;
        Ok(reads_within(&mut unchanged, words, stretch)? == Some(true))
    }

    /// Does the copy, which has left its loop, only repeat a look at the words elsewhere, and come
    /// back once they have the values `before`?
    ///
    /// # Errors
    /// When the process is gone.
    fn waits_elsewhere(&self, copy: &mut Replica, before: &[Word]) -> Result<bool> {
        let mut known = FxHashSet::default();
        let (mut made, mut last_new) = (0, 0);
        let mut last_read = None;
        while made - last_new < LEAST.max(last_new) {
            let next = copy.next_touches(before)?;
            let (from, stack) = (copy.registers().rip, copy.registers().rsp);
            let acts = next.writes_for_others(self.top()) || acts_by_call(&copy.step()?);
            let transition = (from, copy.registers().rip);
            if made >= SETTLES || acts || self.holds(transition, stack) {
                return Ok(false);
            }
            made += 1;
            if next.words {
                last_read = Some(made);
            }
            if known.insert(transition) {
                last_new = made;
            }
        }
        if last_read.is_none_or(|read| read <= last_new) {
            return Ok(false);
        }
        for word in before {
            if !copy.write(word.address, &word.content()[..word.length()])? {
                return Ok(false);
            }
        }
        for _ in 0..COMES_BACK {
            let (from, stack) = (copy.registers().rip, copy.registers().rsp);
            if matches!(copy.step()?, Event::Halt(_)) {
                break;
            }
            if self.holds((from, copy.registers().rip), stack) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Does a copy with the words changed show others within so many instructions that it goes on,
    /// as the second half of a handshake does? It does not by a lock that it tries to take.
    fn acts(&self, words: &[Word], instructions: u64) -> Result<bool> {
        let mut copy = self.replica().copy()?;
        for word in words {
            copy.write(word.address, &word.content()[..word.length()])?;
        }
        for _ in 0..instructions {
            let next = copy.next_touches(words)?;
            if next.writes_for_others(self.top()) || acts_by_call(&copy.step()?) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What the next instruction of a copy does with memory.
struct Touches {
    /// It reads or writes part of the words that were asked about.
    words: bool,
    /// Where it writes, apart from these.
    writes: Option<u64>,
    /// Its stack pointer.
    stack: u64,
}

impl Touches {
    /// Does it write what does not lie in the frames of the loop? `top`: the highest of these.
    fn writes_for_others(&self, top: u64) -> bool {
        const FRAME: u64 = 1 << 12;
        let own = self.stack.saturating_sub(FRAME)..top.saturating_add(FRAME);
        self.writes.is_some_and(|address| !own.contains(&address))
    }
}

impl Replica<'_> {
    /// Does the next instruction read or write one of the words?
    pub(crate) fn touches(&mut self, words: &[Word]) -> Result<bool> {
        Ok(self.next_touches(words)?.words)
    }

    fn next_touches(&mut self, words: &[Word]) -> Result<Touches> {
        let mut touches = Touches {
            words: false,
            writes: None,
            stack: self.registers().rsp,
        };
        let Some(code) = self.decode()? else {
            return Ok(touches);
        };
        load(&mut self.software.evaluator.machine, &self.registers);
        for memory in code.memory.iter().filter(|m| m.read || m.write) {
            let Some(begin) = memory.address(&self.software.evaluator.machine) else {
                continue;
            };
            let end = begin.saturating_add(u64::from(memory.bytes));
            let is_part = |word: &Word| {
                begin < word.address.saturating_add(word.length() as u64) && word.address < end
            };
            if words.iter().any(is_part) {
                touches.words = true;
            } else if memory.write {
                touches.writes = Some(begin);
            }
        }
        Ok(touches)
    }
}

/// Does the step show to others that the copy goes on? A halt counts as such.
fn acts_by_call(event: &Event) -> bool {
    match event {
        Event::Step | Event::Tick => false,
        Event::Call { number, .. } => !PAUSES.contains(&i64::from(*number)),
        Event::Halt(_) => true,
    }
}

/// Does the copy read one of the words within so many instructions? `None`: it halts before.
fn reads_within(copy: &mut Replica, words: &[Word], instructions: u64) -> Result<Option<bool>> {
    for _ in 0..instructions {
        if copy.next_touches(words)?.words {
            return Ok(Some(true));
        }
        if matches!(copy.step()?, Event::Halt(_)) {
            return Ok(None);
        }
    }
    Ok(Some(false))
}
