//! The graph's types. Vertices of one thread follow each other; edges are sorted by the vertex they lead to.

use std::collections::{BTreeMap, BTreeSet};

use bytemuck::{Pod, Zeroable};
use flagfinder_events::{Call, Mark};
use serde::{Deserialize, Serialize};

use crate::parallel::both;

/// `Edge::from` where no thread is the cause: a device, or a timer that was armed before the recording.
pub const NOBODY: u32 = u32::MAX;
/// `Vertex::result` where the call's result was not recorded.
pub const NO_RESULT: i64 = i64::MIN;

/// Why a vertex began.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeKind {
    /// A thread woke it: a lock, a condition.
    Wake = 0,
    /// A thread sent something that it waited for.
    Ipc = 1,
    Timer = 2,
    Signal = 3,
    Fork = 4,
    /// A thread or process ended that it waited for.
    Exit = 5,
    /// A write to a data flag that a read here saw.
    Flag = 6,
    /// The same thread before its wait: may not be causal.
    Weak = 7,
    /// A device, or an interrupt that is not known better.
    Interrupt = 8,
    /// The context of the wake is unknown: the thread may only have been interrupted.
    Unknown = 9,
}

pub const KINDS: [EdgeKind; 10] = [
    EdgeKind::Wake,
    EdgeKind::Ipc,
    EdgeKind::Timer,
    EdgeKind::Signal,
    EdgeKind::Fork,
    EdgeKind::Exit,
    EdgeKind::Flag,
    EdgeKind::Weak,
    EdgeKind::Interrupt,
    EdgeKind::Unknown,
];

impl EdgeKind {
    pub fn name(self) -> &'static str {
        match self {
            EdgeKind::Wake => "wake",
            EdgeKind::Ipc => "ipc",
            EdgeKind::Timer => "timer",
            EdgeKind::Signal => "signal",
            EdgeKind::Fork => "fork",
            EdgeKind::Exit => "exit",
            EdgeKind::Flag => "flag",
            EdgeKind::Weak => "weak",
            EdgeKind::Interrupt => "interrupt",
            EdgeKind::Unknown => "unknown",
        }
    }

    /// Another thread surely caused it.
    pub fn is_strong(self) -> bool {
        use EdgeKind::*;
        matches!(self, Wake | Ipc | Signal | Fork | Exit | Flag)
    }
}

/// What a thread did from one wake to the next wait.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Vertex {
    /// CLOCK_MONOTONIC, ns: when it became runnable, and when it blocked.
    pub start: u64,
    pub end: u64,
    /// ns on a CPU.
    pub run: u64,
    /// The call that it blocks in at the end, packed as in events; 0: unknown, or it does not block.
    pub call: u64,
    /// What that call returned, or [`NO_RESULT`].
    pub result: i64,
    /// Over the numbers of its calls in order, when all were recorded, and the place it blocks at when stacks were.
    pub semantics: u64,
    /// Index into `Graph::threads`.
    pub thread: u32,
    pub yields: u32,
    /// Data flag events inside.
    pub flags: u32,
    /// 1: it ends by blocking; 0: by the recording's end, or the thread's.
    pub blocks: u32,
    /// Where it blocks, see [`Graph::stack`].
    pub stack: u32,
    /// The CPU that it ran on last.
    pub cpu: u32,
}

