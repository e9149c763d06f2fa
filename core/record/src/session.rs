// SPDX-License-Identifier: MIT
//! One recording from start to end: the supervisor.
//!
//! Inputs: options, the tracer's command. Output: the trace file and how it ended.
//! Blind spots: a process that was started by the target and is not traced is not
//! waited for; a thread that ends without its tracer noticing keeps its chunks
//! until its process ends.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::thread::Builder;
use std::time::{Duration, Instant};

use flagfinder_linux::{clock, proc};
use flagfinder_trace::{protocol as p, End, EndReason, Note, NoteLevel, ProcessEnd};

use crate::alive::Alive;
use crate::chunk_writer::ChunkWriter;
use crate::drain::{Drain, Duty};
use crate::error::{io, Failure, Result};
use crate::family::Family;
use crate::lock::lock;
use crate::machine;
use crate::observe::Observer;
use crate::options::{Listener, Outcome, Progress, RecordOptions, TargetExit, Then};
use crate::pool::{Pool, Room};
use crate::printed::Printed;
use crate::signals::Signals;
use crate::sink::Sink;
use crate::spinning::{FullChunks, SpinWatch};
use crate::target::Target;
use crate::unrecorded::Unrecorded;
use crate::user::User;

const TICK: Duration = Duration::from_millis(50);
/// At first the pool has to grow with the target's threads, and maps of short programs are wanted.
const FIRST_TICK: Duration = Duration::from_millis(5);
const AT_FIRST: Duration = Duration::from_millis(300);
/// Time between looks for spinning threads, progress reports, and looks at dead children.
const LOOK: Duration = Duration::from_millis(250);
/// After this time a thread's flow is in the file, however slowly it fills a chunk.
const SAVE_AFTER_NS: u64 = 1_000_000_000;
/// After this time tracers are released that wait for a chunk although none will come.
const STARVED: Duration = Duration::from_secs(2);
/// If a thread spins, children that had ended before keep so many bytes in the file, the newest.
const ENDED_BYTES: u64 = 64 << 20;
/// How long the target may take to end once the recorder was asked to end.
const GRACE: Duration = Duration::from_secs(2);

/// Records until the target ends, one of the options says so, or the listener does.
///
/// Errors: nothing could be started, or the target ended before its tracer began.
/// A full disk is no error: the target goes on until it ends or an option ends it, and the outcome
/// says `EndReason::WriteFailed`.
pub fn record(options: &RecordOptions, listener: &mut dyn Listener) -> Result<Outcome> {
    let signals = Signals::catch().ok_or_else(|| {
        Failure::usage(
            "A second recording cannot run in this process",
            "one that has not ended",
            "Wait for it, or record from another process.",
            "The first recording goes on.",
        )
    })?;
    let user = User::behind_sudo();
    let (pool, pool_notes) = Pool::create(options.level, user.as_ref())?;
    let info = machine::info(options);
    let sink = Mutex::new(Sink::create(&options.output, &info, options.last)?);
    for note in options.notes.iter().chain(&pool_notes) {
        lock(&sink).note(note.clone());
    }
    let full = options.stop_when_spinning.map(|_| FullChunks::default());
    let _alive = Alive::start(&pool).map_err(|error| no_thread(&error))?;
    let printed = options.until.as_deref();
    let printed = printed.map(|text| Printed::new(text, user.as_ref()));
    let mut printed = printed.transpose().map_err(|e| {
        io(
            "What the program prints cannot be passed on",
            &e,
            "Raise the limit (ulimit -n, ulimit -u), or record without a text to wait for.",
        )
    })?;
    let outputs = printed.as_mut().and_then(Printed::take_ends);
    let target = Target::start(&options.tracer, pool.path(), user.as_ref(), outputs)?;
    let family = Family::of(target.pid());
    let drain = &Drain::new(&pool, &sink, &family, full);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get().clamp(1, 4));
    let mut session = Session {
        options,
        signals,
        drain,
        target,
        printed,
        observer: Observer::default(),
        spin: options.stop_when_spinning.map(SpinWatch::new),
        unrecorded: Unrecorded::default(),
        started: Instant::now(),
        starved: None,
        asked: None,
        ended_before: BTreeSet::new(),
        unwritten: None,
        end: End::default(),
    };
    std::thread::scope(|scope| {
        let start = |duty| Builder::new().spawn_scoped(scope, move || drain.work(duty));
        let mut threads = vec![start(Duty::Flow)];
        threads.extend((0..workers).map(|_| start(Duty::Spare)));
        let result = match &threads[0] {
            Err(error) => Err(no_thread(error)),
            // Without the others values are dropped, which is counted.
            Ok(_) => session.supervise(listener),
        };
        session.still_the_target(listener);
        drain.stop.store(true, Ordering::Release);
        for thread in threads.into_iter().flatten() {
            // A worker that panicked took nothing along: its chunk stays FULL.
            if let Ok(Err(error)) = thread.join() {
                return Err(error);
            }
        }
        result
    })?;
    session.finish()
}

