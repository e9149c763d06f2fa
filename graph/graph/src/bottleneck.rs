// SPDX-License-Identifier: MIT
//! The bottleneck of the whole (wPerf, Zhou et al., OSDI 2018): what workers wait for in the end.
//!
//! In: a graph, whose time counts, a stretch of time. Out: for each thing the waits for it, and how
//! much of the workers' time goes by meanwhile: more can't be gained if it were gone. Knots:
//! threads that wait among themselves only.
//!
//! At each moment a thread runs, or it waits for another one or for something that no thread does.
//! That is a forest, which is kept from event to event with the number of workers below each
//! thread: the cost is linear in the vertices and in how deep threads wait, for however many
//! workers. Blind spots: who has a lock is told by who ends the next wait for it; how much would be
//! gained is told "at most", as what is gone may uncover something else as slow.

use std::collections::BTreeSet;

use flagfinder_events::Call;
use flagfinder_linux::futex;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::activity::sleeps;
use crate::baseline::ender;
use crate::edge::EdgeKind;
use crate::graph::{Graph, Wait};
use crate::hangs::threads;
use crate::knots::knots;
use crate::left::object as file;
use crate::request::Request;
use crate::vertex::Vertex;

/// Edges of less than this part (1 / n) of the time make no knot.
const THIN: u64 = 100;
/// Most names that stand for a row.
const NAMED: usize = 4;

/// Whose bottleneck is asked for, as JSON has it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct BottleneckRequest {
    /// Ids of the threads whose time counts; null: the main threads, as of `diagnose`.
    pub tids: Option<Vec<u32>>,
    /// CLOCK_MONOTONIC, ns; null: all of the recording.
    pub from: Option<u64>,
    /// See `from`.
    pub to: Option<u64>,
}

/// What a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Thing {
    /// Threads that compute.
    Thread,
    /// Threads that could run and had no CPU.
    Cpu,
    /// A call that something ended which is no thread, or that was not recorded.
    Call,
    /// A call that the time ended.
    Timer,
    /// A futex or a file at which the same threads wait and end waits: a lock, a barrier.
    Shared,
    /// Several threads, or processes, of one name for which others wait, whatever they do.
    Pool,
    /// Threads of which it was not recorded what they did.
    Unrecorded,
}

/// What calls are on, if that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Object {
    /// Address of a futex.
    pub word: Option<u64>,
    /// Name of a file.
    pub target: Option<String>,
}

/// What workers wait for.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it is.
    pub kind: Thing,
    /// Threads of the thing: who computes, has no CPU, waits, or serves.
    pub names: Vec<String>,
    /// How many these are.
    pub threads: usize,
    /// The call that was waited in.
    pub call: Option<String>,
    /// What is shared, or what the call is on.
    pub on: Object,
    /// What these threads had meanwhile and others waited for.
    pub held: Option<Object>,
    /// Waits for it, of all threads.
    pub waits: u64,
    /// How long these took together, ns.
    pub waited: u64,
    /// ns of the workers' time that go by meanwhile.
    pub gain: u64,
}

/// What `flagfinder graph bottleneck --json` prints beside its schema.
#[derive(Clone, Debug, Serialize)]
pub struct Bottleneck {
    /// CLOCK_MONOTONIC, ns.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// Names of the workers.
    pub workers: Vec<String>,
    /// Their time together, ns.
    pub whole: u64,
    /// Where most would be gained comes first.
    pub rows: Vec<Row>,
    /// Threads that wait among themselves only, by name.
    pub knots: Vec<Vec<String>>,
    /// Events that the recording is missing.
    pub lost: u64,
}

/// What time is counted for: threads by their group, files by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key<'g> {
    Of(Thing, u32),
    Call(Thing, u16, &'g str, u32),
    Futex(u32, u32, u64),
    File(u32, &'g str),
}

/// With the row of something shared that a thread has and others wait for.
type Held<'g> = (Key<'g>, Option<u32>);

#[derive(Clone, Copy)]
enum Time<'g> {
    /// It waits for its parent, or is not there.
    Nothing,
    Runs(Vertex),
    Of(Key<'g>),
}

/// A thread, or something that threads share.
struct Node<'g> {
    parent: Option<u32>,
    /// Below it and with it: workers, and all threads.
    workers: u64,
    all: u64,
    since: u64,
    time: Time<'g>,
    /// Nodes of what is shared whose parent it is.
    has: BTreeSet<u32>,
    /// The row of whom it waits for, if that is a pool.
    pool: Option<u32>,
}

