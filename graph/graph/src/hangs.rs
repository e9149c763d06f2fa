// SPDX-License-Identifier: MIT
//! Which stretch of which thread is the hang: what is unusual comes first, then what is long.
//!
//! In: a graph, what the user said (a thread, a time). Out: stretches with the reason why they are
//! unusual. A wait is unusual beside much shorter ones in the same place, a run beside much shorter
//! runs. A paced loop, a sleep, the start of a program, and a wait of an event loop that something
//! outside of the recording ends are usual, for however long they take. If nobody said which hang
//! is meant, nobody is blamed for frames, for the start, and for what others took as long.

use flagfinder_events::Mark;
use flagfinder_linux::futex;
use serde::Serialize;

use crate::activity::{
    describe, is_poll, rounds, sleeps, stretches, waits_for_events, Activity, Class, Rounds,
};
use crate::baseline::{ender, same_place, shorter};
use crate::edge::{EdgeKind, NOBODY};
use crate::graph::{Graph, Wait};
use crate::request::Request;

/// Shorter stretches are no hangs.
const SHORTEST: u64 = 1_000_000;
/// What is unusual counts as if it took so many times as long, what is usual a part of it.
const UNUSUAL: u64 = 16;
const PLAIN: u64 = 4;
/// A run is unusual if fewer than so many others took more than a quarter of its time.
const SUCH_RUNS: usize = 3;
/// A thread may have no CPU at times: of that time a part (1 / n) counts, on a busy machine none.
const READY: u64 = 4;
/// A thread that waits for another's end for most (1 - 1 / n) of its life only starts the program,
/// and one that polls for so long does nothing else.
const LAUNCHES: u64 = 10;
/// A wait is common if more than so many in the same place took more than a quarter of its time,
/// and these are more than a part (1 / n) of the much shorter ones.
const SUCH_WAITS: usize = 3;
const RARE: usize = 8;
/// A polling loop that works for more than this part (1 / n) of its time is paced.
const WORKS: u64 = 10;
/// So many rounds, and as many at other times, are a loop that is the thread's way to live.
const PACED_ROUNDS: usize = 10;
/// Rounds of one loop take about as long: at most so many times as long as those of another.
const ONE_PACE: u64 = 2;
/// Long waits in the same place are a bad time of the thread, and not its way to live, if they fill
/// a part (1 / n) of the time from the first to the last, and before that it waited so many times
/// as often for other things.
const FILLED: u64 = 2;
const BEFORE: usize = 3;
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
    /// One of several such waits in a short time; before and after there are none.
    Cluster,
    /// It polls, which it does not always do.
    Polls,
    /// There is nothing to compare it with.
    Alone,
    /// It polls, and since it started it did hardly anything else.
    Always,
    /// It looks at a clock, or frames follow each other.
    Paced,
    /// It sleeps for a time that it asked for.
    Sleeps,
    /// It waits for events, and what came was from outside of the recorded processes.
    Idle,
    /// The program starts: it has not yet waited for a thread or for the time.
    Starts,
    /// There are others as long.
    Common,
}

impl Why {
    fn is_unusual(self) -> bool {
        matches!(self, Why::Longer | Why::Cluster | Why::Polls)
    }
}

/// A stretch that may be the hang.
#[derive(Clone, Debug, Serialize)]
pub struct Hang {
    /// The thread that did it.
    pub tid: u32,
    /// Its name.
    pub thread: String,
    /// What it did.
    pub class: Class,
    /// CLOCK_MONOTONIC, ns.
    pub start: u64,
    /// ns.
    pub dur: u64,
    /// In words, as of a culprit.
    pub doing: String,
    /// Why it may be the hang, or is not likely to be.
    pub why: Why,
    /// Whether `why` makes it unusual.
    pub unusual: bool,
    /// How many shorter ones there are beside it.
    pub beside: usize,
    /// How long the one in the middle of these took, ns.
    pub typical: Option<u64>,
}

/// A stretch and what makes it one.
pub(crate) struct Rated {
    pub activity: Activity,
    why: Why,
    pub score: u64,
    /// Lengths of what it is compared with, sorted.
    beside: Vec<u64>,
}