fn no_thread(error: &std::io::Error) -> Failure {
    io(
        "The recorder has no thread",
        error,
        "Raise the limit (ulimit -u).",
    )
}

struct Session<'a> {
    options: &'a RecordOptions,
    signals: Signals,
    drain: &'a Drain<'a>,
    target: Target,
    /// What the target prints goes through here, where a text is waited for.
    printed: Option<Printed>,
    observer: Observer,
    spin: Option<SpinWatch>,
    unrecorded: Unrecorded,
    started: Instant,
    /// Since when tracers have waited and got nothing.
    starved: Option<Instant>,
    /// When a signal asked for the end.
    asked: Option<Instant>,
    /// Children that had ended before anything was killed.
    ended_before: BTreeSet<u32>,
    /// Where the trace ends because nothing more could be written. From then on only the target is
    /// watched over: it ends, or is left, as asked.
    unwritten: Option<Unwritten>,
    end: End,
}

#[derive(Clone, Copy)]
struct Unwritten {
    ts: u64,
    elapsed: Duration,
}

impl Session<'_> {
    fn supervise(&mut self, listener: &mut dyn Listener) -> Result<()> {
        let mut looked = Instant::now();
        let mut saver = ChunkWriter::new()?;
        loop {
            let young = self.started.elapsed() < AT_FIRST;
            self.target.wait(if young { FIRST_TICK } else { TICK });
            let ended = self.target.exit().is_some();
            self.census();
            if ended && !self.children_run() {
                self.end.reason = EndReason::TargetEnded;
                return Ok(());
            }
            self.note_failure();
            if let Some(reason) = self.reason_to_stop() {
                self.end.reason = reason;
                return Ok(());
            }
            let running = self.drain.family.running();
            self.observer.look(&running, false, self.drain.sink);
            if looked.elapsed() < LOOK {
                continue;
            }
            looked = Instant::now();
            self.unrecorded.look(self.target.pid(), &running, looked);
            if listener.progress(self.progress()).is_break() {
                self.end.reason = EndReason::Marked;
                return Ok(());
            }
            if !self.drain.stop.load(Ordering::Acquire) {
                self.drain
                    .save_slow(&mut saver, clock::monotonic(), SAVE_AFTER_NS);
                self.collect_ended()?;
            }
            let looks = self.spin.as_mut().zip(self.drain.full.as_ref());
            let spinning = looks
                .map(|(spin, full)| spin.look(self.drain.pool, full))
                .unwrap_or_default();
            if !spinning.is_empty() {
                self.end.spinning_threads = spinning.iter().map(|(_, _, tid)| *tid).collect();
                self.name_children(spinning.iter().map(|&(pid, _, _)| pid).collect());
                self.end.reason = EndReason::Spinning;
                return Ok(());
            }
        }
    }

    /// Says which children the recording ended for.
    fn name_children(&mut self, spinning: BTreeSet<u32>) {
        for &pid in spinning.iter().filter(|&&pid| pid != self.target.pid()) {
            self.note_child(pid, "is the one that spins");
        }
    }

    /// Says which children keep a processor busy and are not recorded.
    fn name_unrecorded(&mut self) {
        for pid in self.unrecorded.busy() {
            self.note_child(
                pid,
                "keeps a processor busy and is not recorded: --follow-children records it too",
            );
        }
    }

    fn note_child(&self, pid: u32, what: &str) {
        let name = proc::name(pid, pid).unwrap_or_default();
        let text = format!("process {pid} ({name}), which the program started, {what}");
        lock(self.drain.sink).note(Note {
            level: NoteLevel::Warning,
            text,
        });
    }

    /// Counts chunks and lets the pool grow.
    fn census(&mut self) {
        let pool = self.drain.pool;
        let (mut owned, mut full) = (0, 0);
        for index in 0..pool.chunk_count {
            match pool.state(index).load(Ordering::Acquire) {
                p::CHUNK_FREE => continue,
                p::CHUNK_OWNED => owned += 1,
                _ => full += 1,
            }
            pool.used(index);
        }
        if pool.grow(owned, full) == Room::Starved {
            self.starved.get_or_insert_with(Instant::now);
        } else {
            self.starved = None;
        }
    }

    /// Once nothing more can be written, the tracers are told to stop, unless what they write
    /// tells whether a thread spins, which is to end the target.
    fn note_failure(&mut self) {
        if self.unwritten.is_some() {
            return;
        }
        let starved = self.starved.is_some_and(|since| since.elapsed() > STARVED);
        if starved {
            // They wait, and would wait for ever. Nothing is left that tells of a loop.
            self.spin = None;
            let text = "more threads than the buffers in shared memory can serve: the recording \
                        ends here, the target goes on";
            lock(self.drain.sink).note(Note {
                level: NoteLevel::Lost,
                text: text.into(),
            });
        } else if lock(self.drain.sink).failure.is_none() {
            return;
        }
        self.unwritten = Some(Unwritten {
            ts: clock::monotonic(),
            elapsed: self.started.elapsed(),
        });
        if self.spin.is_none() {
            self.drain.pool.close();
            self.drain.stop.store(true, Ordering::Release);
        }
    }

    fn reason_to_stop(&mut self) -> Option<EndReason> {
        if self
            .options
            .stop_after
            .is_some_and(|limit| self.started.elapsed() >= limit)
        {
            return Some(EndReason::Limit);
        }
        if self.printed.as_ref().is_some_and(Printed::is_seen) {
            return Some(EndReason::Printed);
        }
        if let Some(number) = self.signals.take_forward() {
            self.target.signal(number);
            if number != libc::SIGINT {
                self.asked.get_or_insert_with(Instant::now);
            }
        }
        let insists = self.signals.received() > 1;
        let overdue = self.asked.is_some_and(|since| since.elapsed() > GRACE);
        (insists || overdue).then_some(EndReason::Interrupted)
    }

    fn children_run(&self) -> bool {
        self.options.follow_children && self.drain.family.children_run()
    }

    /// Takes the half-filled chunks of children that have ended.
    fn collect_ended(&mut self) -> Result<()> {
        let main = self.target.pid();
        let ended = self.drain.family.ended();
        let left = |pid| pid != main && ended.contains(&pid);
        if self.drain.has_half_filled(left) && !self.drain.is_pending() {
            self.drain.collect(true, left)?;
        }
        Ok(())
    }

    fn progress(&self) -> Progress {
        let sink = lock(self.drain.sink);
        Progress {
            elapsed: self
                .unwritten
                .map_or_else(|| self.started.elapsed(), |unwritten| unwritten.elapsed),
            flow_bytes: sink.flow_bytes,
            values_bytes: sink.values_bytes,
            stored_bytes: sink.stored_bytes(),
        }
    }

    /// Ends the target if so asked, and takes the pool away from what goes on: while a busy loop
    /// fills chunks, the workers are never done.
    fn still_the_target(&mut self, listener: &mut dyn Listener) {
        // A process takes its time to die, but its last wait did not last that much longer.
        self.end.ts = clock::monotonic();
        self.name_unrecorded();
        let main = self.target.pid();
        let ended = self.drain.family.ended().into_iter();
        self.ended_before = ended.filter(|&pid| pid != main).collect();
        let stopped_early = self.target.exit().is_none() || self.children_run();
        if stopped_early && self.unwritten.is_none() {
            let running = self.drain.family.running();
            self.observer.look(&running, true, self.drain.sink);
            if self.end.reason != EndReason::Interrupted {
                self.end.code = listener.ending(&running, &self.end.spinning_threads);
            }
        }
        if stopped_early && self.options.then == Then::Kill {
            self.kill();
        }
        // Also for processes that are not known.
        self.drain.pool.close();
    }

    /// Collects what is left in the pool, closes the file.
    fn finish(mut self) -> Result<Outcome> {
        self.drain.work(Duty::Flow)?;
        self.drain.collect(false, |_| true)?;
        let mut last_words = self.last_words();
        if let Some(unwritten) = self.unwritten {
            last_words.extend(self.why_it_ended());
            self.end.ts = unwritten.ts;
            self.end.reason = EndReason::WriteFailed;
        }
        self.close(last_words)
    }

    /// After the kill nothing writes to the pool any more.
    fn kill(&mut self) {
        self.target.signal(libc::SIGKILL);
        let family = self.drain.family;
        family.kill_children();
        let since = Instant::now();
        while since.elapsed() < GRACE && (self.target.exit().is_none() || family.children_run()) {
            self.target.wait(TICK);
        }
    }

    /// What a reader of the trace must know about losses.
    fn last_words(&mut self) -> Vec<Note> {
        let mut notes = Vec::new();
        let (flow, values) = self.drain.pool.dropped();
        self.end.dropped_flow_bytes = flow;
        let values = values + self.drain.let_go.load(Ordering::Relaxed);
        self.end.dropped_value_chunks = values;
        let mut lost = |text: String| {
            notes.push(Note {
                level: NoteLevel::Lost,
                text,
            })
        };
        if flow > 0 {
            lost(format!(
                "{flow} bytes of flow were dropped because the recorder could not take them"
            ));
        }
        if values > 0 {
            lost(format!(
                "{values} chunks of values were dropped: there were more than could be written"
            ));
        }
        if let Some(error) = &lock(self.drain.sink).failure {
            lost(format!(
                "{} ({}). Later parts of the run are missing.",
                error.what, error.found
            ));
        }
        notes
    }

    /// What ended the watch over the target, long after the trace's end.
    fn why_it_ended(&self) -> Option<Note> {
        let why = match self.end.reason {
            EndReason::Spinning => "a thread spun",
            EndReason::Limit => "the time was over",
            EndReason::Printed => "the text was printed",
            EndReason::Marked => "a mark asked for the end",
            EndReason::Interrupted => "it was interrupted",
            EndReason::TargetEnded | EndReason::WriteFailed => return None,
        };
        let text = format!("from there on the program ran unrecorded, until {why}");
        Some(Note {
            level: NoteLevel::Warning,
            text,
        })
    }

    fn close(mut self, mut last_words: Vec<Note>) -> Result<Outcome> {
        if let Some(error) = self
            .printed
            .take()
            .and_then(|printed| printed.finish().err())
        {
            let text = format!(
                "what the program prints from here on cannot be passed on: no `cat` ({error})"
            );
            last_words.push(Note {
                level: NoteLevel::Warning,
                text,
            });
        }
        let target = self.target.exit().unwrap_or(TargetExit::Running);
        let failed = !matches!(target, TargetExit::Exited(0) | TargetExit::Running);
        if failed && self.end.reason == EndReason::TargetEnded && self.target.is_confined() {
            let text = "the program went into a sandbox of its own (seccomp), which may forbid \
                        what its tracer needs: if it does not end like this without one, let it \
                        run and ask `flagfinder spin`";
            last_words.push(Note {
                level: NoteLevel::Warning,
                text: text.into(),
            });
        }
        let main = self.target.pid();
        self.end.processes = vec![process_end(main, target)];
        let family = self.drain.family;
        for (pids, running) in [(family.ended(), false), (family.running(), true)] {
            let children = pids.into_iter().filter(|&pid| pid != main);
            self.end.processes.extend(children.map(|pid| ProcessEnd {
                pid,
                running,
                ..ProcessEnd::default()
            }));
        }
        let mut sink = lock(self.drain.sink);
        if self.end.reason == EndReason::Spinning {
            sink.bound_processes(&self.ended_before, ENDED_BYTES);
        }
        let nothing = sink.threads.is_empty();
        sink.finish(&mut self.end, last_words);
        let notes = std::mem::take(&mut sink.notes);
        let threads = sink.threads.len();
        drop(sink);
        if nothing && self.end.reason == EndReason::TargetEnded {
            return Err(Failure::usage(
                "Nothing was recorded: the program ended before its tracer began",
                format!("{target:?}; what the tracer or the program printed stands above"),
                "Check that the program runs by itself, then `flagfinder record` again.",
                "Existing traces can be read.",
            ));
        }
        let progress = self.progress();
        Ok(Outcome {
            pid: main,
            target,
            end: self.end,
            notes,
            threads,
            progress,
        })
    }
}

fn process_end(pid: u32, exit: TargetExit) -> ProcessEnd {
    let mut end = ProcessEnd {
        pid,
        ..ProcessEnd::default()
    };
    match exit {
        TargetExit::Exited(status) => end.status = Some(status),
        TargetExit::Signaled(signal) => end.signal = Some(signal),
        TargetExit::Running => end.running = true,
    }
    end
}
