// SPDX-License-Identifier: MIT
//! What a page draws of some threads: slices and arrows, no more than a screen can show.
//!
//! In: threads and a stretch of time. Out: JSON whose size does not grow with the graph. Where a
//! thread did more than there is room for, what is too short to be seen becomes one slice with what
//! lies beside it. Of the arrows those stay that ended the longest waits.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::edge::{EdgeKind, KINDS, NOBODY};
use crate::graph::Graph;

/// About so many slices are drawn of one thread.
const MOST_SLICES: usize = 2000;
const MOST_ARROWS: usize = 2000;
/// A thread was starved if it could run for so long, and had a CPU for less than half of that.
const LONG: u64 = 1_000_000;

/// Slices of a page are lists of numbers: kind, start (from `from` on), ns, ns on a CPU, name,
/// stack.
type Slice = (u8, i64, u64, u64, usize, usize);
/// From a row to a row, when, kind, stack.
type Arrow = (usize, usize, i64, usize, usize);

const RUNS: u8 = 0;
const WAITS: u8 = 1;
/// It could run, mostly without a CPU.
const STARVED: u8 = 2;
/// Several runs and waits; the name is their number.
const MANY: u8 = 3;
/// Its switches were not recorded.
const UNKNOWN: u8 = 4;

/// What a page is to show, as JSON has it.
#[derive(Clone, Debug, Deserialize)]
pub struct TimelineRequest {
    /// Thread ids of the recording, a row each.
    pub threads: Vec<u32>,
    /// CLOCK_MONOTONIC, ns.
    pub from: u64,
    /// CLOCK_MONOTONIC, ns.
    pub to: u64,
}

#[derive(Debug, Serialize)]
pub struct Row {
    pub tid: u32,
    pub thread: String,
    pub slices: Vec<Slice>,
}

/// What a page shows; slices and arrows refer to names, stacks and kinds by their places.
#[derive(Debug, Serialize)]
pub struct Timeline {
    pub rows: Vec<Row>,
    pub arrows: Vec<Arrow>,
    /// How many further arrows there are.
    pub left_out: usize,
    pub kinds: Vec<&'static str>,
    pub names: Vec<String>,
    /// Call sites by their places in `sites`, innermost first.
    pub stacks: Vec<Vec<u32>>,
    pub sites: Vec<String>,
}

/// Numbers for texts that are written once.
struct Numbers<K> {
    known: FxHashMap<K, usize>,
    list: Vec<K>,
}

impl<K: Clone + Eq + std::hash::Hash> Numbers<K> {
    fn new() -> Numbers<K> {
        Numbers {
            known: FxHashMap::default(),
            list: Vec::new(),
        }
    }

    fn of(&mut self, one: K) -> usize {
        let next = self.list.len();
        let list = &mut self.list;
        *self.known.entry(one).or_insert_with_key(|one| {
            list.push(one.clone());
            next
        })
    }
}

struct Drawing<'g> {
    graph: &'g Graph,
    from: u64,
    to: u64,
    names: Numbers<String>,
    stacks: Numbers<u32>,
}