impl Vertex {
    pub fn call(&self) -> Option<Call> {
        Call::unpack(self.call)
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Edge {
    pub from: u32,
    pub to: u32,
    pub ts: u64,
    /// [`EdgeKind`] as a number.
    pub kind: u32,
    /// Where the waker was, see [`Graph::stack`].
    pub stack: u32,
}

impl Edge {
    pub fn kind(&self) -> EdgeKind {
        KINDS
            .get(self.kind as usize)
            .copied()
            .unwrap_or(EdgeKind::Unknown)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadMeta {
    pub tid: u32,
    pub pid: u32,
    pub name: String,
    pub kernel: bool,
    /// The kernel's, when it was last woken: below 100 real time, 120 ordinary, lower is more urgent; 0: never seen.
    #[serde(default)]
    pub priority: u8,
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
    /// (process, descriptor) to what it was.
    pub targets: Vec<(u32, i32, String)>,
    /// Call sites by name, and stacks of them by their numbers, innermost first. Stack 0 is empty.
    #[serde(default)]
    pub sites: Vec<String>,
    /// Where these are; `None`: in no file.
    #[serde(default)]
    pub places: Vec<Option<Place>>,
    #[serde(default)]
    pub stacks: Vec<Vec<u32>>,
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

/// A rare function is in one of so many stacks, or in two.
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

/// Where the edges into each of so many vertices begin, and the end; they are sorted.
fn beginnings(edges: &[Edge], vertices: usize) -> Vec<u32> {
    let mut beginnings = vec![0u32; vertices + 1];
    for edge in edges {
        beginnings[edge.to as usize + 1] += 1;
    }
    for index in 1..beginnings.len() {
        beginnings[index] += beginnings[index - 1];
    }
    beginnings
}

fn by_thread(vertices: &[Vertex], threads: usize) -> Vec<Vec<u32>> {
    let mut of_thread = vec![Vec::new(); threads];
    for (vertex, index) in vertices.iter().zip(0u32..) {
        of_thread[vertex.thread as usize].push(index);
    }
    of_thread
}

#[derive(Default)]
pub struct Graph {
    pub meta: Meta,
    pub vertices: Vec<Vertex>,
    pub edges: Vec<Edge>,
    /// Where each vertex's edges begin, and the end.
    incoming: Vec<u32>,
    /// Vertices of each thread, in order of time.
    of_thread: Vec<Vec<u32>>,
    functions: Functions,
}

impl Graph {
    /// Sorts the edges and indexes everything.
    pub fn new(meta: Meta, vertices: Vec<Vertex>, mut edges: Vec<Edge>) -> Graph {
        let (of_thread, incoming) = both(
            || by_thread(&vertices, meta.threads.len()),
            || {
                edges.sort_by_key(|edge| edge.to);
                beginnings(&edges, vertices.len())
            },
        );
        let functions = Functions::new(&meta);
        Graph {
            meta,
            vertices,
            edges,
            incoming,
            of_thread,
            functions,
        }
    }

    pub fn vertex(&self, index: u32) -> &Vertex {
        &self.vertices[index as usize]
    }

    /// Vertices and edges as bytes, in the layout of [`Vertex`] and [`Edge`].
    pub fn records(&self) -> (&[u8], &[u8]) {
        (
            bytemuck::cast_slice(&self.vertices),
            bytemuck::cast_slice(&self.edges),
        )
    }

    /// Edges that lead to a vertex.
    pub fn into(&self, vertex: u32) -> &[Edge] {
        let index = vertex as usize;
        &self.edges[self.incoming[index] as usize..self.incoming[index + 1] as usize]
    }

    /// Whether an edge is a message that was there already: it did not make its vertex begin.
    pub fn woke_nobody(&self, edge: &Edge) -> bool {
        edge.kind() == EdgeKind::Ipc && edge.ts > self.vertex(edge.to).start
    }

    /// Edges that lead to a vertex, with their numbers.
    pub fn numbered_into(&self, vertex: u32) -> impl Iterator<Item = (usize, &Edge)> {
        (self.incoming[vertex as usize] as usize..).zip(self.into(vertex))
    }

    /// Vertices of a thread, by its index, in order of time.
    pub fn of(&self, thread: u32) -> &[u32] {
        &self.of_thread[thread as usize]
    }

    pub fn thread(&self, vertex: u32) -> &ThreadMeta {
        &self.meta.threads[self.vertex(vertex).thread as usize]
    }

    /// Index of a thread id: the one with most vertices, should the id have been used again.
    pub fn thread_of(&self, tid: u32) -> Option<u32> {
        let threads = self.meta.threads.iter().zip(0u32..);
        let same = threads
            .filter(|(thread, _)| thread.tid == tid)
            .map(|(_, index)| index);
        same.max_by_key(|&index| self.of(index).len())
    }

    /// The vertex of a thread at a time, or the last one before it.
    pub fn at(&self, thread: u32, ts: u64) -> Option<u32> {
        let list = self.of(thread);
        let after = list.partition_point(|&index| self.vertex(index).start <= ts);
        after.checked_sub(1).map(|place| list[place])
    }

    /// The waits of a thread, in order.
    pub fn waits(&self, thread: u32) -> impl Iterator<Item = Wait> + '_ {
        let list = self.of(thread);
        list.iter().enumerate().filter_map(move |(place, &vertex)| {
            let now = self.vertex(vertex);
            let next = list.get(place + 1).copied();
            (now.blocks == 1).then(|| Wait {
                vertex,
                next,
                start: now.end,
                end: next.map_or(self.meta.last, |n| self.vertex(n).start),
            })
        })
    }

    /// What a vertex waits on: `pipe:[12]`, a socket, a file; `None` when the call has no descriptor or it was not looked up.
    pub fn target(&self, vertex: u32) -> Option<&str> {
        let fd = self.vertex(vertex).call()?.descriptor()?;
        let pid = self.thread(vertex).pid;
        let known = self.meta.targets.iter().rev();
        known
            .filter(|(p, f, _)| (*p, *f) == (pid, fd))
            .map(|t| t.2.as_str())
            .next()
    }

    /// Names of the call sites of a stack, innermost first; empty where none was taken.
    pub fn stack(&self, number: u32) -> Vec<&str> {
        let sites = self.meta.stacks.get(number as usize);
        let names = sites.into_iter().flatten();
        names
            .filter_map(|&site| self.meta.sites.get(site as usize))
            .map(String::as_str)
            .collect()
    }

    /// Where the call sites of a stack are, innermost first.
    pub fn places(&self, number: u32) -> Vec<Option<Place>> {
        let sites = self.meta.stacks.get(number as usize).into_iter().flatten();
        let places = sites.map(|&site| self.meta.places.get(site as usize));
        places.map(|place| place.cloned().flatten()).collect()
    }

    /// Numbers of the functions of a stack.
    pub(crate) fn functions(&self, stack: u32) -> impl Iterator<Item = u32> + '_ {
        let sites = self.meta.stacks.get(stack as usize).into_iter().flatten();
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
        for edge in &self.edges {
            *kinds.entry(edge.kind().name()).or_default() += 1;
        }
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
        })
        .to_string()
    }
}
