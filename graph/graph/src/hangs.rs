// SPDX-License-Identifier: MIT
//! Which stretch of which thread is the hang: what is unusual comes first, then what is long.
//!
//! In: a graph, what the user said (a thread, a time). Out: stretches with the reason why they are
//! unusual. A wait is unusual beside much shorter ones in the same place, a run beside much shorter
//! runs. A paced loop, a sleep, and a wait of an event loop that something outside of the recording
//! ends are usual, for however long they take.

use flagfinder_linux::traits;
use serde::Serialize;

use crate::activity::{describe, rounds, sleeps, stretches, Activity, Class};
use crate::baseline::{ender, shorter};
use crate::diagnosis::Request;
use crate::graph::Graph;

/// Shorter stretches are no hangs.
const SHORTEST: u64 = 1_000_000;
/// What is unusual counts as if it took so many times as long, what is usual a part of it.
const UNUSUAL: u64 = 16;
const PLAIN: u64 = 4;
/// A run is unusual if fewer than so many others took more than a quarter of its time.
const SUCH_RUNS: usize = 3;
/// A polling loop that works for more than this part (1 / n) of its time is paced.
const WORKS: u64 = 10;
/// Interrupted so often for a moment, and going on: a loop that is the thread's way to live.
const PACED_ROUNDS: usize = 10;
/// Most of one thread that are looked at, the longest: each is compared with all others.
const RATED: usize = 200;
/// Most that are told.
pub(crate) const MOST: usize = 20;

/// Why a stretch may be the hang, or is not likely to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// There are much shorter waits in the same place, or hardly any runs as long.
    Longer,
    /// It polls, which it does not always do.
    Polls,
    /// There is nothing to compare it with.
    Alone,
    /// It looks at a clock, or frames follow each other.
    Paced,
    /// It sleeps for a time that it asked for.
    Sleeps,
    /// It waits for events, and what came was from outside of the recorded processes.
    Idle,
    /// There are others as long.
    Common,
}

impl Why {
    fn is_unusual(self) -> bool {
        matches!(self, Why::Longer | Why::Polls)
    }
}

/// A stretch that may be the hang.
#[derive(Clone, Debug, Serialize)]
pub struct Hang {
    pub tid: u32,
    pub thread: String,
    pub class: Class,
    /// CLOCK_MONOTONIC, ns.
    pub start: u64,
    pub dur: u64,
    pub doing: String,
    pub why: Why,
    pub unusual: bool,
    /// How many shorter ones there are beside it, and how long the one in the middle took, ns.
    pub beside: usize,
    pub typical: Option<u64>,
}

/// A stretch and what makes it one.
pub(crate) struct Rated {
    pub activity: Activity,
    why: Why,
    score: u64,
    /// Lengths of what it is compared with, sorted.
    beside: Vec<u64>,
}

impl Rated {
    pub fn is_unusual(&self) -> bool {
        self.why.is_unusual()
    }

    pub fn tell(&self, graph: &Graph) -> Hang {
        let thread = graph.thread(self.activity.vertex);
        Hang {
            tid: thread.tid,
            thread: thread.name.clone(),
            class: self.activity.class,
            start: self.activity.start,
            dur: self.activity.dur(),
            doing: describe(graph, &self.activity),
            why: self.why,
            unusual: self.why.is_unusual(),
            beside: self.beside.len(),
            typical: self.beside.get(self.beside.len() / 2).copied(),
        }
    }
}

/// Whether an event loop's wait was ended by something outside of the processes that are recorded.
fn is_idle(graph: &Graph, activity: &Activity) -> bool {
    let call = graph.vertex(activity.vertex).call();
    let Some((wait, call)) = activity.wait.zip(call) else {
        return false;
    };
    let from = ender(graph, &wait)
        .map(|edge| &graph.meta.threads[graph.vertex(edge.from).thread as usize]);
    let is_outside = wait.next.is_some() && from.is_none_or(|thread| !thread.followed);
    traits::looks(call.number.into()) && is_outside
}

