// SPDX-License-Identifier: MIT
//! What took the time of a thread (its critical path): while it ran, the thread itself; while it
//! waited, what the thread that woke it did meanwhile, and so on. Contended locks and inverted
//! priorities are named.

use std::collections::BTreeMap;

use flagfinder_events::Call;
use serde::{Deserialize, Serialize};

use crate::edge::{Edge, EdgeKind};
use crate::graph::{Graph, Wait};
use crate::inversion::{futex_kind, inversion, Inversion};
use crate::polled::polled;
use crate::slice::strong_cause;
use crate::starved::share_of_run;

/// Most wakers of wakers that are followed.
const DEEPEST: usize = 32;
/// Whose critical path is asked for, as JSON has it.
#[derive(Clone, Debug, Deserialize)]
pub struct PathRequest {
    /// A thread id of the recording.
    pub thread: u32,
    /// The host of the thread, in a graph of several; null: the first that has it.
    #[serde(default)]
    pub host: Option<String>,
    /// CLOCK_MONOTONIC, ns; null: when the thread began.
    pub from: Option<u64>,
    /// CLOCK_MONOTONIC, ns; null: when the thread ended.
    pub to: Option<u64>,
    /// At most so many segments, and so many waits, the longest. Short segments that follow each
    /// other become one, of the thread that has most of it. Null: all.
    #[serde(default)]
    pub most: Option<usize>,
}

/// A piece of the path. Pieces follow each other without gaps.
#[derive(Clone, Debug, Serialize)]
pub struct Segment {
    pub vertex: u32,
    pub tid: u32,
    pub thread: String,
    pub start: u64,
    pub dur: u64,
    /// `runs`, or `waits` for something that no thread did.
    pub state: &'static str,
    /// ns on a CPU, in proportion where only a part of a vertex is on the path.
    pub run: u64,
    /// Of a wait: the call, and what ended it: `timer`, `interrupt`, `unknown`, `nothing`.
    pub call: Option<String>,
    pub ended_by: Option<&'static str>,
    /// How many waits deep.
    pub depth: usize,
}

/// A wait that another thread ended.
#[derive(Clone, Debug, Serialize)]
pub struct Blocked {
    pub tid: u32,
    pub thread: String,
    pub start: u64,
    pub dur: u64,
    pub call: Option<String>,
    pub target: Option<String>,
    pub edge: &'static str,
    pub by_tid: u32,
    pub by_thread: String,
    /// Call sites where it blocked, and where it was woken from.
    pub stack: Vec<String>,
    pub wake_stack: Vec<String>,
    /// `lock`, `condition`; null: no lock, or not known without stacks.
    pub kind: Option<&'static str>,
    pub inversion: Option<Inversion>,
    pub depth: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct Share {
    pub tid: u32,
    pub thread: String,
    /// ns of the path, and how much of it on a CPU.
    pub dur: u64,
    pub run: u64,
}

/// What `flagfinder critical-path --json` prints beside its schema.
#[derive(Clone, Debug, Serialize)]
pub struct CriticalPath {
    /// The thread id that was asked for.
    pub tid: u32,
    /// That thread's name; empty when it was not recorded.
    pub thread: String,
    /// CLOCK_MONOTONIC, ns.
    pub from: u64,
    /// CLOCK_MONOTONIC, ns.
    pub to: u64,
    /// In order of time; together as long as the stretch.
    pub segments: Vec<Segment>,
    /// Those on the path that another thread ended.
    pub waits: Vec<Blocked>,
    /// The largest first.
    pub threads: Vec<Share>,
    /// Events that the recording is missing, of all threads.
    pub lost: u64,
}

/// A segment before it is put into words: there may be one for each vertex.
#[derive(Clone, Copy)]
struct Piece {
    vertex: u32,
    depth: u32,
    start: u64,
    dur: u64,
    run: u64,
    /// Of a wait: what ended it.
    ended_by: Option<&'static str>,
}

/// A wait before it is put into words.
struct Block {
    wait: Wait,
    by: u32,
    edge: EdgeKind,
    wake_stack: u32,
    depth: u32,
}

struct Walk<'g> {
    graph: &'g Graph,
    segments: Vec<Piece>,
    waits: Vec<Block>,
    /// Threads whose waits are being explained.
    open: Vec<u32>,
}

fn owned(stack: Vec<&str>) -> Vec<String> {
    stack.into_iter().map(str::to_owned).collect()
}

