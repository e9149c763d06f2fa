// SPDX-License-Identifier: MIT
//! Loads that move on: they ask another word in most rounds, and find something else there, as when
//! a loop takes items out of a queue. A loop that waits for a word asks that one again and again,
//! or goes round several that stay as they are.

use flagfinder_machine::Window;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::exit::{Exit, Source};
use crate::spin_loop::SpinLoop;

/// Fewer rounds say nothing.
const ROUNDS: usize = 8;

/// An instruction, and the stack pointer there.
type Place = (u32, u64);

pub struct Passing {
    places: FxHashSet<Place>,
}

/// What a load found in one round: the word that it read last, and its value.
type Found = (u64, Option<u64>);

impl Passing {
    /// Looks at the loads that decide the exits.
    pub fn of(window: &Window, spin: &SpinLoop, exits: &[Exit]) -> Passing {
        let place = |step: u32| (window.code_index(step), window.rsp(step));
        let mut found: FxHashMap<Place, Vec<(usize, Found)>> = FxHashMap::default();
        let loads = exits.iter().flat_map(deciding_loads);
        found.extend(loads.map(|step| (place(step), Vec::new())));
        for step in spin.first_step()..spin.end {
            let Some(rounds) = found.get_mut(&place(step)) else {
                continue;
            };
            let mut reads = window.accesses(step).iter().filter(|access| !access.write);
            let read = reads.find_map(|read| Some((read.address?, read.bytes, read.value)));
            let Some((address, bytes, value)) = read else {
                continue;
            };
            let now = (address, value.get((bytes * 8).min(64)));
            let round = spin.round_of(step);
            match rounds.last_mut().filter(|last| last.0 == round) {
                Some(last) => last.1 = now,
                None => rounds.push((round, now)),
            }
        }
        let passing = found.into_iter().filter(|(_, rounds)| passes(rounds));
        Passing {
            places: passing.map(|(place, _)| place).collect(),
        }
    }

    /// Is the load at this step one of them?
    pub fn has(&self, window: &Window, step: u32) -> bool {
        let place = (window.code_index(step), window.rsp(step));
        self.places.contains(&place)
    }

    /// Does no other memory decide the exit?
    pub fn decides(&self, window: &Window, exit: &Exit) -> bool {
        let mut loads = deciding_loads(exit).peekable();
        loads.peek().is_some() && loads.all(|step| self.has(window, step))
    }
}

fn deciding_loads(exit: &Exit) -> impl Iterator<Item = u32> + '_ {
    exit.sources.iter().filter_map(|source| match *source {
        Source::Load {
            step,
            address_only: false,
            ..
        } => Some(step),
        _ => None,
    })
}

fn passes(rounds: &[(usize, Found)]) -> bool {
    if rounds.len() < ROUNDS {
        return false;
    }
    let goes_on = |pair: &&[(usize, Found)]| {
        let ((before, old), (now, new)) = (pair[0].1, pair[1].1);
        before != now && old != new
    };
    let moves = rounds.windows(2).filter(goes_on).count();
    let mut known: FxHashMap<u64, Option<u64>> = FxHashMap::default();
    let (mut again, mut same) = (0, 0);
    for &(_, (address, value)) in rounds {
        if let Some(before) = known.insert(address, value) {
            again += 1;
            same += usize::from(before == value);
        }
    }
    moves * 2 >= rounds.len() && same * 2 <= again
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Do loads move on that find these values at these words, round by round?
    fn goes_on(rounds: usize, found: impl Fn(u64) -> (u64, u64)) -> bool {
        let one = |round: usize| {
            let (address, value) = found(round as u64);
            (round, (0x5000 + 8 * address, Some(value)))
        };
        passes(&(0..rounds).map(one).collect::<Vec<_>>())
    }

    #[test]
    fn a_thread_that_takes_items_from_a_ring_moves_on() {
        assert!(goes_on(12, |round| (round, round)));
        assert!(goes_on(96, |round| (round % 16, round)), "again and again");
        assert!(!goes_on(4, |round| (round, round)), "too few");
    }

    #[test]
    fn a_thread_that_reads_the_same_words_again_waits() {
        assert!(!goes_on(96, |_| (0, 0)));
        assert!(!goes_on(96, |round| (0, round)), "a count of another's");
        assert!(!goes_on(96, |round| (round % 16, 0)), "empty queues");
        let numbered = goes_on(96, |round| (round % 16, round % 16));
        assert!(!numbered, "queues whose positions differ");
    }
}
