// SPDX-License-Identifier: MIT
//! What a thread did in a stretch of time: one of the three classes of hang (Argus, section
//! 2.2), or nothing unusual.

use std::rc::Rc;

use flagfinder_events::Call;
use flagfinder_linux::{futex, traits};
use flagfinder_waits::Because;
use serde::Serialize;

use crate::edge::{Edge, EdgeKind};
use crate::graph::{Graph, Wait};
use crate::inversion::futex_kind;
use crate::retries::whole_waits;
use crate::site::KERNEL_SITE;
use crate::starved::is_starved;
use crate::vertex::NO_RESULT;
use crate::work::{self, work};

/// So many waits of one kind that a timer ended are polling.
const POLLS: usize = 5;
const YIELDS: u32 = 20;
/// A thread that polls mostly sleeps: between two polls it computes for at most this part (1 / n)
/// of the wait. On a busy machine it may wait for a CPU for much longer.
const LOOK: u64 = 2;
/// A short wait may be shorter than the look at what is polled: entering and leaving the kernel
/// alone takes time.
const SHORT_LOOK: u64 = 200_000;
const LONGEST_LOOK: u64 = 4;
/// Of two waits of one polling loop that follow each other, the longer is at most so many times the
/// shorter, but for the time that a busy machine may add. (A loop whose waits grow doubles them.)
const UNLIKE: u64 = 8;
const BUSY_MACHINE: u64 = 100_000_000;

/// ns: who runs for less before it waits does short things.
const PIECE: u64 = 2_000_000;

/// What a thread did in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Class {
    /// It computes.
    LongRunning,
    /// It polls, giving way in between.
    RepeatedYield,
    /// It makes a call over and over that comes back at once and brings nothing.
    HotCalls,
    /// It is blocked in the kernel.
    LongWait,
    /// It did many short things, none for long.
    Busy,
    /// Its switches were not recorded.
    Unknown,
}

/// What a thread did.
#[derive(Clone, Copy, Debug)]
pub struct Activity {
    pub class: Class,
    /// The vertex that it was in; of a wait the vertex that ends in the wait.
    pub vertex: u32,
    pub start: u64,
    pub end: u64,
    /// Of LongWait only.
    pub wait: Option<Wait>,
}

impl Activity {
    pub fn dur(&self) -> u64 {
        self.end - self.start
    }
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> u64 {
    a.1.min(b.1).saturating_sub(a.0.max(b.0))
}

/// What a wait may be in a polling loop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// A timer ended it.
    Poll,
    /// It is not known what ended it: its wake is missing.
    Maybe,
    Other,
}

/// A wait in a call that serves to poll, after no more than a look. Where the wake is missing, the
/// call's result may tell that the time was over.
fn round(graph: &Graph, wait: &Wait) -> Round {
    let (Some(call), Some(next)) = (graph.vertex(wait.vertex).call(), wait.next) else {
        return Round::Other;
    };
    let result = graph.details(wait.vertex).result;
    let round = match graph.vertex(next).cause() {
        EdgeKind::Timer => Round::Poll,
        EdgeKind::Weak if traits::timed_out(call.number.into(), result) => Round::Poll,
        EdgeKind::Weak if result == NO_RESULT => Round::Maybe,
        _ => return Round::Other,
    };
    let looked: u64 = graph.items(wait.vertex).map(|item| item.run).sum();
    let is_look = looked <= wait.dur() / LOOK
        || looked <= SHORT_LOOK.min(wait.dur().saturating_mul(LONGEST_LOOK));
    if traits::is_timed(call.number.into()) && is_look {
        round
    } else {
        Round::Other
    }
}

/// A wait that a timer ended, see [`round`].
pub(crate) fn is_poll(graph: &Graph, wait: &Wait) -> bool {
    round(graph, wait) == Round::Poll
}

/// Whether two waits that follow each other may be of one loop.
fn are_alike(one: u64, other: u64) -> bool {
    let (shorter, longer) = (one.min(other), one.max(other));
    longer <= shorter.saturating_mul(UNLIKE) || longer - shorter <= BUSY_MACHINE
}

/// Waits that may be of one polling loop.
struct Stretch {
    activity: Activity,
    rounds: usize,
    call: u16,
    /// Length of the last one.
    last: u64,
}

