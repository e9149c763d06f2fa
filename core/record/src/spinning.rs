// SPDX-License-Identifier: MIT
//! Is a thread of the running target spinning? Looks at the chunks that its threads
//! are writing, a few times a second.
//!
//! Spinning: for the time asked, the thread kept executing, executed only blocks
//! from one small set, and went round that set several times. That says nothing
//! about whether it should; a long computation in one loop looks the same.
//!
//! A thread that mostly sleeps does not count while others of its process come to new code: it may
//! serve a program that is still starting (a virtual machine's service thread).
//!
//! A thread that mostly sleeps, and whose waits for descriptors run into their time limit, may be
//! an idle server. It ends the recording only after many times the time asked.
//!
//! A worker of a pool spins while there is no work for it. One that is in a loop which it has left
//! before is taken for such a worker. It does not end the recording while its process comes to new
//! code or takes data over again and again: such a process may still bring it work. Blind spots:
//! the first time that a worker idles, nothing tells it from one that hangs; work that is done over
//! and over is no new code.
//!
//! A thread that waits for a processor does not spin meanwhile: that time counts for a quarter, as
//! far as the kernel tells it (not in another pid namespace). It counts at all because a thread
//! that yields in its loop does little else on a busy machine. The time is that of the whole
//! process: otherwise a thread that sleeps at times would be done before one that is kept from
//! running.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use flagfinder_trace::protocol::{self as p, Chunk};

use crate::calls::{takes_data, times_out};
use crate::growth::Growth;
use crate::lock::lock;
use crate::observe::waited_for_processor;
use crate::pool::Pool;

/// A spin loop has at most so many distinct blocks (an interpreter's loop has several hundred).
const MOST_BLOCKS: usize = 4096;
/// Blocks that are looked at per thread and look.
const SAMPLE: usize = 1 << 16;
/// So many blocks, or a tenth of the set, may still join a set that holds: blocks that a loop
/// executes rarely, or that the samples missed.
const LATECOMERS: usize = 8;
/// Executions of each block, on average, for a loop that repeats.
const ROUNDS: u64 = 4;

/// A stay of this part of the time asked counts as idling: the stays of an idle worker differ in
/// length.
const IDLED: u32 = 4;
/// Looks that a stay takes at least: a single look may show any part of longer work.
const LOOKS: u32 = 2;
/// Most loops that are remembered per thread, the newest; a pool's worker has one or two in which
/// it idles.
const MOST_LOOPS: usize = 8;
/// Two looks show the same loop if they share so many hundredths of all their blocks.
const SAME_LOOP: usize = 80;

/// Of the time spent waiting for a processor one part in so many counts.
const WAITING_COUNTS: u32 = 4;

/// A thread that executes fewer blocks a second mostly sleeps.
const BUSY: u64 = 100_000;
/// An idle server ends the recording after so many times the time asked.
const IDLE_FOR: u32 = 10;
/// A thread of an image: pid, the image's time stamp (it changes with exec), tid.
type ThreadKey = (u32, u64, u32);

/// Flow with which threads filled chunks, at most one chunk a thread between two looks. The chunk
/// that a busy thread is writing changes too fast to be looked at.
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
        let key = key_of(chunk);
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
    /// By pid and image.
    growth: HashMap<(u32, u64), Growth>,
    blocks: Vec<u32>,
    /// For how long each thread had waited for a processor at the last look.
    waited: HashMap<ThreadKey, Duration>,
    /// By how much the clock of each process (pid and image) is slow.
    slow: HashMap<(u32, u64), Duration>,
}

struct Suspect {
    /// The last flow position that was looked at.
    position: u64,
    set: HashSet<u32>,
    since: Instant,
    /// Blocks that joined the set since then.
    latecomers: usize,
    /// Flow bytes executed since then.
    bytes: u64,
    /// Since then it has waited for descriptors up to its time limit.
    timed_out: bool,
    /// Where it is at present.
    stay: Stay,
    /// Loops in which it stayed for long, and which it left.
    left: VecDeque<HashSet<u32>>,
}

/// Looks in a row that showed the same loop, whatever was executed before.
struct Stay {
    blocks: HashSet<u32>,
    since: Instant,
    newest: Instant,
    looks: u32,
    bytes: u64,
}