impl Walk<'_> {
    /// Explains `from..to` of a thread. While it polled a flag that another thread then wrote, it
    /// waited for that thread.
    fn explain(&mut self, thread: u32, from: u64, to: u64) {
        self.open.push(thread);
        let mut since = from;
        for polled in polled(self.graph, thread, from, to) {
            let (wait, flag) = polled;
            let writer = self.graph.vertex(flag.from).thread;
            if wait.start < since || self.open.contains(&writer) || self.open.len() > DEEPEST {
                continue;
            }
            self.own(thread, since, wait.start);
            self.through(&wait, &flag, wait.start, wait.end);
            since = wait.end;
        }
        self.own(thread, since, to);
        self.open.pop();
    }

    /// The same without data flags.
    fn own(&mut self, thread: u32, from: u64, to: u64) {
        let graph = self.graph;
        let list = graph.of(thread);
        let first = list.partition_point(|&index| graph.vertex(index).end < from);
        let first = first.saturating_sub(1);
        for (&index, place) in list[first..].iter().zip(first..) {
            let vertex = graph.vertex(index);
            if vertex.start >= to {
                break;
            }
            self.ran(index, from, to);
            let next = list.get(place + 1).copied();
            let wait = Wait {
                vertex: index,
                next,
                start: vertex.end,
                end: next.map_or(graph.until(thread), |next| graph.vertex(next).start),
            };
            if wait.start < wait.end && wait.start < to && wait.end > from {
                self.waited(&wait, from.max(wait.start), to.min(wait.end));
            }
        }
    }

    fn segment(&mut self, vertex: u32, start: u64, end: u64) -> &mut Piece {
        self.segments.push(Piece {
            vertex,
            depth: self.open.len() as u32 - 1,
            start,
            dur: end - start,
            run: 0,
            ended_by: None,
        });
        let last = self.segments.len() - 1;
        &mut self.segments[last]
    }

    fn ran(&mut self, index: u32, from: u64, to: u64) {
        let vertex = self.graph.vertex(index);
        let (start, end) = (vertex.start.max(from), vertex.end.min(to));
        if start < end {
            self.segment(index, start, end).run = share_of_run(&vertex, from, to);
        }
    }

    /// `from..to` is the part of the wait that is on the path.
    fn waited(&mut self, wait: &Wait, from: u64, to: u64) {
        let graph = self.graph;
        let waker = wait.next.and_then(|next| strong_cause(graph, next));
        let new = waker.filter(|edge| {
            edge.kind() != EdgeKind::Flag
                && !self.open.contains(&graph.vertex(edge.from).thread)
                && self.open.len() <= DEEPEST
        });
        if let Some(edge) = new {
            self.through(wait, &edge, from, to);
            return;
        }
        let ended_by = wait.next.map_or("nothing", |next| {
            let edges = graph.into(next).map(|edge| edge.kind());
            let other = edges.filter(|kind| *kind != EdgeKind::Weak).max();
            other.map_or("nothing", EdgeKind::name)
        });
        self.idle(wait, from, to, ended_by);
    }

    /// What the thread from which an edge comes did in the part of a wait that is on the path.
    fn through(&mut self, wait: &Wait, edge: &Edge, from: u64, to: u64) {
        let thread = self.graph.vertex(edge.from).thread;
        self.blocked(wait, edge.kind(), edge.stack, thread);
        let before = self.segments.len();
        self.explain(thread, from, to);
        let covered = self.segments.get(before).map_or(to, |first| first.start);
        // Before the waker was there, the wait is the waiting thread's own.
        if covered > from {
            self.idle(wait, from, covered, "nothing");
            let own = self.segments.len() - 1;
            self.segments[before..=own].rotate_right(1);
        }
    }

    fn idle(&mut self, wait: &Wait, from: u64, to: u64, ended_by: &'static str) {
        self.segment(wait.vertex, from, to).ended_by = Some(ended_by);
    }

    fn blocked(&mut self, wait: &Wait, edge: EdgeKind, wake_stack: u32, by: u32) {
        self.waits.push(Block {
            wait: *wait,
            by,
            edge,
            wake_stack,
            depth: self.open.len() as u32 - 1,
        });
    }
}

fn tell_piece(graph: &Graph, piece: &Piece) -> Segment {
    let thread = graph.thread(piece.vertex);
    let call = graph.vertex(piece.vertex).call().map(Call::name);
    Segment {
        vertex: piece.vertex,
        tid: thread.tid,
        thread: thread.name.clone(),
        start: piece.start,
        dur: piece.dur,
        state: match piece.ended_by {
            Some(_) => "waits",
            None => "runs",
        },
        run: piece.run,
        call: call.filter(|_| piece.ended_by.is_some()),
        ended_by: piece.ended_by,
        depth: piece.depth as usize,
    }
}