/// Waits for something shared: when each ended and by whom, in order of time; the next of them.
#[derive(Default)]
struct Shared {
    ends: Vec<(u64, u32)>,
    next: usize,
}

/// What a row is made of.
struct Sum<'g> {
    key: Key<'g>,
    held: Option<u32>,
    waits: u64,
    waited: u64,
    gain: u64,
    /// Who waited.
    who: BTreeSet<u32>,
}

struct Sweep<'g> {
    graph: &'g Graph,
    from: u64,
    to: u64,
    nodes: Vec<Node<'g>>,
    shared: Vec<Shared>,
    /// Groups of threads, by thread, and how many each has.
    groups: Vec<u32>,
    sizes: Vec<usize>,
    keys: FxHashMap<Held<'g>, u32>,
    /// By the number in `keys`.
    rows: Vec<Sum<'g>>,
    /// ns that threads waited from node to node, in person or through others.
    edges: FxHashMap<(u32, u32), u64>,
}

/// Threads that seem to do the same: of one process, with names that differ in their last digits.
/// The first of a process is none of them: it may be one of several that one process started.
fn groups(graph: &Graph) -> (Vec<u32>, Vec<usize>) {
    let mut known: FxHashMap<(u32, u32, bool, bool, &str), u32> = FxHashMap::default();
    let mut sizes: Vec<usize> = Vec::new();
    let groups = graph.meta.threads.iter().map(|one| {
        let is_first = one.pid == one.tid;
        let is_child = is_first && one.parent != 0;
        let of = if is_child { one.parent } else { one.pid };
        let key = (one.host, of, is_first, is_child, stem(&one.name));
        let next = known.len() as u32;
        let group = *known.entry(key).or_insert(next);
        sizes.resize(known.len(), 0);
        sizes[group as usize] += 1;
        group
    });
    let groups = groups.collect();
    (groups, sizes)
}

fn stem(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// What a key is of.
fn at(key: &Key) -> Object {
    match *key {
        Key::Futex(_, _, address) => Object {
            word: Some(address),
            target: None,
        },
        Key::File(_, name) => Object {
            word: None,
            target: Some(name.to_owned()),
        },
        Key::Of(..) | Key::Call(..) => Object::default(),
    }
}

/// At what a thread waits, if several can wait there: a futex, a file.
fn object<'g>(graph: &'g Graph, wait: &Wait) -> Option<Key<'g>> {
    let call = graph.vertex(wait.vertex).call()?;
    let thread = graph.thread(wait.vertex);
    if futex::is_futex(call.number.into()) {
        return Some(Key::Futex(thread.host, thread.pid, call.first));
    }
    let file = graph.target(wait.vertex).and_then(file)?;
    Some(Key::File(thread.host, file))
}

/// The thread for which a wait was: it ended the wait, or was seen to have what it was for.
fn awaited(graph: &Graph, wait: &Wait) -> Option<(u32, EdgeKind)> {
    let end = ender(graph, wait).filter(|edge| edge.kind() != EdgeKind::Flag);
    let seen = |kind| {
        let mut all = graph.awaited(wait.vertex, kind);
        all.next().filter(|_| all.next().is_none()).copied()
    };
    let is_open = wait.next.is_none();
    let seen = || is_open.then(|| seen(EdgeKind::Holds).or_else(|| seen(EdgeKind::Peer)));
    let edge = end.or_else(|| seen().flatten())?;
    let by = graph.thread(edge.from);
    // A kernel thread that was not followed stands for a device.
    let is_known = by.followed || !by.kernel;
    is_known.then(|| (graph.vertex(edge.from).thread, edge.kind()))
}

/// What the same threads wait at and end waits at, with those ends.
fn shared<'g>(graph: &'g Graph) -> Vec<(Key<'g>, Shared)> {
    let mut all: FxHashMap<Key<'g>, (Shared, FxHashSet<u32>)> = FxHashMap::default();
    for thread in 0..graph.meta.threads.len() as u32 {
        for wait in graph.waits(thread) {
            if let Some(key) = object(graph, &wait) {
                let (shared, waiters) = all.entry(key).or_default();
                waiters.insert(thread);
                let by = awaited(graph, &wait).map(|(by, _)| (wait.end, by));
                shared.ends.extend(by);
            }
        }
    }
    let are_same = |(shared, waiters): &(Shared, FxHashSet<u32>)| {
        shared.ends.iter().any(|(_, by)| waiters.contains(by))
    };
    let found = all.into_iter().filter(|(_, one)| are_same(one));
    let mut found: Vec<_> = found.map(|(key, (shared, _))| (key, shared)).collect();
    for (_, shared) in &mut found {
        shared.ends.sort_unstable();
    }
    found.sort_by_key(|(_, shared)| shared.ends[0]);
    found
}