impl SpinWatch {
    pub fn new(wanted: Duration) -> Self {
        SpinWatch {
            wanted,
            threads: HashMap::new(),
            growth: HashMap::new(),
            blocks: Vec::new(),
            waited: HashMap::new(),
            slow: HashMap::new(),
        }
    }

    /// Looks once. Returns the threads that have been spinning for the time asked, once they are a
    /// reason to end the recording.
    pub fn look(&mut self, pool: &Pool, full: &FullChunks) -> Vec<ThreadKey> {
        let mut samples: Vec<_> = std::mem::take(&mut *lock(&full.newest))
            .into_iter()
            .collect();
        samples.extend(pool.span().filter_map(|index| being_written(pool, index)));
        let waited = |&(pid, _, tid): &ThreadKey| waited_for_processor(pid, tid);
        self.judge(&samples, Instant::now(), waited)
    }

    /// `waited`: for how long a thread has waited for a processor in its life.
    fn judge(
        &mut self,
        samples: &[(ThreadKey, Sample)],
        now: Instant,
        waited: impl Fn(&ThreadKey) -> Duration,
    ) -> Vec<ThreadKey> {
        let mut spinning = Vec::new();
        let clocks = self.clocks(samples, now, waited);
        for (key, sample) in samples {
            // A thread that changes chunks has two of them.
            if self.add(*key, sample, clocks[&(key.0, key.1)]) && !spinning.contains(key) {
                spinning.push(*key);
            }
        }
        let waits_for_work = |key: &ThreadKey| {
            let growth = self.growth.get(&(key.0, key.1));
            let gets_on = |growth: &Growth| growth.is_on_its_way() || growth.is_served();
            self.threads[key].is_back() && growth.is_some_and(gets_on)
        };
        if spinning.iter().all(waits_for_work) {
            spinning.clear();
        }
        spinning
    }

    /// The time that counts for each of these processes: it passes slowly while a thread waits for
    /// a processor.
    fn clocks(
        &mut self,
        samples: &[(ThreadKey, Sample)],
        now: Instant,
        waited: impl Fn(&ThreadKey) -> Duration,
    ) -> HashMap<(u32, u64), Instant> {
        let mut most: HashMap<(u32, u64), Duration> = HashMap::new();
        for (key, _) in samples {
            let total = waited(key);
            let before = self.waited.insert(*key, total).unwrap_or(total);
            let longest = most.entry((key.0, key.1)).or_default();
            *longest = total.saturating_sub(before).max(*longest);
        }
        let mut clock = |(process, longest): ((u32, u64), Duration)| {
            let slow = self.slow.entry(process).or_default();
            *slow += longest - longest / WAITING_COUNTS;
            (process, now.checked_sub(*slow).unwrap_or(now))
        };
        most.into_iter().map(&mut clock).collect()
    }

    fn add(&mut self, key: ThreadKey, sample: &Sample, now: Instant) -> bool {
        let suspect = self.threads.entry(key).or_insert_with(|| Suspect::new(now));
        if sample.position <= suspect.position {
            return false;
        }
        self.blocks.clear();
        let mut events = Vec::new();
        flagfinder_trace::decode_units(&sample.raw, 0, &mut self.blocks, &mut events);
        // Only what was executed since the last look, if it is still here.
        let fresh = ((sample.position - suspect.position) / 2).min(SAMPLE as u64) as usize;
        let seen = self.blocks.len().saturating_sub(fresh.max(1));
        let fresh = &self.blocks[seen..];
        let late = events.iter().filter(|(before, ..)| *before >= seen);
        let late = late.map(|(.., event)| event);
        let taken = late.clone().filter(|event| takes_data(event)).count();
        let timed_out = times_out(late);
        let newest = fresh.iter().copied().max().unwrap_or(0);
        let growth = self.growth.entry((key.0, key.1)).or_default();
        // The process's growth is watched for longer than a loop has to last. So the thread that
        // has just come to a loop ends the recording, and no other one that sleeps all the time.
        growth.add(newest, taken as u32, now, self.wanted * 3 / 2);
        suspect.timed_out |= timed_out;
        suspect.add(fresh, sample.position, now, self.wanted)
            && (suspect.is_busy(now) || !growth.is_on_its_way() && !suspect.idles(now, self.wanted))
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
    let same = (after.stream, after.ts_open, key_of(&after))
        == (chunk.stream, chunk.ts_open, key_of(&chunk));
    if !owned() || !same {
        return None;
    }
    let last = raw.iter().rposition(|&byte| byte != 0)?;
    raw.truncate(last + 2);
    let position = chunk.start_pos + last as u64;
    Some((key_of(&chunk), Sample { position, raw }))
}

fn key_of(chunk: &Chunk) -> ThreadKey {
    (chunk.pid, chunk.image_ts, chunk.tid)
}

impl Suspect {
    fn new(now: Instant) -> Self {
        Suspect {
            position: 0,
            set: HashSet::new(),
            since: now,
            latecomers: 0,
            bytes: 0,
            timed_out: false,
            stay: Stay::new(HashSet::new(), 0, now),
            left: VecDeque::new(),
        }
    }

