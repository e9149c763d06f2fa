//! Algorithm 1 of seed 000, answered by rule (`--auto`): from a hang to the thread that is to blame for it.
//!
//! A wait is compared with its *baseline*: the newest wait of the same thread in the same call at the same place that was much shorter.
//! The threads on the path that woke the baseline, and on the one that ended the hang if it ended, should have done so again: each of
//! them that did something unusual meanwhile is a culprit, and is diagnosed in turn ("the culprit of the culprit").

use serde::{Deserialize, Serialize};

use crate::activity::{describe, during, stretches, Activity, Class};
use crate::graph::{EdgeKind, Graph, Wait};
use crate::slice::{slice, Step};

/// A baseline took at most this part of the hang's time.
const MUCH_SHORTER: u64 = 4;
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
    pub questions: u32,
    pub lost: u64,
}

struct Search<'g> {
    graph: &'g Graph,
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

fn stack(graph: &Graph, vertex: u32) -> Vec<String> {
    let sites = graph.stack(graph.vertex(vertex).stack);
    sites.into_iter().map(str::to_owned).collect()
}

fn same_place(graph: &Graph, a: u32, b: u32) -> bool {
    let (a, b) = (graph.vertex(a), graph.vertex(b));
    let Some((first, second)) = a.call().zip(b.call()) else {
        return false;
    };
    // Of a futex or descriptor the first argument is part of the meaning; of others it is a buffer's address.
    let has_object = first.number == 202 || first.descriptor().is_some();
    first.number == second.number && (!has_object || first.first == second.first)
}

fn ended_by_thread(graph: &Graph, wait: &Wait) -> bool {
    wait.next
        .is_some_and(|next| graph.into(next).iter().any(|edge| edge.kind().is_strong()))
}

/// The wait to compare with: similar by its semantic events, different in its result (seed 000, section 5.4). The newest before, else the first after.
fn baseline(graph: &Graph, hang: &Wait) -> Option<Wait> {
    let thread = graph.vertex(hang.vertex).thread;
    let well = |wait: &Wait| {
        wait.vertex != hang.vertex
            && same_place(graph, wait.vertex, hang.vertex)
            && wait.dur().saturating_mul(MUCH_SHORTER) <= hang.dur()
            && ended_by_thread(graph, wait)
    };
    let all: Vec<Wait> = graph.waits(thread).filter(well).collect();
    let exact =
        |wait: &&Wait| graph.vertex(wait.vertex).semantics == graph.vertex(hang.vertex).semantics;
    let before = || all.iter().filter(|wait| wait.start < hang.start);
    let best = before().rfind(exact);
    best.or_else(|| before().next_back())
        .or_else(|| all.first())
        .copied()
}

/// Where to look for those who owed a wake: the path of the hang's own end, then that of its baseline.
fn paths(graph: &Graph, hang: &Wait, baseline: Option<&Wait>) -> Vec<Vec<Step>> {
    let own = hang.next.filter(|_| ended_by_thread(graph, hang));
    let own = own.map(|next| slice(graph, next, hang.start));
    let well = baseline.and_then(|wait| wait.next.map(|next| slice(graph, next, wait.start)));
    own.into_iter().chain(well).collect()
}

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
        });
    }

    /// Explains what a thread did, deepest cause first.
    fn explain(&mut self, activity: &Activity, depth: usize) {
        let thread = self.graph.vertex(activity.vertex).thread;
        self.open.push(thread);
        if let (Some(wait), true) = (activity.wait, depth < DEEPEST) {
            self.explain_wait(&wait, depth);
        } else if activity.class == Class::RepeatedYield && depth < DEEPEST {
            self.explain_polling(activity, depth);
        }
        self.open.pop();
        if depth > 0 {
            self.blame(activity, depth);
        }
    }

    fn explain_wait(&mut self, wait: &Wait, depth: usize) {
        let well = baseline(self.graph, wait);
        for path in paths(self.graph, wait, well.as_ref()) {
            let mut seen = Vec::new();
            for step in path {
                let thread = self.graph.vertex(step.vertex).thread;
                if seen.contains(&thread) {
                    continue;
                }
                seen.push(thread);
                // The nearest one owes the wake. Those behind it either owe theirs to it, and are found when it is explained, or have
                // done their part and wait for the next thing to do.
                if self.suspect(thread, wait.start, wait.end, depth) {
                    return;
                }
            }
        }
    }

    /// The threads that wrote the flag it polls, as far as watch saw it.
    fn explain_polling(&mut self, activity: &Activity, depth: usize) {
        let thread = self.graph.vertex(activity.vertex).thread;
        let edges = self
            .graph
            .of(thread)
            .iter()
            .flat_map(|&vertex| self.graph.into(vertex));
        let writers: Vec<u32> = edges
            .filter(|edge| edge.kind() == EdgeKind::Flag)
            .map(|edge| self.graph.vertex(edge.from).thread)
            .collect();
        for writer in writers {
            self.suspect(writer, activity.start, activity.end, depth);
        }
    }

    /// Whether the thread did something unusual, which then is explained.
    fn suspect(&mut self, thread: u32, from: u64, to: u64, depth: usize) -> bool {
        if let Some(place) = self.open.iter().position(|&open| open == thread) {
            // The wait itself is on its own path; only another thread in between makes a circle.
            self.circular |= place + 1 < self.open.len();
            return false;
        }
        let found = during(self.graph, thread, from, to);
        if let Some(activity) = &found {
            self.explain(activity, depth + 1);
        }
        found.is_some()
    }
}

/// The main thread of what was recorded, or, where everything was, the thread with the most unusual stretch.
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
        let unusual = activity
            .wait
            .is_none_or(|wait| baseline(graph, &wait).is_some());
        if unusual {
            activity.dur() * ORDINARY
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
            "flagfinder watch {pid} --flag spin.flags.json#1 --json -o watch.jsonl"
        ));
    }
    advice
}

/// Explains a hang. `None`: no thread did anything for a millisecond, or there is no such thread.
pub fn diagnose(graph: &Graph, request: &Request) -> Option<Diagnosis> {
    let hang = choose(graph, request)?;
    let mut search = Search {
        graph,
        culprits: Vec::new(),
        circular: false,
        open: Vec::new(),
    };
    search.explain(&hang, 0);
    let well = hang.wait.and_then(|wait| baseline(graph, &wait));
    let path = match hang.wait {
        Some(wait) => paths(graph, &wait, well.as_ref())
            .into_iter()
            .next()
            .unwrap_or_default(),
        None => slice(graph, hang.vertex, 0),
    };
    if search.culprits.is_empty() {
        search.blame(&hang, 0);
    }
    // Stable: of two at the same distance the one on the hang's own path came first.
    search
        .culprits
        .sort_by_key(|culprit| std::cmp::Reverse(culprit.depth));
    Some(Diagnosis {
        class: hang.class,
        thread: step(
            graph,
            &Step {
                vertex: hang.vertex,
                edge: None,
            },
        ),
        doing: describe(graph, &hang),
        start: hang.start,
        dur: hang.dur(),
        unfinished: hang.end == graph.meta.last,
        baseline: well.map(|wait| {
            step(
                graph,
                &Step {
                    vertex: wait.vertex,
                    edge: None,
                },
            )
        }),
        path: path.iter().map(|s| step(graph, s)).collect(),
        circular: search.circular,
        advice: advice(graph, &hang, &search.culprits),
        culprits: search.culprits,
        questions: 0,
        lost: graph.meta.gaps.iter().map(|gap| gap.count).sum(),
    })
}
