// SPDX-License-Identifier: MIT
//! The graph: vertices (of one thread in order of time), what made them begin, and what their
//! numbers mean.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use flagfinder_events::Mark;
use serde::{Deserialize, Serialize};

use crate::done::AllDone;
use crate::edge::{Edge, EdgeKind, NOBODY};
use crate::hot_call::HotCall;
use crate::ran::Ran;
use crate::stops::Stop;
use crate::targets::{target_at, Target};
use crate::vertex::{Details, Vertex};
use crate::vertices::Vertices;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadMeta {
    pub tid: u32,
    pub pid: u32,
    pub name: String,
    pub kernel: bool,
    /// The process that started its own; 0: not known.
    #[serde(default)]
    pub parent: u32,
    /// The kernel's, when it was last woken: below 100 real time, 120 ordinary, lower is more
    /// urgent; 0: never seen.
    #[serde(default)]
    pub priority: u8,
    /// Its switches were recorded, so that it is known when it ran and when it waited.
    #[serde(default = "yes")]
    pub followed: bool,
    /// Place in `Meta::hosts`; 0 in a graph of one host.
    #[serde(default)]
    pub host: u32,
    /// If its switches were not recorded, what it was in when it was looked at: `blocked in read`;
    /// empty: not known.
    #[serde(default)]
    pub doing: String,
}

fn yes() -> bool {
    true
}

/// A host whose recording is in the graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    /// When its recording began and ended, in the graph's time.
    pub first: u64,
    pub last: u64,
    pub pids: Vec<u32>,
    pub command: Vec<String>,
    /// What was added to its clock when the recording began; how much of that is not known, at best
    /// and at worst; ns.
    pub added: i64,
    pub widths: (u64, u64),
    /// The host whose exchanges with it tell; the first, and hosts on one clock: null.
    pub by: Option<u32>,
    /// Messages that it got from the other hosts.
    pub received: u64,
}

/// Events that are missing on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    pub cpu: u16,
    pub since: u64,
    pub until: u64,
    pub count: u64,
}

/// A place in code that is the same in every process: an address in a file, as linked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub module: String,
    pub offset: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Meta {
    pub first: u64,
    pub last: u64,
    pub events: u64,
    pub pids: Vec<u32>,
    pub command: Vec<String>,
    pub syscalls: String,
    pub marks: Vec<Mark>,
    pub gaps: Vec<Gap>,
    pub flags: u64,
    /// Thread ids, as they first appear.
    pub threads: Vec<ThreadMeta>,
    /// What descriptors were.
    pub targets: Vec<Target>,
    /// Call sites by name, and stacks of them by their numbers, innermost first. Stack 0 is empty.
    #[serde(default)]
    pub sites: Vec<String>,
    /// Where these are; `None`: in no file.
    #[serde(default)]
    pub places: Vec<Option<Place>>,
    #[serde(default)]
    pub stacks: Vec<Vec<u32>>,
    /// Calls that were repeated and brought nothing, by vertex.
    #[serde(default)]
    pub hot: Vec<HotCall>,
    /// What vertices ran that the clock found running.
    #[serde(default)]
    pub ran: BTreeMap<u32, Ran>,
    /// Calls of threads that made many.
    #[serde(default)]
    pub done: AllDone,
    /// Of vertices at whose end a signal stopped the thread.
    #[serde(default)]
    pub stopped: BTreeMap<u32, Stop>,
    /// Those of a graph of several; times are those of the first.
    #[serde(default)]
    pub hosts: Vec<Host>,
}

/// A wait: from the end of a vertex to the start of the next of its thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    pub vertex: u32,
    /// The vertex that follows; `None`: it waited to the end of the recording.
    pub next: Option<u32>,
    pub start: u64,
    pub end: u64,
}

impl Wait {
    pub fn dur(&self) -> u64 {
        self.end - self.start
    }
}

/// A rare function is in at most one of so many stacks, or in two.
const RARE: usize = 50;

/// Call sites by function.
#[derive(Default)]
struct Functions {
    of_site: Vec<u32>,
    /// In how many different stacks each is.
    stacks: Vec<usize>,
}

impl Functions {
    fn new(meta: &Meta) -> Functions {
        let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
        let names = meta.sites.iter().map(|site| site.split("+0x").next());
        let of_site = names.map(|name| {
            let next = numbers.len() as u32;
            *numbers.entry(name.unwrap_or_default()).or_insert(next)
        });
        let of_site: Vec<u32> = of_site.collect();
        let mut stacks = vec![0; numbers.len()];
        for stack in &meta.stacks {
            let functions: BTreeSet<u32> = stack
                .iter()
                .filter_map(|&site| of_site.get(site as usize).copied())
                .collect();
            functions.iter().for_each(|&f| stacks[f as usize] += 1);
        }
        Functions { of_site, stacks }
    }
}

