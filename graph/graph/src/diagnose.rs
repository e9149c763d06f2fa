// SPDX-License-Identifier: MIT
//! Algorithm 1 of Argus, answered by rule (`--auto`) or by the user: from a hang to the thread
//! that is to blame for it.
//!
//! The thread that ended a wait owed its end: what it did meanwhile is diagnosed in turn ("the
//! culprit of the culprit"). A wait that no thread ended is compared with its *baseline*: the
//! newest
//! wait of the same thread in the same call at the same place that was much shorter. The threads on
//! the path that woke the baseline should have done so again.

use std::collections::BTreeMap;

use flagfinder_events::Call;

use crate::activity::{
    at, describe, during, in_pieces, is_owed_by_nobody, refusals, waits_for_events, Activity, Class,
};
use crate::answers::slow_answerer;
use crate::baseline::{asked, asked_others, baseline, choice, ender};
use crate::diagnosis::{Culprit, Diagnosis, Known, Member, Outcome, PathStep, SetOff};
use crate::edge::EdgeKind;
use crate::graph::{Graph, Wait};
use crate::hangs::{self, candidates, Hang, Rated};
use crate::inversion::inversion;
use crate::left::{deadlocked, has_turn, has_used, is_one_object, left, only_ender, whole_poll};
use crate::question::{Guide, Question};
use crate::request::Request;
use crate::site::{function, line, site_of};
use crate::slice::{slice, strong_cause, Step};
use crate::starved::starved;
use crate::work::work;

const DEEPEST: usize = 16;
/// Most other hangs that are told, and how much less likely than the one that is explained: a part
/// (1 / n) of its score.
const OTHERS: usize = 4;
const LESS_LIKELY: u64 = 8;

struct Search<'g> {
    graph: &'g Graph,
    guide: Guide<'g>,
    preceding: usize,
    /// Baseline of the hang itself.
    baseline: Option<Wait>,
    path: Vec<Step>,
    culprits: Vec<Culprit>,
    /// Threads that wait for each other.
    circle: Vec<u32>,
    /// Threads whose hang is being explained, and their waits.
    open: Vec<u32>,
    waits: Vec<Option<Wait>>,
}

fn step(graph: &Graph, step: &Step) -> PathStep {
    let vertex = graph.vertex(step.vertex);
    let thread = graph.thread(step.vertex);
    PathStep {
        vertex: step.vertex,
        tid: thread.tid,
        thread: thread.name.clone(),
        start: vertex.start,
        dur: vertex.end - vertex.start,
        edge: step.edge.map(EdgeKind::name),
        stack: graph.stack_of(step.vertex),
    }
}

fn set_off(graph: &Graph, vertex: u32) -> Option<SetOff> {
    let edge = strong_cause(graph, vertex)?;
    let thread = graph.thread(edge.from);
    Some(SetOff {
        tid: thread.tid,
        thread: thread.name.clone(),
        edge: edge.kind().name(),
    })
}

/// Where a thread worked, by the clock, or where it waited.
fn code(graph: &Graph, activity: &Activity) -> Option<String> {
    let vertex = activity.vertex;
    let (function, line) = match (activity.class, graph.ran(vertex)) {
        (Class::LongWait | Class::RepeatedYield, _) => {
            let site = site_of(graph.stack(graph.details(vertex).stack).into_iter())?;
            (function(site), line(site).map(str::to_owned))
        }
        (_, ran) => {
            let most = ran?.functions.first()?;
            (most.function.clone(), most.line.clone())
        }
    };
    Some(line.map_or(function.clone(), |line| format!("{function} at {line}")))
}

fn member(graph: &Graph, thread: u32) -> Member {
    let meta = &graph.meta.threads[thread as usize];
    Member {
        tid: meta.tid,
        thread: meta.name.clone(),
    }
}

type Answered<T> = Result<T, Box<Question>>;

