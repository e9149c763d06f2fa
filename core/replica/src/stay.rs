// SPDX-License-Identifier: MIT
//! Is a thread still in the same stay in its loop as when it was copied?
//!
//! In: the loop's baseline, and the thread at a later moment. Out: whether it was out of the loop in
//! between. What the function that holds the loop keeps in registers, and what the loop reads in its
//! frame, stays as it is for as long as the loop goes on without writing it. Where that differs, as
//! the number of a ticket or of a round does, the thread was out. So is one that now stands in a
//! caller of that function. Blind spots: a rare way round that the baseline does not show; others
//! that write in the frame; an interpreter's loop, which goes on whatever its program does.

use std::io::Result;

use flagfinder_step::registers::load;

use crate::afterwards::PAUSES;
use crate::experiment::{Experiment, FAR};
use crate::pages::Pages;
use crate::replica::{Event, Replica};
use crate::source::ThreadState;

/// A thread in the loop comes to a place of it within so many instructions.
const NEAR: u64 = 20_000;
/// What a called function leaves as it was (System V ABI, 3.2.1): rbx, rbp and r12 to r15.
const KEPT_BY_CALLS: u16 = 1 << 3 | 1 << 5 | 0xf << 12;
const RAX: u16 = 1;
/// rsp and rbp, by which a frame is read.
const FRAME_BASES: [u8; 2] = [4, 5];
/// A frame is no larger. A function that calls no other has some of it below the stack pointer.
const LARGEST_FRAME: u64 = 1 << 12;
const RED_ZONE: u64 = 128;

/// A word of the frame: its address and its bytes.
type Place = (u64, usize);

/// What the loop has and never writes.
struct Kept {
    /// General registers, by number.
    registers: u16,
    frame: Vec<(Place, u64)>,
    at: [u64; 16],
}

impl Experiment<'_> {
    /// Was the thread, which stands at `now`, out of its loop since it was copied? `pages`: its
    /// memory now. `polled`: addresses of words that others are to write. `None`: it is not known.
    ///
    /// # Errors
    /// When the system gives no process.
    pub fn was_left(
        &self,
        pages: &Pages,
        now: &ThreadState,
        polled: &[u64],
    ) -> Result<Option<bool>> {
        if self.is_of_interpreter() {
            return Ok(None);
        }
        let Some(kept) = self.kept(polled)? else {
            return Ok(None);
        };
        let mut copy = Replica::start(pages, now)?;
        copy.pretend_output();
        for _ in 0..NEAR.max(self.stretch()) {
            let (from, stack) = (copy.registers().rip, copy.registers().rsp);
            if stack > self.top() {
                return Ok((stack - self.top() < FAR).then_some(true));
            }
            let registers = general(&copy);
            if matches!(copy.step()?, Event::Halt(_)) {
                return Ok(None);
            }
            if self.holds((from, copy.registers().rip), stack) {
                return Ok(Some(kept.differs(&mut copy, &registers)?));
            }
        }
        Ok(None)
    }

    /// What a round leaves as it is; `None`: the copy does not go round.
    fn kept(&self, polled: &[u64]) -> Result<Option<Kept>> {
        let mut copy = self.replica().copy()?;
        copy.pretend_output();
        let (mut written, mut calls, mut asks) = (0, false, false);
        let (mut reads, mut stores): (Vec<Place>, Vec<Place>) = (Vec::new(), Vec::new());
        let mut at = None;
        for _ in 0..self.stretch() {
            let stack = copy.registers().rsp;
            let is_own = stack == self.top();
            calls |= stack < self.top();
            if is_own {
                at.get_or_insert_with(|| general(&copy));
            }
            if let Some(code) = copy.decode()? {
                written |= if is_own { code.registers_written } else { 0 };
                load(&mut copy.software.evaluator.machine, &copy.registers);
                for memory in code.memory.iter() {
                    let address = memory.address(&copy.software.evaluator.machine);
                    let Some(address) = address.filter(|at| self.is_in_frame(*at)) else {
                        continue;
                    };
                    let place = (address, usize::from(memory.bytes).min(8));
                    let by_frame = memory.base.is_some_and(|base| FRAME_BASES.contains(&base));
                    if memory.write && !stores.contains(&place) {
                        stores.push(place);
                    } else if is_own && by_frame && memory.read && !reads.contains(&place) {
                        reads.push(place);
                    }
                }
            }
            match copy.step()? {
                Event::Halt(_) => return Ok(None),
                Event::Call { number, .. } => {
                    written |= RAX;
                    // The kernel may write in the frame.
                    asks |= !PAUSES.contains(&i64::from(number));
                }
                Event::Step | Event::Tick => {}
            }
        }
        let Some(at) = at else {
            return Ok(None);
        };
        let is_free = |&(address, bytes): &Place| {
            let meets =
                |&(at, size): &Place| at < address + bytes as u64 && address < at + size as u64;
            !asks && bytes > 0 && !stores.iter().any(meets) && !polled.contains(&address)
        };
        reads.retain(is_free);
        let mut frame = Vec::new();
        for place in reads {
            if let Some(value) = value(&mut copy, place)? {
                frame.push((place, value));
            }
        }
        let registers = !written & if calls { KEPT_BY_CALLS } else { u16::MAX };
        Ok(Some(Kept {
            registers,
            frame,
            at,
        }))
    }

    fn is_in_frame(&self, address: u64) -> bool {
        address.wrapping_sub(self.top() - RED_ZONE) < LARGEST_FRAME
    }
}

impl Kept {
    fn differs(&self, copy: &mut Replica, registers: &[u64; 16]) -> Result<bool> {
        let is_kept = |number: &usize| self.registers >> number & 1 == 1;
        if (0..16)
            .filter(is_kept)
            .any(|at| self.at[at] != registers[at])
        {
            return Ok(true);
        }
        for (place, before) in &self.frame {
            if value(copy, *place)?.is_some_and(|now| now != *before) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn value(copy: &mut Replica, (address, bytes): Place) -> Result<Option<u64>> {
    let mut content = [0; 8];
    let is_there = copy.read(address, &mut content[..bytes])?;
    Ok(is_there.then(|| u64::from_le_bytes(content)))
}

/// The general registers, in x86 numbering.
fn general(copy: &Replica) -> [u64; 16] {
    let r = copy.registers();
    [
        r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ]
}
