// SPDX-License-Identifier: MIT
//! What a changed copy does once it has left its loop, or goes round in it again.
//!
//! In: a copy in which words were changed, and the loop as it was before. Two answers:
//!
//! - *Does it read the words no more?* A loop that waits for one thing after another (each worker
//!   in turn, each slot of a ring) goes on to the next one: then the word ended its wait.
//! - *Does it only wait elsewhere for the words?* Who finds a lock taken in an optimistic look
//!   waits for it in another loop, and looks again once the words are as they were.
//!
//! Blind spot: reads by the kernel, and by instructions whose address is not known.

use std::io::Result;
use std::time::Instant;

use rustc_hash::FxHashSet;

use crate::experiment::{Experiment, Outcome, Proof, Word, LEAST};
use crate::replica::{Event, Replica};

/// How many instructions behind the loop are looked at until the copy repeats something there.
const SETTLES: u64 = 6_000;
/// In how many more a copy that is given the old values comes back.
const COMES_BACK: u64 = 20_000;

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
        self.follow(&mut self.replica().copy()?, &[], deadline, &mut proof)?;
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
            Outcome::Returns if proof.instructions.is_some() => {
                if self.has_moved_on(copy, words)? {
                    proof.outcome = Outcome::Leaves;
                }
            }
            Outcome::Leaves if self.waits_elsewhere(copy, old)? => proof.hand_over(),
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

    /// Does the copy, which has left its loop, repeat a look at the words elsewhere, and come back
    /// once they have the values `before`?
    ///
    /// # Errors
    /// When the process is gone.
    fn waits_elsewhere(&self, copy: &mut Replica, before: &[Word]) -> Result<bool> {
        let mut known = FxHashSet::default();
        let (mut made, mut last_new) = (0, 0);
        let mut last_read = None;
        while made - last_new < LEAST.max(last_new) {
            let reads = copy.touches(before)?;
            let (from, stack) = (copy.registers().rip, copy.registers().rsp);
            if made >= SETTLES || matches!(copy.step()?, Event::Halt(_)) {
                return Ok(false);
            }
            let transition = (from, copy.registers().rip);
            if self.holds(transition, stack) {
                return Ok(false);
            }
            made += 1;
            if reads {
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
}

/// Does the copy read one of the words within so many instructions? `None`: it halts before.
fn reads_within(copy: &mut Replica, words: &[Word], instructions: u64) -> Result<Option<bool>> {
    for _ in 0..instructions {
        if copy.touches(words)? {
            return Ok(Some(true));
        }
        if matches!(copy.step()?, Event::Halt(_)) {
            return Ok(None);
        }
    }
    Ok(Some(false))
}
