// SPDX-License-Identifier: MIT
//! A watch from beginning to end.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use flagfinder_code::{Code, DataName};
use flagfinder_linux::{clock, pidfd};
use serde::Serialize;

use crate::attach::check_count;
use crate::event::{Event, EventKind};
use crate::follow::{Hooks, Pace, Used};
use crate::interpret::Interpreter;
use crate::naming::{place_of, Naming};
use crate::order::made_before;
use crate::perf::{check_privileges, config, Perf};
use crate::place::Place;
use crate::protocol::{Hit, Reader, HIT_WATCH, WATCH_MAX};
use crate::request::Request;
use crate::site::Site;
use crate::sites::{find_sites, refuse_sites};
use crate::source::{Backend, Feed, Source};
use crate::target::no_process;
use crate::timeline::{Queue, Thinner, THINNING};
use crate::until::Until;
use crate::Result;

/// A value that an event did not know is taken from the next event of its word, if that is among so
/// many events.
const HINDSIGHT: usize = 64;
/// Records that are taken from the ring at a time: more than it holds.
const DRAINED: usize = 1 << 17;
/// Events that are handed out at a time.
const BATCH: usize = 8192;
/// After so many new records, taking more of them comes first: interpreting costs ten times as
/// much.
const BUSY: usize = 4096;
/// How many events are handed out meanwhile.
const BUSY_BATCH: usize = 256;
/// How long events wait for the hooks to rest.
const HURRY: Duration = Duration::from_millis(20);
/// Most hits that wait here, of at most 736 bytes: a target may have more of the CPU than we do.
/// Then the ring fills, and hits that find no room are counted.
const WAITING: usize = 1 << 19;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The condition of `until` was met.
    Until,
    TargetEnded,
    /// [`Watch::finish`] was called before.
    Stopped,
}

#[derive(Debug, Serialize)]
struct Watched<'a> {
    watch: usize,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum What<'a> {
    Word {
        name: &'a str,
        address: String,
        size: u32,
        access: &'static str,
        value: Option<String>,
        data: &'a DataName,
    },
    Site {
        name: String,
        effect: &'static str,
        instruction: String,
        size: u32,
        code: &'a Code,
    },
}

#[derive(Debug, Serialize)]
struct Header<'a> {
    schema: &'static str,
    pid: u32,
    backend: &'a str,
    clock: &'static str,
    started: u64,
    started_unix_ns: u64,
    thinning: &'static str,
    watches: Vec<Watched<'a>>,
}

#[derive(Debug, Serialize)]
struct Lost {
    total: u64,
    /// By CPU number; CPUs that lost nothing are left out.
    cpus: std::collections::BTreeMap<u32, u64>,
}

#[derive(Debug, Serialize)]
struct Summary {
    event: &'static str,
    reason: Ending,
    ts: u64,
    /// Accesses that trapped, lost ones included.
    hits: u64,
    events: u64,
    writes: u64,
    reads: u64,
    /// Reads that were told one by one: there was no room to hold back those of another reader.
    crowded: u64,
    /// Records that found no room.
    lost: Lost,
}

/// A running watch. Dropping it removes what `perf` put in place; so does the kernel when this
/// process dies.
pub struct Watch {
    pid: u32,
    alive: OwnedFd,
    until: Option<Until>,
    words: Vec<Place>,
    sites: Vec<Site>,
    reads: bool,
    started: (u64, u64),
    source: Source,
    naming: Naming,
    queue: Queue,
    thinner: Thinner,
    interpreter: Interpreter,
    pace: Pace,
    tally: Tally,
    ending: Option<Ending>,
}

#[derive(Debug, Default)]
struct Tally {
    events: u64,
    writes: u64,
    reads: u64,
}

impl Watch {
    /// Finds what was asked for and starts; a fed watch has only found it, and `header` tells its
    /// helper where it is.
    ///
    /// # Errors
    /// In four parts: privileges, what can't be found, what the kernel refuses.
    pub fn open(pid: u32, request: &Request, backend: Backend<'_>) -> Result<Watch> {
        match backend {
            Backend::Perf(_) => check_privileges()?,
            Backend::Fed(helper) => refuse_sites(request, helper)?,
        }
        check_count(request.words.len())?;
        let until = request.until.as_deref().map(Until::read).transpose()?;
        let alive = pidfd::open(pid).map_err(|error| no_process(pid, &error))?;
        let naming = Naming::new(pid).map_err(|error| no_process(pid, &error))?;
        let words: Vec<Place> = {
            let found = request.words.iter();
            let found = found.map(|word| Place::find(word, &naming.names, &naming.memory));
            found.collect::<Result<_>>()?
        };
        let sites = find_sites(request, &naming)?;
        let started = (clock::monotonic(), clock::wall());
        let interpreter = Interpreter::new(&words, request.reads, &naming.memory);
        let is_fed = matches!(backend, Backend::Fed(_));
        let source = match backend {
            Backend::Perf(object) => {
                let perf = Perf::open(
                    pid,
                    &words,
                    &sites,
                    request.reads,
                    request.most_readers,
                    object,
                )?;
                Source::Perf(Box::new(perf))
            }
            Backend::Fed(helper) => Source::Fed {
                helper,
                feed: Feed::default(),
            },
        };
        let mut watch = Watch {
            pid,
            alive,
            until,
            reads: request.reads,
            started,
            source,
            naming,
            queue: Queue::default(),
            thinner: Thinner::default(),
            interpreter,
            words,
            pace: Pace::new(&sites),
            sites,
            tally: Tally::default(),
            ending: None,
        };
        if !is_fed {
            watch.armed();
        }
        Ok(watch)
    }