/// Stretches in which a thread polls: at least [`POLLS`] timed waits in the same call, one after
/// the other, and alike. A wait whose end is not known separates them only if its length is unlike.
fn polling(graph: &Graph, thread: u32) -> Vec<Activity> {
    let mut found: Vec<Stretch> = Vec::new();
    let mut goes_on = false;
    let is_short = |last: Option<&Stretch>| last.is_some_and(|last| last.rounds < POLLS);
    for wait in graph.waits(thread) {
        let number = graph
            .vertex(wait.vertex)
            .call()
            .map_or(0, |call| call.number);
        let is_next =
            |now: &Stretch| goes_on && now.call == number && are_alike(now.last, wait.dur());
        match round(graph, &wait) {
            Round::Poll => {}
            Round::Maybe if found.last().is_some_and(is_next) => continue,
            Round::Maybe | Round::Other => {
                goes_on = false;
                continue;
            }
        }
        match found.last_mut() {
            Some(now) if is_next(now) => {
                now.activity.end = wait.end;
                now.rounds += 1;
                now.last = wait.dur();
            }
            _ => {
                found.truncate(found.len() - usize::from(is_short(found.last())));
                found.push(Stretch {
                    activity: Activity {
                        class: Class::RepeatedYield,
                        vertex: wait.vertex,
                        start: graph.vertex(graph.first_item(wait.vertex)).start,
                        end: wait.end,
                        wait: None,
                    },
                    rounds: 1,
                    call: number,
                    last: wait.dur(),
                });
            }
        }
        goes_on = true;
    }
    found.truncate(found.len() - usize::from(is_short(found.last())));
    found.into_iter().map(|stretch| stretch.activity).collect()
}

/// What a thread did in one wake-up, for which its longest item stands, or that in which it yielded
/// most.
fn running(graph: &Graph, items: &[u32], start: u64, end: u64) -> Activity {
    let yields = |vertex: u32| graph.details(vertex).yields;
    let repeats = items.iter().map(|&vertex| yields(vertex)).sum::<u32>() >= YIELDS;
    let stands_out = |&&vertex: &&u32| {
        let row = graph.vertex(vertex);
        (
            if repeats { yields(vertex) } else { 0 },
            row.end - row.start,
        )
    };
    let longest = items.iter().max_by_key(stands_out);
    let vertex = longest.copied().unwrap_or(items[0]);
    Activity {
        class: if repeats {
            Class::RepeatedYield
        } else if graph.hot_call(vertex).is_some() {
            Class::HotCalls
        } else {
            Class::LongRunning
        },
        vertex,
        start,
        end,
        wait: None,
    }
}

/// All stretches of a thread that could be a hang, unsorted. None if it is not known when the
/// thread ran.
pub fn stretches(graph: &Graph, thread: u32) -> impl Iterator<Item = Activity> + '_ {
    let is_followed = graph.meta.threads[thread as usize].followed;
    let polls = if is_followed {
        polling(graph, thread)
    } else {
        Vec::new()
    };
    let spans: Rc<[_]> = polls.iter().map(|poll| (poll.start, poll.end)).collect();
    let polled = move |(start, end): (u64, u64)| {
        let before = spans.partition_point(|span| span.1 < end);
        spans.get(before).is_some_and(|span| span.0 <= start)
    };
    let also_polled = polled.clone();
    let runs = graph.runs(thread).filter_map(move |items| {
        let (first, last) = (graph.vertex(items[0]), items[items.len() - 1]);
        let (start, end) = (first.start, graph.vertex(last).end);
        (!polled((start, end))).then(|| running(graph, items, start, end))
    });
    let waits = whole_waits(graph, thread);
    let waits = waits.filter(move |wait| !also_polled((wait.start, wait.end)));
    let waits = waits.map(|wait| Activity {
        class: Class::LongWait,
        vertex: wait.vertex,
        start: wait.start,
        end: wait.end,
        wait: Some(wait),
    });
    let all = runs.chain(waits).chain(polls);
    all.filter(move |_| is_followed)
}

/// What a stretch in which a thread polls is made of.
pub struct Rounds {
    pub count: usize,
    /// ns on a CPU.
    pub run: u64,
    /// ns from one look to the next, at most and in the middle.
    pub longest: u64,
    pub typical: u64,
    /// In how many it woke another thread, or sent something to one.
    pub woke: usize,
    /// Number of the call.
    pub call: u16,
}