impl<'g> Sweep<'g> {
    fn row(&mut self, key: Key<'g>, held: Option<u32>) -> u32 {
        let next = self.keys.len() as u32;
        let row = *self.keys.entry((key, held)).or_insert(next);
        if row == next {
            self.rows.push(Sum {
                key,
                held,
                waits: 0,
                waited: 0,
                gain: 0,
                who: BTreeSet::new(),
            });
        }
        row
    }

    fn gains(&mut self, row: u32, ns: u64) {
        self.rows[row as usize].gain += ns;
    }

    /// Counts the time since a node last changed.
    fn settle(&mut self, node: u32, now: u64) {
        let one = &mut self.nodes[node as usize];
        let start = one.since.max(self.from);
        let span = now.min(self.to).saturating_sub(start);
        one.since = now;
        if span == 0 {
            return;
        }
        let (worth, parent, time, pool) = (span * one.workers, one.parent, one.time, one.pool);
        if let Some(parent) = parent {
            *self.edges.entry((node, parent)).or_default() += span * one.all;
        }
        if let Some(pool) = pool {
            self.gains(pool, worth);
        }
        if worth == 0 {
            return;
        }
        let mut has = self.nodes[node as usize].has.iter();
        let held = has.find(|&&one| self.nodes[one as usize].all > 0);
        let held = held.and_then(|&one| match self.nodes[one as usize].time {
            Time::Of(key) => self.keys.get(&(key, None)).copied(),
            _ => None,
        });
        match time {
            Time::Nothing => {}
            Time::Of(key) => {
                let row = self.row(key, held);
                self.gains(row, worth);
            }
            Time::Runs(vertex) => {
                let whole = (vertex.end - vertex.start).max(1);
                let ran = u128::from(worth) * u128::from(vertex.run.min(whole)) / u128::from(whole);
                let group = self.groups[node as usize];
                let runs = self.row(Key::Of(Thing::Thread, group), held);
                let cpu = self.row(Key::Of(Thing::Cpu, 0), None);
                self.gains(runs, ran as u64);
                self.gains(cpu, worth - ran as u64);
            }
        }
    }

    /// The nodes from one up to the root.
    fn up(&self, from: Option<u32>) -> Vec<u32> {
        std::iter::successors(from, |&one| self.nodes[one as usize].parent).collect()
    }

    /// From now on a node waits for another one, or its time is something else. Returns false where
    /// that one waits for the node itself.
    fn change(&mut self, node: u32, parent: Option<u32>, time: Time<'g>, now: u64) -> bool {
        let old = self.up(self.nodes[node as usize].parent);
        let new = self.up(parent);
        for &one in [node].iter().chain(&old).chain(&new) {
            self.settle(one, now);
        }
        let is_linked = !new.contains(&node);
        let (workers, all) = {
            let one = &mut self.nodes[node as usize];
            one.parent = parent.filter(|_| is_linked);
            (one.time, one.pool) = (time, None);
            (one.workers, one.all)
        };
        for &one in &old {
            self.nodes[one as usize].workers -= workers;
            self.nodes[one as usize].all -= all;
        }
        for &one in new.iter().filter(|_| is_linked) {
            self.nodes[one as usize].workers += workers;
            self.nodes[one as usize].all += all;
        }
        if node as usize >= self.groups.len() {
            if let Some(&before) = old.first() {
                self.nodes[before as usize].has.remove(&node);
            }
            if let Some(&now) = new.first().filter(|_| is_linked) {
                self.nodes[now as usize].has.insert(node);
            }
        }
        is_linked
    }

