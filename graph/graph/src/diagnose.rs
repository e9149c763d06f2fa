// SPDX-License-Identifier: MIT
//! Algorithm 1 of Argus, answered by rule (`--auto`) or by the user: from a hang to the thread
//! that is to blame for it.
//!
//! A wait is compared with its *baseline*: the newest wait of the same thread in the same call at
//! the same place that was much shorter. The threads on the path that woke the baseline, and on the
//! one that ended the hang if it ended, should have done so again: each of them that did something
//! unusual meanwhile is a culprit, and is diagnosed in turn ("the culprit of the culprit").

use flagfinder_events::Call;

use crate::activity::{at, describe, during, stretches, Activity, Class};
use crate::baseline::{asked, asked_others, baseline, choice, ended_by_thread, is_unusual};
use crate::diagnosis::{Culprit, Diagnosis, Member, Outcome, PathStep, Request, SetOff, BEAM};
use crate::edge::EdgeKind;
use crate::graph::{Graph, Wait};
use crate::inversion::inversion;
use crate::question::{Guide, Question};
use crate::slice::{slice, strong_cause, Step};
use crate::starved::starved;

const DEEPEST: usize = 16;
/// An ordinary wait counts less than a wait beside which there are shorter ones.
const ORDINARY: u64 = 4;
/// Shorter stretches are no hangs.
const SHORTEST: u64 = 1_000_000;

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

fn member(graph: &Graph, thread: u32) -> Member {
    let meta = &graph.meta.threads[thread as usize];
    Member {
        tid: meta.tid,
        thread: meta.name.clone(),
    }
}

type Answered<T> = Result<T, Box<Question>>;