/// The rounds of a polling stretch; `None` of one that only yields.
pub fn rounds(graph: &Graph, activity: &Activity) -> Option<Rounds> {
    let call = graph.vertex(activity.vertex).call()?;
    let mut rounds = Rounds {
        count: 0,
        run: 0,
        longest: 0,
        typical: 0,
        woke: 0,
        call: call.number,
    };
    let mut all = Vec::new();
    let waits = graph.waits(graph.vertex(activity.vertex).thread);
    for wait in waits.filter(|wait| activity.start <= wait.start && wait.end <= activity.end) {
        let run: u64 = graph.items(wait.vertex).map(|item| item.run).sum();
        rounds.run += run;
        rounds.woke += usize::from(graph.causes_any(wait.vertex));
        all.push(wait.dur() + run);
    }
    all.sort_unstable();
    rounds.count = all.len();
    rounds.longest = all.last().copied().unwrap_or(0);
    rounds.typical = all.get(all.len() / 2).copied().unwrap_or(0);
    (rounds.count >= POLLS).then_some(rounds)
}

/// What a thread did for at least half of a stretch of time; `None`: nothing that long.
pub fn during(graph: &Graph, thread: u32, from: u64, to: u64) -> Option<Activity> {
    if !graph.meta.threads[thread as usize].followed {
        return unknown(graph, thread, from, to);
    }
    let share = |activity: &Activity| overlap((activity.start, activity.end), (from, to));
    let longest = stretches(graph, thread).max_by_key(share)?;
    (share(&longest) * 2 >= to - from).then_some(longest)
}

/// That a thread computed for at least half of a time, in pieces. A runtime that shares its
/// processors out interrupts whoever runs for long.
pub fn in_pieces(graph: &Graph, thread: u32, from: u64, to: u64) -> Option<Activity> {
    let share = |activity: &Activity| overlap((activity.start, activity.end), (from, to));
    let pieces = stretches(graph, thread).filter(|one| one.class == Class::LongRunning);
    let pieces: Vec<Activity> = pieces.filter(|one| share(one) >= PIECE).collect();
    let longest = pieces.iter().max_by_key(|one| share(one))?;
    (pieces.iter().map(share).sum::<u64>() * 2 >= to - from).then_some(Activity {
        start: from,
        end: to,
        ..*longest
    })
}

/// What a thread did at a moment, if that is known.
pub fn at(graph: &Graph, thread: u32, ts: u64) -> Option<Activity> {
    let then =
        stretches(graph, thread).filter(|activity| activity.start <= ts && ts <= activity.end);
    then.max_by_key(Activity::dur)
}

/// Of a thread whose switches were not recorded: that it was there for at least half of the time.
fn unknown(graph: &Graph, thread: u32, from: u64, to: u64) -> Option<Activity> {
    let vertex = graph.at(thread, from).or(graph.at(thread, to))?;
    let last = graph.vertex(*graph.of(thread).last()?);
    let end = match last.blocks {
        1 => graph.until(thread),
        _ => last.end,
    };
    let known = overlap((graph.vertex(vertex).start, end), (from, to));
    (known * 2 >= to - from).then_some(Activity {
        class: Class::Unknown,
        vertex,
        start: from,
        end: to,
        wait: None,
    })
}

/// Whether the limit of a call is known to have ended it before what it waited for came. (A sleep
/// waits for nothing else.) Without results it is known of futexes only: a thread that waits for
/// events may have set a timer that is one of them.
fn timed_out(graph: &Graph, wait: &Wait) -> bool {
    let call = graph.vertex(wait.vertex).call();
    let Some((call, next)) = call.zip(wait.next) else {
        return false;
    };
    let number = u32::from(call.number);
    let is_futex = futex::is_futex(number);
    match graph.details(wait.vertex).result {
        NO_RESULT => is_futex && graph.vertex(next).cause() == EdgeKind::Timer,
        result => (is_futex || traits::looks(number)) && traits::timed_out(number, result),
    }
}

