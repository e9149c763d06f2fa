// SPDX-License-Identifier: MIT
//! What a thread did in a stretch of time in which it did many short things: its waits and calls,
//! counted.

use std::collections::BTreeMap;

use flagfinder_events::Call;
use flagfinder_linux::traits;
use serde::Serialize;

use crate::edge::NOBODY;
use crate::graph::Graph;
use crate::starved::share_of_run;
use crate::targets::target_at;
use crate::vertex::Vertex;

/// Most kinds of work that are told.
const MOST: usize = 4;

/// Waits or calls of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    pub call: String,
    /// The descriptor that the call is about, if that is known.
    pub target: Option<String>,
    pub count: u64,
    /// ns in the call.
    pub dur: u64,
    /// Whether these are waits; else calls that ran.
    pub blocked: bool,
}

/// How a thread divided a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// ns on a CPU, and ns in which it could run and had none.
    pub run: u64,
    pub ready: u64,
    /// Calls that did not block were not recorded.
    pub only_waits: bool,
    /// The longest first.
    pub counted: Vec<Counted>,
    /// ns in calls that wait for any of several things, as event loops do, and in waits that this
    /// or that other thread ended. (Those that one thread ended are answers that it asked for.)
    #[serde(skip)]
    pub waited: u64,
}

/// The other thread that made a vertex begin.
fn by_another(graph: &Graph, vertex: &Vertex) -> Option<u32> {
    let from = Some(vertex.from).filter(|&from| from != NOBODY && vertex.cause().is_strong());
    let thread = from.map(|from| graph.vertex(from).thread);
    thread.filter(|&thread| thread != vertex.thread)
}

/// What a thread did from `from` to `to`. Work that began before or ended later counts in
/// proportion.
pub fn work(graph: &Graph, thread: u32, from: u64, to: u64) -> Work {
    let mut work = Work {
        only_waits: graph.meta.syscalls != "target",
        ..Work::default()
    };
    let mut counted: BTreeMap<(String, Option<String>, bool), (u64, u64)> = BTreeMap::new();
    let mut by_others: BTreeMap<u32, u64> = BTreeMap::new();
    let list = graph.of(thread);
    let first = list.partition_point(|&index| graph.vertex(index).end < from);
    let inside = |start: u64, end: u64| end.min(to).saturating_sub(start.max(from));
    for (place, &index) in list.iter().enumerate().skip(first) {
        let vertex = graph.vertex(index);
        if vertex.start >= to {
            break;
        }
        let run = share_of_run(&vertex, from, to);
        work.run += run;
        work.ready += inside(vertex.start, vertex.end).saturating_sub(run);
        if vertex.blocks == 1 && vertex.end < to {
            let next = list.get(place + 1).map(|&next| graph.vertex(next));
            let waited = inside(
                vertex.end,
                next.map_or(graph.until(thread), |next| next.start),
            );
            let number = vertex.call().map(|call| call.number);
            let looks = number.is_some_and(|number| traits::looks(number.into()));
            let by = next.and_then(|next| by_another(graph, &next));
            match by.filter(|_| !looks) {
                Some(by) => *by_others.entry(by).or_default() += waited,
                None => work.waited += if looks { waited } else { 0 },
            }
            let name = number.map_or_else(|| "blocked in the kernel".into(), Call::name_of);
            let target = graph.target(index).map(str::to_owned);
            let (count, dur) = counted.entry((name, target, true)).or_default();
            (*count, *dur) = (*count + 1, *dur + waited);
        }
    }
    let (all, most) = (by_others.values().sum::<u64>(), by_others.values().max());
    if most.is_some_and(|most| most * 2 <= all) {
        work.waited += all;
    }
    let who = &graph.meta.threads[thread as usize];
    for done in graph.meta.done.within(thread, from, to) {
        let target = done
            .fd
            .and_then(|fd| target_at(&graph.meta.targets, (who.host, who.pid, fd), done.start));
        let target = target.map(|target| target.text.clone());
        let (count, dur) = counted
            .entry((Call::name_of(done.number), target, false))
            .or_default();
        (*count, *dur) = (*count + u64::from(done.count), *dur + done.total);
    }
    let all = counted.into_iter();
    let all = all.map(|((call, target, blocked), (count, dur))| Counted {
        call,
        target,
        count,
        dur,
        blocked,
    });
    work.counted = all.collect();
    work.counted.sort_by_key(|one| std::cmp::Reverse(one.dur));
    work.counted.truncate(MOST);
    work
}

/// `busy, most of it in read on pipe:[7], 2500 times`.
pub fn name(work: &Work) -> String {
    let most = work.counted.first().filter(|one| one.dur >= work.run);
    let Some(most) = most else {
        return "busy with short things, mostly on a CPU".into();
    };
    let on = most.target.as_ref();
    let on = on.map_or(String::new(), |target| format!(" on {target}"));
    format!(
        "busy, most of it in {}{on}, {} times",
        most.call, most.count
    )
}