impl Search<'_> {
    fn blame(&mut self, activity: &Activity, depth: usize) {
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
        });
    }

    /// Explains what a thread did, deepest cause first.
    fn explain(&mut self, activity: &Activity, depth: usize) -> Answered<()> {
        let thread = self.graph.vertex(activity.vertex).thread;
        self.open.push(thread);
        self.waits.push(activity.wait);
        if let (Some(wait), true) = (activity.wait, depth < DEEPEST) {
            self.explain_wait(&wait, depth)?;
        } else if activity.class == Class::RepeatedYield && depth < DEEPEST {
            self.explain_polling(activity, depth)?;
        } else if activity.class == Class::Unknown && depth < DEEPEST {
            let vertex = activity.vertex;
            if !self.search_awaited(vertex, EdgeKind::Holds, depth)? {
                self.search_awaited(vertex, EdgeKind::Peer, depth)?;
            }
        }
        self.open.pop();
        self.waits.pop();
        if depth > 0 {
            self.blame(activity, depth);
        }
        Ok(())
    }

    /// The threads that owed the wake are looked for on the path of the hang's own end, then among
    /// those that have what it waits for, then on the path of its baseline, and last among those at
    /// the other end.
    fn explain_wait(&mut self, wait: &Wait, depth: usize) -> Answered<()> {
        let graph = self.graph;
        if let Some(next) = wait.next.filter(|_| ended_by_thread(graph, wait)) {
            let own = slice(graph, next, wait.start, &mut self.guide)?;
            if depth == 0 {
                self.path.clone_from(&own);
                self.baseline = baseline(graph, wait, self.preceding, &mut Guide::new(None))?;
            }
            if self.search_path(&own, wait, depth)? {
                return Ok(());
            }
        }
        if self.search_awaited(wait.vertex, EdgeKind::Holds, depth)? {
            return Ok(());
        }
        let well = baseline(graph, wait, self.preceding, &mut self.guide)?;
        let mut path = Vec::new();
        if let Some((next, start)) = well.and_then(|well| well.next.zip(Some(well.start))) {
            path = slice(graph, next, start, &mut self.guide)?;
        }
        if depth == 0 {
            self.baseline = well;
            if self.path.is_empty() {
                self.path.clone_from(&path);
            }
        }
        // The baseline waited for another request: the thread that was asked this time owes the
        // answer. If the user has chosen the baseline, it counts all the same.
        let is_other = well.is_some_and(|well| asked_others(graph, wait, &well))
            && !self.guide.was_asked(wait.vertex);
        if is_other && self.search_asked(wait, depth)? {
            return Ok(());
        }
        if !self.search_path(&path, wait, depth)? {
            self.search_awaited(wait.vertex, EdgeKind::Peer, depth)?;
        }
        Ok(())
    }

    /// Whether a thread is to blame that was woken just before the wait.
    fn search_asked(&mut self, wait: &Wait, depth: usize) -> Answered<bool> {
        for thread in asked(self.graph, wait) {
            if self.suspect(thread, wait.start, wait.end, depth)? {
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
        if awaited.is_empty() || kind == EdgeKind::Peer && awaited.len() > 1 {
            return Ok(false);
        }
        for (thread, ts) in awaited {
            if let Some(place) = self.open.iter().position(|&open| open == thread) {
                self.circle = self.open[place..].to_vec();
                continue;
            }
            let since = graph.vertex(vertex).end.min(ts);
            let then = at(graph, thread, ts).or_else(|| during(graph, thread, since, ts));
            if let Some(activity) = then {
                self.explain(&activity, depth + 1)?;
            }
        }
        Ok(true)
    }

    /// Whether a thread on the path is to blame. The nearest one owes the wake. The threads behind
    /// it either owe theirs to it, and are found when it is explained, or have done their part and
    /// wait for the next thing to do.
    fn search_path(&mut self, path: &[Step], wait: &Wait, depth: usize) -> Answered<bool> {
        let mut seen = Vec::new();
        for step in path {
            let thread = self.graph.vertex(step.vertex).thread;
            if seen.contains(&thread) {
                continue;
            }
            seen.push(thread);
            if self.suspect(thread, wait.start, wait.end, depth)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The threads that wrote the flag it polls, as far as watch saw it.
    fn explain_polling(&mut self, activity: &Activity, depth: usize) -> Answered<()> {
        let thread = self.graph.vertex(activity.vertex).thread;
        let edges = self.graph.others.iter();
        let writers: Vec<u32> = edges
            .filter(|edge| edge.kind() == EdgeKind::Flag)
            .filter(|edge| self.graph.vertex(edge.to).thread == thread)
            .map(|edge| self.graph.vertex(edge.from).thread)
            .collect();
        for writer in writers {
            self.suspect(writer, activity.start, activity.end, depth)?;
        }
        Ok(())
    }

    /// Whether the thread did something unusual, which then is explained.
    fn suspect(&mut self, thread: u32, from: u64, to: u64, depth: usize) -> Answered<bool> {
        if let Some(place) = self.open.iter().position(|&open| open == thread) {
            // The wait itself is on its own path; only another thread in between makes a circle.
            if place + 1 < self.open.len() {
                self.circle = self.open[place..].to_vec();
            }
            return Ok(false);
        }
        let found = during(self.graph, thread, from, to);
        if let Some(activity) = &found {
            self.explain(activity, depth + 1)?;
        }
        Ok(found.is_some())
    }
}

/// The main thread of the recording; if everything was recorded, the thread with the most unusual
/// stretch.
fn choose(graph: &Graph, request: &Request) -> Option<Activity> {
    let host = request.host.as_deref();
    let threads: Vec<u32> = match request.thread {
        Some(tid) => graph.thread_on(host, tid).into_iter().collect(),
        None => {
            let pids = graph.pids_on(host).iter();
            let mains = pids.filter_map(|&pid| graph.thread_on(host, pid));
            let mains: Vec<u32> = mains.collect();
            let users = (0..graph.meta.threads.len() as u32)
                .filter(|&t| !graph.meta.threads[t as usize].kernel);
            if mains.is_empty() {
                users.collect()
            } else {
                mains
            }
        }
    };
    let marked = graph.meta.marks.last().map(|mark| mark.ts);
    let at = request.at.or(marked);
    let all = threads.iter().flat_map(|&thread| stretches(graph, thread));
    let meant =
        all.filter(|a| at.is_none_or(|at| a.start <= at && at <= a.end) && a.dur() >= SHORTEST);
    meant.max_by_key(|activity| {
        let unusual = activity.wait.is_none_or(|wait| is_unusual(graph, &wait));
        if unusual {
            activity.dur().saturating_mul(ORDINARY)
        } else {
            activity.dur()
        }
    })
}

fn advice(graph: &Graph, hang: &Activity, culprits: &[Culprit]) -> Vec<String> {
    let mut advice = Vec::new();
    let polls = culprits
        .iter()
        .find(|culprit| culprit.class == Class::RepeatedYield);
    let polls = polls.map(|culprit| culprit.pid);
    let own = (hang.class == Class::RepeatedYield).then(|| graph.thread(hang.vertex).pid);
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
    let hang = choose(graph, request)?;
    Some(match explained(graph, request, &hang) {
        Ok(diagnosis) => Outcome::Diagnosis(Box::new(diagnosis)),
        Err(question) => Outcome::Question(question),
    })
}

fn explained(graph: &Graph, request: &Request, hang: &Activity) -> Answered<Diagnosis> {
    let mut search = Search {
        graph,
        guide: Guide::new(request.answers.as_deref()).with_beam(request.beam.unwrap_or(BEAM)),
        preceding: request.preceding,
        baseline: None,
        path: Vec::new(),
        culprits: Vec::new(),
        circle: Vec::new(),
        open: Vec::new(),
        waits: Vec::new(),
    };
    search.explain(hang, 0)?;
    if hang.wait.is_none() {
        search.path = slice(graph, hang.vertex, 0, &mut search.guide)?;
    }
    if search.culprits.is_empty() {
        search.blame(hang, 0);
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
        advice: advice(graph, hang, &search.culprits),
        culprits: search.culprits,
        questions: search.guide.asked.len(),
        asked: search.guide.asked,
        lost: graph.meta.gaps.iter().map(|gap| gap.count).sum(),
    })
}