    /// A thread begins to wait, at what is shared (a node) or not.
    fn waits(&mut self, wait: &Wait, at: Option<(u32, Key<'g>)>) {
        let thread = self.graph.vertex(wait.vertex).thread;
        let by = awaited(self.graph, wait).filter(|_| at.is_none());
        let group = |by: u32| Key::Of(Thing::Thread, self.groups[by as usize]);
        let (parent, key) = match (at, by) {
            (Some((at, key)), _) => (Some(at), key),
            (None, Some((by, _))) => (Some(by), group(by)),
            (None, None) => (None, self.unowed(wait)),
        };
        let row = self.row(key, None);
        let is_linked = self.change(thread, parent, Time::Nothing, wait.start);
        if parent.is_none() || !is_linked {
            self.nodes[thread as usize].time = Time::Of(key);
        }
        // The end of a thread is no service that more threads would do sooner.
        let pool = by.filter(|(_, kind)| !matches!(kind, EdgeKind::Exit | EdgeKind::Fork));
        let pool = pool.map(|(by, _)| self.groups[by as usize]);
        let own = self.groups[thread as usize];
        let pool = pool.filter(|&one| one != own && self.sizes[one as usize] > 1);
        let pool = pool.map(|group| self.row(Key::Of(Thing::Pool, group), None));
        self.nodes[thread as usize].pool = pool;
        let span = wait
            .end
            .min(self.to)
            .saturating_sub(wait.start.max(self.from));
        for row in [Some(row), pool].into_iter().flatten() {
            self.count(row, span, thread);
        }
    }

    /// A wait of a thread for a row.
    fn count(&mut self, row: u32, span: u64, thread: u32) {
        if span > 0 {
            let row = &mut self.rows[row as usize];
            (row.waits, row.waited) = (row.waits + 1, row.waited + span);
            row.who.insert(thread);
        }
    }

    /// What a wait was for that no thread ended.
    fn unowed(&self, wait: &Wait) -> Key<'g> {
        let graph = self.graph;
        let next = wait.next.map(|next| graph.vertex(next).cause());
        let is_timed = sleeps(graph, wait) || next == Some(EdgeKind::Timer);
        let kind = if is_timed { Thing::Timer } else { Thing::Call };
        let number = graph
            .vertex(wait.vertex)
            .call()
            .map_or(0, |call| call.number + 1);
        let target = graph.target(wait.vertex).filter(|_| !is_timed);
        let group = self.groups[graph.vertex(wait.vertex).thread as usize];
        let group = if target.is_none() { group } else { u32::MAX };
        Key::Call(kind, number, target.unwrap_or(""), group)
    }

    /// Goes through all changes in order of time. `shared`: nodes by key.
    fn sweep(&mut self, shared: &FxHashMap<Key<'g>, u32>) {
        let graph = self.graph;
        let cpu = self.row(Key::Of(Thing::Cpu, 0), None);
        let followed =
            (0..self.groups.len() as u32).filter(|&t| graph.meta.threads[t as usize].followed);
        let all = followed.flat_map(|thread| graph.of(thread));
        let changes = all.flat_map(|&vertex| {
            let row = graph.vertex(vertex);
            [(row.start, true, vertex), (row.end, false, vertex)]
        });
        let mut changes: Vec<(u64, bool, u32)> = changes.collect();
        // Stable: of one thread they are in order.
        changes.sort_by_key(|&(ts, ..)| ts);
        for (now, begins, vertex) in changes {
            let row = graph.vertex(vertex);
            if begins {
                let at = self.nodes[row.thread as usize].parent;
                self.change(row.thread, None, Time::Runs(row), now);
                let is_inside = self.from <= row.start && row.end <= self.to;
                let ready = (row.end - row.start).saturating_sub(row.run);
                self.count(cpu, if is_inside { ready } else { 0 }, row.thread);
                if let Some(at) = at.filter(|&at| at as usize >= self.groups.len()) {
                    self.handed_on(at, now);
                }
            } else if let Some(wait) = graph.wait_after(vertex) {
                let at = object(graph, &wait).and_then(|key| Some((*shared.get(&key)?, key)));
                self.waits(&wait, at);
            } else {
                self.change(row.thread, None, Time::Nothing, now);
            }
        }
        for node in 0..self.nodes.len() as u32 {
            self.settle(node, self.to);
        }
    }

    /// From now on who ends the next wait there has what is shared.
    fn handed_on(&mut self, at: u32, now: u64) {
        let one = &mut self.shared[at as usize - self.groups.len()];
        while one.ends.get(one.next).is_some_and(|&(end, _)| end <= now) {
            one.next += 1;
        }
        let holder = one.ends.get(one.next).map(|&(_, by)| by);
        let time = self.nodes[at as usize].time;
        self.change(at, holder, time, now);
    }

