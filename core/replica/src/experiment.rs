// SPDX-License-Identifier: MIT
//! Does this value in that word end the loop? It is written into a copy, and the copy goes on.
//!
//! In: a copy of a thread. First it goes round as it is (the *baseline*), until it does nothing
//! new: every transition from one instruction to the next was seen before. A copy of the copy in
//! which nothing is changed has to do the same. Then each candidate is tried in another. The thread
//! has left its loop when the function that holds it returned, or when no transition of that
//! function's part of the loop is made any more. Out: a
//! [`Proof`]. A thread that then waits at a futex beside the word has only handed over what the
//! word belongs to, and goes round when it has it again. An interpreter makes the same transitions
//! in whatever it runs: there the places of the interpreted program tell whether the loop was left
//! (`program.rs`). Blind spots: what another thread would do meanwhile; a loop that goes a rare way
//! later than was looked; output is taken to succeed.

use std::io::Result;
use std::time::{Duration, Instant};

use flagfinder_linux::futex;
use flagfinder_machine::Reader;
use rustc_hash::FxHashSet;
use serde::Serialize;

use crate::answer::Halt;
use crate::pages::Pages;
use crate::program::{Program, Way};
use crate::replica::{Event, Replica};
use crate::rounds::{Rounds, LEAST};
use crate::source::ThreadState;

/// A word and the value to try in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Run-time address.
    pub address: u64,
    /// 1 to 8.
    pub bytes: usize,
    /// Its low `bytes` bytes are tried.
    pub value: u64,
}

impl Word {
    /// The value as it lies in memory.
    pub(crate) fn content(&self) -> [u8; 8] {
        self.value.to_le_bytes()
    }

    pub(crate) fn length(&self) -> usize {
        self.bytes.clamp(1, 8)
    }
}

/// What a copy did once the value was in the word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The thread left its loop and did not come back.
    Leaves,
    /// It goes round as before.
    Returns,
    /// It would crash.
    Faults,
    /// The copy does not show it.
    #[default]
    Unknown,
}

/// How a copy left its loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Left {
    /// The function that holds the loop goes on behind it.
    Loop,
    /// That function returned.
    Function,
    /// It did not return: a function that it called removed its frame, or raises an error.
    Exception,
    /// It did not leave, or it is not known how.
    #[default]
    Unknown,
}

/// What came of one experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Whether the thread left its loop.
    pub outcome: Outcome,
    /// From the write to the first instruction that the loop does not have.
    pub instructions: Option<u64>,
    /// That instruction; or, where the function that holds the loop returned, the one that it
    /// returned to.
    pub reached: Option<u64>,
    /// What ended the copy, if something did. One that goes round has handed something over.
    pub halt: Option<Halt>,
    /// At that time, the function that holds the loop had executed instructions outside of the
    /// loop.
    pub is_away: bool,
    /// The thread only hands over, or waits elsewhere for, what the word belongs to.
    pub hands_over: bool,
    /// How the thread left its loop.
    pub left: Left,
    /// Where the copy went outside of the loop until then, apart from what follows in the code.
    pub through: Vec<u64>,
    /// How many instructions the copy made until that was known.
    pub followed: u64,
    /// Addresses of words, of those besides the tried ones, to which the thread itself then gave
    /// another value, in its loop or soon behind it.
    pub moves: Vec<u64>,
}

/// A baseline is so many times as long as its part that showed something new.
const ROUNDS: u64 = 3;
/// A baseline after which a copy leaves the loop unchanged is made so many times as long.
const LONGER: u64 = 4;
/// How many instructions, or baselines, the changed copy may go on.
const LONGEST: u64 = 20_000;
const STRETCHES: u64 = 4;
/// So many times as long while a function that the loop called does not come back: to bind a name
/// in many libraries takes long.
const IN_CALLEE: u64 = 5;
/// The copy is behind the loop after so many instructions, outside of the loop, of the function
/// that holds it.
const BEHIND: u64 = 64;
/// For how many instructions a copy goes on behind its loop, so that its writes there are seen.
const AFTER: u64 = 2_000;
/// Most bytes of an instruction, and most jumps outside of the loop that are kept.
const LONGEST_CODE: u64 = 15;
const THROUGH: usize = 2_000;
/// A stack pointer farther off lies on another stack.
pub(crate) const FAR: u64 = 1 << 20;