/// What happened in a recording, and why.
#[derive(Default)]
pub struct Graph {
    /// What its numbers mean.
    pub meta: Meta,
    /// All vertices, by index.
    pub vertices: Vertices,
    /// Edges that did not make their vertex begin: messages, flags. Sorted by the vertex they lead
    /// to.
    pub(crate) others: Vec<Edge>,
    /// Edges from threads that are waited for, to the vertex that ends in the wait, as seen at
    /// marks and in the end. Sorted like `others`.
    pub(crate) awaits: Vec<Edge>,
    functions: Functions,
    /// How many vertices of other threads a vertex made begin, by vertex; counted when first asked
    /// for.
    causes: OnceLock<Vec<u32>>,
}

impl Graph {
    /// Sorts the edges and indexes everything.
    pub fn new(meta: Meta, vertices: Vertices, mut others: Vec<Edge>) -> Graph {
        others.sort_by_key(|edge| edge.to);
        let (awaits, others) = others
            .into_iter()
            .partition(|edge| edge.kind().is_awaited());
        let functions = Functions::new(&meta);
        Graph {
            meta,
            vertices,
            others,
            awaits,
            functions,
            causes: OnceLock::new(),
        }
    }

    /// Whether a vertex made one of another thread begin, or sent something to it.
    pub(crate) fn causes_any(&self, vertex: u32) -> bool {
        self.woke(vertex) > 0
    }

    /// How many vertices of other threads a vertex made begin, or sent something to.
    pub fn woke(&self, vertex: u32) -> u32 {
        let causes = self.causes.get_or_init(|| {
            let mut causes = vec![0; self.vertices.len()];
            let begun = self.vertices.iter().map(|row| (row.from, row.thread));
            let others = self.others.iter();
            let sent = others.map(|edge| (edge.from, self.vertex(edge.to).thread));
            for (from, thread) in begun.chain(sent) {
                if from != NOBODY && self.vertex(from).thread != thread {
                    causes[from as usize] += 1;
                }
            }
            causes
        });
        causes[vertex as usize]
    }

    /// Whom a thread was found to wait for at the end of a vertex, by edges of this kind.
    pub fn awaited(&self, vertex: u32, kind: EdgeKind) -> impl Iterator<Item = &Edge> {
        let first = self.awaits.partition_point(|edge| edge.to < vertex);
        let all = self.awaits[first..].iter();
        let own = all.take_while(move |edge| edge.to == vertex);
        own.filter(move |edge| edge.kind() == kind)
    }

    /// The vertex with this index.
    pub fn vertex(&self, index: u32) -> Vertex {
        self.vertices.get(index)
    }

    /// What it spent its time on, if it ran long enough.
    pub fn ran(&self, index: u32) -> Option<&Ran> {
        self.meta.ran.get(&index)
    }

    /// What else is known of the vertex with this index.
    pub fn details(&self, index: u32) -> &Details {
        self.vertices.details(index)
    }

    /// The vertex of the same thread before.
    pub fn before(&self, vertex: u32) -> Option<u32> {
        let list = self.of(self.vertex(vertex).thread);
        let place = list.partition_point(|&other| other < vertex);
        place.checked_sub(1).map(|place| list[place])
    }

    /// Whether a vertex is a further item of one wake-up: the one before did not end by blocking.
    pub fn is_item(&self, vertex: u32) -> bool {
        let before = self.before(vertex);
        before.is_some_and(|before| self.vertex(before).blocks == 0)
    }

    /// The first vertex of a wake-up.
    pub fn first_item(&self, vertex: u32) -> u32 {
        let list = self.of(self.vertex(vertex).thread);
        let place = list.partition_point(|&other| other < vertex);
        let items = list[..place].iter().rev();
        let items = items.take_while(|&&other| self.vertex(other).blocks == 0);
        items.last().copied().unwrap_or(vertex)
    }

