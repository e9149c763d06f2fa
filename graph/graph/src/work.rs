// SPDX-License-Identifier: MIT
//! What a thread did in a stretch of time in which it did many short things: its waits and calls,
//! counted.

use std::collections::BTreeMap;

use flagfinder_events::Call;
use flagfinder_linux::traits;
use serde::Serialize;

use crate::graph::Graph;
use crate::starved::share_of_run;

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
    /// The longest first.
    pub counted: Vec<Counted>,
    /// ns in calls that wait for any of several things, as event loops do.
    #[serde(skip)]
    pub looking: u64,
}

/// What a thread did from `from` to `to`. Work that began before or ended later counts in
/// proportion.
pub fn work(graph: &Graph, thread: u32, from: u64, to: u64) -> Work {
    let mut work = Work::default();
    let mut counted: BTreeMap<(String, Option<String>, bool), (u64, u64)> = BTreeMap::new();
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
        for call in graph.ran(index).map_or(&[][..], |ran| &ran.calls) {
            let (count, dur) = counted.entry((call.call.clone(), None, false)).or_default();
            (*count, *dur) = (*count + call.count, *dur + call.total);
        }
        if vertex.blocks == 1 && vertex.end < to {
            let next = list.get(place + 1).map(|&next| graph.vertex(next).start);
            let waited = inside(vertex.end, next.unwrap_or(graph.meta.last));
            let number = vertex.call().map(|call| call.number);
            if number.is_some_and(|number| traits::looks(number.into())) {
                work.looking += waited;
            }
            let name = number.map_or_else(|| "blocked in the kernel".into(), Call::name_of);
            let target = graph.target(index).map(str::to_owned);
            let (count, dur) = counted.entry((name, target, true)).or_default();
            (*count, *dur) = (*count + 1, *dur + waited);
        }
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

/// `2,500 waits in read on pipe:[7]`: what it spent most of its time in.
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