    /// Accesses trap from now on; whoever feeds a watch says so.
    pub fn armed(&mut self) {
        self.interpreter.armed(&self.naming.memory);
    }

    /// The first line of the output, as JSON.
    pub fn header(&self) -> String {
        let access = if self.reads { "read-write" } else { "write" };
        let words = self
            .words
            .iter()
            .enumerate()
            .map(|(index, word)| What::Word {
                name: &word.name.name,
                address: format!("{:#x}", word.address),
                size: word.size,
                access,
                value: self
                    .interpreter
                    .first_value(index)
                    .map(|v| format!("{v:#x}")),
                data: &word.name,
            });
        let sites = self.sites.iter().map(|site| What::Site {
            name: site.code.to_string(),
            effect: site.access.effect.name(),
            instruction: site.access.instruction.to_string(),
            size: site.size(),
            code: &site.code,
        });
        let watches = words.chain(sites).zip(1..);
        json(&Header {
            schema: "flagfinder.watch/1",
            pid: self.pid,
            backend: self.source.name(),
            clock: "CLOCK_MONOTONIC, ns",
            started: self.started.0,
            started_unix_ns: self.started.1,
            thinning: THINNING,
            watches: watches
                .map(|(what, watch)| Watched { watch, what })
                .collect(),
        })
    }

    /// Records of `struct ff_watch_hit` that a helper trapped, in the order in which it did; for a
    /// fed watch; it had no room for `lost` so far.
    pub fn feed(&mut self, bytes: &[u8], lost: u64) {
        let (words, naming) = (&self.words, &self.naming);
        if let Some(feed) = self.source.feed() {
            feed.add(bytes, lost, |hit| {
                hit.place = place_of(hit, words, naming);
                // Where only instructions are watched, whoever leaves the place open is wrong.
                let word = words.get(usize::from(hit.place));
                hit.address = word.map_or(0, |word| word.address);
            });
        }
    }

    /// `struct ff_watch_config` for a helper inside the process.
    pub fn config(&self) -> Vec<u8> {
        let config = config(self.pid, &self.words, &self.sites, self.reads);
        config.bytes().to_vec()
    }

    /// No more will be fed: the process has ended.
    pub fn close_feed(&mut self) {
        self.source.close_feed();
    }

    /// Waits up to `patience` and returns the events that are certain to be next, in order of time;
    /// also why it is over, once it is.
    ///
    /// # Errors
    /// When a CPU that came online can't be covered.
    pub fn poll(&mut self, patience: Duration) -> Result<(Vec<Event>, Option<Ending>)> {
        let mut events = Vec::new();
        if self.ending.is_some() {
            return Ok((events, self.ending));
        }
        let begin = Instant::now();
        let (ended, now, drained, full) = loop {
            if self.queue.len() < BUSY {
                self.source.wait(self.pace.patience(patience));
            }
            self.source.renew()?;
            let ended = self.source.is_over(pidfd::has_ended(&self.alive));
            // Read before draining: what is drained later may be newer than what is still in the
            // ring.
            let now = clock::monotonic();
            let (drained, full) = self.drain();
            self.pace_hooks();
            // To name the first events takes much longer than the hits until the hooks rest.
            let hurries = self.pace.is_set() && drained > 0 && begin.elapsed() < HURRY;
            if ended || !hurries {
                break (ended, now, drained, full);
            }
        };
        let limit = match (ended || self.source.in_order(), full) {
            (true, false) => u64::MAX,
            _ => now,
        };
        let most = if drained > BUSY { BUSY_BATCH } else { BATCH };
        self.release(limit, most, &mut events);
        if ended && !full && self.queue.len() == 0 && self.ending.is_none() {
            self.ending = Some(Ending::TargetEnded);
            self.source.detach();
            self.finish_readers(&mut events);
        }
        Ok((events, self.ending))
    }

    /// Ends the watch and returns the events that were still to come.
    pub fn finish(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.source.detach();
        if self.ending.is_none() {
            while self.drain().1 {
                self.release(clock::monotonic(), usize::MAX, &mut events);
            }
            self.release(u64::MAX, usize::MAX, &mut events);
        }
        if self.ending.is_none() {
            self.finish_readers(&mut events);
            self.ending.get_or_insert(Ending::Stopped);
        }
        events
    }

    /// The last line of the output, as JSON: what happened in all.
    pub fn summary(&self) -> String {
        let counted = self.source.counted();
        json(&Summary {
            event: "end",
            reason: self.ending.unwrap_or(Ending::Stopped),
            ts: clock::monotonic(),
            hits: counted.hits,
            events: self.tally.events,
            writes: self.tally.writes,
            reads: self.tally.reads,
            crowded: counted.crowded,
            lost: Lost {
                total: counted.lost,
                cpus: counted.cpus,
            },
        })
    }

