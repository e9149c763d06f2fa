// SPDX-License-Identifier: MIT
//! Algorithm 1 of Argus, answered by rule (`--auto`) or by the user: from a hang to the thread
//! that is to blame for it.
//!
//! A wait is compared with its *baseline*: the newest wait of the same thread in the same call at
//! the same place that was much shorter. The threads on the path that woke the baseline, and on the
//! one that ended the hang if it ended, should have done so again: each of them that did something
//! unusual meanwhile is a culprit, and is diagnosed in turn ("the culprit of the culprit").

use flagfinder_events::Call;
use serde::{Deserialize, Serialize};

use crate::activity::{describe, during, stretches, Activity, Class};
use crate::baseline::{baseline, ended_by_thread, is_unusual};
use crate::edge::EdgeKind;
use crate::graph::{Graph, Place, Wait};
use crate::question::{Asked, Guide, Question};
use crate::slice::{slice, Step};

const DEEPEST: usize = 16;
/// An ordinary wait counts less than one of which there are shorter ones.
const ORDINARY: u64 = 4;
/// Hangs are not shorter than this.
const SHORTEST: u64 = 1_000_000;

/// Which hang is meant; without both, the most unusual one of the main thread.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Request {
    pub thread: Option<u32>,
    /// CLOCK_MONOTONIC, ns.
    pub at: Option<u64>,
    /// How many vertices before a wait must be similar, too.
    #[serde(default)]
    pub preceding: usize,
    /// To the questions in their order, numbers of choices from 1. `None`: all is decided by rule.
    #[serde(default)]
    pub answers: Option<Vec<usize>>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PathStep {
    pub vertex: u32,
    pub tid: u32,
    pub thread: String,
    pub start: u64,
    pub dur: u64,
    /// How it caused the step before; of the first: null.
    pub edge: Option<&'static str>,
    /// Call sites where it blocks in the end, innermost first.
    pub stack: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Culprit {
    pub vertex: u32,
    pub tid: u32,
    pub pid: u32,
    pub thread: String,
    pub class: Class,
    pub start: u64,
    pub dur: u64,
    /// What it did: `computing`, `read on pipe:[5]`.
    pub doing: String,
    /// How far from the hang: 1 is a thread that the hang waited for.
    pub depth: usize,
    /// Call sites where it blocked, innermost first; of one that computed, where it did in the end.
    pub stack: Vec<String>,
    /// Where these are; null: in no file.
    pub places: Vec<Option<Place>>,
    /// The same of where it blocked before that.
    pub places_before: Vec<Option<Place>>,
    /// The call that it blocked in.
    pub call: Option<String>,
}

/// What `flagfinder diagnose --json` prints beside its schema.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    pub class: Class,
    pub thread: PathStep,
    pub doing: String,
    pub start: u64,
    pub dur: u64,
    /// It was still so when the recording ended.
    pub unfinished: bool,
    /// The wait that went well, or null.
    pub baseline: Option<PathStep>,
    /// From the hang, or its baseline, back to its causes.
    pub path: Vec<PathStep>,
    /// The root cause first.
    pub culprits: Vec<Culprit>,
    /// The culprits wait for each other.
    pub circular: bool,
    /// What to do next, where the recording can't tell more.
    pub advice: Vec<String>,
    /// How many were asked: none by rule.
    pub questions: usize,
    pub asked: Vec<Asked>,
    pub lost: u64,
}

/// What `diagnose` comes to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Diagnosis(Box<Diagnosis>),
    /// The next question: ask again with one more answer.
    Question(Box<Question>),
}

struct Search<'g> {
    graph: &'g Graph,
    guide: Guide<'g>,
    preceding: usize,
    /// Of the hang itself.
    baseline: Option<Wait>,
    path: Vec<Step>,
    culprits: Vec<Culprit>,
    circular: bool,
    /// Threads whose hang is being explained.
    open: Vec<u32>,
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
        stack: stack(graph, step.vertex),
    }
}