impl Drawing<'_> {
    fn offset(&self, ts: u64) -> i64 {
        ts.wrapping_sub(self.from) as i64
    }

    /// Vertices of a thread that are in the window, or end in a wait that is.
    fn vertices(&self, thread: u32) -> &[u32] {
        let list = self.graph.of(thread);
        let after = |ts| list.partition_point(|&index| self.graph.vertex(index).start < ts);
        &list[after(self.from).saturating_sub(1)..after(self.to)]
    }

    /// The slices of a thread, each handed over as it comes.
    fn pieces(&mut self, thread: u32, mut each: impl FnMut(Slice)) {
        let graph = self.graph;
        let list = graph.of(thread);
        if !graph.meta.threads[thread as usize].followed {
            let doing = graph.meta.threads[thread as usize].doing.clone();
            let name = self.names.of(doing);
            each((UNKNOWN, 0, self.to - self.from, 0, name, 0));
            return;
        }
        let Some(&first) = self.vertices(thread).first() else {
            return;
        };
        let begin = list.partition_point(|&index| index < first);
        for (&index, place) in list[begin..].iter().zip(begin..) {
            let row = graph.vertex(index);
            if row.start >= self.to {
                break;
            }
            let stack = self.stacks.of(graph.details(index).stack);
            let dur = row.end - row.start;
            let starved = dur >= LONG && row.run < dur / 2;
            let (kind, name) = if starved {
                (STARVED, "ready, mostly without a CPU")
            } else {
                (RUNS, "runs")
            };
            let name = self.names.of(name.to_owned());
            if row.end >= self.from {
                each((kind, self.offset(row.start), dur, row.run, name, stack));
            }
            let next = list.get(place + 1).map(|&next| graph.vertex(next).start);
            let until = next.unwrap_or(graph.until(thread));
            if row.blocks == 1 && until > row.end && until >= self.from {
                let call = row.call().map_or("blocked".into(), |call| call.name());
                let name = match graph.target(index) {
                    Some(target) => format!("{call} {target}"),
                    None => call,
                };
                let name = self.names.of(name);
                each((WAITS, self.offset(row.end), until - row.end, 0, name, stack));
            }
        }
    }

    fn slices(&mut self, thread: u32) -> Vec<Slice> {
        // Each vertex is a slice, or two.
        let shortest = match self.vertices(thread).len() * 2 {
            count if count <= MOST_SLICES => 0,
            _ => (self.to - self.from) / (MOST_SLICES as u64 / 2),
        };
        let mut kept: Vec<Slice> = Vec::new();
        self.pieces(thread, |piece| {
            let is_short = |slice: &Slice| slice.2 < shortest;
            match kept.last_mut().filter(|last| {
                is_short(&piece) && (last.0 == MANY || is_short(last)) && is_short(last)
            }) {
                Some(last) => {
                    let count = if last.0 == MANY { last.4 } else { 1 };
                    let end = piece.1 + piece.2 as i64;
                    *last = (
                        MANY,
                        last.1,
                        (end - last.1) as u64,
                        last.3 + piece.3,
                        count + 1,
                        0,
                    );
                }
                None => kept.push(piece),
            }
        });
        kept
    }

    fn arrows(&mut self, threads: &[u32]) -> (Vec<Arrow>, usize) {
        let graph = self.graph;
        let rows: FxHashMap<u32, usize> = threads.iter().copied().zip(0..).collect();
        // With the length of the wait that it ended.
        let mut found: Vec<(Reverse<u64>, Arrow)> = Vec::new();
        for (&thread, to) in threads.iter().zip(0..) {
            let mut before = None;
            for &index in self.vertices(thread) {
                let row = graph.vertex(index);
                let waited = before.map_or(0, |end| row.start.saturating_sub(end));
                before = Some(row.end);
                let others = graph.others_into(index).iter().copied();
                for edge in graph.cause(index).into_iter().chain(others) {
                    let is_shown = edge.from != NOBODY && (self.from..=self.to).contains(&edge.ts);
                    let from = is_shown.then(|| graph.vertex(edge.from).thread);
                    let from = from.and_then(|thread| rows.get(&thread).copied());
                    if let Some(from) = from.filter(|from| *from != to) {
                        let kind = edge.kind as usize;
                        let arrow = (from, to, self.offset(edge.ts), kind, edge.stack as usize);
                        found.push((Reverse(waited), arrow));
                    }
                }
            }
        }
        let left_out = found.len().saturating_sub(MOST_ARROWS);
        if left_out > 0 {
            found.select_nth_unstable(MOST_ARROWS);
            found.truncate(MOST_ARROWS);
        }
        let mut arrows: Vec<Arrow> = found.into_iter().map(|(_, arrow)| arrow).collect();
        arrows.sort_by_key(|arrow| arrow.2);
        for arrow in &mut arrows {
            arrow.4 = self.stacks.of(arrow.4 as u32);
        }
        (arrows, left_out)
    }
}