impl Rated {
    pub fn is_unusual(&self) -> bool {
        self.why.is_unusual()
    }

    /// Whether the thread is never seen to do anything else.
    pub fn is_all(&self) -> bool {
        self.why == Why::Always
    }

    /// Whether the thread does that all the time: nobody is to blame for it.
    pub fn is_usual(&self) -> bool {
        matches!(self.why, Why::Paced | Why::Starts | Why::Common)
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
    let Some(wait) = activity.wait.filter(|_| waits_for_events(graph, activity)) else {
        return false;
    };
    let from = ender(graph, &wait)
        .map(|edge| &graph.meta.threads[graph.vertex(edge.from).thread as usize]);
    wait.next.is_some() && from.is_none_or(|thread| !thread.followed)
}

/// Whether a thread or the time ended a wait, and no device.
fn is_asked(graph: &Graph, wait: &Wait) -> bool {
    let by_timer = |next| graph.vertex(next).cause() == EdgeKind::Timer;
    ender(graph, wait).is_some() || wait.next.is_some_and(by_timer)
}

/// Whether long waits, in order, are a bad time of their thread.
fn is_cluster(graph: &Graph, long: &[Wait]) -> bool {
    let (Some(first), Some(last)) = (long.first(), long.last()) else {
        return false;
    };
    let filled: u64 = long.iter().map(Wait::dur).sum();
    let before = graph
        .waits(graph.vertex(first.vertex).thread)
        .take_while(|wait| wait.end <= first.start)
        .filter(|wait| is_asked(graph, wait));
    filled * FILLED >= last.end - first.start && before.count() >= long.len() * BEFORE
}

/// When the first thread of a process that started within the recording had started its program:
/// when it first waited for a thread or for the time. `None` if the rest of its life was shorter.
fn started(graph: &Graph, thread: u32) -> Option<u64> {
    let meta = &graph.meta.threads[thread as usize];
    let list = graph.of(thread);
    let (first, last) = (*list.first()?, *list.last()?);
    let was_run = !graph.meta.command.is_empty() && graph.meta.pids.first() == Some(&meta.tid);
    let is_seen = was_run || graph.vertex(first).cause() == EdgeKind::Fork;
    let begun = graph.vertex(first).start;
    let mut waits = graph.waits(thread);
    let end = waits
        .find(|wait| wait.next.is_none() || is_asked(graph, wait))?
        .start;
    let rest = graph.vertex(last).end.saturating_sub(end);
    (is_seen && meta.tid == meta.pid && rest >= end - begun).then_some(end)
}

/// How long threads could run and had no CPU, each time, the longest first.
struct Delays(Vec<u64>);

fn delay(graph: &Graph, vertex: u32) -> u64 {
    let vertex = graph.vertex(vertex);
    (vertex.end - vertex.start).saturating_sub(vertex.run)
}

impl Delays {
    fn new(graph: &Graph) -> Delays {
        let is_followed = |vertex: &u32| graph.thread(*vertex).followed;
        let all = (0..graph.vertices.len() as u32).filter(is_followed);
        let mut all: Vec<u64> = all.map(|vertex| delay(graph, vertex)).collect();
        all.retain(|&delay| delay >= SHORTEST / 4);
        all.sort_unstable_by_key(|&delay| std::cmp::Reverse(delay));
        Delays(all)
    }

