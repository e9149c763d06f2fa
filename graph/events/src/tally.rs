// SPDX-License-Identifier: MIT
//! How long threads wait, where, and how long they are ready before they run: summed up, from a
//! recording. `bpf/top.bpf.c` does the same while it happens.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Deserialize;

use crate::event::{Event, Kind, State};
use crate::facts::{MapsFact, PythonFact};
use crate::names::NamePatterns;
use crate::protocol::{TOP_SLOTS, TOP_TURNS};
use crate::reader::EventFile;
use crate::threads::Threads;
use crate::{Failure, Result};

/// What is to be summed up, as `flagfinder events top` asks for it in JSON.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Question {
    /// Waits and delays of at least so many ns.
    pub least: u64,
    /// Of these processes (live: and their descendants); none: all.
    pub pids: Vec<u32>,
    /// Of all processes, whatever `pids` says; live only.
    pub everything: bool,
    /// Of threads whose names fit one of these patterns; none: all.
    pub threads: Vec<String>,
    /// Of this thread only.
    pub tid: Option<u32>,
    /// Numbers of calls; none: all calls count.
    pub calls: Vec<u16>,
    /// Tell waits apart by the errno that their call returns.
    pub results: bool,
    /// Only waits that ended with this error count.
    pub error: Option<u32>,
    /// Tell waits apart by where their threads block.
    pub stacks: bool,
    /// So many bytes of each different stack are copied, for unwind tables; 0: none. Live only.
    pub stack_copy: u64,
    /// The program that is held back until the counting has begun: this wait does not count.
    pub held_back: Option<u32>,
}

impl Question {
    /// Whether a wait of unknown result is meant, by its call and length.
    pub(crate) fn wants(&self, call: Option<u16>, ns: u64) -> bool {
        let asked = self.calls.is_empty() || call.is_some_and(|call| self.calls.contains(&call));
        self.error.is_none() && asked && ns >= self.least
    }

    pub(crate) fn names(&self) -> Result<NamePatterns> {
        NamePatterns::new(&self.threads).ok_or_else(|| {
            Failure::usage(
                "The patterns of thread names are too long",
                format!("{} patterns", self.threads.len()),
                "Keep to 64 letters in all, where each pattern counts one more; names have at most \
                 15.",
                "Everything else stands.",
            )
        })
    }

    pub(crate) fn by_result(&self) -> bool {
        self.results || self.error.is_some()
    }
}

/// What waits are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitKey {
    /// Who waits.
    pub tid: u32,
    /// Its process; 0: not known.
    pub pid: u32,
    /// `None`: not in a call.
    pub call: Option<u16>,
    /// errno; 0: none, or results are not asked for.
    pub error: u32,
    /// Index in [`Tally::stacks`], plus one; 0: none.
    pub stack: u32,
}

/// Times, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// How many times were summed up.
    pub count: u64,
    /// ns
    pub total: u64,
    /// ns
    pub longest: u64,
    /// By powers of two of microseconds: the first holds times below one, the next times below two.
    pub slots: [u64; TOP_SLOTS],
    /// Of the count, how many went on when the counting ended.
    pub unfinished: u64,
}

impl Sums {
    /// One more time, of so many ns.
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        self.total += ns;
        self.longest = self.longest.max(ns);
        let slot = u64::BITS - (ns / 1000).leading_zeros();
        self.slots[(slot as usize).min(TOP_SLOTS - 1)] += 1;
    }

    /// Adds what another sum holds.
    pub fn join(&mut self, other: &Sums) {
        self.count += other.count;
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
        self.unfinished += other.unfinished;
        for (slot, more) in self.slots.iter_mut().zip(other.slots) {
            *slot += more;
        }
    }
}

/// Who a thread is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// Its process.
    pub pid: u32,
    /// The newest one; empty where it is not known.
    pub name: String,
}

/// A wait that began before the counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// Who waits.
    pub tid: u32,
    /// `None`: in none, or not known.
    pub call: Option<u16>,
    /// ns of it that are in the counting.
    pub ns: u64,
    /// It went on when the counting ended.
    pub unfinished: bool,
}