/// A copy of a thread that goes round, ready for values to be tried.
pub struct Experiment<'a> {
    replica: Replica<'a>,
    known: FxHashSet<(u64, u64)>,
    /// Those of them that each round makes in the function which holds the loop.
    holder: FxHashSet<(u64, u64)>,
    /// Instructions until the last new transition: one round, or more.
    round: u64,
    rounds: Rounds,
    /// The highest stack pointer: that of the function which holds the loop.
    top: u64,
    /// What an interpreter runs.
    program: Program,
}

/// Why a copy of a thread can't be experimented with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The copy stopped.
    Halted(Halt),
    /// It repeats nothing within the instructions or the time that it was given.
    NoLoop {
        /// How many the copy executed.
        instructions: u64,
    },
}

impl<'a> Experiment<'a> {
    /// Copies the thread and lets the copy go round until it shows nothing new, for at most `time`.
    /// `readers`: the instructions by which an interpreter reads its program; empty: the thread
    /// runs no interpreter.
    ///
    /// # Errors
    /// When the system gives no process.
    pub fn prepare(
        pages: &'a Pages<'a>,
        state: &ThreadState,
        readers: &[Reader],
        rounds: Rounds,
        time: Duration,
    ) -> Result<std::result::Result<Experiment<'a>, Unfit>> {
        let replica = Replica::start(pages, state)?;
        let mut experiment = Experiment {
            top: replica.registers().rsp,
            program: Program::new(readers),
            replica,
            known: FxHashSet::default(),
            holder: FxHashSet::default(),
            round: 0,
            rounds,
        };
        let deadline = Instant::now() + time;
        let (mut instructions, mut least) = (0, rounds.two());
        while instructions < rounds.most && (instructions % LEAST != 0 || Instant::now() < deadline)
        {
            let (before, stack) = experiment.place();
            let place = experiment.program.place(experiment.replica.registers());
            if place.is_some_and(|place| experiment.program.learn(place)) {
                experiment.round = instructions;
            }
            experiment.program.executes(before);
            if let Event::Halt(halt) = experiment.replica.step()? {
                return Ok(Err(Unfit::Halted(halt)));
            }
            instructions += 1;
            let (now, _) = experiment.place();
            if stack > experiment.top {
                experiment.top = stack;
                experiment.holder.clear();
            }
            if experiment.known.insert((before, now)) {
                experiment.round = instructions;
                experiment.holder.clear();
            }
            if stack == experiment.top {
                experiment.holder.insert((before, now));
            }
            if instructions >= least.max(experiment.round * ROUNDS) {
                if !experiment.leaves_unchanged(deadline)? {
                    return Ok(Ok(experiment));
                }
                least = instructions * LONGER;
            }
        }
        Ok(Err(Unfit::NoLoop { instructions }))
    }

    fn place(&self) -> (u64, u64) {
        let registers = self.replica.registers();
        (registers.rip, registers.rsp)
    }

    /// Did the copy execute the instruction at `pc`?
    pub fn executes(&self, pc: u64) -> bool {
        self.known.iter().any(|(from, _)| *from == pc)
    }

    /// Tries one word for at most `time`.
    ///
    /// # Errors
    /// When the system gives no process.
    pub fn try_word(&self, word: Word, time: Duration) -> Result<Proof> {
        self.try_words(&[word], &[], time)
    }

    /// Tries several words at once. `beside`: words of which it is asked whether the thread gives
    /// them other values.
    ///
    /// # Errors
    /// When the system gives no process.
    pub fn try_words(&self, words: &[Word], beside: &[Word], time: Duration) -> Result<Proof> {
        let deadline = Instant::now() + time;
        let mut copy = self.replica.copy()?;
        let mut proof = Proof::default();
        let mut old = Vec::new();
        for word in words {
            let value = read(&mut copy, word)?;
            old.extend(value.map(|value| Word { value, ..*word }));
            if !copy.write(word.address, &word.content()[..word.length()])? {
                return Ok(proof);
            }
        }
        copy.pretend_output();
        let mut before = Vec::new();
        for word in beside {
            before.push(read(&mut copy, word)?);
        }
        self.follow(&mut copy, words, deadline, &mut proof)?;
        if !self.is_of_interpreter() && proof.halt.is_none() {
            self.look_afterwards(&mut copy, words, &old, &mut proof)?;
        }
        if beside.is_empty() {
            return Ok(proof);
        }
        if proof.outcome == Outcome::Leaves && proof.halt.is_none() {
            let mut left = AFTER;
            while left > 0 && !matches!(copy.step()?, Event::Halt(_)) {
                left -= 1;
            }
        }
        for (word, before) in beside.iter().zip(before) {
            if read(&mut copy, word)?.is_some_and(|now| before.is_some_and(|was| was != now)) {
                proof.moves.push(word.address);
            }
        }
        Ok(proof)
    }

    /// Lets a changed copy go on until its outcome is known.
    pub(crate) fn follow(
        &self,
        copy: &mut Replica,
        words: &[Word],
        deadline: Instant,
        proof: &mut Proof,
    ) -> Result<()> {
        let mut path = Path {
            loops: self,
            stretch: self.stretch(),
            made: 0,
            last_new: 0,
            last_held: 0,
            behind: 0,
            again: FxHashSet::default(),
            way: Way::default(),
        };
        let longest = LONGEST.max(path.stretch * STRETCHES);
        let mut limit = longest;
        while path.made < limit && (path.made % LEAST != 0 || Instant::now() < deadline) {
            let (before, stack) = (copy.registers().rip, copy.registers().rsp);
            if let Some(place) = self.program.place(copy.registers()) {
                path.way.go(&self.program, place);
            } else if self.program.is_known() && self.program.is_new(before) {
                if let Some(code) = copy.decode()? {
                    path.way.look(&self.program, &code, copy.registers());
                }
            }
            if path.made == longest / 2 {
                path.way.forget();
            }
            if let Event::Halt(halt) = copy.step()? {
                proof.outcome = match halt {
                    _ if waits_beside(&halt, words) => Outcome::Returns,
                    Halt::Fault { .. } => Outcome::Faults,
                    Halt::Exits => path.left(),
                    _ => Outcome::Unknown,
                };
                if proof.outcome == Outcome::Returns {
                    proof.hand_over();
                }
                proof.halt = Some(halt);
                proof.is_away = path.behind > 0;
                return Ok(());
            }
            let now = copy.registers();
            let outcome = path.follow((before, now.rip), stack, now.rsp);
            if path.last_new == path.made || outcome == Some(Outcome::Leaves) {
                proof.instructions.get_or_insert(path.made);
                proof.reached.get_or_insert(now.rip);
            }
            let is_jump = now.rip.wrapping_sub(before) > LONGEST_CODE;
            if path.last_new == path.made && is_jump && proof.through.len() < THROUGH {
                proof.through.push(now.rip);
            }
            if let Some(outcome) = outcome {
                proof.followed = path.made;
                if outcome == Outcome::Leaves {
                    proof.left = match now.rsp > self.top {
                        true if stack < self.top => Left::Exception,
                        true => Left::Function,
                        false => Left::Loop,
                    };
                    if now.rsp > self.top {
                        proof.reached = Some(now.rip);
                    }
                }
                proof.outcome = outcome;
                return Ok(());
            }
            let is_long = path.made == longest && path.made - path.last_held > longest / 2;
            if is_long && now.rsp < self.top && !self.program.is_known() {
                limit = longest * IN_CALLEE;
            }
        }
        proof.followed = path.made;
        if path.made < longest {
            return Ok(());
        }
        if self.program.is_known() {
            proof.outcome = path.in_program(true);
        } else if path.made - path.last_held > longest / 2 {
            // It is busy with something else.
            proof.outcome = Outcome::Leaves;
        } else if path.again.len() * 4 >= self.holder.len() * 3 {
            // It takes another way round. (An interpreter makes some of these transitions in
            // whatever it runs.)
            proof.outcome = Outcome::Returns;
        }
        Ok(())
    }

    /// Instructions after which a loop that showed nothing new is certain to repeat.
    pub(crate) fn stretch(&self) -> u64 {
        self.rounds.one().max(self.round * ROUNDS)
    }

    /// Does each round make this transition in the function that holds the loop?
    pub(crate) fn holds(&self, transition: (u64, u64), stack: u64) -> bool {
        stack == self.top && self.holder.contains(&transition)
    }

    /// The stack pointer of the function that holds the loop.
    pub(crate) fn top(&self) -> u64 {
        self.top
    }

    pub(crate) fn is_of_interpreter(&self) -> bool {
        self.program.is_known()
    }

    /// Where the copy was when its baseline ended.
    pub fn replica(&self) -> &Replica<'a> {
        &self.replica
    }
}