    /// How much of a run's time counts: where threads often have no CPU for as long, that is the
    /// machine's business, and counts nothing.
    fn counted(&self, graph: &Graph, run: &Activity) -> u64 {
        let delay = delay(graph, run.vertex).min(run.dur());
        let as_long = self.0.partition_point(|&other| other * 4 > delay);
        let ran = run.dur() - delay;
        match as_long > SUCH_RUNS {
            true => ran,
            false => ran + delay / READY,
        }
    }
}

fn rated(
    graph: &Graph,
    all: &[Activity],
    activity: &Activity,
    started: Option<u64>,
    delays: &Delays,
) -> Rated {
    let mut beside: Vec<u64> = Vec::new();
    let dur = activity.dur();
    let mut score = dur;
    let why = match (activity.class, activity.wait) {
        (_, Some(wait)) => {
            let is_sleep = sleeps(graph, &wait);
            if !is_sleep {
                beside = shorter(graph, &wait).map(|wait| wait.dur()).collect();
            }
            let is_such = |other: &Wait| {
                let is_there = same_place(graph, other.vertex, wait.vertex);
                other.dur() * 4 > dur && (is_there || is_sleep && sleeps(graph, other))
            };
            let as_long = all.iter().filter_map(|other| other.wait).filter(is_such);
            let mut as_long: Vec<Wait> = as_long.collect();
            if is_idle(graph, activity) {
                Why::Idle
            } else if as_long.len() > SUCH_WAITS && as_long.len() * RARE > beside.len() {
                as_long.sort_by_key(|wait| wait.start);
                match !is_sleep && is_cluster(graph, &as_long) {
                    true => Why::Cluster,
                    false => Why::Common,
                }
            } else if is_sleep {
                Why::Sleeps
            } else if beside.is_empty() {
                Why::Alone
            } else {
                Why::Longer
            }
        }
        (Class::RepeatedYield, None) => match rounds(graph, activity) {
            Some(rounds) if works(&rounds, dur) || recurs(graph, activity, &rounds) => {
                score = rounds.longest;
                Why::Paced
            }
            // Who polls only looks.
            rounds => {
                let worked = rounds.as_ref().map_or(0, |rounds| rounds.run * WORKS);
                score = dur.saturating_sub(worked);
                match rounds.is_some() && fills(graph, activity, started) {
                    true => Why::Always,
                    false => Why::Polls,
                }
            }
        },
        _ if started.is_some_and(|started| activity.end <= started) => Why::Starts,
        _ => {
            let others = all
                .iter()
                .filter(|other| other.wait.is_none() && other.class != Class::RepeatedYield);
            let others = others.filter(|other| other.start != activity.start);
            score = delays.counted(graph, activity);
            let others = others.map(|other| delays.counted(graph, other));
            let (long, short): (Vec<u64>, Vec<u64>) = others.partition(|other| other * 4 > score);
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
        Why::Longer | Why::Cluster => UNUSUAL,
        // Nothing was seen to take less time.
        Why::Polls | Why::Alone | Why::Always => PLAIN,
        Why::Paced | Why::Sleeps | Why::Idle | Why::Starts | Why::Common => 1,
    };
    Rated {
        activity: *activity,
        why,
        score: score.saturating_mul(times),
        beside,
    }
}

/// Whether the rounds of a polling loop do more than to look.
fn works(rounds: &Rounds, dur: u64) -> bool {
    rounds.run > dur / WORKS || rounds.woke * 2 > rounds.count
}

/// Whether a stretch is most of a thread's life since it started.
fn fills(graph: &Graph, activity: &Activity, started: Option<u64>) -> bool {
    let thread = graph.vertex(activity.vertex).thread;
    let list = graph.of(thread);
    let born = list.first().map_or(0, |&first| graph.vertex(first).start);
    let since = started.unwrap_or(born).min(activity.start);
    let last = list.last().map_or(0, |&last| graph.vertex(last).end);
    let life = last.max(activity.end) - since;
    life - activity.dur() <= life / LAUNCHES
}

/// Whether a thread waits as long in the same call at other times, and about as often, whatever it
/// does in between: that is its pace.
fn recurs(graph: &Graph, activity: &Activity, own: &Rounds) -> bool {
    let waits = graph.waits(graph.vertex(activity.vertex).thread);
    let others = waits.filter(|wait| {
        let (shorter, longer) = (wait.dur().min(own.typical), wait.dur().max(own.typical));
        let call = graph.vertex(wait.vertex).call();
        (wait.end <= activity.start || wait.start >= activity.end)
            && call.is_some_and(|call| call.number == own.call)
            && longer <= shorter.saturating_mul(ONE_PACE)
            && is_poll(graph, wait)
    });
    let others = others.count();
    own.count >= PACED_ROUNDS && others >= PACED_ROUNDS && others * ONE_PACE as usize >= own.count
}

/// The thread that a first thread started the program in, as that of a Java machine does: it waited
/// for that one's end nearly all the time. Where the wait did not end, it is the only thread that
/// it started.
fn stands_for(graph: &Graph, thread: u32) -> Option<u32> {
    let longest = graph.waits(thread).max_by_key(Wait::dur)?;
    let all = graph.of(thread);
    let (first, last) = (graph.vertex(all[0]), graph.vertex(*all.last()?));
    let rest = (last.end.max(longest.end) - first.start).saturating_sub(longest.dur());
    if rest > longest.dur() / LAUNCHES {
        return None;
    }
    let pid = |thread: u32| graph.meta.threads[thread as usize].pid;
    if let Some(end) = ender(graph, &longest) {
        let other = graph.vertex(end.from).thread;
        let is_end = end.kind() == EdgeKind::Exit && other != thread;
        return (is_end && pid(other) == pid(thread)).then_some(other);
    }
    let call = graph.vertex(longest.vertex).call()?;
    let is_started = |&other: &u32| {
        let begun = graph
            .of(other)
            .first()
            .and_then(|&index| graph.cause(index));
        let by = begun.filter(|edge| edge.kind() == EdgeKind::Fork && edge.from != NOBODY);
        pid(other) == pid(thread) && by.is_some_and(|by| graph.vertex(by.from).thread == thread)
    };
    let mut started = (0..graph.meta.threads.len() as u32).filter(is_started);
    let only = started.next().filter(|_| started.next().is_none());
    only.filter(|_| futex::is_futex(call.number.into()))
}

/// The threads whose hang may be meant: the one that is asked for, that the recorder marked, or
/// that of the program that was started, else the first of each process. If none was named, all.
pub(crate) fn threads(graph: &Graph, request: &Request, marked: Option<&Mark>) -> Vec<u32> {
    let meta = &graph.meta;
    let mut host = request.host.as_deref();
    if request.thread.is_none() {
        host = host.or(marked.and_then(|mark| mark.host.as_deref()));
    }
    if let Some(tid) = request.thread.or(marked.and_then(|mark| mark.tid)) {
        return graph.thread_on(host, tid).into_iter().collect();
    }
    let mains: Vec<u32> = graph
        .pids_on(host)
        .iter()
        .filter_map(|&pid| graph.thread_on(host, pid))
        .map(|main| stands_for(graph, main).unwrap_or(main))
        .collect();
    if !mains.is_empty() {
        return mains;
    }
    let all = meta.threads.iter().zip(0..);
    all.filter(|(thread, _)| !thread.kernel && graph.is_on(host, thread))
        .map(|(_, index)| index)
        .collect()
}

/// The stretches that may be meant, the likeliest first.
pub(crate) fn candidates(graph: &Graph, request: &Request) -> Vec<Rated> {
    let mut marks = graph.meta.marks.iter().rev();
    let is_meant = |mark: &&Mark| request.host.is_none() || mark.host == request.host;
    let marked = marks.find(is_meant).filter(|_| request.at.is_none());
    let threads = threads(graph, request, marked);
    let at = request.at.or(marked.map(|mark| mark.ts));
    let mut found = Vec::new();
    let delays = Delays::new(graph);
    for thread in threads {
        let all: Vec<Activity> = stretches(graph, thread)
            .filter(|activity| activity.dur() >= SHORTEST)
            .collect();
        let meant = all
            .iter()
            .filter(|a| at.is_none_or(|at| a.start <= at && at <= a.end));
        let mut longest: Vec<&Activity> = meant.collect();
        longest.sort_by_key(|activity| std::cmp::Reverse(activity.dur()));
        longest.truncate(RATED);
        let started = started(graph, thread);
        let longest = longest.into_iter();
        found.extend(longest.map(|activity| rated(graph, &all, activity, started, &delays)));
    }
    found.sort_by_key(|one| std::cmp::Reverse(one.score));
    found
}
