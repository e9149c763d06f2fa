// SPDX-License-Identifier: MIT
//! From events to the graph, in one pass.

use std::hash::Hasher;

use flagfinder_events::{Call, Context, Event, EventFile, Exchange, Kind, State};
use flagfinder_linux::life;
use rustc_hash::{FxHashMap, FxHasher};

use crate::ahead::Ahead;
use crate::done::Counting;
use crate::edge::{Edge, EdgeKind, NOBODY};
use crate::flags;
use crate::graph::{Gap, Graph, Meta, ThreadMeta};
use crate::hot_call::HotCalls;
use crate::items::Item;
use crate::messages::{Message, Messages, Sender};
use crate::profile::name_hot_calls;
use crate::ran::{Running, Spot};
use crate::requests::Requests;
use crate::site::site_of;
use crate::stacks::Stacks;
use crate::stops::Stops;
use crate::targets::targets;
use crate::threads::{ByCpu, Numbers, Thread};
use crate::vertex::{Vertex, NO_RESULT};
use crate::vertices::Vertices;
use crate::wakes::classify;

/// Time between a wake and the signal that it was for: both come from one function of the kernel.
const JUST_NOW: u64 = 100_000;
/// A thread that the clock finds in so short a call makes the call over and over; so often at
/// least.
const YIELDS_BY_CLOCK: u32 = 4;

pub(crate) struct Builder<'f> {
    pub(crate) file: &'f EventFile,
    pub(crate) meta: Meta,
    pub(crate) vertices: Vertices,
    /// Edges that did not make their vertex begin.
    others: Vec<Edge>,
    /// Numbers of threads, which are indices of `threads` and of `Meta::threads`.
    pub(crate) numbers: Numbers,
    pub(crate) threads: Vec<Thread>,
    timers: FxHashMap<u64, u32>,
    /// The timer that is about to wake somebody.
    firing: ByCpu<u64>,
    running: ByCpu<u32>,
    pub(crate) stacks: Stacks,
    messages: Messages,
    pub(crate) requests: Requests,
    pub(crate) hot: HotCalls,
    ran: Running,
    stops: Stops,
    done: Counting,
    /// Who did not get a file's lock in which vertex, and who had it.
    pub(crate) refused: Vec<(u32, Event)>,
    /// What was sent and received, with numbers of threads.
    exchanges: Vec<Exchange>,
}

fn mix(hash: u64, value: u64) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(hash);
    hasher.write_u64(value);
    hasher.finish()
}