/// See the module. Threads that are not there have no row.
pub fn timeline(graph: &Graph, request: &TimelineRequest) -> Timeline {
    let tids = request.threads.iter();
    let threads: Vec<u32> = tids.filter_map(|&tid| graph.thread_of(tid)).collect();
    let mut drawing = Drawing {
        graph,
        from: request.from,
        to: request.to.max(request.from),
        names: Numbers::new(),
        stacks: Numbers::new(),
    };
    drawing.stacks.of(0); // what has no stack means the first
    let rows = threads.iter().map(|&thread| {
        let meta = &graph.meta.threads[thread as usize];
        Row {
            tid: meta.tid,
            thread: meta.name.clone(),
            slices: drawing.slices(thread),
        }
    });
    let rows = rows.collect();
    let (arrows, left_out) = drawing.arrows(&threads);
    let mut sites: Numbers<u32> = Numbers::new();
    let stacks = drawing.stacks.list.iter().map(|&stack| {
        let all = graph.sites(stack).iter();
        all.map(|&site| sites.of(site) as u32).collect()
    });
    let stacks = stacks.collect();
    let named = |&site: &u32| graph.meta.sites.get(site as usize).cloned();
    Timeline {
        rows,
        arrows,
        left_out,
        kinds: KINDS.into_iter().map(EdgeKind::name).collect(),
        names: drawing.names.list,
        stacks,
        sites: sites.list.iter().filter_map(named).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Meta, ThreadMeta};
    use crate::vertex::Vertex;
    use crate::vertices::Vertices;

    /// Two threads wake each other so many times, 1 us apart; thread 1 then sleeps to the end.
    fn graph(rounds: u64) -> Graph {
        let mut vertices = Vertices::default();
        for turn in 0..rounds {
            let start = turn * 1000;
            vertices.push(Vertex {
                start,
                end: start + 400,
                run: 400,
                thread: (turn % 2) as u32,
                from: (turn as u32).wrapping_sub(1),
                cause: EdgeKind::Wake as u8,
                blocks: 1,
                ..Vertex::default()
            });
        }
        let thread = |tid| ThreadMeta {
            tid,
            followed: true,
            ..ThreadMeta::default()
        };
        let meta = Meta {
            last: rounds * 1000 + 9_000_000,
            threads: vec![thread(7), thread(8)],
            ..Meta::default()
        };
        Graph::new(meta, vertices, Vec::new())
    }

    fn of(graph: &Graph, from: u64, to: u64) -> Timeline {
        let threads = vec![7, 8, 9];
        timeline(graph, &TimelineRequest { threads, from, to })
    }

    #[test]
    fn all_is_drawn_where_there_is_room() {
        let all = of(&graph(10), 0, 20_000);
        assert_eq!(all.rows.len(), 2);
        assert_eq!(all.rows[0].slices.len(), 10, "a run and a wait each");
        assert_eq!(all.rows[0].slices[1].1, 400);
        assert_eq!((all.arrows.len(), all.left_out), (9, 0));
        assert_eq!(all.arrows[0], (0, 1, 1000, 0, 0));
    }

    #[test]
    fn a_wait_that_spans_the_window_is_drawn() {
        let graph = graph(10);
        let all = of(&graph, 1_000_000, 2_000_000);
        for row in &all.rows {
            let [slice] = row.slices[..] else {
                panic!("{:?}", row.slices)
            };
            assert_eq!(slice.0, WAITS);
            assert!(slice.1 < 0 && slice.1 + slice.2 as i64 >= 1_000_000);
        }
    }

    #[test]
    fn a_million_vertices_are_no_larger_than_a_screen_shows() {
        let graph = graph(1_000_000);
        let all = of(&graph, 0, graph.meta.last);
        for row in &all.rows {
            assert!(row.slices.len() <= MOST_SLICES, "{}", row.slices.len());
            let ends = row.slices.windows(2);
            let mut gaps = ends.map(|pair| pair[1].1 - (pair[0].1 + pair[0].2 as i64));
            assert!(gaps.all(|gap| gap == 0), "nothing is left out in between");
            let run: u64 = row.slices.iter().map(|slice| slice.3).sum();
            assert_eq!(run, 400 * 500_000);
            assert_eq!(
                row.slices[row.slices.len() - 1].0,
                WAITS,
                "what is long stays"
            );
        }
        assert_eq!(all.arrows.len(), MOST_ARROWS);
        assert_eq!(all.left_out, 999_999 - MOST_ARROWS);
        assert!(serde_json::to_string(&all).unwrap().len() < 500_000);
    }

    #[test]
    fn a_starved_thread_differs_from_one_that_ran() {
        let mut graph = graph(2);
        graph.vertices.change(1, |row| row.end += 5_000_000);
        let all = of(&graph, 0, graph.meta.last);
        assert_eq!(all.rows[0].slices[0].0, RUNS);
        assert_eq!(all.rows[1].slices[0].0, STARVED);
    }
}
