// SPDX-License-Identifier: MIT
//! A copy at the processor's own speed, until it writes a watched word, halts, or its time is over.
//!
//! System calls still stop it (PTRACE_SYSEMU) and are answered. Words are watched by the
//! processor's debug registers. A timer of the copy's own process interrupts it, so nobody has to
//! look again and again.

use std::io::{Error, Result};
use std::mem::offset_of;
use std::time::Instant;

use crate::answer::Halt;
use crate::child::{Child, Stop};
use crate::replica::{Event, Replica};
use flagfinder_linux::ptrace::request;

/// Debug registers that hold an address.
pub const MOST_WATCHED: usize = 4;
/// How often a copy that computes is interrupted, to see whether its time is over.
const TICK_MICROSECONDS: u64 = 10_000;
/// A copy that has made so many calls waits for something that it polls.
const MOST_CALLS: u32 = 5_000;
/// Room in our page, behind its instructions.
const ROOM: u64 = 64;

/// A word of a copy that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Run-time address.
    pub address: u64,
    /// 1 to 8.
    pub bytes: usize,
    /// What it holds. A store of the same value does not count.
    pub value: u64,
}

impl Watched {
    /// The word as the copy has it now; `None` where nothing can be read, or where no debug
    /// register covers it.
    ///
    /// # Errors
    /// When the copy's process is gone.
    pub fn in_copy(replica: &mut Replica, address: u64, bytes: usize) -> Result<Option<Watched>> {
        let watched = Watched {
            address,
            bytes,
            value: 0,
        };
        if watched.block().is_none() {
            return Ok(None);
        }
        let value = watched.read(replica)?;
        Ok(value.map(|value| Watched { value, ..watched }))
    }

    fn read(&self, replica: &mut Replica) -> Result<Option<u64>> {
        let mut word = [0; 8];
        let whole = replica.read(self.address, &mut word[..self.bytes])?;
        Ok(whole.then(|| u64::from_le_bytes(word)))
    }

    /// The smallest aligned block of 1, 2, 4 or 8 bytes that holds it: its address and size.
    fn block(&self) -> Option<(u64, u64)> {
        let bytes = (1..=8).contains(&self.bytes).then_some(self.bytes as u64)?;
        let end = self.address.checked_add(bytes)?;
        [1, 2, 4, 8].into_iter().find_map(|size| {
            let start = self.address & !(size - 1);
            (start + size >= end).then_some((start, size))
        })
    }
}

/// Why a copy that ran stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It gave a watched word another value. The instruction that did ends at `behind`, unless it
    /// jumped there, or repeats itself.
    Wrote {
        /// The number of the word.
        word: usize,
        /// The new one.
        value: u64,
        /// Run-time address behind that instruction.
        behind: u64,
    },
    /// It can't go on.
    Halt(Halt),
    /// The deadline came, or it makes calls without end.
    TimeOver,
}

impl Replica<'_> {
    /// Runs until one of `words` changes, whose new value is kept there, or until `deadline`. With
    /// `suppose`, calls that would halt it are answered by that.
    ///
    /// # Errors
    /// When the copy's process is gone, or the processor can't watch so many words.
    pub fn run(&mut self, words: &mut [Watched], deadline: Instant) -> Result<Ran> {
        self.child.watch(words)?;
        self.child.ring(TICK_MICROSECONDS)?;
        let ran = self.until_written(words, deadline)?;
        if ran != Ran::Halt(Halt::Gone) {
            self.child.ring(0)?;
            self.child.watch(&[])?;
        }
        Ok(ran)
    }

    fn until_written(&mut self, words: &mut [Watched], deadline: Instant) -> Result<Ran> {
        let mut calls = 0;
        loop {
            let event = self.advance(Child::run)?;
            if let Event::Halt(halt) = event {
                return Ok(Ran::Halt(halt));
            }
            // An answered call may write, too, but then the world did it and not the thread: the
            // value is taken as it is now.
            let by_call = matches!(event, Event::Call { .. });
            if event != Event::Tick {
                for (number, word) in words.iter_mut().enumerate() {
                    let now = word.read(self)?.unwrap_or(word.value);
                    if std::mem::replace(&mut word.value, now) != now && !by_call {
                        return Ok(Ran::Wrote {
                            word: number,
                            value: now,
                            behind: self.registers().rip,
                        });
                    }
                }
            }
            if by_call {
                self.recheck()?;
            }
            calls += u32::from(by_call);
            if calls >= MOST_CALLS || Instant::now() >= deadline {
                return Ok(Ran::TimeOver);
            }
        }
    }
}

impl Child {
    /// Lets it run until a call, which is skipped, a signal, or a watchpoint.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn run(&self) -> Result<Stop> {
        request(libc::PTRACE_SYSEMU, self.pid, 0, 0)?;
        self.wait()
    }

    /// From now on stores to these words stop it, and no others.
    ///
    /// # Errors
    /// When the process is gone, or the processor can't watch them.
    fn watch(&self, words: &[Watched]) -> Result<()> {
        let unfit = || Error::from_raw_os_error(libc::ENOSPC);
        if words.len() > MOST_WATCHED {
            return Err(unfit());
        }
        let set = |number: usize, value: u64| {
            let at = offset_of!(libc::user, u_debugreg) + number * 8;
            request(libc::PTRACE_POKEUSER, self.pid, at, value as usize)
        };
        const CONTROL: usize = 7;
        set(CONTROL, 0)?;
        let mut control = 0;
        for (number, word) in words.iter().enumerate() {
            let (start, size) = word.block().ok_or_else(unfit)?;
            set(number, start)?;
            // Intel's manual, volume 3, 19.2.4: enabled for this task; on stores; the size.
            let size = [(1, 0b00), (2, 0b01), (4, 0b11), (8, 0b10)]
                .into_iter()
                .find_map(|(bytes, code)| (bytes == size).then_some(code))
                .ok_or_else(unfit)?;
            const STORES: u64 = 0b01;
            control |= 1 << (2 * number) | (STORES | size << 2) << (16 + 4 * number);
        }
        set(CONTROL, control)?;
        Ok(())
    }

    /// Has the kernel interrupt it by SIGALRM again and again; 0: no more.
    ///
    /// # Errors
    /// When the process is gone.
    fn ring(&self, microseconds: u64) -> Result<()> {
        let place = self.home + ROOM;
        // `struct itimerval`: the interval and the time until the first, each seconds and
        // microseconds.
        for (index, word) in [0, microseconds, 0, microseconds].into_iter().enumerate() {
            let at = place + index as u64 * 8;
            request(libc::PTRACE_POKEDATA, self.pid, at as usize, word as usize)?;
        }
        let arguments = [libc::ITIMER_REAL as u64, place, 0];
        self.call(libc::SYS_setitimer, &arguments).map(drop)
    }
}