impl Builder<'_> {
    /// The number of a thread.
    pub(crate) fn thread(&mut self, tid: u32) -> usize {
        let known = self.numbers.get(tid);
        known.map_or_else(|| self.new_thread(tid), |number| number as usize)
    }

    pub(crate) fn new_thread(&mut self, tid: u32) -> usize {
        let number = self.threads.len();
        self.numbers.set(tid, number as u32);
        self.threads.push(Thread {
            is_followed: self.file.info.everything,
            ..Thread::default()
        });
        self.meta.threads.push(ThreadMeta {
            tid,
            ..ThreadMeta::default()
        });
        number
    }

    pub(crate) fn describe(&mut self, tid: u32, change: impl FnOnce(&mut ThreadMeta)) {
        let thread = self.thread(tid);
        change(&mut self.meta.threads[thread]);
    }

    #[inline(always)]
    pub(crate) fn begin(&mut self, thread: usize, ts: u64) -> u32 {
        let number = self.vertices.push(Vertex {
            start: ts,
            end: ts,
            thread: thread as u32,
            ..Vertex::default()
        });
        let known = &mut self.threads[thread];
        (known.open, known.item) = (Some(number), Item::default());
        number
    }

    /// Says what made a vertex begin.
    pub(crate) fn caused(&mut self, vertex: u32, kind: EdgeKind, from: u32, stack: u32) {
        self.vertices.caused(vertex, kind, from);
        if stack != 0 {
            self.vertices.details_mut(vertex).waker_stack = stack;
        }
    }

    /// An edge into a vertex that something else made begin.
    pub(crate) fn later(&mut self, from: u32, to: u32, kind: EdgeKind, ts: u64) {
        self.others.push(Edge {
            from,
            to,
            ts,
            kind: kind as u32,
            stack: 0,
        });
    }

    /// The vertex that goes on; if nothing was seen of the thread yet, one that began before.
    pub(crate) fn current(&mut self, thread: usize, ts: u64) -> u32 {
        let known = &self.threads[thread];
        match (known.open, known.last) {
            (Some(open), _) => open,
            (None, None) => self.begin(thread, self.meta.first),
            (None, Some(_)) => self.begin(thread, ts),
        }
    }

    /// The number under which the graph keeps an event's stack, which is one of thread `tid`.
    fn stack(&mut self, tid: u32, event: &Event) -> u32 {
        if event.stack == 0 {
            return 0;
        }
        let thread = self.thread(tid);
        self.stacks
            .number(self.meta.threads[thread].pid, event.stack)
    }

    /// The vertex that goes on ends here, and the next begins, without a wait in between.
    fn split(&mut self, thread: usize, ts: u64) -> u32 {
        let open = self.current(thread, ts);
        let since = self.threads[thread].on_cpu.replace(ts);
        let ran = since.map_or(0, |since| ts - since.min(ts));
        self.vertices.lasts(open, ts, ran);
        let cpu = self.vertices.get(open).cpu;
        self.threads[thread].last = Some(open);
        let next = self.begin(thread, ts);
        self.vertices.runs_on(next, cpu);
        next
    }

    /// A call has sent or received something.
    fn exchanged(&mut self, thread: usize, event: &Event, message: Message) {
        let own = self.meta.threads[thread].pid;
        let mut item = self.threads[thread].item;
        let same = |one, other| self.messages.may_share(own, one, other);
        match message {
            Message::Sent { connection } => item.sends(connection, same),
            Message::Received {
                connection,
                senders,
            } => {
                let is_first = item.is_empty();
                let is_next = item.receives(connection, same)
                    || is_first && self.was_woken_by_another(thread, &senders);
                if is_first && !is_next {
                    self.correct_waker(thread, &senders);
                }
                self.receive(thread, event, senders, is_next);
            }
        }
        self.threads[thread].item = item;
    }

    /// Whether a message woke the thread, but none of those that it reads first.
    fn was_woken_by_another(&self, thread: usize, senders: &[Sender]) -> bool {
        let known = &self.threads[thread];
        let woken = known.woken.filter(|(vertex, ..)| {
            known.open == Some(*vertex) && self.vertices.get(*vertex).cause() == EdgeKind::Ipc
        });
        let is_another = |by| senders.iter().all(|sender| sender.tid != by);
        !senders.is_empty() && woken.is_some_and(|(_, by, _)| is_another(by))
    }

    /// When a socket's other end takes something out, it also wakes a thread that waits; what that
    /// thread then reads may belong to a later item of the same thread.
    fn correct_waker(&mut self, thread: usize, senders: &[Sender]) {
        let known = &self.threads[thread];
        let woken = known
            .woken
            .filter(|(vertex, ..)| known.open == Some(*vertex));
        let Some((vertex, by, _)) = woken else {
            return;
        };
        let own = senders.iter().find(|sender| sender.tid == by);
        if let Some(sender) = own.filter(|_| self.vertices.get(vertex).cause() == EdgeKind::Ipc) {
            self.vertices.change(vertex, |row| row.from = sender.vertex);
        }
    }

    /// Edges from those who wrote what a call read, but for the one who woke the reader for it.
    /// `splits`: the next item begins with it.
    fn receive(&mut self, thread: usize, event: &Event, senders: Vec<Sender>, splits: bool) {
        let reader = if splits {
            self.split(thread, event.ts)
        } else {
            self.current(thread, event.ts)
        };
        let woken = self.threads[thread].woken;
        let waker = woken.filter(|(vertex, ..)| *vertex == reader);
        for sender in senders {
            let woke = waker.is_some_and(|(_, by, _)| by == sender.tid);
            if woke || sender.tid == event.a {
                continue;
            }
            if splits && self.vertices.get(reader).cause() == EdgeKind::Weak {
                self.caused(reader, EdgeKind::Ipc, sender.vertex, 0);
                continue;
            }
            self.later(sender.vertex, reader, EdgeKind::Ipc, event.ts);
        }
    }

    /// A number for the place at which a thread blocks: the innermost words of its stack.
    fn place(&self, event: &Event) -> u64 {
        let site = self.file.stack(event.stack).get(..2);
        site.map_or(0, |site| mix(site[0], site[1]))
    }

    fn switch(&mut self, event: &Event) {
        // Without --all, switches between other threads are not recorded, so it is not known how
        // long such a thread ran.
        let before = self.running.of(event.cpu).replace(event.b);
        if let Some(unseen) = before.filter(|&tid| tid != event.a && tid != 0) {
            let unseen = self.thread(unseen);
            self.threads[unseen].on_cpu = None;
        }
        if event.a != 0 {
            self.leave(event);
        }
        if event.b != 0 {
            let thread = self.thread(event.b);
            let open = self.current(thread, event.ts);
            self.vertices.runs_on(open, event.cpu);
            let known = &mut self.threads[thread];
            (known.on_cpu, known.is_switched) = (Some(event.ts), true);
        }
    }

    /// A thread gives up the CPU.
    fn leave(&mut self, event: &Event) {
        let thread = self.thread(event.a);
        let open = self.current(thread, event.ts);
        self.threads[thread].is_switched = true;
        let since = self.threads[thread].on_cpu.take();
        let state = event.state();
        let ran = since.map_or(0, |since| event.ts - since.min(event.ts));
        self.vertices.runs_on(open, event.cpu);
        self.vertices.lasts(open, event.ts, ran);
        if state == State::Preempted {
            let is_counted = self.file.info.syscalls == "target"; // where the call is entered
            if !is_counted && event.call().is_some_and(|call| Call::yields(call.number)) {
                self.vertices.details_mut(open).yields += 1;
            }
            return;
        }
        let blocks = state != State::Dead;
        self.vertices.ends_in(open, event.words[0], blocks);
        if state == State::Stopped {
            let stop = self.stops.of(self.meta.threads[thread].pid);
            self.meta.stopped.insert(open, stop);
        }
        let known = &mut self.threads[thread];
        (known.open, known.last, known.waits_in) = (None, Some(open), event.words[0]);
        let stack = self.stack(event.a, event);
        if stack != 0 {
            let place = self.place(event);
            let details = self.vertices.details_mut(open);
            details.stack = stack;
            details.semantics = mix(details.semantics, place);
        }
    }

    fn waking(&mut self, event: &Event) {
        let woken = self.thread(event.b);
        let timer = self.firing.of(event.cpu).take();
        let (priority, waker_priority) = event.priorities();
        self.meta.threads[woken].priority = priority;
        let order = self.requests.wakes(event.a, event.cpu, event.ts);
        let known = &self.threads[woken];
        if known.open.is_some() {
            return; // It can run already: this wake caused nothing.
        }
        let last = known.last;
        let waited = Call::unpack(known.waits_in);
        let vertex = self.begin(woken, event.ts);
        let (kind, has_waker) = match classify(event, waited) {
            (EdgeKind::Exit, _) if self.is_killed(event, woken) => (EdgeKind::Weak, false),
            known => known,
        };
        let from = if event.context() == Context::Timeout {
            last.unwrap_or(NOBODY)
        } else if kind == EdgeKind::Timer {
            timer
                .and_then(|timer| self.timers.remove(&timer))
                .unwrap_or(NOBODY)
        } else if has_waker && event.a != 0 {
            let waker = self.thread(event.a);
            if waker_priority > priority {
                let details = self.vertices.details_mut(vertex);
                (details.priority, details.waker_priority) =
                    (priority.into(), waker_priority.into());
            }
            self.current(waker, event.ts)
        } else {
            NOBODY
        };
        self.threads[woken].woken = Some((vertex, event.a, event.ts));
        let stack = self.stack(event.a, event);
        self.caused(vertex, kind, from, stack);
        if let Some(order) = order {
            self.later(order.vertex, vertex, EdgeKind::IoUring, event.ts);
        }
    }

    /// Whether the end of its process ends the woken thread, too: what it waited for did not come.
    fn is_killed(&mut self, event: &Event, woken: usize) -> bool {
        let waker = self.thread(event.a);
        let ends = event
            .waker_call()
            .is_some_and(|call| life::exits_process(call.into()));
        ends && self.meta.threads[waker].pid == self.meta.threads[woken].pid
    }

    /// The kernel reports a signal just after it has woken the thread for it.
    fn signal(&mut self, event: &Event) {
        let thread = self.thread(event.b);
        if Stops::stops(event) {
            let is_thread = event.context() == Context::Task && event.a != 0;
            let by = is_thread.then(|| self.thread(event.a) as u32);
            self.stops.sent(self.meta.threads[thread].pid, event, by);
        }
        let Some((vertex, by, ts)) = self.threads[thread].woken else {
            return;
        };
        let row = self.vertices.get(vertex);
        let is_plain = matches!(row.cause(), EdgeKind::Wake | EdgeKind::Ipc);
        if by == event.a && event.ts - ts < JUST_NOW && is_plain {
            self.vertices.caused(vertex, EdgeKind::Signal, row.from);
        }
    }

    /// A thread begins a call.
    fn enter(&mut self, event: &Event) {
        let thread = self.thread(event.a);
        let open = self.current(thread, event.ts);
        if let Some(call) = event.call() {
            self.counts(thread, open, event);
            let details = self.vertices.details_mut(open);
            details.semantics = mix(details.semantics, u64::from(call.number) + 1);
            if let Some(fd) = call.descriptor().filter(|_| Call::sends(call.number)) {
                details.semantics = mix(details.semantics, fd as u64);
            }
            details.yields += u32::from(Call::yields(call.number));
            let sender = Sender {
                tid: event.a,
                vertex: open,
                ts: event.ts,
            };
            let pid = self.meta.threads[thread].pid;
            self.messages.enter(pid, call, sender);
            self.ran.enter(thread, open, call, event.ts);
        }
    }

    /// A thread's call returns.
    fn exit_call(&mut self, event: &Event) {
        let thread = self.thread(event.a);
        let Some(end) = event.call_end() else {
            return;
        };
        self.returned(thread, event, end);
        if let Some(open) = self.threads[thread].open {
            if let Some((call, since)) = self.ran.exit(thread, open, end, event.ts) {
                self.done.add(thread, call, since, event.ts);
            }
        }
        if let Some(last) = self.threads[thread].last {
            let call = self.vertices.get(last).call();
            let same = call.is_some_and(|call| call.number == end.number);
            if same && self.vertices.details(last).result == NO_RESULT {
                self.vertices.details_mut(last).result = end.result;
            }
        }
        if Call::looks(end.number) && end.result > 0 {
            self.threads[thread].item.looks();
        }
        if let Some(message) = self.messages.returned(event.a, end) {
            self.exchanged(thread, event, message);
        }
    }

    /// The clock finds a thread that runs.
    fn sample(&mut self, event: &Event) {
        let thread = self.thread(event.a);
        let open = self.current(thread, event.ts);
        let pid = self.meta.threads[thread].pid;
        let spot = Spot {
            call: event.call().map(|call| call.number),
            place: self.stacks.place(pid, event.words[1]),
            stack: self.stack(event.a, event),
        };
        self.ran.sample(open, spot);
    }

    fn take(&mut self, event: &Event) {
        self.meta.events += u64::from(event.kind != Kind::Lost);
        match event.kind {
            Kind::Switch => self.switch(event),
            Kind::Waking => self.waking(event),
            Kind::Fork => self.fork(event),
            Kind::Exec => self.exec(event),
            Kind::Rename => self.describe(event.b, |meta| meta.name = event.name(0)),
            Kind::Signal => self.signal(event),
            Kind::Arm => {
                let thread = self.thread(event.a);
                let armed_by = self.current(thread, event.ts);
                self.timers.insert(event.words[0], armed_by);
            }
            Kind::Fire => *self.firing.of(event.cpu) = Some(event.words[0]),
            Kind::Submit => self.submit(event),
            Kind::Complete => self.complete(event),
            Kind::Enter | Kind::EnterWide => self.enter(event),
            Kind::ExitCall => self.exit_call(event),
            Kind::Yield => {
                let thread = self.thread(event.a);
                let open = self.current(thread, event.ts);
                self.vertices.details_mut(open).yields += YIELDS_BY_CLOCK;
            }
            Kind::Sample => self.sample(event),
            Kind::Exit => self.exit(event),
            Kind::Sent | Kind::Received => {
                if let Some(exchange) = Exchange::of(event) {
                    let tid = self.thread(event.a) as u32;
                    self.current(tid as usize, event.ts);
                    self.exchanges.push(Exchange { tid, ..exchange });
                }
            }
            Kind::Refused => {
                let thread = self.thread(event.a);
                let open = self.current(thread, event.ts);
                self.refused.push((open, *event));
            }
            Kind::Lost => self.meta.gaps.push(Gap {
                cpu: event.cpu,
                since: event.words[1],
                until: event.ts,
                count: event.words[0],
            }),
        }
    }
}