    /// Is it in a loop that it has left before?
    fn is_back(&self) -> bool {
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
        if before.is_long(wanted) && !self.left.iter().any(|left| before.is_in(left)) {
            if self.left.len() == MOST_LOOPS {
                self.left.pop_front();
            }
            self.left.push_back(before.blocks);
        }
    }

    fn is_busy(&self, now: Instant) -> bool {
        let seconds = (now - self.since).as_secs_f64();
        self.bytes as f64 / 2.0 >= BUSY as f64 * seconds
    }

    /// Is it like a server that nobody asks anything, and has not been for long?
    fn idles(&self, now: Instant, wanted: Duration) -> bool {
        self.timed_out && now - self.since < wanted * IDLE_FOR
    }

    fn add(&mut self, sample: &[u32], position: u64, now: Instant, wanted: Duration) -> bool {
        let executed = position - self.position;
        self.bytes += executed;
        self.position = position;
        let fresh: HashSet<u32> = sample.iter().copied().collect();
        self.see(&fresh, executed, now, wanted);
        self.latecomers += fresh.difference(&self.set).count();
        if self.latecomers > LATECOMERS.max(self.set.len() / 10) {
            // If the set had held for long, this is another loop; a young set was only seen in
            // part.
            if now - self.since > wanted / 2 {
                self.set = fresh;
            } else {
                self.set.extend(fresh);
            }
            self.since = now;
            self.latecomers = 0;
            self.bytes = 0;
            self.timed_out = false;
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

    /// Is the stay in this loop?
    fn is_in(&self, blocks: &HashSet<u32>) -> bool {
        let common = self.blocks.intersection(blocks).count();
        let all = self.blocks.len() + blocks.len() - common;
        common * 100 >= all * SAME_LOOP
    }

    fn is_long(&self, wanted: Duration) -> bool {
        let rounds = self.bytes / 2 >= ROUNDS * self.blocks.len() as u64;
        rounds && self.looks >= LOOKS && self.newest - self.since >= wanted / IDLED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Duration = Duration::from_secs(2);
    const LOOK_MS: u64 = 250;
    const MAIN: ThreadKey = (1, 0, 1);
    const WORKER: ThreadKey = (1, 0, 2);

    /// Looks at threads that each go round some blocks (ids from, to) between two looks.
    struct Looks {
        watch: SpinWatch,
        now: Instant,
        positions: HashMap<ThreadKey, u64>,
        /// For how long all of them have waited for a processor.
        waited: Duration,
    }

    impl Looks {
        fn new() -> Looks {
            Looks {
                watch: SpinWatch::new(WANTED),
                now: Instant::now(),
                positions: HashMap::new(),
                waited: Duration::ZERO,
            }
        }

        /// The threads that have spun by the end of each of these looks; `at` gives what each
        /// thread executes in the look of that number.
        fn look(
            &mut self,
            looks: u32,
            at: impl Fn(u32) -> Vec<(ThreadKey, std::ops::Range<u16>)>,
        ) -> Vec<Vec<ThreadKey>> {
            let mut found = Vec::new();
            for number in 0..looks {
                self.now += Duration::from_millis(LOOK_MS);
                let samples = at(number).into_iter().map(|(key, blocks)| {
                    // A busy thread, whatever it goes round.
                    let rounds = (0..50_000 / blocks.len()).flat_map(|_| blocks.clone());
                    let raw: Vec<u8> = rounds.flat_map(|id| (id + 1).to_le_bytes()).collect();
                    let position = self.positions.entry(key).or_default();
                    *position += raw.len() as u64;
                    let position = *position;
                    (key, Sample { position, raw })
                });
                let samples: Vec<_> = samples.collect();
                let waited = |_: &ThreadKey| self.waited;
                found.push(self.watch.judge(&samples, self.now, waited));
            }
            found
        }
    }

    /// New code at each look.
    fn works(number: u32) -> std::ops::Range<u16> {
        let from = 1000 + 200 * number as u16;
        from..from + 200
    }

    const IDLES: std::ops::Range<u16> = 10..15;

    fn none(found: &[Vec<ThreadKey>]) -> bool {
        found.iter().all(Vec::is_empty)
    }

    #[test]
    fn a_thread_that_spins_for_the_first_time_ends_the_recording() {
        let mut looks = Looks::new();
        let found = looks.look(12, |n| vec![(MAIN, works(n)), (WORKER, IDLES)]);
        assert!(none(&found[..8]), "not yet for two seconds");
        assert_eq!(found[11], [WORKER], "though another thread makes progress");
    }

    #[test]
    fn an_idle_server_ends_the_recording_much_later() {
        let begin = Instant::now();
        let mut suspect = Suspect::new(begin);
        assert!(!suspect.idles(begin + WANTED, WANTED));
        suspect.timed_out = true;
        assert!(suspect.idles(begin + WANTED, WANTED));
        assert!(!suspect.idles(begin + WANTED * IDLE_FOR, WANTED));
    }

    #[test]
    fn a_worker_that_idles_again_ends_it_only_if_no_thread_makes_progress() {
        let mut looks = Looks::new();
        let found = looks.look(4, |n| vec![(MAIN, works(n)), (WORKER, IDLES)]);
        assert!(none(&found));
        let found = looks.look(2, |n| vec![(MAIN, works(n + 4)), (WORKER, works(n + 4))]);
        assert!(none(&found));
        let found = looks.look(40, |n| vec![(MAIN, works(n + 6)), (WORKER, IDLES)]);
        assert!(none(&found), "the worker's pause");
        let found = looks.look(12, |_| vec![(MAIN, 500..510), (WORKER, IDLES)]);
        assert_eq!(found[11], [MAIN, WORKER], "both spin");
    }

    #[test]
    fn a_thread_that_waits_for_a_processor_does_not_spin_meanwhile() {
        let mut looks = Looks::new();
        for _ in 0..2 {
            let found = looks.look(2, |_| vec![(MAIN, 500..510)]);
            assert!(none(&found), "for one second of three");
            looks.now += Duration::from_secs(1);
            looks.waited += Duration::from_secs(1);
        }
        let found = looks.look(12, |_| vec![(MAIN, 500..510)]);
        assert_eq!(found[11], [MAIN], "it has a processor again");
    }

    #[test]
    fn a_blocked_thread_makes_no_progress() {
        let mut looks = Looks::new();
        looks.look(4, |n| vec![(MAIN, works(n)), (WORKER, IDLES)]);
        looks.look(2, |n| vec![(MAIN, works(n + 4)), (WORKER, works(n + 4))]);
        let found = looks.look(20, |_| vec![(WORKER, IDLES)]);
        assert_eq!(found[19], [WORKER]);
    }

    #[test]
    fn a_new_loop_of_an_idle_worker_ends_the_recording() {
        let mut looks = Looks::new();
        looks.look(4, |n| vec![(MAIN, works(n)), (WORKER, IDLES)]);
        looks.look(2, |n| vec![(MAIN, works(n + 4)), (WORKER, works(n + 4))]);
        let found = looks.look(14, |n| vec![(MAIN, works(n + 6)), (WORKER, 700..712)]);
        assert_eq!(found[13], [WORKER]);
    }
}
