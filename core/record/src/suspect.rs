// SPDX-License-Identifier: MIT
//! What `spinning.rs` knows of one thread: the set of blocks that it goes round, and the loops that
//! it has stayed in.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

/// More distinct blocks than this are no spin loop (an interpreter's loop has
/// several hundred).
const MOST_BLOCKS: usize = 4096;
/// So many blocks may still turn up in a set that holds, or a tenth of it: what a
/// loop does rarely, and what the samples missed.
const LATECOMERS: usize = 8;
/// Executions of each block, on average, that count as going round.
const ROUNDS: u64 = 4;
/// A stay counts as idling from this part of the time asked: an idle worker's stays differ in
/// length.
const IDLED: u32 = 4;
/// Or once it has stayed there so often, however briefly: under load a worker idles between any two
/// pieces of work.
pub(crate) const VISITS: u32 = 3;
/// Looks that a stay takes at least: one look alone may show any part of longer work.
const LOOKS: u32 = 2;
/// Loops remembered per thread, the newest; a pool's worker has one or two that it idles in.
const MOST_LOOPS: usize = 8;
/// Two looks show the same loop if they have so many hundredths of all their blocks in common.
const SAME_LOOP: usize = 80;
/// Blocks a second below which a thread mostly sleeps.
const BUSY: u64 = 100_000;

pub(crate) struct Suspect {
    /// Flow position looked at last.
    pub position: u64,
    set: HashSet<u32>,
    pub since: Instant,
    /// Blocks that joined the set since then.
    latecomers: usize,
    /// Flow bytes executed since then.
    bytes: u64,
    /// Where it is at present.
    stay: Stay,
    /// Loops that it stayed in for long, and left.
    left: VecDeque<HashSet<u32>>,
    /// Loops that it stayed in briefly, and how often.
    passed: VecDeque<(HashSet<u32>, u32)>,
}

/// Looks in a row that showed the same loop, whatever was executed before.
struct Stay {
    blocks: HashSet<u32>,
    since: Instant,
    newest: Instant,
    looks: u32,
    bytes: u64,
}

/// Keeps the newest loops.
fn keep<T>(loops: &mut VecDeque<T>, newest: T) {
    if loops.len() == MOST_LOOPS {
        loops.pop_front();
    }
    loops.push_back(newest);
}

impl Suspect {
    pub fn new(now: Instant) -> Self {
        Suspect {
            position: 0,
            set: HashSet::new(),
            since: now,
            latecomers: 0,
            bytes: 0,
            stay: Stay::new(HashSet::new(), 0, now),
            left: VecDeque::new(),
            passed: VecDeque::new(),
        }
    }

    /// Is it in a loop that it has left before?
    pub fn is_back(&self) -> bool {
        self.left.iter().any(|left| self.stay.is_in(left))
    }

    /// What one look showed.
    fn see(&mut self, blocks: &HashSet<u32>, bytes: u64, now: Instant, wanted: Duration) {
        if self.stay.is_in(blocks) {
            self.stay.blocks.extend(blocks);
            self.stay.newest = now;
            self.stay.looks += 1;
            self.stay.bytes += bytes;
            return;
        }
        let before = std::mem::replace(&mut self.stay, Stay::new(blocks.clone(), bytes, now));
        if self.left.iter().any(|left| before.is_in(left)) || !before.went_round() {
            return;
        }
        if before.is_long(wanted) || self.pass(&before) == VISITS {
            keep(&mut self.left, before.blocks);
        }
    }

    /// How often it has stayed in this loop briefly, this time included.
    fn pass(&mut self, stay: &Stay) -> u32 {
        let known = self
            .passed
            .iter_mut()
            .find(|(blocks, _)| stay.is_in(blocks));
        if let Some((_, times)) = known {
            *times += 1;
            return *times;
        }
        keep(&mut self.passed, (stay.blocks.clone(), 1));
        1
    }

    pub fn is_busy(&self, now: Instant) -> bool {
        let seconds = (now - self.since).as_secs_f64();
        self.bytes as f64 / 2.0 >= BUSY as f64 * seconds
    }

    pub fn add(&mut self, sample: &[u32], position: u64, now: Instant, wanted: Duration) -> bool {
        let executed = position - self.position;
        self.bytes += executed;
        self.position = position;
        let fresh: HashSet<u32> = sample.iter().copied().collect();
        self.see(&fresh, executed, now, wanted);
        self.latecomers += fresh.difference(&self.set).count();
        if self.latecomers > LATECOMERS.max(self.set.len() / 10) {
            // A set that had held for long was another loop; a young one was only
            // incompletely seen.
            if now - self.since > wanted / 2 {
                self.set = fresh;
            } else {
                self.set.extend(fresh);
            }
            self.since = now;
            self.latecomers = 0;
            self.bytes = 0;
            if self.set.len() > MOST_BLOCKS {
                self.set.clear();
            }
        } else {
            self.set.extend(fresh);
        }
        now - self.since >= wanted && self.bytes / 2 >= ROUNDS * self.set.len() as u64
    }
}

impl Stay {
    fn new(blocks: HashSet<u32>, bytes: u64, now: Instant) -> Self {
        Stay {
            blocks,
            since: now,
            newest: now,
            looks: 1,
            bytes,
        }
    }

    /// Is it a stay in this loop?
    fn is_in(&self, blocks: &HashSet<u32>) -> bool {
        let common = self.blocks.intersection(blocks).count();
        let all = self.blocks.len() + blocks.len() - common;
        common * 100 >= all * SAME_LOOP
    }

    fn went_round(&self) -> bool {
        self.bytes / 2 >= ROUNDS * self.blocks.len() as u64
    }

    fn is_long(&self, wanted: Duration) -> bool {
        self.looks >= LOOKS && self.newest - self.since >= wanted / IDLED
    }
}
