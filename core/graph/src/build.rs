//! From events to the graph, in one pass.

use std::hash::Hasher;

use flagfinder_events::{Call, CallEnd, Context, Event, EventFile, Kind, State};
use rustc_hash::{FxHashMap, FxHasher};

use crate::flags;
use crate::graph::{Edge, EdgeKind, Gap, Graph, Meta, ThreadMeta, Vertex, NOBODY, NO_RESULT};
use crate::messages::{Messages, Sender};
use crate::stacks::Stacks;
use crate::threads::{ByCpu, Numbers, Thread};

/// Between a wake and the signal it was for: both come from one function of the kernel.
const JUST_NOW: u64 = 100_000;
const EXITS: [u16; 2] = [60, 231];
const WAITS_FOR_CHILD: [u16; 2] = [61, 247];
/// poll, select, pselect6, ppoll: they wait on descriptors without naming one first.
const POLLS: [u16; 4] = [7, 23, 270, 271];

struct Builder<'f> {
    file: &'f EventFile,
    meta: Meta,
    vertices: Vec<Vertex>,
    edges: Vec<Edge>,
    /// Numbers of threads, which are indices of `threads` and of `Meta::threads`.
    numbers: Numbers,
    threads: Vec<Thread>,
    timers: FxHashMap<u64, u32>,
    /// The timer that is about to wake somebody.
    firing: ByCpu<u64>,
    /// Who runs.
    running: ByCpu<u32>,
    stacks: Stacks,
    messages: Messages,
}

fn mix(hash: u64, value: u64) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(hash);
    hasher.write_u64(value);
    hasher.finish()
}