impl Proof {
    pub(crate) fn hand_over(&mut self) {
        self.outcome = Outcome::Returns;
        self.hands_over = true;
        (self.instructions, self.reached) = (None, None);
    }
}

/// The word as the copy has it; `None`: it can't be read.
fn read(copy: &mut Replica, word: &Word) -> Result<Option<u64>> {
    let mut bytes = [0; 8];
    let is_there = copy.read(word.address, &mut bytes[..word.length()])?;
    Ok(is_there.then(|| u64::from_le_bytes(bytes)))
}

/// Does the thread wait at a futex near one of the words, as a lock's count of waiters lies near
/// its state?
fn waits_beside(halt: &Halt, words: &[Word]) -> bool {
    const OBJECT: u64 = 64;
    let Halt::Blocks { number, arguments } = halt else {
        return false;
    };
    let waits = futex::is_futex(*number) && futex::waits_for_word(futex::command(arguments));
    let is_near = |word: &Word| word.address.abs_diff(arguments[0]) < OBJECT;
    waits && words.iter().any(is_near)
}

/// The path of a changed copy, compared with the loop.
struct Path<'e, 'a> {
    loops: &'e Experiment<'a>,
    /// After so many instructions without anything new the loop is certain to repeat.
    stretch: u64,
    made: u64,
    /// Instructions made up to the last transition that the loop does not have.
    last_new: u64,
    /// The same up to the last transition of the loop in the function that holds it.
    last_held: u64,
    /// Instructions of that function since then.
    behind: u64,
    /// The loop's transitions in that function that were made again lately.
    again: FxHashSet<(u64, u64)>,
    /// Its path through the interpreted program.
    way: Way,
}