/// What people call a wait or a run: `futex`, `read pipe:[12]`, `computing`.
pub fn describe(graph: &Graph, activity: &Activity) -> String {
    if let Some(stop) = stopped(graph, activity) {
        return stop;
    }
    let vertex = graph.vertex(activity.vertex);
    let call = vertex
        .call()
        .filter(|_| activity.class != Class::LongRunning);
    match (activity.class, call) {
        (Class::LongRunning, _) if is_starved(&vertex) => {
            "ready to run, mostly without a CPU".into()
        }
        (Class::LongRunning, _) => "computing".into(),
        (Class::HotCalls, _) => hot(graph, activity.vertex),
        (Class::RepeatedYield, Some(call)) if graph.details(activity.vertex).yields < YIELDS => {
            let is_refused = refusals(graph, activity).next().is_some();
            let what = if is_refused { " for a file's lock" } else { "" };
            format!("polling with {}{what}", call.name())
        }
        (Class::RepeatedYield, _) => "polling with sched_yield".into(),
        (Class::LongWait, Some(call)) => {
            let on = graph.target(activity.vertex);
            let on = on.map_or(String::new(), |target| format!(" on {target}"));
            let is_over = activity.wait.is_some_and(|wait| timed_out(graph, &wait));
            let end = if is_over { " until its timeout" } else { "" };
            let kind = activity.wait.and_then(|wait| {
                let stack = wait.next.map_or(0, |next| graph.details(next).waker_stack);
                futex_kind(graph, wait.vertex, stack)
            });
            let what = match kind {
                Some("lock") => "waiting for a lock".into(),
                Some(_) => "waiting on a condition".into(),
                None => Call::name_of(call.number),
            };
            format!("{what}{on}{end}")
        }
        (Class::Busy, _) => {
            let thread = vertex.thread;
            work::name(&work(graph, thread, activity.start, activity.end))
        }
        (Class::LongWait, None) => {
            let stack = graph
                .stack(graph.details(activity.vertex).stack)
                .into_iter();
            let within = stack.filter_map(|site| site.strip_suffix(KERNEL_SITE));
            let within: Vec<&str> = within.take(2).collect();
            match within[..] {
                [] => "blocked in the kernel".into(),
                _ => format!("blocked in the kernel in {}", within.join(", called by ")),
            }
        }
        (Class::Unknown, _) => match &graph.thread(activity.vertex).doing[..] {
            "" => "not recorded".into(),
            doing => format!("{doing} when it was looked at, not recorded"),
        },
    }
}

/// `stopped by SIGSTOP from thread 7 (sh)`.
fn stopped(graph: &Graph, activity: &Activity) -> Option<String> {
    let stop = graph.meta.stopped.get(&activity.wait?.vertex)?;
    let signal = match stop.signal as i32 {
        libc::SIGSTOP => " by SIGSTOP",
        libc::SIGTSTP => " by SIGTSTP",
        libc::SIGTTIN => " by SIGTTIN: it read from the terminal in the background",
        libc::SIGTTOU => " by SIGTTOU: it wrote to the terminal in the background",
        _ => "",
    };
    let by = stop.by.and_then(|by| graph.meta.threads.get(by as usize));
    let by = by.map_or(String::new(), |by| {
        format!(" from thread {} ({})", by.tid, by.name)
    });
    Some(format!("stopped{signal}{by}"))
}

/// Whether a wait is for nothing but the time, or for the signal that lets a stopped thread go on:
/// no thread owes its end.
pub fn is_owed_by_nobody(graph: &Graph, wait: &Wait) -> bool {
    graph.meta.stopped.contains_key(&wait.vertex) || sleeps(graph, wait)
}

/// Whether a wait is for nothing but the time: a sleep, or a look at no descriptor.
pub fn sleeps(graph: &Graph, wait: &Wait) -> bool {
    graph.vertex(wait.vertex).call().is_some_and(is_sleep)
}

pub(crate) fn is_sleep(call: Call) -> bool {
    match i64::from(call.number) {
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => true,
        number => traits::looks_at_a_set(number as u32) && call.first == 0,
    }
}

/// Edges from those who had a file's lock when a thread that polls by sleeping did not get it.
pub(crate) fn refusals<'g>(
    graph: &'g Graph,
    activity: &Activity,
) -> impl Iterator<Item = &'g Edge> + 'g {
    let list = graph.of(graph.vertex(activity.vertex).thread);
    let first = list.partition_point(|&vertex| graph.vertex(vertex).end < activity.start);
    let end = activity.end;
    let within = list[first..].iter();
    let within = within.take_while(move |&&vertex| graph.vertex(vertex).start < end);
    within.flat_map(|&vertex| graph.awaited(vertex, EdgeKind::Holds))
}

/// Whether a thread was blocked in a call that waits for any of several things.
pub fn waits_for_events(graph: &Graph, activity: &Activity) -> bool {
    let call = graph.vertex(activity.vertex).call();
    activity.wait.is_some() && call.is_some_and(|call| traits::looks(call.number.into()))
}

/// `calling read on /dev/null over and over`.
fn hot(graph: &Graph, vertex: u32) -> String {
    let Some(hot) = graph.hot_call(vertex) else {
        return "calling over and over".into();
    };
    let call = Call::name_of(hot.number);
    let mut named = hot
        .descriptors
        .iter()
        .filter(|told| !told.target.is_empty());
    match named.next() {
        Some(told) if told.because == Some(Because::NotOpen) => {
            format!(
                "calling {call} on fd {}, which is not open, over and over",
                told.fd
            )
        }
        Some(told) => format!("calling {call} on {} over and over", told.target),
        None => format!("calling {call} over and over"),
    }
}