/// Waits and delays, summed up.
#[derive(Debug, Default)]
pub struct Tally {
    /// ns that it covers.
    pub span: u64,
    /// Those that began and ended while it counted, and those that go on.
    pub waits: FxHashMap<WaitKey, Sums>,
    /// They are not among `waits`: their length is not known.
    pub earlier: Vec<Earlier>,
    /// Ready without a processor, by thread.
    pub delays: FxHashMap<u32, Sums>,
    /// ns of that during which another thread had the processor: the first is who was ready.
    pub instead: BTreeMap<(u32, u32), u64>,
    /// Those that are named here, as far as they are known.
    pub threads: FxHashMap<u32, Who>,
    /// Process and words, the innermost first.
    pub stacks: Vec<(u32, Box<[u64]>)>,
    /// Where processes have code, for the names of call sites.
    pub maps: Vec<MapsFact>,
    /// Python functions, by their numbers in stacks.
    pub python: BTreeMap<u32, PythonFact>,
    /// Seconds since 1970 when the code was mapped.
    pub recorded: i64,
    /// Events, or sums, that are missing.
    pub lost: u64,
    /// Stacks for which there was no room.
    pub stacks_dropped: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Doing {
    since: Option<u64>,
    ready: Option<u64>,
    /// ns in a call whose result is still to come.
    blocked: u64,
    call: Option<u16>,
    stack: u32,
}

struct Counter<'q> {
    question: &'q Question,
    names: NamePatterns,
    calls: FxHashSet<u16>,
    /// Only threads that are known are of the target.
    all: bool,
    threads: Threads,
    states: FxHashMap<u32, Doing>,
    /// Which thread has had each CPU, and since when; the newest is last.
    turns: FxHashMap<u16, VecDeque<(u64, u32)>>,
    numbers: FxHashMap<(u32, u32), u32>,
    /// Threads of which any event was seen.
    seen: FxHashSet<u32>,
    first: u64,
    tally: Tally,
}

impl Counter<'_> {
    fn is_meant(&self, tid: u32) -> bool {
        let pid = self.threads.pid(tid);
        let of_process = match pid {
            None => self.all && self.question.pids.is_empty(),
            Some(pid) => self.question.pids.is_empty() || self.question.pids.contains(&pid),
        };
        tid != 0
            && of_process
            && self.question.tid.is_none_or(|wanted| wanted == tid)
            && self.names.fits(self.threads.name(tid))
    }

    fn stack(&mut self, file: &EventFile, pid: u32, stack: u32) -> u32 {
        if stack == 0 || !self.question.stacks {
            return 0;
        }
        let stacks = &mut self.tally.stacks;
        *self.numbers.entry((pid, stack)).or_insert_with(|| {
            stacks.push((pid, file.stack(stack).into()));
            stacks.len() as u32
        })
    }

    fn add_wait(&mut self, tid: u32, state: &Doing, ns: u64, error: u32, unfinished: bool) {
        let asked = match state.call {
            _ if self.calls.is_empty() => true,
            Some(number) => self.calls.contains(&number),
            None => false,
        };
        let meant = self.question.error.is_none_or(|wanted| wanted == error);
        if ns < self.question.least || !asked || !meant {
            return;
        }
        let key = WaitKey {
            tid,
            pid: self.threads.pid(tid).unwrap_or(0),
            call: state.call,
            error,
            stack: state.stack,
        };
        let sums = self.tally.waits.entry(key).or_default();
        sums.add(ns);
        sums.unfinished += u64::from(unfinished);
        self.name(tid);
    }

    fn name(&mut self, tid: u32) {
        let (pid, name) = (self.threads.pid(tid), self.threads.name(tid));
        self.tally.threads.entry(tid).or_insert_with(|| Who {
            pid: pid.unwrap_or(0),
            name: name.to_owned(),
        });
    }

    /// A thread of which nothing was seen until now has waited since before the recording.
    fn began_before(&mut self, tid: u32, call: Option<u16>, ts: u64, unfinished: bool) {
        let ns = ts - self.first.min(ts);
        if self.question.held_back == Some(tid) || !self.is_meant(tid) {
            return;
        }
        if self.question.wants(call, ns) {
            self.tally.earlier.push(Earlier {
                tid,
                call,
                ns,
                unfinished,
            });
            self.name(tid);
        }
    }

    /// A wait is over.
    fn end_wait(&mut self, tid: u32, ts: u64) {
        let Some(state) = self.states.get_mut(&tid) else {
            return;
        };
        let Some(since) = state.since.take() else {
            return;
        };
        if self.question.by_result() && state.call.is_some() {
            state.blocked += ts - since.min(ts);
            return;
        }
        let state = *state;
        self.add_wait(tid, &state, ts - since.min(ts), 0, false);
    }

    fn gives_up(&mut self, file: &EventFile, event: &Event) {
        if event.state() == State::Dead || !self.is_meant(event.a) {
            self.states.remove(&event.a);
            return;
        }
        let pid = self.threads.pid(event.a).unwrap_or(0);
        let stack = self.stack(file, pid, event.stack);
        let state = self.states.entry(event.a).or_default();
        if event.state() == State::Preempted {
            state.ready = Some(event.ts);
            return;
        }
        (state.since, state.ready) = (Some(event.ts), None);
        (state.call, state.stack) = (event.call().map(|call| call.number), stack);
    }

    fn gets(&mut self, event: &Event) {
        self.end_wait(event.b, event.ts); // its wake was not reported
        let state = self.states.get_mut(&event.b);
        let Some(ready) = state.and_then(|state| state.ready.take()) else {
            return;
        };
        let ns = event.ts - ready.min(event.ts);
        if ns < self.question.least {
            return;
        }
        self.tally.delays.entry(event.b).or_default().add(ns);
        self.name(event.b);
        let turns = self.turns.get(&event.cpu).into_iter().flatten();
        let mut until = event.ts;
        let mut found = Vec::new();
        for &(since, tid) in turns.rev() {
            if until <= ready {
                break;
            }
            let from = since.max(ready);
            if tid != 0 && until > from {
                found.push((tid, until - from));
            }
            until = since;
        }
        for (tid, ns) in found {
            *self.tally.instead.entry((event.b, tid)).or_default() += ns;
            self.name(tid);
        }
    }

    fn see(&mut self, file: &EventFile, event: &Event) {
        self.threads.see(event);
        let is_first = event.kind == Kind::Waking && !self.seen.contains(&event.b);
        if is_first && self.is_meant(event.b) {
            self.began_before(event.b, None, event.ts, false);
            let state = self.states.entry(event.b).or_default();
            state.ready = Some(event.ts);
        }
        match event.kind {
            Kind::Lost => {}
            Kind::Switch | Kind::Waking | Kind::Fork => self.seen.extend([event.a, event.b]),
            _ => self.seen.extend([event.a]),
        }
        match event.kind {
            Kind::Switch => {
                let turns = self.turns.entry(event.cpu).or_default();
                // Without --all only switches to and from the target are recorded.
                if turns.back().is_some_and(|(_, tid)| *tid != event.a) {
                    turns.clear();
                }
                self.gives_up(file, event);
                self.gets(event);
                let turns = self.turns.entry(event.cpu).or_default();
                turns.push_back((event.ts, event.b));
                if turns.len() > TOP_TURNS {
                    turns.pop_front();
                }
            }
            Kind::Waking => {
                let waits = |state: &Doing| state.since.is_some();
                if self.states.get(&event.b).is_some_and(waits) {
                    self.end_wait(event.b, event.ts);
                    if let Some(state) = self.states.get_mut(&event.b) {
                        state.ready = Some(event.ts);
                    }
                }
            }
            Kind::ExitCall if self.question.by_result() => {
                let end = event.call_end();
                let Some(state) = self.states.get_mut(&event.a).filter(|s| s.blocked > 0) else {
                    return;
                };
                let blocked = std::mem::take(&mut state.blocked);
                let state = *state;
                let error = end.map_or(0, |end| match end.result {
                    failed @ -4095..0 => -failed as u32,
                    _ => 0,
                });
                self.add_wait(event.a, &state, blocked, error, false);
            }
            Kind::Exit => {
                self.states.remove(&event.a);
            }
            Kind::Lost => {
                self.tally.lost += event.words[0];
                self.states.clear();
                self.turns.clear();
            }
            _ => {}
        }
    }

    /// Waits that nobody ended last to the end.
    fn close(&mut self, file: &EventFile, last: u64) {
        // With --all, of most threads nothing is to be seen.
        let unseen = file.threads.iter().filter(|_| !file.info.everything);
        let unseen: Vec<u32> = unseen
            .map(|thread| thread.tid)
            .filter(|tid| !self.seen.contains(tid))
            .collect();
        for tid in unseen {
            let mut looks = file.looked.iter().rev();
            let look = looks.find(|looked| looked.tid == tid);
            if look.is_none_or(|looked| looked.state != 'R') {
                let call = look.and_then(|looked| looked.call);
                self.began_before(tid, call.map(|number| number as u16), last, true);
            }
        }

        for (tid, state) in std::mem::take(&mut self.states) {
            if let Some(since) = state.since {
                let ns = state.blocked + last - since.min(last);
                self.add_wait(tid, &state, ns, 0, true);
            }
        }
    }
}

