//! Is a thread of the running target spinning? Looks at the chunks that its threads
//! are writing, a few times a second.
//!
//! Spinning: for the time asked, the thread kept executing, executed only blocks
//! from one small set, and went round that set several times. That says nothing
//! about whether it should; a long computation in one loop looks the same.
//!
//! A thread that mostly sleeps says nothing while others of its process come to ever new code: it may serve a program that
//! is still starting (a virtual machine's service thread).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use flagfinder_trace::protocol::{self as p, Chunk};

use crate::drain::lock;
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

/// Blocks a second below which a thread mostly sleeps.
const BUSY: u64 = 100_000;
/// A process that has come to so many blocks for the first time, within the time asked, is on its way.
const NEW_BLOCKS: u32 = 1000;

/// (pid, tid).
type ThreadKey = (u32, u32);

/// Flow that threads filled chunks with, at most one chunk a thread between two looks.
/// What a busy thread is writing changes hands too fast to be looked at.
#[derive(Default)]
pub struct FullChunks {
    newest: Mutex<HashMap<ThreadKey, Sample>>,
}

struct Sample {
    /// Flow position of its last unit.
    position: u64,
    raw: Vec<u8>,
}

impl FullChunks {
    /// A chunk of flow is about to be given back; `data` is all of it.
    pub fn offer(&self, chunk: &Chunk, data: &[u8]) {
        let key = (chunk.pid, chunk.tid);
        if lock(&self.newest).contains_key(&key) {
            return;
        }
        let sample = Sample {
            position: chunk.start_pos + (data.len() as u64).saturating_sub(2),
            raw: data.to_vec(),
        };
        lock(&self.newest).insert(key, sample);
    }
}

pub struct SpinWatch {
    wanted: Duration,
    threads: HashMap<ThreadKey, Suspect>,
    /// By pid.
    growth: HashMap<u32, Growth>,
    blocks: Vec<u32>,
}

/// How many blocks a process had come to, and when; as far back as the time asked. Ids are given in order.
#[derive(Default)]
struct Growth(VecDeque<(Instant, u32)>);

impl Growth {
    fn add(&mut self, newest: u32, now: Instant, wanted: Duration) {
        let most = self.0.back().map_or(newest, |&(_, most)| most.max(newest));
        self.0.push_back((now, most));
        while self.0.get(1).is_some_and(|(at, _)| now - *at >= wanted) {
            self.0.pop_front();
        }
    }

    fn is_on_its_way(&self) -> bool {
        let ends = self.0.front().zip(self.0.back());
        ends.is_some_and(|((_, first), (_, last))| last - first >= NEW_BLOCKS)
    }
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
            growth: HashMap::new(),
            blocks: Vec::new(),
        }
    }

    /// Looks once; returns the (pid, tid) of threads that have been spinning for the
    /// time asked.
    pub fn look(&mut self, pool: &Pool, full: &FullChunks) -> Vec<ThreadKey> {
        let mut samples: Vec<_> = std::mem::take(&mut *lock(&full.newest))
            .into_iter()
            .collect();
        samples.extend(pool.span().filter_map(|index| being_written(pool, index)));
        let mut spinning = Vec::new();
        for (key, sample) in &samples {
            // A thread that changes chunks has two of them.
            if self.add(*key, sample) && !spinning.contains(key) {
                spinning.push(*key);
            }
        }
        spinning
    }

    fn add(&mut self, key: ThreadKey, sample: &Sample) -> bool {
        let now = Instant::now();
        let suspect = self.threads.entry(key).or_insert_with(|| Suspect {
            position: 0,
            set: HashSet::new(),
            since: now,
            latecomers: 0,
            bytes: 0,
        });
        if sample.position <= suspect.position {
            return false;
        }
        self.blocks.clear();
        flagfinder_trace::decode_units(&sample.raw, 0, &mut self.blocks, &mut Vec::new());
        // Only what was executed since the last look, as far as it is still here.
        let fresh = ((sample.position - suspect.position) / 2).min(SAMPLE as u64) as usize;
        let fresh = &self.blocks[self.blocks.len().saturating_sub(fresh.max(1))..];
        let growth = self.growth.entry(key.0).or_default();
        growth.add(fresh.iter().copied().max().unwrap_or(0), now, self.wanted);
        suspect.add(fresh, sample.position, now, self.wanted)
            && (suspect.is_busy(now) || !growth.is_on_its_way())
    }
}

/// The flow in a chunk that its thread is writing, unless that changed hands meanwhile.
fn being_written(pool: &Pool, index: u32) -> Option<(ThreadKey, Sample)> {
    let owned = || pool.state(index).load(Ordering::Acquire) == p::CHUNK_OWNED;
    if !owned() {
        return None;
    }
    let chunk = pool.chunk(index);
    let mut raw = Vec::new();
    if chunk.stream != p::STREAM_FLOW || pool.snapshot(index, &mut raw).is_err() {
        return None;
    }
    let after = pool.chunk(index);
    let same = (after.stream, after.ts_open, after.tid) == (chunk.stream, chunk.ts_open, chunk.tid);
    if !owned() || !same {
        return None;
    }
    let last = raw.iter().rposition(|&byte| byte != 0)?;
    raw.truncate(last + 2);
    let position = chunk.start_pos + last as u64;
    Some(((chunk.pid, chunk.tid), Sample { position, raw }))
}

impl Suspect {
    fn is_busy(&self, now: Instant) -> bool {
        let seconds = (now - self.since).as_secs_f64();
        self.bytes as f64 / 2.0 >= BUSY as f64 * seconds
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_comes_to_new_code_is_on_its_way() {
        let (begin, wanted) = (Instant::now(), Duration::from_secs(2));
        let at = |ms| begin + Duration::from_millis(ms);
        let mut growth = Growth::default();
        for look in 0..20 {
            growth.add(100 * look, at(200 * u64::from(look)), wanted);
        }
        assert!(growth.is_on_its_way(), "100 a look");
        for look in 20..29 {
            growth.add(1900, at(200 * look), wanted);
        }
        assert!(!growth.is_on_its_way(), "no longer");
        growth.add(7, at(5900), wanted);
        assert!(!growth.is_on_its_way(), "a thread in old code");
    }
}