impl Builder<'_> {
    /// The number of a thread.
    fn thread(&mut self, tid: u32) -> usize {
        let known = self.numbers.get(tid);
        known.map_or_else(|| self.new_thread(tid), |number| number as usize)
    }

    fn new_thread(&mut self, tid: u32) -> usize {
        let number = self.threads.len();
        self.numbers.set(tid, number as u32);
        self.threads.push(Thread::default());
        self.meta.threads.push(ThreadMeta {
            tid,
            ..ThreadMeta::default()
        });
        number
    }

    fn describe(&mut self, tid: u32, change: impl FnOnce(&mut ThreadMeta)) {
        let thread = self.thread(tid);
        change(&mut self.meta.threads[thread]);
    }

    /// Begins a vertex.
    fn begin(&mut self, thread: usize, ts: u64) -> u32 {
        let number = self.vertices.len() as u32;
        let last = self.threads[thread].last;
        self.threads[thread].open = Some(number);
        self.vertices.push(Vertex {
            start: ts,
            end: ts,
            result: NO_RESULT,
            thread: thread as u32,
            ..Vertex::default()
        });
        if let Some(last) = last {
            let end = self.vertices[last as usize].end;
            self.edge(last, number, EdgeKind::Weak, end, 0);
        }
        number
    }

    /// The vertex that goes on; one that began before anything was seen of the thread.
    fn current(&mut self, thread: usize, ts: u64) -> u32 {
        let known = self.threads[thread];
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

    fn edge(&mut self, from: u32, to: u32, kind: EdgeKind, ts: u64, stack: u32) {
        self.edges.push(Edge {
            from,
            to,
            ts,
            kind: kind as u32,
            stack,
        });
    }

    /// Edges from those who wrote what a call read, but for the one who woke the reader for it.
    fn receive(&mut self, thread: usize, event: &Event, end: CallEnd) {
        let senders = self.messages.returned(event.a, end);
        if senders.is_empty() {
            return;
        }
        let reader = self.current(thread, event.ts);
        let woken = self.threads[thread].woken;
        let waker = woken.filter(|(edge, ..)| self.edges[*edge].to == reader);
        for sender in senders {
            let woke = waker.is_some_and(|(_, by, _)| by == sender.tid);
            if !woke && sender.tid != event.a {
                self.edge(sender.vertex, reader, EdgeKind::Ipc, event.ts, 0);
            }
        }
    }

    /// Stands for the place at which a thread blocks: the innermost words of its stack.
    fn place(&self, event: &Event) -> u64 {
        let site = self.file.stack(event.stack).get(..2);
        site.map_or(0, |site| mix(site[0], site[1]))
    }

    fn switch(&mut self, event: &Event) {
        // Switches between others are not recorded without --all: how long such a thread ran is then not known.
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
            self.vertices[open as usize].cpu = event.cpu.into();
            self.threads[thread].on_cpu = Some(event.ts);
        }
    }

    /// A thread gives up the CPU.
    fn leave(&mut self, event: &Event) {
        let thread = self.thread(event.a);
        let open = self.current(thread, event.ts);
        let since = self.threads[thread].on_cpu.take();
        let stack = self.stack(event.a, event);
        let state = event.state();
        let place = if state == State::Preempted {
            0
        } else {
            self.place(event)
        };
        let vertex = &mut self.vertices[open as usize];
        vertex.run += since.map_or(0, |since| event.ts - since.min(event.ts));
        vertex.end = event.ts;
        vertex.cpu = event.cpu.into();
        if state == State::Preempted {
            let yields = event.call().is_some_and(|call| Call::yields(call.number));
            vertex.yields += u32::from(yields);
        } else {
            vertex.call = event.words[0];
            vertex.stack = stack;
            vertex.semantics = mix(vertex.semantics, place);
            vertex.blocks = u32::from(state != State::Dead);
            let thread = &mut self.threads[thread];
            (thread.open, thread.last) = (None, Some(open));
        }
    }

    fn waking(&mut self, event: &Event) {
        let woken = self.thread(event.b);
        let timer = self.firing.of(event.cpu).take();
        let (priority, _) = event.priorities();
        self.meta.threads[woken].priority = priority;
        let known = self.threads[woken];
        if known.open.is_some() {
            return; // It can run already: this wake caused nothing.
        }
        let waited = known
            .last
            .and_then(|last| self.vertices[last as usize].call());
        let vertex = self.begin(woken, event.ts);
        let (kind, has_waker) = classify(event, waited);
        let from = if kind == EdgeKind::Timer {
            timer
                .and_then(|timer| self.timers.remove(&timer))
                .unwrap_or(NOBODY)
        } else if has_waker && event.a != 0 {
            let waker = self.thread(event.a);
            self.current(waker, event.ts)
        } else {
            NOBODY
        };
        self.threads[woken].woken = Some((self.edges.len(), event.a, event.ts));
        let stack = self.stack(event.a, event);
        self.edge(from, vertex, kind, event.ts, stack);
    }

    /// The kernel tells of a signal just after it has woken the thread for it.
    fn signal(&mut self, event: &Event) {
        let thread = self.thread(event.b);
        let Some((edge, by, ts)) = self.threads[thread].woken else {
            return;
        };
        let edge = &mut self.edges[edge];
        let plain = [EdgeKind::Wake, EdgeKind::Ipc].map(|kind| kind as u32);
        if by == event.a && event.ts - ts < JUST_NOW && plain.contains(&edge.kind) {
            edge.kind = EdgeKind::Signal as u32;
        }
    }

    /// A thread, or a process, starts. An id that is used again is a new thread.
    fn fork(&mut self, event: &Event) {
        let parent = self.thread(event.a);
        let from = self.current(parent, event.ts);
        if let Some(gone) = self.numbers.get(event.b) {
            self.threads[gone as usize] = Thread::default();
        }
        let child = self.new_thread(event.b);
        let (pid, parent) = event.halves(0);
        self.stacks.forked(pid, parent);
        let meta = &mut self.meta.threads[child];
        (meta.pid, meta.name) = (pid, event.name(1));
        let child = self.begin(child, event.ts);
        self.edge(from, child, EdgeKind::Fork, event.ts, 0);
    }

    /// A thread begins a call.
    fn enter(&mut self, event: &Event) {
        let thread = self.thread(event.a);
        let open = self.current(thread, event.ts);
        let vertex = &mut self.vertices[open as usize];
        if let Some(call) = event.call() {
            vertex.semantics = mix(vertex.semantics, u64::from(call.number) + 1);
            vertex.yields += u32::from(Call::yields(call.number));
            let sender = Sender {
                tid: event.a,
                vertex: open,
                ts: event.ts,
            };
            let pid = self.meta.threads[thread].pid;
            self.messages.enter(pid, call, sender);
        }
    }

    /// A thread's call returns.
    fn exit_call(&mut self, event: &Event) {
        let thread = self.thread(event.a);
        let Some(end) = event.call_end() else {
            return;
        };
        if let Some(last) = self.threads[thread].last {
            let vertex = &mut self.vertices[last as usize];
            let same = vertex.call().is_some_and(|call| call.number == end.number);
            if same && vertex.result == NO_RESULT {
                vertex.result = end.result;
            }
        }
        self.receive(thread, event, end);
    }

    fn take(&mut self, event: &Event) {
        self.meta.events += u64::from(event.kind != Kind::Lost);
        match event.kind {
            Kind::Switch => self.switch(event),
            Kind::Waking => self.waking(event),
            Kind::Fork => self.fork(event),
            Kind::Exec => self.describe(event.a, |meta| meta.name = event.name(1)),
            Kind::Rename => self.describe(event.b, |meta| meta.name = event.name(0)),
            Kind::Signal => self.signal(event),
            Kind::Arm => {
                let thread = self.thread(event.a);
                let armed_by = self.current(thread, event.ts);
                self.timers.insert(event.words[0], armed_by);
            }
            Kind::Fire => *self.firing.of(event.cpu) = Some(event.words[0]),
            Kind::Enter | Kind::EnterWide => self.enter(event),
            Kind::ExitCall => self.exit_call(event),
            Kind::Exit => {}
            Kind::Lost => self.meta.gaps.push(Gap {
                cpu: event.cpu,
                since: event.words[1],
                until: event.ts,
                count: event.words[0],
            }),
        }
    }
}