    /// A row in words. What is done while others wait for something held is waited for by these.
    fn told(&self, sum: &Sum<'g>) -> Row {
        let base = self.keys.get(&(sum.key, None));
        let base = base.map_or(sum, |&base| &self.rows[base as usize]);
        let held = sum.held.map(|held| &self.rows[held as usize]);
        let counted = held.unwrap_or(base);
        let mut who = base.who.clone();
        let mut call = None;
        let mut on = at(&sum.key);
        let kind = match sum.key {
            Key::Of(Thing::Cpu, _) => Thing::Cpu,
            Key::Of(kind, group) => {
                let threads = (0..).zip(&self.groups);
                who = threads
                    .filter(|(_, &one)| one == group)
                    .map(|(thread, _)| thread)
                    .collect();
                kind
            }
            Key::Call(kind, number, target, _) => {
                call = number.checked_sub(1).map(Call::name_of);
                on.target = Some(target.to_owned()).filter(|target| !target.is_empty());
                kind
            }
            Key::Futex(..) | Key::File(..) => Thing::Shared,
        };
        Row {
            kind,
            names: self.names(who.iter().copied()),
            threads: who.len(),
            call,
            on,
            held: held.map(|held| at(&held.key)),
            waits: counted.waits,
            waited: counted.waited,
            gain: sum.gain,
        }
    }

    /// Names of threads, each once.
    fn names(&self, threads: impl Iterator<Item = u32>) -> Vec<String> {
        let names = threads.filter_map(|one| self.graph.meta.threads.get(one as usize));
        let names: BTreeSet<&str> = names.map(|one| &one.name[..]).collect();
        names.into_iter().take(NAMED).map(str::to_owned).collect()
    }
}

/// What the workers wait for in the end. `None`: no such thread did anything then.
pub fn bottleneck(graph: &Graph, request: &BottleneckRequest) -> Option<Bottleneck> {
    let (from, to) = (
        request.from.unwrap_or(graph.meta.first),
        request.to.unwrap_or(graph.meta.last),
    );
    let workers: Vec<u32> = match &request.tids {
        Some(tids) => tids
            .iter()
            .filter_map(|&tid| graph.thread_of(tid))
            .collect(),
        None => threads(graph, &Request::default(), None),
    };
    let life = |&thread: &u32| {
        let list = graph.of(thread);
        let (first, last) = (graph.vertex(*list.first()?), graph.vertex(*list.last()?));
        let end = if last.blocks == 1 {
            graph.until(thread)
        } else {
            last.end
        };
        Some(end.min(to).saturating_sub(first.start.max(from)))
    };
    let whole: u64 = workers.iter().filter_map(life).sum();
    if whole == 0 {
        return None;
    }
    let (groups, sizes) = groups(graph);
    let node = |time| Node {
        has: BTreeSet::new(),
        parent: None,
        workers: 0,
        all: 0,
        since: 0,
        time,
        pool: None,
    };
    let mut sweep = Sweep {
        graph,
        from,
        to,
        nodes: groups.iter().map(|_| node(Time::Nothing)).collect(),
        shared: Vec::new(),
        groups,
        sizes,
        keys: FxHashMap::default(),
        rows: Vec::new(),
        edges: FxHashMap::default(),
    };
    for thread in 0..sweep.groups.len() {
        sweep.nodes[thread].all = 1;
        if !graph.meta.threads[thread].followed {
            let key = Key::Of(Thing::Unrecorded, sweep.groups[thread]);
            sweep.nodes[thread].time = Time::Of(key);
        }
    }
    for &worker in &workers {
        sweep.nodes[worker as usize].workers = 1;
    }
    let mut places = FxHashMap::default();
    for (key, shared) in shared(graph) {
        let at = sweep.nodes.len() as u32;
        sweep.row(key, None);
        sweep.nodes.push(node(Time::Of(key)));
        sweep.shared.push(shared);
        sweep.handed_on(at, 0);
        places.insert(key, at);
    }
    sweep.sweep(&places);
    let thick = sweep
        .edges
        .iter()
        .filter(|(_, &ns)| ns > (to - from) / THIN);
    let knots = knots(thick.map(|(&edge, _)| edge)).into_iter();
    let knots = knots.map(|knot| sweep.names(knot.into_iter())).collect();
    let rows = sweep.rows.iter().filter(|sum| sum.gain > 0);
    let mut rows: Vec<Row> = rows.map(|sum| sweep.told(sum)).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.gain), row.kind));
    Some(Bottleneck {
        from,
        to,
        workers: sweep.names(workers.into_iter()),
        whole,
        rows,
        knots,
        lost: graph.meta.gaps.iter().map(|gap| gap.count).sum(),
    })
}
