// SPDX-License-Identifier: MIT
//! Calls that a thread makes over and over although each comes back at once and brings nothing: a
//! read at the end of a file, a poll of what is always ready, a descriptor that is not open.
//!
//! Of each thread the most frequent calls are kept by the algorithm of Misra and Gries (*Finding
//! repeated elements*, 1982): with k places each call is found that is more than one of k + 1. So
//! memory and time do not grow with the calls. Counts may be too small by what was displaced.

use flagfinder_linux::traits;
use flagfinder_waits::hot_call::HotCall;
use rustc_hash::FxHashMap;

use crate::call::{Call, CallEnd};
use crate::event::{Event, Kind};
use crate::threads::Threads;

/// A loop makes at least 1 / (n + 1) of its calls with the same first argument.
const PLACES: usize = 8;
/// A loop has repeated so often at least, and so often in a second on a CPU: a program that works
/// does not ask in vain every 100 us.
const ENOUGH: u32 = 1000;
const PER_SECOND: u64 = 10_000;
const SECOND: u64 = 1_000_000_000;
/// A call brings nothing if so many of n calls do.
const IN_VAIN: (u64, u64) = (9, 10);
/// What a poll found ready is taken if so many of n polls are followed by data.
const TAKEN: (u64, u64) = (1, 10);
/// How long until the descriptors of one call of one thread are looked at again.
const AGAIN: u64 = 10 * SECOND;
/// Most calls that are looked at between two flushes, and that are remembered.
const MOST: usize = 8;
const MOST_KNOWN: usize = 2000;

/// A call with its first argument, as often as it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeated {
    /// The call, packed.
    word: u64,
    /// Second argument (its lower half) and third, where they are recorded.
    more: [u64; 2],
    /// How often; too small by what was displaced.
    pub count: u32,
    /// How many brought nothing, and how many brought data.
    vain: u32,
    taken: u32,
    /// Result of the newest call that returned.
    pub result: i64,
}

impl Repeated {
    /// Its number and first argument.
    pub fn call(&self) -> Call {
        Call::unpack(self.word).unwrap_or(Call {
            number: 0,
            first: 0,
        })
    }

    fn looks(&self) -> bool {
        Call::looks(self.call().number)
    }
}

/// The most frequent calls of a thread since `clear`.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    places: [Repeated; PLACES],
    used: usize,
    /// The call that the thread is in; `PLACES`: one that is not kept.
    now: usize,
}

impl Calls {
    /// Forgets all calls so far.
    pub fn clear(&mut self) {
        self.used = 0;
        self.now = PLACES;
    }

    /// The thread begins a call. `word`: the call as events have it.
    pub fn enter(&mut self, word: u64, more: [u64; 2]) {
        let known = &mut self.places[..self.used];
        if let Some(place) = known.iter().position(|one| one.word == word) {
            known[place].count += 1;
            self.now = place;
        } else if self.used < PLACES {
            self.places[self.used] = Repeated {
                word,
                more,
                count: 1,
                ..Repeated::default()
            };
            (self.now, self.used) = (self.used, self.used + 1);
        } else {
            self.displace();
            self.now = PLACES;
        }
    }

    /// Takes one off each count, and forgets the calls whose count is then 0.
    fn displace(&mut self) {
        let mut kept = 0;
        for place in 0..self.used {
            let mut one = self.places[place];
            one.count -= 1;
            (one.vain, one.taken) = (one.vain.min(one.count), one.taken.min(one.count));
            if one.count > 0 {
                self.places[kept] = one;
                kept += 1;
            }
        }
        self.used = kept;
    }

    /// The call returns. Returns it, if it was made often enough just now.
    pub fn exit(&mut self, end: CallEnd) -> Option<&Repeated> {
        let place = std::mem::replace(&mut self.now, PLACES);
        let one = self.places[..self.used].get_mut(place)?;
        if one.call().number != end.number {
            return None;
        }
        one.result = end.result;
        let number = u32::from(end.number);
        let brings = traits::receives(number) || traits::opens(number) && traits::waits(number);
        let is_nothing = end.result < 0 || end.result == 0 && traits::receives(number);
        if brings && !is_nothing {
            one.taken += 1;
        } else if traits::looks(number)
            || is_nothing && (traits::waits(number) || traits::has_descriptor(number))
        {
            one.vain += 1;
        }
        (one.count == ENOUGH).then_some(&*one)
    }

    /// The call that the thread repeats and that brings nothing. `run`: ns that it had a CPU for.
    pub fn in_vain(&self, run: u64) -> Option<&Repeated> {
        let all = &self.places[..self.used];
        let part =
            |some: u32, all: u32, (n, of): (u64, u64)| u64::from(some) * of >= u64::from(all) * n;
        let is_hot = |one: &&Repeated| {
            let per_second = u128::from(one.count) * u128::from(SECOND) / u128::from(run.max(1));
            one.count >= ENOUGH && per_second >= u128::from(PER_SECOND)
        };
        let is_served = |one: &Repeated| {
            one.looks() && all.iter().any(|other| part(other.taken, one.count, TAKEN))
        };
        let hot = all.iter().filter(is_hot);
        let vain = hot.filter(|one| part(one.vain, one.count, IN_VAIN) && !is_served(one));
        // Of a poll and the read that follows it, the read names the descriptor.
        vain.max_by_key(|one| (!one.looks(), one.count))
    }
}