/// Which kind of edge a wake is, and whether the thread that ran is its cause. The rules are those of docs/graph.md.
fn classify(event: &Event, waited: Option<Call>) -> (EdgeKind, bool) {
    let on_descriptor =
        waited.is_some_and(|call| call.descriptor().is_some() || POLLS.contains(&call.number));
    let sends = event.waker_call().is_some_and(Call::sends);
    match event.context() {
        Context::Timer => (EdgeKind::Timer, false),
        Context::SoftIrq if on_descriptor && sends => (EdgeKind::Ipc, true),
        Context::SoftIrq | Context::HardIrq | Context::Nmi => (EdgeKind::Interrupt, false),
        Context::Unknown => (EdgeKind::Unknown, true),
        Context::Task if event.waker_call().is_some_and(|call| EXITS.contains(&call)) => {
            (EdgeKind::Exit, true)
        }
        Context::Task if waited.is_some_and(|call| WAITS_FOR_CHILD.contains(&call.number)) => {
            (EdgeKind::Exit, true)
        }
        Context::Task if on_descriptor => (EdgeKind::Ipc, true),
        Context::Task => (EdgeKind::Wake, true),
    }
}

/// Builds the graph of a recording. `watched`: lines that `flagfinder watch --json` wrote, of any number of watches. Time and memory are linear in
/// the events. Source: seed 000, sections 4.1 and 4.2 (each blocking wait splits; the halves are joined by a weak edge).
pub fn build(file: &EventFile, watched: &[String]) -> Graph {
    let (first, last) = file.span().unwrap_or((0, 0));
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
        vertices: Vec::new(),
        edges: Vec::new(),
        numbers: Numbers::default(),
        threads: Vec::new(),
        timers: FxHashMap::default(),
        firing: ByCpu::default(),
        running: ByCpu::default(),
        stacks: Stacks::default(),
        messages: Messages::new(&file.descriptors),
    };
    for known in &file.threads {
        builder.describe(known.tid, |meta| {
            (meta.pid, meta.name, meta.kernel) = (known.pid, known.name.clone(), known.kernel);
        });
    }
    let targets = file.descriptors.iter();
    builder.meta.targets = targets.map(|d| (d.pid, d.fd, d.target.clone())).collect();
    file.events(|event| builder.take(event));
    for thread in &builder.threads {
        if let Some(open) = thread.open {
            let vertex = &mut builder.vertices[open as usize];
            vertex.run += thread.on_cpu.map_or(0, |since| last - since);
            vertex.end = last;
        }
    }
    let named = builder.stacks.resolve(file);
    (builder.meta.sites, builder.meta.places) = (named.sites, named.places);
    builder.meta.stacks = named.stacks;
    let mut graph = Graph::new(builder.meta, builder.vertices, builder.edges);
    flags::add(&mut graph, watched);
    graph
}