impl Path<'_, '_> {
    /// The outcome for an interpreter that does nothing new any more. `is_long`: it was followed
    /// for as long as it may be; what it does behind the loop (to end the program) may take longer.
    fn in_program(&self, is_long: bool) -> Outcome {
        match self.way.goes_round(&self.loops.program) {
            true => Outcome::Returns,
            false if self.way.is_behind() || is_long && self.way.stays_away() => self.left(),
            false => Outcome::Unknown,
        }
    }

    /// The outcome of a copy that has left the loop.
    fn left(&self) -> Outcome {
        let is_end = !self.loops.program.is_known() || self.way.goes_on(&self.loops.program);
        match is_end {
            true => Outcome::Leaves,
            false => Outcome::Unknown,
        }
    }

    /// One more instruction, begun with the stack pointer at `stack` and ended with it at `after`.
    /// `None`: not yet decided.
    fn follow(&mut self, transition: (u64, u64), stack: u64, after: u64) -> Option<Outcome> {
        self.made += 1;
        if !self.loops.known.contains(&transition) {
            self.last_new = self.made;
        }
        if self.loops.holder.contains(&transition) && stack == self.loops.top {
            self.last_held = self.made;
            self.behind = 0;
            if self.made > LONGEST / 2 {
                self.again.insert(transition);
            }
        } else if stack == self.loops.top {
            self.behind += 1;
        }
        let returned = after > self.loops.top && after - self.loops.top < FAR;
        let is_interpreted = self.loops.program.is_known();
        let behind = match is_interpreted {
            true => self.way.is_behind(),
            false => self.behind >= BEHIND,
        };
        if returned || behind {
            return Some(self.left());
        }
        let is_settled = self.made - self.last_new >= self.stretch;
        match is_interpreted {
            true => is_settled
                .then(|| self.in_program(false))
                .filter(|outcome| *outcome != Outcome::Unknown),
            false => is_settled.then_some(Outcome::Returns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_beside_a_word_has_handed_over_its_lock() {
        let blocks = |number: libc::c_long, operation: libc::c_int| Halt::Blocks {
            number: number as u32,
            arguments: [0x5058, operation as u64, 0, 0, 0, 0],
        };
        let word = |address| {
            [Word {
                address,
                bytes: 4,
                value: 1,
            }]
        };
        let waits = blocks(libc::SYS_futex, libc::FUTEX_WAIT);
        assert!(waits_beside(&waits, &word(0x502c)));
        assert!(!waits_beside(&waits, &word(0x6000)), "of something else");
        let wakes = blocks(libc::SYS_futex, libc::FUTEX_WAKE);
        assert!(!waits_beside(&wakes, &word(0x502c)));
        let reads = blocks(libc::SYS_read, 0);
        assert!(!waits_beside(&reads, &word(0x502c)));
    }
}