pub fn stack(graph: &Graph, vertex: u32) -> Vec<String> {
    let sites = graph.stack(graph.details(vertex).stack);
    sites.into_iter().map(str::to_owned).collect()
}

type Answered<T> = Result<T, Box<Question>>;

impl Search<'_> {
    fn blame(&mut self, activity: &Activity, depth: usize) {
        let vertex = activity.vertex;
        let thread = self.graph.thread(vertex);
        let known = self
            .culprits
            .iter()
            .any(|culprit| culprit.tid == thread.tid);
        if known {
            return;
        }
        let now = self.graph.vertex(vertex);
        let places = |vertex| self.graph.places(self.graph.details(vertex).stack);
        self.culprits.push(Culprit {
            vertex,
            tid: thread.tid,
            pid: thread.pid,
            thread: thread.name.clone(),
            class: activity.class,
            start: activity.start,
            dur: activity.dur(),
            doing: describe(self.graph, activity),
            depth,
            stack: stack(self.graph, vertex),
            places: places(vertex),
            places_before: self.graph.before(vertex).map_or_else(Vec::new, places),
            call: now.call().map(|call| Call::name_of(call.number)),
        });
    }

    /// Explains what a thread did, deepest cause first.
    fn explain(&mut self, activity: &Activity, depth: usize) -> Answered<()> {
        let thread = self.graph.vertex(activity.vertex).thread;
        self.open.push(thread);
        if let (Some(wait), true) = (activity.wait, depth < DEEPEST) {
            self.explain_wait(&wait, depth)?;
        } else if activity.class == Class::RepeatedYield && depth < DEEPEST {
            self.explain_polling(activity, depth)?;
        }
        self.open.pop();
        if depth > 0 {
            self.blame(activity, depth);
        }
        Ok(())
    }

    /// Those who owed the wake are looked for on the path of the hang's own end, then on that of
    /// its baseline.
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
        self.search_path(&path, wait, depth).map(drop)
    }

    /// Whether a thread on the path is to blame. The nearest one owes the wake. Those behind it
    /// either owe theirs to it, and are found when it is explained, or have done their part and
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
            self.circular |= place + 1 < self.open.len();
            return Ok(false);
        }
        let found = during(self.graph, thread, from, to);
        if let Some(activity) = &found {
            self.explain(activity, depth + 1)?;
        }
        Ok(found.is_some())
    }
}

/// The main thread of what was recorded, or, where everything was, the thread with the most unusual
/// stretch.
fn choose(graph: &Graph, request: &Request) -> Option<Activity> {
    let threads: Vec<u32> = match request.thread {
        Some(tid) => graph.thread_of(tid).into_iter().collect(),
        None => {
            let mains = graph
                .meta
                .pids
                .iter()
                .filter_map(|&pid| graph.thread_of(pid));
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
        guide: Guide::new(request.answers.as_deref()),
        preceding: request.preceding,
        baseline: None,
        path: Vec::new(),
        culprits: Vec::new(),
        circular: false,
        open: Vec::new(),
    };
    search.explain(hang, 0)?;
    if hang.wait.is_none() {
        search.path = slice(graph, hang.vertex, 0, &mut search.guide)?;
    }
    if search.culprits.is_empty() {
        search.blame(hang, 0);
    }
    // Stable: of two at the same distance the one on the hang's own path came first.
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
        unfinished: hang.end == graph.meta.last,
        baseline: search.baseline.map(|wait| alone(wait.vertex)),
        path: search.path.iter().map(|s| step(graph, s)).collect(),
        circular: search.circular,
        advice: advice(graph, hang, &search.culprits),
        culprits: search.culprits,
        questions: search.guide.asked.len(),
        asked: search.guide.asked,
        lost: graph.meta.gaps.iter().map(|gap| gap.count).sum(),
    })
}