    /// A vertex and those before it in the same wake-up, the last first.
    pub fn items(&self, vertex: u32) -> impl Iterator<Item = Vertex> + '_ {
        let list = self.of(self.vertex(vertex).thread);
        let place = list.partition_point(|&other| other < vertex);
        let before = list[..place].iter().rev().map(|&other| self.vertex(other));
        let before = before.take_while(|other| other.blocks == 0);
        std::iter::once(self.vertex(vertex)).chain(before)
    }

    /// What a thread did in each wake-up: vertices, one where it was not split.
    pub fn runs(&self, thread: u32) -> impl Iterator<Item = &[u32]> {
        self.of(thread)
            .chunk_by(|&one, _| self.vertex(one).blocks == 0)
    }

    /// The edge by which a vertex began; `None`: only what its thread did before is known.
    pub fn cause(&self, vertex: u32) -> Option<Edge> {
        let row = self.vertex(vertex);
        (row.cause() != EdgeKind::Weak).then(|| Edge {
            from: row.from,
            to: vertex,
            ts: row.start,
            kind: row.cause.into(),
            stack: self.details(vertex).waker_stack,
        })
    }

    /// Places in `others` of the edges that lead to a vertex.
    pub(crate) fn places_into(&self, vertex: u32) -> std::ops::Range<usize> {
        let first = self.others.partition_point(|edge| edge.to < vertex);
        let count = self.others[first..].partition_point(|edge| edge.to == vertex);
        first..first + count
    }

    /// Edges that lead to a vertex but neither made it begin nor come from its thread before.
    pub fn others_into(&self, vertex: u32) -> &[Edge] {
        &self.others[self.places_into(vertex)]
    }

    fn weak(&self, vertex: u32, before: u32) -> Edge {
        Edge {
            from: before,
            to: vertex,
            ts: self.vertex(before).end,
            kind: EdgeKind::Weak as u32,
            stack: 0,
        }
    }

    /// Edges that lead to a vertex.
    pub fn into(&self, vertex: u32) -> impl Iterator<Item = Edge> + '_ {
        let weak = self.before(vertex).map(|before| self.weak(vertex, before));
        let others = self.others_into(vertex).iter().copied();
        weak.into_iter().chain(self.cause(vertex)).chain(others)
    }

    /// All edges, by the vertex they lead to; then those from threads that are waited for.
    pub fn edges(&self) -> Vec<Edge> {
        let mut edges = Vec::with_capacity(self.vertices.len() * 2 + self.others.len());
        let mut last = vec![None; self.meta.threads.len()];
        let mut others = self.others.iter().peekable();
        for vertex in 0..self.vertices.len() as u32 {
            let before = last[self.vertex(vertex).thread as usize].replace(vertex);
            edges.extend(before.map(|before| self.weak(vertex, before)));
            edges.extend(self.cause(vertex));
            while let Some(edge) = others.next_if(|edge| edge.to == vertex) {
                edges.push(*edge);
            }
        }
        edges.extend(&self.awaits);
        edges
    }

    /// Whether an edge is a message that was there already: it did not make its vertex begin.
    pub fn woke_nobody(&self, edge: &Edge) -> bool {
        edge.kind() == EdgeKind::Ipc && edge.ts > self.vertex(edge.to).start
    }

    /// Vertices of a thread, by its index, in order of time.
    pub fn of(&self, thread: u32) -> &[u32] {
        self.vertices.of(thread)
    }

    /// The thread of the vertex with this index.
    pub fn thread(&self, vertex: u32) -> &ThreadMeta {
        &self.meta.threads[self.vertex(vertex).thread as usize]
    }

    /// Index of a thread id: the one with most vertices, should the id have been used again; of
    /// several hosts, the first that has it.
    pub fn thread_of(&self, tid: u32) -> Option<u32> {
        self.thread_on(None, tid)
    }

    /// Whether a thread is of the host of this name; without a name each is.
    pub(crate) fn is_on(&self, host: Option<&str>, thread: &ThreadMeta) -> bool {
        host.is_none_or(|name| self.host(thread).is_some_and(|host| host.name == name))
    }

    /// The same, on the host of this name.
    pub fn thread_on(&self, host: Option<&str>, tid: u32) -> Option<u32> {
        let threads = self.meta.threads.iter().zip(0u32..);
        let same = threads.filter(|(thread, _)| thread.tid == tid && self.is_on(host, thread));
        let best = same
            .max_by_key(|(thread, index)| (std::cmp::Reverse(thread.host), self.of(*index).len()));
        best.map(|(_, index)| index)
    }

    /// Of a graph of several hosts: a thread's.
    pub fn host(&self, thread: &ThreadMeta) -> Option<&Host> {
        self.meta.hosts.get(thread.host as usize)
    }

    /// The programs that were recorded, on the host of this name, or the first: the one that was
    /// started, as processes beside it stand behind it, or all that were named.
    pub(crate) fn pids_on(&self, host: Option<&str>) -> &[u32] {
        let named = |name| self.meta.hosts.iter().find(|host| host.name == name);
        let (pids, command) = match host {
            Some(name) => named(name).map_or((&[][..], &[][..]), |h| (&h.pids[..], &h.command[..])),
            None => (&self.meta.pids[..], &self.meta.command[..]),
        };
        match command.is_empty() {
            true => pids,
            false => &pids[..pids.len().min(1)],
        }
    }

    /// When what is known of a thread ends, by its index.
    pub fn until(&self, thread: u32) -> u64 {
        let host = self.meta.threads.get(thread as usize);
        let host = host.and_then(|thread| self.host(thread));
        host.map_or(self.meta.last, |host| host.last)
    }

    /// The vertex of a thread at a time, or the last one before it.
    pub fn at(&self, thread: u32, ts: u64) -> Option<u32> {
        let list = self.of(thread);
        let after = list.partition_point(|&index| self.vertex(index).start <= ts);
        after.checked_sub(1).map(|place| list[place])
    }

    /// The waits of a thread, in order.
    pub fn waits(&self, thread: u32) -> impl Iterator<Item = Wait> + '_ {
        (0..self.of(thread).len()).filter_map(move |place| self.wait(thread, place))
    }

    /// The wait in which a vertex ends.
    pub fn wait_after(&self, vertex: u32) -> Option<Wait> {
        let thread = self.vertex(vertex).thread;
        let place = self.of(thread).partition_point(|&other| other < vertex);
        self.wait(thread, place)
    }

    /// That of the vertex at a place in the list of its thread.
    fn wait(&self, thread: u32, place: usize) -> Option<Wait> {
        let list = self.of(thread);
        let (vertex, next) = (list[place], list.get(place + 1).copied());
        let now = self.vertex(vertex);
        (now.blocks == 1).then(|| Wait {
            vertex,
            next,
            start: now.end,
            end: next.map_or(self.until(thread), |n| self.vertex(n).start),
        })
    }

    /// What a vertex waits on: `pipe:[12]`, a socket, a file; `None` when the call has no
    /// descriptor or it was not looked up.
    pub fn target(&self, vertex: u32) -> Option<&str> {
        let fd = self.vertex(vertex).call()?.descriptor()?;
        let thread = self.thread(vertex);
        let key = (thread.host, thread.pid, fd);
        let known = target_at(&self.meta.targets, key, self.vertex(vertex).end);
        known.map(|target| &target.text[..])
    }

    /// Names of the call sites of a stack, innermost first; empty where none was taken.
    pub fn stack(&self, number: u32) -> Vec<&str> {
        let sites = self.sites(number).iter();
        sites
            .filter_map(|&site| self.meta.sites.get(site as usize))
            .map(String::as_str)
            .collect()
    }

    /// Names of the call sites where a vertex blocked in the end, innermost first.
    pub(crate) fn stack_of(&self, vertex: u32) -> Vec<String> {
        let sites = self.stack(self.details(vertex).stack);
        sites.into_iter().map(str::to_owned).collect()
    }

    /// Numbers of the call sites of a stack, innermost first.
    pub(crate) fn sites(&self, stack: u32) -> &[u32] {
        let sites = self.meta.stacks.get(stack as usize);
        sites.map_or(&[], |sites| sites.as_slice())
    }

    /// Where the call sites of a stack are, innermost first.
    pub fn places(&self, number: u32) -> Vec<Option<Place>> {
        let places = self.sites(number).iter();
        let places = places.map(|&site| self.meta.places.get(site as usize));
        places.map(|place| place.cloned().flatten()).collect()
    }

    /// Numbers of the functions of a stack.
    pub(crate) fn functions(&self, stack: u32) -> impl Iterator<Item = u32> + '_ {
        let sites = self.sites(stack).iter();
        sites.filter_map(|&site| self.functions.of_site.get(site as usize).copied())
    }

    /// A function is rare if it is in few of the different stacks.
    pub(crate) fn is_rare(&self, function: u32) -> bool {
        let stacks = self.functions.stacks[function as usize];
        stacks * RARE <= self.meta.stacks.len().max(RARE * 2)
    }

    /// Numbers for `graph info`, as JSON.
    pub fn summary(&self) -> String {
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        for row in self.vertices.iter() {
            // If nothing else is known, the vertex before counts, see below.
            *kinds.entry(row.cause().name()).or_default() +=
                u64::from(row.cause() != EdgeKind::Weak);
        }
        for edge in self.others.iter().chain(&self.awaits) {
            *kinds.entry(edge.kind().name()).or_default() += 1;
        }
        for thread in 0..self.meta.threads.len() as u32 {
            let weak = self.of(thread).len().saturating_sub(1);
            *kinds.entry(EdgeKind::Weak.name()).or_default() += weak as u64;
        }
        kinds.retain(|_, count| *count > 0);
        let lost: u64 = self.meta.gaps.iter().map(|gap| gap.count).sum();
        serde_json::json!({
            "span": self.meta.last.saturating_sub(self.meta.first),
            "events": self.meta.events,
            "vertices": self.vertices.len(),
            "edges": kinds,
            "threads": self.meta.threads.len(),
            "stacks": self.meta.stacks.len().saturating_sub(1),
            "command": self.meta.command,
            "flag_events": self.meta.flags,
            "marks": self.meta.marks,
            "gaps": self.meta.gaps,
            "lost": lost,
            "hosts": self.meta.hosts,
        })
        .to_string()
    }
}
