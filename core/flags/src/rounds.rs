// SPDX-License-Identifier: MIT
//! Where a thread repeats one round of blocks, and ends to.
//!
//! In: a thread's flow. Out: its [`Rounds`]. Linear in the flow; long cycles are jumped over.
//! Blind spots: rounds that go different ways (a back-off that grows, work in between), or longer
//! than [`LONGEST`].

use flagfinder_trace::{BlockId, DecodedFlow, Result, Thread};
use rustc_hash::FxHashMap;

/// Longest round, in blocks.
const LONGEST: usize = 1024;
/// A round repeats so often, or it counts for nothing.
const FEWEST: u64 = 4;

/// A stretch of flow in which a thread repeated one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// The block that was entered last within a round.
    pub last: BlockId,
    /// The one behind it, of no round any more.
    pub next: BlockId,
    /// Blocks of a round.
    pub length: u64,
    /// How many there were, rounded down.
    pub count: u64,
    /// The index of `next` among the thread's blocks, from 0.
    pub ended: u64,
}

/// The rounds of a thread that came to an end, in order.
///
/// # Errors
/// When the flow cannot be read.
pub fn of_thread(thread: &Thread) -> Result<Vec<Rounds>> {
    let mut decoder = thread.flow_decoder();
    let mut decoded = DecodedFlow::default();
    let mut search = Search::new();
    for section in 0..thread.flow_section_count() {
        decoder.decode_folded(section, &mut decoded)?;
        if decoded.gap.is_some() {
            search.lose();
        }
        search.feed(&decoded.blocks, decoded.block_count());
    }
    Ok(search.found)
}

/// Positions in the flow of some of a thread's blocks; `indices` ascend. A block that is not there
/// has none.
///
/// # Errors
/// When the flow cannot be read.
pub fn positions(thread: &Thread, indices: &[u64]) -> Result<FxHashMap<u64, u64>> {
    let mut decoder = thread.flow_decoder();
    let mut decoded = DecodedFlow::default();
    let mut found = FxHashMap::default();
    let mut wanted = indices.iter().copied().peekable();
    let mut before = 0;
    for (section, (start, _)) in thread.flow_section_extents().enumerate() {
        decoder.decode_folded(section, &mut decoded)?;
        let behind = before + decoded.block_count();
        if wanted.peek().is_some_and(|&index| index < behind) {
            let mut at = before;
            for item in thread.flow_from(start) {
                let flagfinder_trace::Flow::Block { pos, .. } = item? else {
                    continue;
                };
                while wanted.next_if_eq(&at).is_some() {
                    found.insert(at, pos);
                }
                at += 1;
                if at == behind || wanted.peek().is_none_or(|&index| index >= behind) {
                    break;
                }
            }
        }
        before = behind;
    }
    Ok(found)
}

struct Search {
    /// The last blocks, by index.
    recent: Vec<BlockId>,
    /// Where each block was entered last.
    entered: FxHashMap<BlockId, u64>,
    /// Index of the next block, without those that were jumped over.
    at: u64,
    /// So many were jumped over, in all and in these rounds.
    jumped: u64,
    jumped_here: u64,
    /// Length of the round that may repeat; 0: none.
    length: u64,
    /// Blocks that were as in the round before.
    alike: u64,
    found: Vec<Rounds>,
}

impl Search {
    fn new() -> Search {
        Search {
            recent: vec![0; LONGEST],
            entered: FxHashMap::default(),
            at: 0,
            jumped: 0,
            jumped_here: 0,
            length: 0,
            alike: 0,
            found: Vec::new(),
        }
    }

    /// What came before is not known any more.
    fn lose(&mut self) {
        self.entered.clear();
        (self.length, self.alike, self.jumped_here) = (0, 0, 0);
    }

    /// `count` blocks that go through `round`, over and over where they are more.
    fn feed(&mut self, round: &[BlockId], count: u64) {
        let length = round.len() as u64;
        let followed = FEWEST + 1 + LONGEST as u64 / length.max(1);
        if count <= length * followed {
            for index in 0..count {
                self.enter(round[(index % length) as usize]);
            }
            return;
        }
        for _ in 0..followed {
            round.iter().for_each(|&id| self.enter(id));
        }
        let left = count - length * followed;
        let skipped = left - left % length;
        self.jumped += skipped;
        self.jumped_here += skipped;
        round[..(left % length) as usize]
            .iter()
            .for_each(|&id| self.enter(id));
    }

    #[inline]
    fn before(&self, blocks: u64) -> BlockId {
        self.recent[((self.at - blocks) % LONGEST as u64) as usize]
    }

    fn enter(&mut self, id: BlockId) {
        if self.length != 0 && self.before(self.length) == id {
            self.alike += 1;
        } else {
            let all = self.length + self.alike + self.jumped_here;
            if self.length != 0 && all >= FEWEST * self.length {
                self.found.push(Rounds {
                    last: self.before(1),
                    next: id,
                    length: self.length,
                    count: all / self.length,
                    ended: self.at + self.jumped,
                });
            }
            let since = self
                .entered
                .get(&id)
                .map_or(0, |&entered| self.at - entered);
            self.length = if since <= LONGEST as u64 { since } else { 0 };
            // This block is the first that repeats.
            (self.alike, self.jumped_here) = (u64::from(self.length != 0), 0);
        }
        self.entered.insert(id, self.at);
        self.recent[(self.at % LONGEST as u64) as usize] = id;
        self.at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pieces: &[(&[BlockId], u64)]) -> Vec<Rounds> {
        let mut search = Search::new();
        for (round, count) in pieces {
            search.feed(round, *count);
        }
        search.found
    }

    #[test]
    fn a_round_that_repeats_ends_where_another_block_comes() {
        let rounds = found(&[(&[1, 2], 2), (&[3, 4], 40), (&[5, 1, 2], 3)]);
        let wanted = Rounds {
            last: 4,
            next: 5,
            length: 2,
            count: 20,
            ended: 42,
        };
        assert_eq!(rounds, [wanted]);
    }

    #[test]
    fn few_rounds_and_a_round_that_goes_on_count_for_nothing() {
        let few = 2 * (FEWEST - 1);
        assert_eq!(found(&[(&[3, 4], few), (&[5], 1), (&[6, 7], 1000)]), []);
    }

    #[test]
    fn what_is_jumped_over_counts() {
        let whole = found(&[(&[3, 4, 4], 3_000_001), (&[3, 4, 4], 1_000_000), (&[9], 1)]);
        let one = &whole[whole.len() - 1];
        assert_eq!((one.ended, one.next), (4_000_001, 9));
        let long: Vec<BlockId> = (10..600).collect();
        let rounds = found(&[(&long, 590 * 5000), (&[9], 1)]);
        assert_eq!((rounds[0].count, rounds[0].ended), (5000, 590 * 5000));
    }

    #[test]
    fn a_loop_within_a_round_is_a_part_of_it_once_that_repeats() {
        let round: &[BlockId] = &[1, 2, 2, 2, 3];
        let rounds = found(&[(round, 5 * 30), (&[8], 1)]);
        let last = rounds.last().expect("rounds");
        assert_eq!((last.length, last.next), (5, 8));
        assert!(last.count >= 29);
    }
}
