// SPDX-License-Identifier: MIT
//! Drains the ring on a thread of its own and writes what comes, with the facts that belong to it.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use flagfinder_bpf::{unavailable, Counts, Ring, Table};
use flagfinder_linux::{clock, proc};
use serde::Serialize;

use crate::container::BlockKind;
use crate::descriptors::Descriptors;
use crate::drain::{Beside, Drain};
use crate::ends::Ends;
use crate::event::Kind;
use crate::facts::{End, Info, MapsFact, Mark, Note};
use crate::hang::HangWatch;
use crate::hot::Hot;
use crate::looks::Looks;
use crate::options::Options;
use crate::outsiders::Outsiders;
use crate::processes;
use crate::protocol::{Cpu, Member, Python, FORK_NOT_FOLLOWED};
use crate::python::Pythons;
use crate::room::Room;
use crate::sites::{Recorded, Sites};
use crate::threads::Threads;
use crate::writer::{failed, EventWriter};
use crate::Result;

/// How long the consumer sleeps if the ring was nearly empty.
const NAP: Duration = Duration::from_millis(10);
/// With so many records in the ring, it looks again without sleeping.
const BUSY: usize = 50_000;
const DRAINED: usize = 1 << 18;
/// Records that are kept back are written at least this often, so that the file of a killed
/// recorder has them.
const OLD: Duration = Duration::from_secs(1);
/// After one of these times in ms a program has mapped its libraries; a forked process has them at
/// once.
const LOADED: [u64; 5] = [0, 10, 30, 100, 300];

/// Level of a note about what is missing.
const LOST: &str = "lost";

/// What the recorder and its thread tell each other.
#[derive(Default)]
pub(crate) struct Shared {
    pub stop: AtomicBool,
    pub events: AtomicU64,
    pub bytes: AtomicU64,
    pub lost: AtomicU64,
    /// No process is left for which the recording was to last.
    pub over: AtomicBool,
}

pub(crate) struct Consumer {
    pub ring: Ring,
    pub counts: Counts<Cpu>,
    pub tree: Table<u32, Member>,
    pub writer: EventWriter<File>,
    pub drain: Drain,
    pub threads: Threads,
    pub descriptors: Descriptors,
    /// Processes whose code is still to be read, and from when on.
    pub fresh: Vec<(Instant, u32)>,
    pub stacks: bool,
    pub sites: Sites,
    /// Where the kernel's side finds Python frames, by process.
    pub interpreters: Table<u32, Python>,
    pub pythons: Pythons,
    pub hangs: HangWatch,
    pub hot: Hot,
    /// The newest MAPS fact of each process.
    pub maps: BTreeMap<u32, MapsFact>,
    /// The first process for which the kernel's table had no room, and who started it; until it is
    /// told.
    pub not_followed: Option<(u32, u32)>,
    /// What each segment begins with.
    pub info: Info,
    pub notes: Vec<Note>,
    pub looks: Looks,
    pub ends: Ends,
    pub outsiders: Outsiders,
    /// Only if the file is to stay within a size.
    pub room: Option<Room>,
    /// A process for which the recording lasts; 0: another has to be found.
    pub keeper: u32,
}

/// What the recorder asks its thread for.
pub(crate) enum Word {
    Mark(Mark),
    /// A look at what the target's threads are in; the end of the look is told by dropping it.
    Look(Sender<()>),
}

/// What a recording came to, and what was announced on the way.
#[derive(Clone, Debug, Serialize)]
pub struct Finished {
    #[serde(flatten)]
    pub(crate) end: End,
    pub(crate) notes: Vec<Note>,
}

impl Consumer {
    /// Notes in the file what differs from what one would expect.
    pub fn announce(&mut self, note: Note) -> Result<()> {
        self.writer.fact(BlockKind::Note, &note)?;
        self.notes.push(note);
        Ok(())
    }

    /// Has the kernel record these processes and their descendants. `keeps`: the recording lasts
    /// while any of them lives.
    ///
    /// # Errors
    /// When there are more than it has room for.
    pub fn follow(&mut self, pids: &[u32], keeps: bool) -> Result<()> {
        let member = Member {
            keeps: keeps.into(),
            ..Member::default()
        };
        for pid in flagfinder_waits::descendants(pids) {
            if self.tree.get(&pid).is_none() && !self.tree.insert(pid, member) {
                return Err(unavailable(
                    "The processes can't be recorded",
                    "the kernel's table of processes is full",
                    "Record fewer processes, or use --all.",
                ));
            }
        }
        // Their ends may have come before their entries, or not be seen yet: then nobody would
        // remove the entries.
        let ended = self.tree.keys().into_iter();
        let ended = ended.filter(|pid| !proc::lives(*pid));
        ended.for_each(|pid| self.tree.remove(&pid));
        Ok(())
    }