/// Threads of a recording that repeat calls which bring nothing, while it goes on.
#[derive(Debug, Default)]
pub(crate) struct Hot {
    /// By thread: since when its calls are counted.
    threads: FxHashMap<u32, (u64, Calls)>,
    /// When a thread's call is looked at again.
    known: FxHashMap<(u32, u64), u64>,
    new: Vec<(u32, u32, HotCall)>,
}

impl Hot {
    pub fn see(&mut self, event: &Event, threads: &Threads) {
        match event.kind {
            Kind::Enter | Kind::EnterWide => {
                let (since, calls) = self.threads.entry(event.a).or_default();
                if event.ts.saturating_sub(*since) > SECOND {
                    *since = event.ts;
                    calls.clear();
                }
                let more = match event.kind {
                    Kind::EnterWide => [event.words[1], event.words[2]],
                    _ => [0; 2],
                };
                calls.enter(event.words[0], more);
            }
            Kind::ExitCall => {
                let Some((since, calls)) = self.threads.get_mut(&event.a) else {
                    return;
                };
                let often = event.call_end().and_then(|end| calls.exit(end));
                if often.is_none() || self.new.len() >= MOST {
                    return;
                }
                let took = event.ts.saturating_sub(*since);
                let Some(one) = calls.in_vain(took).copied() else {
                    return;
                };
                if self.known.len() >= MOST_KNOWN {
                    self.known.retain(|_, until| *until > event.ts);
                }
                let until = self.known.get(&(event.a, one.word)).copied();
                let is_new = until.is_none_or(|until| until <= event.ts);
                if let Some(pid) = threads.pid(event.a).filter(|_| is_new) {
                    self.known.insert((event.a, one.word), event.ts + AGAIN);
                    self.new.push((pid, event.a, asked(&one)));
                }
            }
            Kind::Exit => {
                self.threads.remove(&event.a);
            }
            _ => {}
        }
    }

    /// Process, thread and call of those that are new since the last time.
    pub fn take(&mut self) -> Vec<(u32, u32, HotCall)> {
        std::mem::take(&mut self.new)
    }
}

fn asked(one: &Repeated) -> HotCall {
    let call = one.call();
    HotCall {
        number: call.number.into(),
        args: [call.first, one.more[0], one.more[1], 0, 0, 0],
        result: Some(one.result),
        found: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u16 = libc::SYS_read as u16;
    const POLL: u16 = libc::SYS_poll as u16;
    const STAT: u16 = libc::SYS_newfstatat as u16;

    fn round(calls: &mut Calls, made: &[(u16, u64, i64)]) {
        for &(number, first, result) in made {
            calls.enter(Call { number, first }.pack(), [0; 2]);
            calls.exit(CallEnd { number, result });
        }
    }

    /// The call that brings nothing, of a thread that repeats these calls for a while on a CPU.
    fn found(made: &[(u16, u64, i64)], run: u64) -> Option<(u16, u64)> {
        let mut calls = Calls::default();
        (0..2000).for_each(|_| round(&mut calls, made));
        let call = calls.in_vain(run)?.call();
        Some((call.number, call.first))
    }

    #[test]
    fn a_loop_that_gets_nothing_is_told_from_one_that_serves() {
        let busy = SECOND / 100;
        let (ready, ended) = ((POLL, 0x7fff_0000, 1), (READ, 5, 0));
        assert_eq!(found(&[ended], busy), Some((READ, 5)));
        assert_eq!(found(&[ready, ended], busy), Some((READ, 5)));
        assert_eq!(found(&[ready], busy), Some((POLL, 0x7fff_0000)));
        assert_eq!(found(&[(READ, 5, -9)], busy), Some((READ, 5)), "not open");
        assert_eq!(found(&[ready, (READ, 5, 100)], busy), None, "it is served");
        assert_eq!(found(&[(READ, 5, 100)], busy), None);
        let again = (READ, 5, -11);
        assert_eq!(
            found(&[ready, (READ, 5, 1), again], busy),
            None,
            "until empty"
        );
        assert_eq!(found(&[(STAT, 1, -2)], busy), None, "other paths each time");
        assert_eq!(found(&[ended], 10 * SECOND), None, "now and then");
    }

    #[test]
    fn a_loop_is_found_among_many_other_calls() {
        let mut calls = Calls::default();
        for turn in 0..10_000 {
            round(&mut calls, &[(READ, 5, 0), (READ, 5, 0), (STAT, turn, 0)]);
        }
        let one = calls.in_vain(SECOND / 10).copied().expect("one is hot");
        assert_eq!(one.call().first, 5);
        assert!(one.count > 18_000 && one.count <= 20_000, "{}", one.count);
        calls.clear();
        assert_eq!(calls.in_vain(1), None);
    }
}
