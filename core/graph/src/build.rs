//! From events to the graph, in one pass.

use std::hash::Hasher;

use flagfinder_events::{Call, CallEnd, Context, Event, EventFile, Kind, State};
use rustc_hash::{FxHashMap, FxHasher};

use crate::flags;
use crate::graph::{Edge, EdgeKind, Gap, Graph, Meta, ThreadMeta, Vertex, NOBODY, NO_RESULT};
use crate::messages::{Messages, Sender};
use crate::stacks::Stacks;

/// Between a wake and the signal it was for: both come from one function of the kernel.
const JUST_NOW: u64 = 100_000;
const EXITS: [u16; 2] = [60, 231];
const WAITS_FOR_CHILD: [u16; 2] = [61, 247];
/// poll, select, pselect6, ppoll: they wait on descriptors without naming one first.
const POLLS: [u16; 4] = [7, 23, 270, 271];

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// Index of its metadata.
    index: u32,
    /// The vertex that goes on now.
    open: Option<u32>,
    last: Option<u32>,
    on_cpu: Option<u64>,
    /// The edge by which it was woken last, by which thread, and when.
    woken: Option<(usize, u32, u64)>,
}

struct Builder {
    meta: Meta,
    vertices: Vec<Vertex>,
    edges: Vec<Edge>,
    threads: FxHashMap<u32, Thread>,
    timers: FxHashMap<u64, u32>,
    /// The timer that is about to wake somebody, by CPU.
    firing: FxHashMap<u16, u64>,
    /// Who runs, by CPU.
    running: FxHashMap<u16, u32>,
    stacks: Stacks,
    messages: Messages,
}

fn mix(hash: u64, value: u64) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(hash);
    hasher.write_u64(value);
    hasher.finish()
}

impl Builder {
    fn thread(&mut self, tid: u32) -> &mut Thread {
        let threads = &mut self.meta.threads;
        self.threads.entry(tid).or_insert_with(|| {
            threads.push(ThreadMeta {
                tid,
                ..ThreadMeta::default()
            });
            Thread {
                index: threads.len() as u32 - 1,
                ..Thread::default()
            }
        })
    }

    fn describe(&mut self, tid: u32, change: impl FnOnce(&mut ThreadMeta)) {
        let index = self.thread(tid).index;
        change(&mut self.meta.threads[index as usize]);
    }

    /// Begins a vertex.
    fn begin(&mut self, tid: u32, ts: u64) -> u32 {
        let number = self.vertices.len() as u32;
        let thread = self.thread(tid);
        let last = thread.last;
        let index = thread.index;
        thread.open = Some(number);
        self.vertices.push(Vertex {
            start: ts,
            end: ts,
            result: NO_RESULT,
            thread: index,
            ..Vertex::default()
        });
        if let Some(last) = last {
            let end = self.vertices[last as usize].end;
            self.edge(last, number, EdgeKind::Weak, end, 0);
        }
        number
    }

    /// The vertex that goes on; one that began before anything was seen of the thread.
    fn current(&mut self, tid: u32, ts: u64) -> u32 {
        let first = self.meta.first;
        let thread = self.thread(tid);
        match (thread.open, thread.last) {
            (Some(open), _) => open,
            (None, None) => self.begin(tid, first),
            (None, Some(_)) => self.begin(tid, ts),
        }
    }

