//! Is a thread of the running target spinning? Looks at the chunks that its threads
//! are writing, a few times a second.
//!
//! Spinning: for the time asked, the thread kept executing, executed only blocks
//! from one small set, and went round that set several times. That says nothing
//! about whether it should; a long computation in one loop looks the same.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use flagfinder_trace::protocol as p;

use crate::pool::Pool;

/// More distinct blocks than this are no spin loop (an interpreter's loop has
/// several hundred).
const MOST_BLOCKS: usize = 4096;
/// Blocks looked at per thread and look.
const SAMPLE: usize = 1 << 16;
/// So many blocks may still turn up in a set that holds, or a tenth of it: what a
/// loop does rarely, and what the samples missed.
const LATECOMERS: usize = 8;
/// Executions of each block, on average, that count as going round.
const ROUNDS: u64 = 4;

pub struct SpinWatch {
    wanted: Duration,
    threads: HashMap<(u32, u32), Suspect>,
    raw: Vec<u8>,
    blocks: Vec<u32>,
}

struct Suspect {
    /// Flow position looked at last.
    position: u64,
    set: HashSet<u32>,
    since: Instant,
    /// Blocks that joined the set since then.
    latecomers: usize,
    /// Flow bytes executed since then.
    bytes: u64,
}

impl SpinWatch {
    pub fn new(wanted: Duration) -> Self {
        SpinWatch {
            wanted,
            threads: HashMap::new(),
            raw: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// Looks once; returns the (pid, tid) of threads that have been spinning for the
    /// time asked.
    pub fn look(&mut self, pool: &Pool) -> Vec<(u32, u32)> {
        let mut spinning = Vec::new();
        let now = Instant::now();
        for index in pool.span() {
            if pool.state(index).load(Ordering::Acquire) != p::CHUNK_OWNED {
                continue;
            }
            let chunk = pool.chunk(index);
            if chunk.stream != p::STREAM_FLOW || pool.snapshot(index, &mut self.raw).is_err() {
                continue;
            }
            let Some(last) = self.raw.iter().rposition(|&byte| byte != 0) else {
                continue;
            };
            let position = chunk.start_pos + last as u64;
            let key = (chunk.pid, chunk.tid);
            let suspect = self.threads.entry(key).or_insert_with(|| Suspect {
                position: 0,
                set: HashSet::new(),
                since: now,
                latecomers: 0,
                bytes: 0,
            });
            if position <= suspect.position {
                continue;
            }
            self.blocks.clear();
            flagfinder_trace::decode_units(
                &self.raw[..(last + 2).min(self.raw.len())],
                0,
                &mut self.blocks,
                &mut Vec::new(),
            );
            // Only what was executed since the last look, as far as it is still here.
            let fresh = ((position - suspect.position) / 2).min(SAMPLE as u64) as usize;
            let sample = &self.blocks[self.blocks.len().saturating_sub(fresh.max(1))..];
            // A thread that changes chunks has two of them.
            if suspect.add(sample, position, now, self.wanted) && !spinning.contains(&key) {
                spinning.push(key);
            }
        }
        spinning
    }
}

impl Suspect {
    fn add(&mut self, sample: &[u32], position: u64, now: Instant, wanted: Duration) -> bool {
        self.bytes += position - self.position;
        self.position = position;
        let fresh: HashSet<u32> = sample.iter().copied().collect();
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