/// Counts what a recording holds. Delays of threads outside the target are known with `--all` only.
///
/// # Errors
/// When the question can't be answered from it.
pub fn tally(file: &EventFile, question: &Question) -> Result<Tally> {
    if question.by_result() && file.info.syscalls != "target" {
        return Err(Failure::usage(
            "What calls returned is not in this recording",
            format!("it was made with --syscalls {}", file.info.syscalls),
            "Record with --syscalls target, or leave out --errno.",
            "Waits by thread, call and stack are in it.",
        ));
    }
    let (first, last) = file.time();
    let mut question = question.clone();
    if !file.info.command.is_empty() {
        question.held_back = file.info.pids.first().copied();
    }
    let question = &question;
    let mut counter = Counter {
        question,
        names: question.names()?,
        calls: question.calls.iter().copied().collect(),
        all: file.info.everything,
        threads: Threads::default(),
        states: FxHashMap::default(),
        turns: FxHashMap::default(),
        numbers: FxHashMap::default(),
        seen: FxHashSet::default(),
        first,
        tally: Tally::default(),
    };
    for thread in &file.threads {
        counter.threads.add(thread.clone());
    }
    file.events(|event| counter.see(file, event));
    counter.close(file, last);
    for who in &file.looked {
        let known = counter.tally.threads.get_mut(&who.tid);
        if let Some(known) = known.filter(|known| known.name.is_empty()) {
            (known.pid, known.name) = (who.pid, who.name.clone());
        }
    }
    let mut tally = counter.tally;
    tally.span = last - first;
    tally.maps = file.maps.clone();
    tally.python.clone_from(&file.python);
    tally.recorded = (file.info.started_unix_ns / 1_000_000_000) as i64;
    Ok(tally)
}