    /// The number under which the graph keeps an event's stack, which is one of thread `tid`.
    fn stack(&mut self, tid: u32, event: &Event) -> u32 {
        if event.stack == 0 {
            return 0;
        }
        let index = self.thread(tid).index;
        let pid = self.meta.threads[index as usize].pid;
        self.stacks.number(pid, event.stack)
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

    fn pid(&mut self, tid: u32) -> u32 {
        let index = self.thread(tid).index;
        self.meta.threads[index as usize].pid
    }

    /// Edges from those who wrote what a call read, but for the one who woke the reader for it.
    fn receive(&mut self, event: &Event, end: CallEnd) {
        let senders = self.messages.returned(event.a, end);
        if senders.is_empty() {
            return;
        }
        let reader = self.current(event.a, event.ts);
        let woken = self.thread(event.a).woken;
        let waker = woken.filter(|(edge, ..)| self.edges[*edge].to == reader);
        for sender in senders {
            let woke = waker.is_some_and(|(_, by, _)| by == sender.tid);
            if !woke && sender.tid != event.a {
                self.edge(sender.vertex, reader, EdgeKind::Ipc, event.ts, 0);
            }
        }
    }

    fn switch(&mut self, event: &Event, place: u64) {
        // Switches between others are not recorded without --all: how long such a thread ran is then not known.
        let before = self.running.insert(event.cpu, event.b);
        if let Some(unseen) = before.filter(|&tid| tid != event.a && tid != 0) {
            self.thread(unseen).on_cpu = None;
        }
        if event.a != 0 {
            let open = self.current(event.a, event.ts);
            let since = self.thread(event.a).on_cpu.take();
            let stack = self.stack(event.a, event);
            let vertex = &mut self.vertices[open as usize];
            vertex.run += since.map_or(0, |since| event.ts - since.min(event.ts));
            vertex.end = event.ts;
            vertex.cpu = event.cpu.into();
            let state = event.state();
            if state == State::Preempted {
                let yields = event.call().is_some_and(|call| Call::yields(call.number));
                vertex.yields += u32::from(yields);
            } else {
                vertex.call = event.words[0];
                vertex.stack = stack;
                vertex.semantics = mix(vertex.semantics, place);
                vertex.blocks = u32::from(state != State::Dead);
                let thread = self.thread(event.a);
                (thread.open, thread.last) = (None, Some(open));
            }
        }
        if event.b != 0 {
            let open = self.current(event.b, event.ts);
            self.vertices[open as usize].cpu = event.cpu.into();
            self.thread(event.b).on_cpu = Some(event.ts);
        }
    }

    fn waking(&mut self, event: &Event) {
        let thread = *self.thread(event.b);
        let timer = self.firing.remove(&event.cpu);
        let (priority, _) = event.priorities();
        self.meta.threads[thread.index as usize].priority = priority;
        if thread.open.is_some() {
            return; // It can run already: this wake caused nothing.
        }
        let waited = thread
            .last
            .and_then(|last| self.vertices[last as usize].call());
        let vertex = self.begin(event.b, event.ts);
        let (kind, has_waker) = classify(event, waited);
        let from = if kind == EdgeKind::Timer {
            timer
                .and_then(|timer| self.timers.remove(&timer))
                .unwrap_or(NOBODY)
        } else if has_waker && event.a != 0 {
            self.current(event.a, event.ts)
        } else {
            NOBODY
        };
        self.thread(event.b).woken = Some((self.edges.len(), event.a, event.ts));
        let stack = self.stack(event.a, event);
        self.edge(from, vertex, kind, event.ts, stack);
    }

    /// The kernel tells of a signal just after it has woken the thread for it.
    fn signal(&mut self, event: &Event) {
        let Some((edge, by, ts)) = self.thread(event.b).woken else {
            return;
        };
        let edge = &mut self.edges[edge];
        let plain = [EdgeKind::Wake, EdgeKind::Ipc].map(|kind| kind as u32);
        if by == event.a && event.ts - ts < JUST_NOW && plain.contains(&edge.kind) {
            edge.kind = EdgeKind::Signal as u32;
        }
    }

    fn take(&mut self, event: &Event, place: u64) {
        match event.kind {
            Kind::Switch => self.switch(event, place),
            Kind::Waking => self.waking(event),
            Kind::Fork => {
                let from = self.current(event.a, event.ts);
                self.threads.remove(&event.b);
                let (pid, parent) = event.halves(0);
                self.stacks.forked(pid, parent);
                let name = event.name(1);
                self.describe(event.b, |meta| (meta.pid, meta.name) = (pid, name));
                let child = self.begin(event.b, event.ts);
                self.edge(from, child, EdgeKind::Fork, event.ts, 0);
            }
            Kind::Exec => self.describe(event.a, |meta| meta.name = event.name(1)),
            Kind::Rename => self.describe(event.b, |meta| meta.name = event.name(0)),
            Kind::Signal => self.signal(event),
            Kind::Arm => {
                let armed_by = self.current(event.a, event.ts);
                self.timers.insert(event.words[0], armed_by);
            }
            Kind::Fire => {
                self.firing.insert(event.cpu, event.words[0]);
            }
            Kind::Enter | Kind::EnterWide => {
                let open = self.current(event.a, event.ts);
                let vertex = &mut self.vertices[open as usize];
                if let Some(call) = event.call() {
                    vertex.semantics = mix(vertex.semantics, u64::from(call.number) + 1);
                    vertex.yields += u32::from(Call::yields(call.number));
                    let sender = Sender {
                        tid: event.a,
                        vertex: open,
                        ts: event.ts,
                    };
                    let pid = self.pid(event.a);
                    self.messages.enter(pid, call, sender);
                }
            }
            Kind::ExitCall => {
                let last = self.thread(event.a).last;
                if let (Some(last), Some(end)) = (last, event.call_end()) {
                    let vertex = &mut self.vertices[last as usize];
                    let same = vertex.call().is_some_and(|call| call.number == end.number);
                    if same && vertex.result == NO_RESULT {
                        vertex.result = end.result;
                    }
                }
                if let Some(end) = event.call_end() {
                    self.receive(event, end);
                }
            }
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
        threads: FxHashMap::default(),
        timers: FxHashMap::default(),
        firing: FxHashMap::default(),
        running: FxHashMap::default(),
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
    file.events(|event| {
        let place = file
            .stack(event.stack)
            .get(..2)
            .map_or(0, |site| mix(site[0], site[1]));
        builder.meta.events += u64::from(event.kind != Kind::Lost);
        builder.take(event, place);
    });
    for thread in builder.threads.values() {
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
