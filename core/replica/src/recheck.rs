// SPDX-License-Identifier: MIT
//! What a woken thread does once it finds that what it waits for is there.
//!
//! A thread that sleeps at a futex's word looks again when it is woken: whether the queue has an
//! item, or the lock is free. In a copy nobody has changed that, so it sleeps again. In: a copy
//! that stands before its wait. Out: the branches behind the wait by which it comes back there
//! ([`Recheck`]). A copy with one of them takes that branch's other way each time, and goes on. It
//! does not count if it comes back to its wait all the same, crashes, or raises an error.
//! Blind spots: the data that the check is about are not there, so a copy may crash behind it; a
//! check without a branch; a throw that leaves no frame.

use std::io::Result;
use std::time::Instant;

use flagfinder_linux::futex;
use iced_x86::{FlowControl, Mnemonic, Register};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::answer::Halt;
use crate::replica::{Event, Replica};
use crate::supposition::{Place, Recheck};

/// Most instructions from a wait back to it.
const LONGEST_ROUND: u64 = 20_000;
/// So many instructions behind the branch must show no error.
const BEHIND: u64 = 50_000;
/// The clock is read once in so many instructions.
const CLOCK: u64 = 256;
/// A copy that comes back to its wait by so many other instructions has done something in between.
const ELSEWHERE: usize = 24;
/// Most branches that are told.
const MOST: usize = 8;

/// The branches by which a copy comes back to its wait.
#[derive(Clone, Debug, Default)]
pub struct Rechecks {
    /// The last first.
    pub all: Vec<Recheck>,
    /// All instructions from the wait back to it.
    pub round: FxHashSet<u64>,
}

impl Replica<'_> {
    /// The branches by which the copy, which stands before a wait for a futex's word and was told
    /// what to suppose, comes back to it: those of the outermost function, the last first.
    ///
    /// # Errors
    /// When the copy's process is gone.
    pub fn rechecks(&mut self, deadline: Instant) -> Result<Rechecks> {
        let mut found = Rechecks::default();
        let Some(wait) = self.come_to_wait()? else {
            return Ok(found);
        };
        let mut times: FxHashMap<Place, u32> = FxHashMap::default();
        let mut all: Vec<Recheck> = Vec::new();
        for made in 0..LONGEST_ROUND {
            let place = self.place();
            found.round.insert(place.0);
            let code = self.decode()?;
            let branch = code
                .filter(|code| code.instruction.flow_control() == FlowControl::ConditionalBranch);
            let event = self.step()?;
            if let Some(code) = branch {
                let ways = [
                    code.instruction.near_branch_target(),
                    code.instruction.next_ip(),
                ];
                let other = ways.into_iter().find(|way| *way != self.registers().rip);
                let before = times.entry(place).or_default();
                if let (Event::Step, Some(other)) = (&event, other) {
                    let (branch, before) = (place, *before);
                    all.push(Recheck {
                        wait,
                        branch,
                        before,
                        other,
                    });
                }
                *before += 1;
            }
            if matches!(event, Event::Call { .. }) && self.place() == wait {
                let top = all.iter().map(|one| one.branch.1).max();
                let of_loop = all
                    .into_iter()
                    .rev()
                    .filter(|one| Some(one.branch.1) == top);
                // A branch counts when it is taken last.
                let mut seen = FxHashSet::default();
                let last = of_loop.filter(|one| seen.insert(one.branch));
                found.all = last.take(MOST).collect();
                return Ok(found);
            }
            let is_late = made % CLOCK == 0 && Instant::now() >= deadline;
            if is_late || matches!(event, Event::Halt(_)) {
                break;
            }
        }
        Ok(found)
    }

    /// Does the copy, which stands before its wait and was told what to suppose, go on once it
    /// takes the branch's other way? `round`: the instructions from its wait back to it.
    ///
    /// # Errors
    /// When the copy's process is gone.
    pub fn goes_on_by(
        &mut self,
        recheck: &Recheck,
        round: &FxHashSet<u64>,
        deadline: Instant,
    ) -> Result<bool> {
        if self.come_to_wait()? != Some(recheck.wait) || !self.take_other_way(recheck)? {
            return Ok(false);
        }
        let (mut left, mut fresh) = (false, FxHashSet::default());
        // The stack pointers before the calls that are open.
        let mut open: Vec<u64> = Vec::new();
        for made in 0..BEHIND {
            let (at, stack) = self.place();
            if !round.contains(&at) {
                fresh.insert(at);
            }
            let mut leaps = false;
            if let Some(code) = self.decode()? {
                let instruction = &code.instruction;
                if matches!(
                    instruction.flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                ) {
                    open.push(stack);
                }
                leaps = instruction.mnemonic() == Mnemonic::Mov
                    && instruction.op0_register() == Register::RSP;
            }
            let event = self.step()?;
            let (_, now) = self.place();
            left |= now > recheck.branch.1;
            match event {
                // An error leaves more than the function that raises it.
                Event::Step if leaps && open.last().is_some_and(|last| now + 8 >= *last) => {
                    return Ok(false);
                }
                Event::Call { .. } if self.place() == recheck.wait => {
                    return Ok(left || fresh.len() >= ELSEWHERE);
                }
                Event::Halt(halt) => return Ok(is_end(&halt)),
                _ if made % CLOCK == 0 && Instant::now() >= deadline => break,
                _ => {}
            }
            while open.last().is_some_and(|last| *last <= now) {
                open.pop();
            }
        }
        Ok(true)
    }

    /// From now on the copy takes the branch's other way whenever it comes back from its wait.
    pub fn take_other_way_of(&mut self, recheck: Recheck) {
        self.recheck = Some(recheck);
    }

    /// The copy has been answered a call.
    pub(crate) fn recheck(&mut self) -> Result<()> {
        let place = self.place();
        if let Some(recheck) = self.recheck.filter(|recheck| recheck.wait == place) {
            self.take_other_way(&recheck)?;
        }
        Ok(())
    }

    fn place(&self) -> Place {
        (self.registers().rip, self.registers().rsp)
    }

    /// Has the wait answered before which the copy stands; `None`: it is none, or has no answer.
    fn come_to_wait(&mut self) -> Result<Option<Place>> {
        let r = *self.registers();
        let arguments = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        let waits = futex::is_futex(r.rax as u32)
            && futex::waits_for_word(futex::command(&arguments))
            && self.is_before_call()?;
        if !waits {
            return Ok(None);
        }
        let is_answered = matches!(self.step()?, Event::Call { .. });
        Ok(is_answered.then(|| self.place()))
    }

    /// Goes from behind the wait to the branch, and its other way; `false`: it does not come there.
    fn take_other_way(&mut self, recheck: &Recheck) -> Result<bool> {
        let mut before = recheck.before;
        for _ in 0..LONGEST_ROUND {
            if self.place() == recheck.branch {
                if before == 0 {
                    self.hand_over()?;
                    self.registers.rip = recheck.other;
                    self.child.set_registers(&self.registers)?;
                    return Ok(true);
                }
                before -= 1;
            }
            if self.step()? != Event::Step {
                return Ok(false);
            }
        }
        Ok(false)
    }
}

/// Would the thread go on from there?
fn is_end(halt: &Halt) -> bool {
    matches!(halt, Halt::Blocks { .. } | Halt::Call { .. } | Halt::Exits)
}