    /// Whether any process is left for which the recording was to last.
    fn is_kept(&mut self) -> bool {
        let tree = &self.tree;
        let keeps = |pid: &u32| tree.get(pid).is_some_and(|member| member.keeps != 0);
        if !keeps(&self.keeper) {
            self.keeper = tree.keys().into_iter().find(keeps).unwrap_or(0);
        }
        self.keeper != 0
    }

    pub fn learn_threads(&mut self, options: &Options) -> Result<()> {
        let threads = if options.everything {
            processes::all_threads()
        } else {
            let pids = self.tree.keys();
            pids.into_iter().flat_map(processes::threads_of).collect()
        };
        self.writer.fact(BlockKind::Threads, &threads)?;
        threads.into_iter().for_each(|t| self.threads.add(t));
        for pid in self.tree.keys() {
            self.learn_code(pid)?;
        }
        Ok(())
    }

    /// Writes where a process has code, if that is new, and tells BPF which words are code
    /// addresses.
    fn learn_code(&mut self, pid: u32) -> Result<()> {
        let Some(text) = processes::code_maps(pid) else {
            return Ok(());
        };
        let known = self.tree.get(&pid).filter(|_| self.stacks);
        let mut ranges = processes::code_ranges(&text, &proc::program(pid));
        // A program that is still loading has more libraries than can be seen.
        let loads = self.fresh.iter().any(|(_, other)| *other == pid);
        if let Some(known) = known.filter(|known| loads && known.libraries_bytes > 0) {
            ranges.libraries = known.libraries;
            ranges.libraries_bytes = known.libraries_bytes;
        }
        let is_new = self.maps.get(&pid).is_none_or(|known| known.text != text);
        if let Some(known) = known {
            let python = if is_new {
                let began = (self.info.started_unix_ns / 1_000_000_000) as i64;
                let interpreter = self.pythons.learn(pid, &text, began);
                let is_known = interpreter.is_some_and(|one| self.interpreters.insert(pid, one));
                is_known.into()
            } else {
                known.python
            };
            let keeps = known.keeps;
            self.tree.replace(
                pid,
                Member {
                    keeps,
                    python,
                    ..ranges
                },
            );
        }
        if !is_new {
            return Ok(());
        }
        self.sites.learn(pid, &text, &proc::program(pid));
        let ts = clock::kernel();
        let fact = MapsFact { ts, pid, text };
        self.writer.fact(BlockKind::Maps, &fact)?;
        self.maps.insert(pid, fact);
        Ok(())
    }