/// Builds the graph of a recording. `watched`: lines that `flagfinder watch --json` wrote, of any
/// number of watches. Time and memory are linear in the events. Source: Argus, sections 4.1 and
/// 4.2 (each blocking wait splits, and so do items of a batch; the halves are joined by a weak
/// edge).
pub fn build(file: &EventFile, watched: &[String]) -> Graph {
    build_with_exchanges(file, watched).0
}

/// The same, and what was sent and received; there `tid` is the index of the thread.
pub(crate) fn build_with_exchanges(file: &EventFile, watched: &[String]) -> (Graph, Vec<Exchange>) {
    let (first, last) = file.time();
    let mut builder = Builder {
        file,
        meta: Meta {
            first,
            last,
            pids: file.info.pids.clone(),
            command: file.info.command.clone(),
            syscalls: file.info.syscalls.clone(),
            marks: file.marks.clone(),
            ..Meta::default()
        },
        vertices: Vertices::default(),
        others: Vec::new(),
        numbers: Numbers::default(),
        threads: Vec::new(),
        timers: FxHashMap::default(),
        firing: ByCpu::default(),
        running: ByCpu::default(),
        stacks: Stacks::default(),
        messages: Messages::new(&file.descriptors),
        requests: Requests::default(),
        hot: HotCalls::default(),
        ran: Running::default(),
        stops: Stops::default(),
        done: Counting::new(first, last),
        refused: Vec::new(),
        exchanges: Vec::new(),
    };
    for known in &file.threads {
        builder.describe(known.tid, |meta| {
            (meta.pid, meta.name, meta.kernel) = (known.pid, known.name.clone(), known.kernel);
            meta.parent = known.parent;
        });
        let number = builder.thread(known.tid);
        builder.threads[number].is_followed = true;
    }
    std::thread::scope(|scope| {
        let mut ahead = Ahead::start(scope);
        file.events(|event| {
            ahead.grows(&mut builder.vertices.rows);
            builder.take(event);
        });
    });
    builder.close();
    builder.take_looks();
    builder.take_refusals();
    builder.tell_hot();
    let threads = builder.meta.threads.iter();
    let firsts = threads.filter(|thread| thread.tid == thread.pid);
    let names: FxHashMap<u32, &str> = firsts.map(|t| (t.pid, &t.name[..])).collect();
    builder.meta.targets = targets(&file.descriptors, |pid| names.get(&pid).copied());
    let named = builder.stacks.resolve(file);
    name_hot_calls(&mut builder.meta.hot, &builder.ran, &named);
    (builder.meta.sites, builder.meta.places) = (named.sites, named.places);
    let site = |spot: Spot| match spot.call {
        Some(number) => format!("{}()", Call::name_of(number)),
        None => {
            let above = named.stacks[spot.stack as usize].iter().skip(1);
            let above = above.map(|&site| &builder.meta.sites[site as usize][..]);
            let here = std::iter::once(&named.found_at[spot.place as usize][..]);
            site_of(here.chain(above)).unwrap_or_default().to_owned()
        }
    };
    builder.meta.ran = std::mem::take(&mut builder.ran).finish(site);
    builder.meta.stacks = named.stacks;
    builder.meta.done = std::mem::take(&mut builder.done).finish();
    let mut graph = Graph::new(builder.meta, builder.vertices, builder.others);
    flags::add(&mut graph, watched);
    graph.vertices.share_details();
    (graph, builder.exchanges)
}