fn rated(graph: &Graph, all: &[Activity], activity: &Activity) -> Rated {
    let mut beside: Vec<u64> = Vec::new();
    let dur = activity.dur();
    let mut score = dur;
    let why = match (activity.class, activity.wait) {
        (_, Some(wait)) if sleeps(graph, &wait) => Why::Sleeps,
        (_, Some(wait)) => {
            beside = shorter(graph, &wait).map(|wait| wait.dur()).collect();
            match (beside.is_empty(), is_idle(graph, activity)) {
                (false, false) => Why::Longer,
                (_, true) => Why::Idle,
                (true, false) => Why::Alone,
            }
        }
        (Class::RepeatedYield, None) => match rounds(graph, activity) {
            Some(rounds) if rounds.run > dur / WORKS || recurs(graph, all, activity) => {
                score = rounds.longest;
                Why::Paced
            }
            _ => Why::Polls,
        },
        _ => {
            let others = all
                .iter()
                .filter(|other| other.wait.is_none() && other.class != Class::RepeatedYield);
            let others = others.filter(|other| other.start != activity.start);
            let (long, short): (Vec<u64>, Vec<u64>) =
                others.map(Activity::dur).partition(|other| other * 4 > dur);
            beside = short;
            if long.len() < SUCH_RUNS {
                Why::Longer
            } else {
                Why::Common
            }
        }
    };
    beside.sort_unstable();
    let times = match why {
        Why::Longer | Why::Polls => UNUSUAL,
        Why::Alone => PLAIN,
        Why::Paced | Why::Sleeps | Why::Idle | Why::Common => 1,
    };
    Rated {
        activity: *activity,
        why,
        score: score.saturating_mul(times),
        beside,
    }
}

/// Whether a polling loop goes on in the same call after something came in between.
fn recurs(graph: &Graph, all: &[Activity], activity: &Activity) -> bool {
    let own = rounds(graph, activity).filter(|own| own.count >= PACED_ROUNDS);
    let others = all
        .iter()
        .filter(|other| other.class == Class::RepeatedYield && other.start != activity.start);
    let mut others = others.filter_map(|other| rounds(graph, other));
    own.is_some_and(|own| others.any(|other| other.call == own.call && other.count >= PACED_ROUNDS))
}

/// The threads whose hang may be meant: the one that is asked for, the one that the recorder marked,
/// that of the program that was started, else the first of each process. If none was named, all.
fn threads(graph: &Graph, request: &Request) -> Vec<u32> {
    let meta = &graph.meta;
    let marked = meta.marks.last().filter(|_| request.at.is_none());
    if let Some(tid) = request.thread.or(marked.and_then(|mark| mark.tid)) {
        return graph.thread_of(tid).into_iter().collect();
    }
    // Processes beside the program stand behind it.
    let pids = match meta.command.is_empty() {
        true => &meta.pids[..],
        false => &meta.pids[..meta.pids.len().min(1)],
    };
    let mains: Vec<u32> = pids
        .iter()
        .filter_map(|&pid| graph.thread_of(pid))
        .collect();
    if !mains.is_empty() {
        return mains;
    }
    let all = 0..meta.threads.len() as u32;
    all.filter(|&thread| !meta.threads[thread as usize].kernel)
        .collect()
}

/// The stretches that may be meant, the likeliest first.
pub(crate) fn candidates(graph: &Graph, request: &Request) -> Vec<Rated> {
    let at = request.at.or(graph.meta.marks.last().map(|mark| mark.ts));
    let mut found = Vec::new();
    for thread in threads(graph, request) {
        let all: Vec<Activity> = stretches(graph, thread)
            .filter(|activity| activity.dur() >= SHORTEST)
            .collect();
        let meant = all
            .iter()
            .filter(|a| at.is_none_or(|at| a.start <= at && at <= a.end));
        let mut longest: Vec<&Activity> = meant.collect();
        longest.sort_by_key(|activity| std::cmp::Reverse(activity.dur()));
        longest.truncate(RATED);
        found.extend(
            longest
                .into_iter()
                .map(|activity| rated(graph, &all, activity)),
        );
    }
    found.sort_by_key(|one| std::cmp::Reverse(one.score));
    found
}