fn tell_block(graph: &Graph, block: &Block) -> Blocked {
    let threads = &graph.meta.threads;
    let (wait, vertex) = (&block.wait, block.wait.vertex);
    let (thread, waker) = (graph.thread(vertex), &threads[block.by as usize]);
    Blocked {
        tid: thread.tid,
        thread: thread.name.clone(),
        start: wait.start,
        dur: wait.dur(),
        call: graph.vertex(vertex).call().map(Call::name),
        target: graph.target(vertex).map(str::to_owned),
        edge: block.edge.name(),
        by_tid: waker.tid,
        by_thread: waker.name.clone(),
        kind: futex_kind(graph, vertex, block.wake_stack),
        stack: owned(graph.stack(graph.details(vertex).stack)),
        wake_stack: owned(graph.stack(block.wake_stack)),
        inversion: inversion(graph, wait, block.by),
        depth: block.depth as usize,
    }
}

/// Keeps the longest ones, in their order.
fn longest(all: &mut Vec<Block>, most: usize) {
    if all.len() <= most {
        return;
    }
    let mut durs: Vec<u64> = all.iter().map(|block| block.wait.dur()).collect();
    let place = durs.len() - most;
    let shortest = *durs.select_nth_unstable(place).1;
    all.retain(|block| block.wait.dur() >= shortest);
    all.truncate(most);
}

/// At most so many, without gaps: a segment that is too short becomes part of the next one.
fn merged(all: Vec<Piece>, most: usize) -> Vec<Piece> {
    if all.len() <= most {
        return all;
    }
    let whole: u64 = all.iter().map(|segment| segment.dur).sum();
    let shortest = whole / (most as u64 / 2).max(1);
    let mut kept: Vec<Piece> = Vec::new();
    // Of the newest one: whether another may be added to it, and the longest part of it.
    let (mut open, mut longest) = (false, 0);
    for segment in all {
        let is_short = segment.dur < shortest;
        match kept.last_mut().filter(|_| open && is_short) {
            Some(last) => {
                let (start, dur) = (last.start, last.dur + segment.dur);
                let run = last.run + segment.run;
                if segment.dur > longest {
                    longest = segment.dur;
                    *last = segment;
                }
                (last.start, last.dur, last.run) = (start, dur, run);
                open = dur < shortest;
            }
            None => {
                (open, longest) = (is_short, segment.dur);
                kept.push(segment);
            }
        }
    }
    kept
}

fn shares(graph: &Graph, segments: &[Piece]) -> Vec<Share> {
    let mut by_thread: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for piece in segments {
        let thread = graph.vertex(piece.vertex).thread;
        let (dur, run) = by_thread.entry(thread).or_default();
        (*dur, *run) = (*dur + piece.dur, *run + piece.run);
    }
    let shares = by_thread.into_iter().map(|(thread, (dur, run))| {
        let meta = &graph.meta.threads[thread as usize];
        Share {
            tid: meta.tid,
            thread: meta.name.clone(),
            dur,
            run,
        }
    });
    let mut shares: Vec<Share> = shares.collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.dur));
    shares
}

/// The critical path of a thread. `None`: there is no such thread, or it did nothing. Linear in the
/// vertices on the path.
pub fn critical_path(graph: &Graph, request: &PathRequest) -> Option<CriticalPath> {
    let thread = graph.thread_on(request.host.as_deref(), request.thread)?;
    let vertices = graph.of(thread);
    let (first, last) = (graph.vertex(*vertices.first()?), vertices.last()?);
    let last = graph.vertex(*last);
    let end = if last.blocks == 1 {
        graph.until(thread)
    } else {
        last.end
    };
    let from = request.from.unwrap_or(first.start);
    let to = request.to.unwrap_or(end);
    let mut walk = Walk {
        graph,
        segments: Vec::new(),
        waits: Vec::new(),
        open: Vec::new(),
    };
    walk.explain(thread, from, to);
    let meta = &graph.meta.threads[thread as usize];
    let threads = shares(graph, &walk.segments);
    if let Some(most) = request.most {
        walk.segments = merged(walk.segments, most);
        longest(&mut walk.waits, most);
    }
    Some(CriticalPath {
        tid: meta.tid,
        thread: meta.name.clone(),
        from,
        to,
        threads,
        segments: walk.segments.iter().map(|p| tell_piece(graph, p)).collect(),
        waits: walk.waits.iter().map(|w| tell_block(graph, w)).collect(),
        lost: graph.meta.gaps.iter().map(|gap| gap.count).sum(),
    })
}