    /// Takes hits from the source, and tells it at once which code only reads. Returns how many,
    /// and whether there may be more.
    fn drain(&mut self) -> (usize, bool) {
        let (queue, interpreter, naming) =
            (&mut self.queue, &mut self.interpreter, &mut self.naming);
        let reads = self.reads;
        let (sites, mut used) = (&self.sites, Vec::new());
        let room = WAITING.saturating_sub(queue.len()).min(DRAINED);
        let drained = self.source.drain(room, |hit| {
            queue.add(&hit);
            used.extend(Used::of(&hit, sites));
            let site = interpreter.read_site(&hit, naming).filter(|_| reads)?;
            Some((hit.ip, site))
        });
        used.into_iter().for_each(|used| self.follow(used));
        (drained, drained == room)
    }

    /// Watches a word that a site used, if there is a debug register for it.
    fn follow(&mut self, used: Used) {
        let number = self.interpreter.count();
        let known = self.interpreter.has(used.place.0) || number >= WATCH_MAX;
        let Some(perf) = self.source.perf().filter(|_| !known) else {
            return;
        };
        if perf.make_room(&self.sites, number + 1) {
            self.pace.rest(Instant::now(), Duration::ZERO);
        }
        // If another tool has taken the last register, this word is not watched.
        if perf.watch(number as u32, used.place, false).is_ok() {
            self.interpreter
                .add(used.place, used.object, &self.naming.memory);
        }
    }

    fn pace_hooks(&mut self) {
        let words = self.interpreter.count();
        let Some(perf) = self.source.perf().filter(|_| !self.pace.is_over()) else {
            return;
        };
        match self.pace.next(words, perf.counted().hits, Instant::now()) {
            Hooks::Stay => {}
            Hooks::Remove => {
                let begin = Instant::now();
                perf.unhook();
                self.pace.rest(begin, begin.elapsed());
            }
            // They were set before, so a refusal means that the process is gone.
            Hooks::Set => drop(perf.hook(self.pid, &self.sites, words)),
        }
    }

    fn release(&mut self, now: u64, most: usize, events: &mut Vec<Event>) {
        while self.ending.is_none() && events.len() < most {
            let Some(hit) = self.queue.next(now) else {
                return;
            };
            if self.reads {
                let (interpreter, naming) = (&self.interpreter, &mut self.naming);
                let before = interpreter.value_before(&hit);
                let look = |hit: &Hit| interpreter.look(hit, naming);
                for earlier in made_before(&hit, before, &mut self.queue, look) {
                    self.take(earlier, events);
                }
            }
            self.take(hit, events);
        }
    }

    fn take(&mut self, hit: Hit, events: &mut Vec<Event>) {
        for hit in self.thin(hit) {
            if self.ending.is_none() {
                self.report(&hit, events);
            }
        }
    }

    fn thin(&mut self, hit: Hit) -> Vec<Hit> {
        let mut kept = Vec::new();
        let source = &self.source;
        if self.interpreter.reads(&hit, &mut self.naming, &self.sites) {
            let seen = self.interpreter.look(&hit, &mut self.naming).seen;
            self.thinner.read(hit, seen, |hit| kept.push(hit));
            return kept;
        }
        if hit.kind == HIT_WATCH {
            let held = |reader: &Reader| source.held(reader);
            self.thinner
                .write(hit.place, hit.ts, held, |hit| kept.push(hit));
            kept.sort_by_key(|hit| hit.ts);
        }
        kept.push(hit);
        kept
    }

    fn finish_readers(&mut self, events: &mut Vec<Event>) {
        let mut last = Vec::new();
        let source = &self.source;
        self.thinner
            .finish(|reader| source.held(reader), |hit| last.push(hit));
        for hit in last {
            self.report(&hit, events);
        }
    }

    fn report(&mut self, hit: &Hit, events: &mut Vec<Event>) {
        let pending = self.queue.holds(hit.place);
        let mut event = self
            .interpreter
            .event(hit, &mut self.naming, &self.sites, pending);
        let last = events.iter_mut().rev().take(HINDSIGHT);
        let before = last.into_iter().find(|before| before.watch == event.watch);
        let told = before.and_then(|before| event.tell_before(before).then_some(&*before));
        self.tally.events += 1;
        match event.kind {
            EventKind::Write => self.tally.writes += 1,
            EventKind::Read => self.tally.reads += event.reads,
            EventKind::Access => {}
        }
        let met = self.until.is_some_and(|until| {
            let met = |event: &Event| until.is_met(event, self.tally.events);
            met(&event) || told.is_some_and(met)
        });
        events.push(event);
        if met && self.ending.is_none() {
            self.ending = Some(Ending::Until);
            self.source.detach();
        }
    }
}

fn json(value: &impl Serialize) -> String {
    // Strings and numbers into memory: nothing can fail.
    serde_json::to_string(value).unwrap_or_default()
}