    fn take(&mut self) -> usize {
        let (drain, writer, descriptors) =
            (&mut self.drain, &mut self.writer, &mut self.descriptors);
        let (fresh, stacks) = (&mut self.fresh, self.stacks);
        let (hangs, threads) = (&mut self.hangs, &mut self.threads);
        let (sites, pythons) = (&mut self.sites, &mut self.pythons);
        let (not_followed, outsiders) = (&mut self.not_followed, &mut self.outsiders);
        let (hot, maps) = (&mut self.hot, &mut self.maps);
        let now = clock::kernel();
        let most = self.room.as_ref().map_or(DRAINED, Room::most_records);
        self.ring.drain(most.min(DRAINED), |record| {
            let keep = |tid, stack: &Recorded<'_>, beside: &Beside| {
                let pid = threads.pid(tid);
                let mut kept = sites.keep(pid, stack);
                kept.extend(pythons.keep_kernel(&beside.kernel));
                kept.extend(pythons.keep(pid, &beside.python, sites.python_budget()));
                kept
            };
            let Some(event) = drain.take(record, writer, keep) else {
                return;
            };
            threads.see(&event);
            outsiders.see(&event, threads);
            descriptors.see(&event, threads, now);
            hangs.see(&event);
            hot.see(&event, threads);
            let (pid, other) = event.halves(0);
            match event.kind {
                Kind::Fork => {
                    sites.forked(pid, other);
                    pythons.forked(pid, other);
                }
                Kind::Exec => {
                    // The kernel's side has forgotten what it was told.
                    maps.remove(&pid);
                    sites.ended(pid);
                    pythons.executed(pid);
                }
                Kind::Exit if event.a == pid => {
                    sites.ended(pid);
                    pythons.ended(pid);
                }
                _ => {}
            }
            if event.kind == Kind::Fork && event.flags & FORK_NOT_FOLLOWED != 0 {
                not_followed.get_or_insert((pid, other));
            }
            let times = match event.kind {
                Kind::Exec => &LOADED[..],
                Kind::Fork if stacks && pid != other => &LOADED[..1],
                _ => return,
            };
            let at = Instant::now();
            let due = times.iter().map(|&ms| at + Duration::from_millis(ms));
            fresh.extend(due.map(|at| (at, pid)));
        })
    }

    /// Names the first process that is not followed, once; their number is told at the end.
    fn tell_not_followed(&mut self) -> Result<()> {
        let told = self.notes.iter().any(|note| note.level == LOST);
        let Some((pid, parent)) = self.not_followed.filter(|_| !told) else {
            return Ok(());
        };
        let text = format!(
            "process {pid}, which process {parent} started, is not followed: there was no room for \
             more processes. So may be later ones"
        );
        self.announce(Note {
            level: LOST.into(),
            text,
        })
    }

    /// Whom threads wait for at a mark can be asked only then.
    fn mark(&mut self, mark: &Mark) -> Result<()> {
        self.look(None);
        self.writer.fact(BlockKind::Mark, mark)
    }

    fn look(&mut self, done: Option<Sender<()>>) {
        let mut pids = self.tree.keys();
        if pids.is_empty() {
            let all = self.threads.list().into_iter();
            let users = all.filter(|thread| !thread.kernel && thread.tid == thread.pid);
            pids = users.map(|thread| thread.pid).collect();
        }
        self.looks.begin(pids, done);
    }

    /// Writes what looks have found; `all`: also those that still go on.
    fn write_looks(&mut self, all: bool) -> Result<()> {
        for look in self.looks.take(all) {
            self.writer.fact(BlockKind::Waits, &look.threads)?;
            let told = |text: &String| self.notes.iter().any(|note| note.text == *text);
            if let Some(text) = look.missing.filter(|text| !told(text)) {
                self.announce(Note {
                    level: "fallback".into(),
                    text,
                })?;
            }
        }
        Ok(())
    }

    /// Writes which processes have the other ends of descriptors; `all`: looks now for those that
    /// are still asked for.
    fn write_ends(&mut self, all: bool) -> Result<()> {
        let found = self.ends.take(all);
        if !found.is_empty() {
            found.iter().for_each(|fact| self.descriptors.learn(fact));
            self.writer.fact(BlockKind::Descriptors, &found)?;
        }
        Ok(())
    }

    fn write_functions(&mut self) -> Result<()> {
        match self.pythons.take() {
            [] => Ok(()),
            functions => self.writer.fact(BlockKind::Python, &functions),
        }
    }

    fn write_flows(&mut self) -> Result<()> {
        match &self.drain.flows.take()[..] {
            [] => Ok(()),
            flows => self.writer.fact(BlockKind::Flows, &flows),
        }
    }

    fn settle(&mut self, shared: &Shared, words: &Receiver<Word>, old: bool) -> Result<()> {
        self.drain.flush(&mut self.writer, old, false)?;
        self.write_functions()?;
        self.write_flows()?;
        self.tell_not_followed()?;
        let found = self.descriptors.take();
        if !found.is_empty() {
            self.writer.fact(BlockKind::Descriptors, &found)?;
            self.ends.ask(&found);
        }
        self.write_ends(false)?;
        let outsiders = self.outsiders.take();
        if !outsiders.is_empty() {
            self.writer.fact(BlockKind::Waits, &outsiders)?;
        }
        while let Ok(word) = words.try_recv() {
            match word {
                Word::Mark(mark) => self.mark(&mark)?,
                Word::Look(done) => self.look(Some(done)),
            }
        }
        let ts = clock::kernel();
        for tid in self.hangs.late(ts) {
            let text = format!("thread {tid} is not back at its event wait");
            let tid = Some(tid);
            self.mark(&Mark {
                ts,
                text,
                tid,
                host: None,
            })?;
        }
        self.looks.begin_hot(self.hot.take());
        self.write_looks(false)?;
        let now = Instant::now();
        let due: Vec<u32> = self
            .fresh
            .iter()
            .filter(|(at, _)| *at <= now)
            .map(|f| f.1)
            .collect();
        self.fresh.retain(|(at, _)| *at > now);
        for pid in due {
            self.learn_code(pid)?;
        }
        let freed = match self.room.take() {
            Some(mut room) => {
                self.make_room(&mut room)?;
                self.room.insert(room).freed
            }
            None => {
                self.threads.forget_ended();
                0
            }
        };
        let lost = self.counts.read().iter().map(|cpu| cpu.lost).sum();
        shared.lost.store(lost, Ordering::Relaxed);
        if !self.is_kept() {
            shared.over.store(true, Ordering::Relaxed);
        }
        shared.events.store(self.drain.events, Ordering::Relaxed);
        let kept = self.writer.bytes() - freed;
        shared.bytes.store(kept, Ordering::Relaxed);
        Ok(())
    }

    /// Begins a new segment, if this one is long enough, and drops the oldest. Events that are kept
    /// back will stand in the new segment, so facts about what has ended are written once more.
    fn make_room(&mut self, room: &mut Room) -> Result<()> {
        let begin = self.writer.bytes();
        if !room.is_full(begin) {
            return Ok(());
        }
        self.writer.forget_stacks(self.drain.stacks());
        self.info.before = self.writer.written();
        self.writer.fact(BlockKind::Info, &self.info)?;
        for note in &self.notes {
            self.writer.fact(BlockKind::Note, note)?;
        }
        self.writer.fact(BlockKind::Threads, &self.threads.list())?;
        for fact in self.maps.values() {
            self.writer.fact(BlockKind::Maps, fact)?;
        }
        self.writer
            .fact(BlockKind::Descriptors, &self.descriptors.known())?;
        self.writer.fact(BlockKind::Python, &self.pythons.known())?;
        let flows = self.drain.flows.known();
        self.writer.fact(BlockKind::Flows, &flows)?;
        self.threads.forget_ended();
        let alive = self.threads.pids();
        self.maps.retain(|pid, _| alive.contains(pid));
        self.descriptors.retain(&alive);
        room.begun(begin, self.writer.bytes())
            .map_err(|error| failed(&error))
    }

    pub fn run(mut self, shared: &Shared, words: &Receiver<Word>) -> Result<Consumer> {
        let mut written = Instant::now();
        loop {
            // Read before draining, so that everything recorded before the end is taken.
            let stop = shared.stop.load(Ordering::Acquire);
            let taken = self.take();
            let old = written.elapsed() > OLD;
            if old {
                written = Instant::now();
            }
            self.settle(shared, words, old)?;
            let most = self.room.as_ref().map_or(BUSY, Room::most_records);
            if taken < most.min(BUSY) {
                if stop {
                    return Ok(self);
                }
                std::thread::sleep(NAP);
            }
        }
    }

    /// `until`: when it was to end.
    pub fn finish(
        mut self,
        until: u64,
        reason: &str,
        exit_status: Option<i32>,
    ) -> Result<Finished> {
        for pid in self.tree.keys() {
            self.learn_code(pid)?;
        }
        self.write_looks(true)?;
        self.write_ends(true)?;
        self.write_functions()?;
        self.write_flows()?;
        let counts = self.counts.read();
        let totals: Vec<u64> = counts.iter().map(|cpu| cpu.sequence).collect();
        self.drain
            .finish(&mut self.writer, &totals, clock::kernel())?;
        let lossy = counts.iter().zip(0u32..).filter(|(cpu, _)| cpu.lost > 0);
        let end = End {
            ts: until,
            reason: reason.into(),
            exit_status,
            events: self.drain.events,
            raw_bytes: self.drain.raw_bytes,
            lost: counts.iter().map(|cpu| cpu.lost).sum(),
            lost_cpus: lossy.map(|(cpu, number)| (number, cpu.lost)).collect(),
            stacks_dropped: self.writer.stacks_dropped,
            lost_processes: counts.iter().map(|cpu| cpu.not_followed).sum(),
        };
        self.writer.fact(BlockKind::End, &end)?;
        self.writer.finish()?;
        Ok(Finished {
            end,
            notes: self.notes,
        })
    }
}