impl Search<'_> {
    fn blame(&mut self, activity: &Activity, depth: usize, how: Known) {
        let vertex = activity.vertex;
        let thread = self.graph.thread(vertex);
        let now = self.graph.vertex(vertex);
        let known = self
            .culprits
            .iter()
            .any(|culprit| self.graph.vertex(culprit.vertex).thread == now.thread);
        if known {
            return;
        }
        let waited = self.waits.last().copied().flatten();
        let places = |vertex| self.graph.places(self.graph.details(vertex).stack);
        self.culprits.push(Culprit {
            vertex,
            tid: thread.tid,
            pid: thread.pid,
            thread: thread.name.clone(),
            host: self.graph.host(thread).map(|host| host.name.clone()),
            class: activity.class,
            start: activity.start,
            dur: activity.dur(),
            doing: describe(self.graph, activity),
            depth,
            stack: self.graph.stack_of(vertex),
            places: places(vertex),
            places_before: self.graph.before(vertex).map_or_else(Vec::new, places),
            call: now.call().map(|call| Call::name_of(call.number)),
            set_off: set_off(self.graph, vertex),
            hot: self.graph.hot(vertex),
            starved: (activity.class == Class::LongRunning)
                .then(|| starved(self.graph, vertex))
                .flatten(),
            inversion: waited.and_then(|wait| inversion(self.graph, &wait, now.thread)),
            ran: self.graph.ran(vertex).cloned(),
            known: how,
            work: matches!(activity.class, Class::Busy | Class::RepeatedYield)
                .then(|| work(self.graph, now.thread, activity.start, activity.end)),
            code: code(self.graph, activity),
        });
    }

    /// Explains what a thread did, deepest cause first. `known`: how it is known that the thread
    /// before waits for it.
    fn explain(&mut self, activity: &Activity, depth: usize, known: Known) -> Answered<()> {
        let thread = self.graph.vertex(activity.vertex).thread;
        let whole = || whole_poll(self.graph, activity).filter(|_| is_polling(activity));
        let wait = activity.wait.or_else(whole);
        let before = self.waits.last().copied().flatten();
        let count = self.culprits.len();
        self.open.push(thread);
        self.waits.push(wait);
        if let (Some(wait), true) = (activity.wait, depth < DEEPEST) {
            self.explain_wait(&wait, depth)?;
        } else if is_polling(activity) && depth < DEEPEST {
            self.explain_polling(activity, depth)?;
        } else if activity.class == Class::Unknown && depth < DEEPEST {
            let vertex = activity.vertex;
            if !self.search_awaited(vertex, EdgeKind::Holds, depth)? {
                self.search_awaited(vertex, EdgeKind::Peer, depth)?;
            }
        }
        self.open.pop();
        self.waits.pop();
        // Who waits for the same lock owes nothing, if it is known who had it.
        let is_fellow = self.culprits.len() > count
            && before.zip(wait).is_some_and(|(before, wait)| {
                is_one_object(self.graph, before.vertex, wait.vertex)
            });
        if depth > 0 && !is_fellow {
            self.blame(activity, depth, known);
        }
        Ok(())
    }

    /// The thread that ended a wait owed it: nothing outweighs that. Where no thread did, those who
    /// have what it waits for did, then those on the path that ended its baseline, and last the
    /// one at the other end.
    fn explain_wait(&mut self, wait: &Wait, depth: usize) -> Answered<()> {
        let graph = self.graph;
        if graph.meta.stopped.contains_key(&wait.vertex) {
            return Ok(()); // Who let it go on owed nothing of what it then did.
        }
        if let Some((next, end)) = wait.next.zip(ender(graph, wait)) {
            let own = slice(graph, next, wait.start, &mut self.guide)?;
            if depth == 0 {
                self.path.clone_from(&own);
                self.baseline = baseline(graph, wait, self.preceding, &mut Guide::new(None))?;
            }
            return self.follow(&own, end.from, wait, depth);
        }
        // Who sleeps before it asks for a file's lock again waits for who has it.
        if self.search_awaited(wait.vertex, EdgeKind::Holds, depth)?
            || is_owed_by_nobody(graph, wait)
        {
            return Ok(());
        }
        let well = baseline(graph, wait, self.preceding, &mut self.guide)?;
        let mut path = Vec::new();
        if let Some((next, start)) = well.and_then(|well| well.next.zip(Some(well.start))) {
            path = slice(graph, next, start, &mut self.guide)?;
        }
        if depth == 0 {
            self.baseline = well;
            self.path.clone_from(&path);
        }
        // The baseline waited for another request: the thread that was asked this time owes the
        // answer. If the user has chosen the baseline, it counts all the same.
        let is_other = well.is_some_and(|well| asked_others(graph, wait, &well))
            && !self.guide.was_asked(wait.vertex);
        if is_other && self.search_asked(wait, depth)? {
            return Ok(());
        }
        let _ = self.search_path(&path, wait, depth)?
            || self.search_left(wait, depth)?
            || self.search_awaited(wait.vertex, EdgeKind::Peer, depth)?
            || self.search_deadlock(wait, depth)?;
        Ok(())
    }

    /// Whether threads of the process wait for each other: a wait without an end, of which nobody
    /// else is known, is likely for one of them.
    fn search_deadlock(&mut self, wait: &Wait, depth: usize) -> Answered<bool> {
        let found = deadlocked(self.graph, wait).filter(|_| wait.next.is_none());
        let Some(activity) = found.filter(|one| self.is_new(one.vertex)) else {
            return Ok(false);
        };
        self.explain(&activity, depth + 1, Known::Deadlock)?;
        Ok(true)
    }

    /// Whether the thread of a vertex is none of those whose hang is being explained.
    fn is_new(&self, vertex: u32) -> bool {
        !self.open.contains(&self.graph.vertex(vertex).thread)
    }

    /// Whether a thread is to blame that alone may have ended a wait at a futex.
    fn search_left(&mut self, wait: &Wait, depth: usize) -> Answered<bool> {
        let graph = self.graph;
        if let Some(activity) = left(graph, wait) {
            if self.is_new(activity.vertex) {
                self.explain(&activity, depth + 1, Known::Before)?;
                return Ok(true);
            }
        }
        let only = only_ender(graph, wait).and_then(|one| during(graph, one, wait.start, wait.end));
        let is_idle = only.is_some_and(|only| waits_for_events(graph, &only));
        match only.filter(|_| !is_idle) {
            Some(only) => {
                self.suspect(graph.vertex(only.vertex).thread, wait, depth, Known::Before)
            }
            None => Ok(false),
        }
    }

    /// Blames the nearest thread on the path of a wait's own end. What is behind it is found when
    /// what it did is explained; only a thread that waited for whoever came, and handed that on,
    /// owed nothing of its own. `end`: the vertex that ended the wait.
    fn follow(&mut self, path: &[Step], end: u32, wait: &Wait, depth: usize) -> Answered<()> {
        let graph = self.graph;
        let (from, to) = (wait.start, wait.end);
        let end = Step {
            vertex: end,
            edge: None,
        };
        let first = path.get(1).filter(|step| step.edge != Some(EdgeKind::Weak));
        let mut seen = Vec::new();
        for step in [*first.unwrap_or(&end)].iter().chain(path.iter().skip(2)) {
            let thread = graph.vertex(step.vertex).thread;
            if seen.contains(&thread) {
                continue;
            }
            if self.open.contains(&thread) {
                self.close(thread, wait);
                break;
            }
            seen.push(thread);
            if began_late(graph, thread, wait) {
                continue; // Until then the time was that of the thread that started it.
            }
            let whole = during(graph, thread, from, to);
            if let Some(activity) = whole.or_else(|| in_pieces(graph, thread, from, to)) {
                return self.explain(&activity, depth + 1, Known::Ended);
            }
            let asked = slow_answerer(graph, thread, from, to);
            if let Some(vertex) = asked.filter(|&one| self.is_new(one)) {
                let other = graph.vertex(vertex).thread;
                let whole = during(graph, other, from, to);
                let activity = whole.or_else(|| in_pieces(graph, other, from, to));
                let activity = activity.unwrap_or_else(|| busy(vertex, wait));
                return self.explain(&activity, depth + 1, Known::Ended);
            }
            let work = work(graph, thread, from, to);
            if work.waited * 2 < to - from {
                return self.explain(&busy(step.vertex, wait), depth + 1, Known::Ended);
            }
        }
        // All of them only handed on.
        match seen.first() {
            Some(&nearest) if !began_late(graph, nearest, wait) => {
                self.explain(&busy(end.vertex, wait), depth + 1, Known::Ended)
            }
            _ => Ok(()),
        }
    }

    /// A thread is met again whose wait is being explained: a circle, if its wait went on while
    /// this one did, and no thread ended one of them: such a circle ends by a limit of time only.
    /// A server that waits for the next request waits for nobody.
    fn close(&mut self, thread: u32, wait: &Wait) {
        let Some(place) = self.open.iter().position(|&open| open == thread) else {
            return;
        };
        // The wait itself is on its own path; only another thread in between makes a circle.
        let overlaps = |other: Wait| other.start < wait.end && wait.start < other.end;
        let own = self.waits[place..].iter().flatten().chain([wait]);
        let is_stuck = own.clone().any(|wait| ender(self.graph, wait).is_none());
        let is_met = place + 1 < self.open.len() && self.waits[place].is_some_and(overlaps);
        if is_met && is_stuck && !has_turn(self.graph, wait, thread) {
            self.circle = self.open[place..].to_vec();
        }
    }

    /// Whether a thread is to blame that was woken just before the wait.
    fn search_asked(&mut self, wait: &Wait, depth: usize) -> Answered<bool> {
        for thread in asked(self.graph, wait) {
            if self.suspect(thread, wait, depth, Known::Asked)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether one of the threads for which a thread was seen to wait is to blame. If several are
    /// at the other ends of what it waits on, it is not known which was to send something.
    fn search_awaited(&mut self, vertex: u32, kind: EdgeKind, depth: usize) -> Answered<bool> {
        let graph = self.graph;
        let mut awaited: Vec<(u32, u64)> = Vec::new();
        for edge in graph.awaited(vertex, kind) {
            let thread = graph.vertex(edge.from).thread;
            if !awaited.iter().any(|&(known, _)| known == thread) {
                awaited.push((thread, edge.ts));
            }
        }
        if kind == EdgeKind::Peer && awaited.len() > 1 {
            awaited.retain(|&(thread, _)| has_used(graph, thread, vertex));
        }
        if awaited.is_empty() || kind == EdgeKind::Peer && awaited.len() > 1 {
            return Ok(false);
        }
        let known = match kind {
            EdgeKind::Holds => Known::Holds,
            _ => Known::Peer,
        };
        for (thread, ts) in awaited {
            if let Some(place) = self.open.iter().position(|&open| open == thread) {
                self.circle = self.open[place..].to_vec();
                continue;
            }
            let since = graph.vertex(vertex).end.min(ts);
            let then = at(graph, thread, ts).or_else(|| during(graph, thread, since, ts));
            if let Some(activity) = then {
                self.explain(&activity, depth + 1, known)?;
            }
        }
        Ok(true)
    }

    /// Whether a thread on the path of a wait that went well is to blame. The nearest one that did
    /// something unusual this time is.
    fn search_path(&mut self, path: &[Step], wait: &Wait, depth: usize) -> Answered<bool> {
        let mut seen = Vec::new();
        for step in path {
            let thread = self.graph.vertex(step.vertex).thread;
            if seen.contains(&thread) {
                continue;
            }
            let is_nearest = seen.len() == 1;
            seen.push(thread);
            if is_nearest {
                self.close(thread, wait);
            }
            // One that waits for events itself was not asked for any.
            let found = during(self.graph, thread, wait.start, wait.end);
            let is_idle = found.is_some_and(|found| waits_for_events(self.graph, &found));
            if !is_idle && self.suspect(thread, wait, depth, Known::Before)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The threads that wrote the flag it polls, as far as watch saw it; else who had the file's
    /// lock that it asks for. Polling at a futex is a wait in pieces, which a thread owes as any
    /// other.
    fn explain_polling(&mut self, activity: &Activity, depth: usize) -> Answered<()> {
        let thread = self.graph.vertex(activity.vertex).thread;
        let edges = self.graph.others.iter();
        let writers: Vec<u32> = edges
            .filter(|edge| edge.kind() == EdgeKind::Flag)
            .filter(|edge| self.graph.vertex(edge.to).thread == thread)
            .map(|edge| self.graph.vertex(edge.from).thread)
            .collect();
        let all = Wait {
            vertex: activity.vertex,
            next: None,
            start: activity.start,
            end: activity.end,
        };
        for &writer in &writers {
            self.suspect(writer, &all, depth, Known::Flag)?;
        }
        if self.search_refused(activity, &all, depth)? {
            return Ok(());
        }
        let whole = whole_poll(self.graph, activity).filter(|_| writers.is_empty());
        let Some(wait) = whole else {
            return Ok(());
        };
        match wait.next.zip(ender(self.graph, &wait)) {
            Some((next, end)) => {
                let own = slice(self.graph, next, wait.start, &mut self.guide)?;
                self.follow(&own, end.from, &wait, depth)
            }
            None => self.search_left(&wait, depth).map(|_| ()),
        }
    }

    /// Whether a thread was refused the lock of a file again and again: who had it most often owes
    /// that.
    fn search_refused(&mut self, activity: &Activity, all: &Wait, depth: usize) -> Answered<bool> {
        let graph = self.graph;
        let mut times: BTreeMap<u32, (usize, u32)> = BTreeMap::new();
        for edge in refusals(graph, activity) {
            let had = times.entry(graph.vertex(edge.from).thread).or_default();
            *had = (had.0 + 1, edge.from);
        }
        let most = times.into_iter().max_by_key(|(_, (count, _))| *count);
        let Some((holder, (_, vertex))) = most else {
            return Ok(false);
        };
        if let Some(place) = self.open.iter().position(|&open| open == holder) {
            self.circle = self.open[place..].to_vec();
        } else if !self.suspect(holder, all, depth, Known::Holds)? {
            self.explain(&busy(vertex, all), depth + 1, Known::Holds)?;
        }
        Ok(true)
    }

    /// Whether the thread did something unusual during a wait, which then is explained.
    fn suspect(&mut self, thread: u32, wait: &Wait, depth: usize, known: Known) -> Answered<bool> {
        if self.open.contains(&thread) {
            return Ok(false);
        }
        let whole = during(self.graph, thread, wait.start, wait.end);
        let found = whole.or_else(|| in_pieces(self.graph, thread, wait.start, wait.end));
        if let Some(activity) = &found {
            self.explain(activity, depth + 1, known)?;
        }
        Ok(found.is_some())
    }
}

fn is_polling(activity: &Activity) -> bool {
    activity.class == Class::RepeatedYield
}

/// Whether a thread was started when more than half of a wait was over.
fn began_late(graph: &Graph, thread: u32, wait: &Wait) -> bool {
    let first = graph.of(thread).first().map(|&first| graph.vertex(first));
    first.is_some_and(|first| {
        first.cause() == EdgeKind::Fork && first.start.saturating_sub(wait.start) * 2 > wait.dur()
    })
}

/// A thread that did many short things during a wait.
fn busy(vertex: u32, wait: &Wait) -> Activity {
    Activity {
        class: Class::Busy,
        vertex,
        start: wait.start,
        end: wait.end,
        wait: None,
    }
}

fn advice(graph: &Graph, hang: &Activity, culprits: &[Culprit]) -> Vec<String> {
    let mut advice = Vec::new();
    let root = culprits.first();
    let polls = root.filter(|culprit| culprit.class == Class::RepeatedYield);
    let polls = polls.map(|culprit| culprit.pid);
    let is_alone = hang.class == Class::RepeatedYield && culprits.is_empty();
    let own = is_alone.then(|| graph.thread(hang.vertex).pid);
    if let (Some(pid), 0) = (polls.or(own), graph.meta.flags) {
        advice.push(format!("flagfinder spin {pid}"));
        advice.push(format!(
            "flagfinder spin --json {pid} > spin.flags.json && \
             flagfinder watch {pid} --flag spin.flags.json#1 --json -o watch.jsonl"
        ));
    }
    advice
}

/// Explains a hang. `None`: no thread did anything for a millisecond, or there is no such thread.
///
/// The same request and graph have the same outcome, so that a user is asked by beginning anew with
/// each answer: it takes less than a second.
pub fn diagnose(graph: &Graph, request: &Request) -> Option<Outcome> {
    let mut likely = candidates(graph, request).into_iter();
    let meant = likely.next()?;
    let hang = meant.activity;
    let others = likely
        .filter(|other| other.is_unusual() && other.score >= meant.score / LESS_LIKELY)
        .filter(|other| other.activity.end <= hang.start || other.activity.start >= hang.end)
        .take(OTHERS)
        .map(|other| other.tell(graph));
    let others = others.collect();
    let is_chosen =
        request.thread.is_some() || request.at.is_some() || !graph.meta.marks.is_empty();
    Some(match explained(graph, request, &meant, is_chosen, others) {
        Ok(diagnosis) => Outcome::Diagnosis(Box::new(diagnosis)),
        Err(question) => Outcome::Question(question),
    })
}

/// The stretches that may be the hang, the likeliest first.
pub fn hangs(graph: &Graph, request: &Request) -> Vec<Hang> {
    let all = candidates(graph, request).into_iter();
    all.take(hangs::MOST).map(|one| one.tell(graph)).collect()
}

/// Whether nobody but the hanging thread itself is needed to explain the hang: it did something, or
/// waited for nothing that a thread owes.
fn explains_itself(graph: &Graph, hang: &Activity) -> bool {
    let Some(wait) = hang.wait else {
        return true;
    };
    // A device is nobody, and yet it is known.
    let by_device = |next| graph.vertex(next).cause() == EdgeKind::Interrupt;
    is_owed_by_nobody(graph, &wait) || wait.next.is_some_and(by_device)
}

fn explained(
    graph: &Graph,
    request: &Request,
    meant: &Rated,
    is_chosen: bool,
    others: Vec<Hang>,
) -> Answered<Diagnosis> {
    let hang = &meant.activity;
    let is_blamed = is_chosen || !meant.is_usual();
    let mut search = Search {
        graph,
        guide: Guide::new(request.answers.as_deref()),
        preceding: request.preceding,
        baseline: None,
        path: Vec::new(),
        culprits: Vec::new(),
        circle: Vec::new(),
        open: Vec::new(),
        waits: Vec::new(),
    };
    if is_blamed {
        search.explain(hang, 0, Known::Itself)?;
    }
    if hang.wait.is_none() {
        search.path = slice(graph, hang.vertex, 0, &mut search.guide)?;
    }
    // Whether a thread that does nothing but poll waits for something is not known.
    let is_known = is_chosen || !meant.is_all();
    let is_alone = is_blamed && is_known && search.culprits.is_empty();
    if is_alone && (explains_itself(graph, hang) || !search.circle.is_empty()) {
        search.blame(hang, 0, Known::Itself);
    }
    // Stable: of two at the same distance the one on the hang's own path comes first.
    search
        .culprits
        .sort_by_key(|culprit| std::cmp::Reverse(culprit.depth));
    let alone = |vertex| step(graph, &Step { vertex, edge: None });
    Ok(Diagnosis {
        class: hang.class,
        thread: alone(hang.vertex),
        doing: describe(graph, hang),
        start: hang.start,
        dur: hang.dur(),
        hot: graph.hot(hang.vertex),
        unfinished: hang.end == graph.until(graph.vertex(hang.vertex).thread),
        baseline: search.baseline.map(|wait| alone(wait.vertex)),
        compared: search.baseline.map(|wait| choice(graph, &wait)),
        path: search.path.iter().map(|s| step(graph, s)).collect(),
        circular: !search.circle.is_empty(),
        circle: search
            .circle
            .iter()
            .map(|&one| member(graph, one))
            .collect(),
        hang: meant.tell(graph),
        others,
        advice: advice(graph, hang, &search.culprits),
        culprits: search.culprits,
        questions: search.guide.asked.len(),
        asked: search.guide.asked,
        lost: graph.meta.gaps.iter().map(|gap| gap.count).sum(),
    })
}
