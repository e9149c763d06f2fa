// SPDX-License-Identifier: MIT
//! From a thread along those that owe, to the end of the chain or round a circle.
//!
//! Where any of several may end a wait, each is followed. The end that explains most wins; it is a
//! circle only if all lead back. Where two ends explain as much, neither is blamed.

mod copied;

use std::collections::BTreeMap;
use std::time::Duration;

use flagfinder_code::Spot;
use flagfinder_linux::clock::Effort;
use flagfinder_linux::proc::link;
use flagfinder_linux::traits;
use flagfinder_waits::turn::SentLast;
use rustc_hash::{FxHashMap, FxHashSet};

use super::asked::{Asked, InSource};
use super::children;
use super::choose::choose;
use super::examine::{examine, is_busy, Examined};
use super::java;
use super::left;
use super::obstacle::{Debtor, End, Obstacle, State, Weight, Who};
use super::place::{is_on, is_passing};
use super::process::Processes;
use super::report::{Kind, Known, Link, Node, OwedBy, Root, RootKind};
use super::ruby;
use super::served::{from_client, from_peer};
use super::terms::Terms;
use super::way::{Chosen, Outcome, Way};
use crate::helpers::what_it_does;
use crate::report::ThreadReport;
use crate::spin::{spin, SpinOptions};

/// Longest chain, and most threads that are looked at on all ways together.
const DEPTH: usize = 16;
const MOST_LOOKS: usize = 600;
/// Processor time that one walk may take.
const PATIENCE: Duration = Duration::from_secs(4);
/// Most threads of one process that are followed if nothing says which one it is.
const MOST_THREADS: usize = 24;
/// Most threads that are stepped on the way, and how long each.
const MOST_STEPPED: usize = 2;
const BUDGET: Duration = Duration::from_millis(300);
/// Time for all copies of threads that may end the sleep of another.
const COPIES: Duration = Duration::from_millis(1500);

pub struct Walk<'a> {
    pub processes: &'a mut Processes,
    /// What `spin` saw of threads, by thread id.
    pub spun: FxHashMap<u32, ThreadReport>,
    /// What threads of the first process ask, by thread id.
    asked: FxHashMap<u32, Asked>,
    /// Their open calls, as an interpreter has them.
    in_source: BTreeMap<u32, Vec<Spot>>,
    /// Threads of the first process that are looked at later, if nothing else explains the hang.
    later: FxHashSet<u32>,
    /// Threads on the way that may still be looked at by `spin`.
    to_step: usize,
    /// Time that is left for copies of threads that may end the sleep of another, and for those
    /// that find what they look for.
    to_copy: Duration,
    to_meet: Duration,
    examined: FxHashMap<u32, Examined>,
    looks: usize,
    effort: Effort,
    terms: Terms<'a>,
    /// Where the chain begins.
    first: Place,
}

/// A thread: process and thread id.
type Place = (u32, u32);

/// How the walk came to a thread.
#[derive(Default)]
struct Trail {
    path: Vec<Place>,
    /// Processes of which all threads are being followed already.
    fanned: Vec<u32>,
}

impl<'a> Walk<'a> {
    pub fn new(
        processes: &'a mut Processes,
        spun: FxHashMap<u32, ThreadReport>,
        in_source: &InSource,
        terms: Terms<'a>,
    ) -> Self {
        let asked = in_source.asked.iter().map(|one| (one.tid, one.clone()));
        Walk {
            processes,
            spun,
            asked: asked.collect(),
            in_source: in_source.stacks.clone(),
            later: FxHashSet::default(),
            to_step: if terms.looks { MOST_STEPPED } else { 0 },
            to_copy: COPIES,
            to_meet: COPIES,
            examined: FxHashMap::default(),
            looks: 0,
            effort: Effort::begin(),
            terms,
            first: (0, 0),
        }
    }

    /// Sets apart from these threads those of which the virtual machine tells.
    pub fn told_by_java(&mut self, pid: u32, threads: &mut Vec<u32>) -> Vec<u32> {
        let process = self.processes.get(pid);
        let is_told = |tid: &u32| process.is_some_and(|process| java::tells(process, *tid));
        let (told, rest) = threads.iter().partition(|tid| is_told(tid));
        *threads = rest;
        told
    }

    /// Does the thread poll fields of Java?
    pub fn polls_in_java(&mut self, pid: u32, tid: u32) -> bool {
        let process = self.processes.get(pid);
        process.is_some_and(|process| java::polls(process, tid, None).is_some())
    }

    /// These are looked at later, or once the chain is known to reach them.
    pub fn leave(&mut self, threads: &[u32]) {
        self.later.extend(threads);
        self.spun.retain(|tid, _| !threads.contains(tid));
    }

    /// What `spin` saw of further threads.
    pub fn learn(&mut self, threads: Vec<ThreadReport>) {
        for thread in threads {
            self.examined.remove(&thread.tid);
            self.spun.insert(thread.tid, thread);
        }
        self.later.clear();
        self.to_step = MOST_STEPPED;
        self.effort = Effort::begin();
    }

    pub fn follow(&mut self, pid: u32, tid: u32) -> (Vec<Link>, Root, Weight) {
        self.looks = 0;
        self.first = (pid, tid);
        let found = self.explore((pid, tid), &mut Trail::default());
        let (mut root, weight) = match found.outcome {
            Outcome::Root(root, weight) => (root, weight),
            // At the beginning of a path there is no other thread to go back to.
            Outcome::Circle { .. } | Outcome::Idle | Outcome::Passes => {
                let end = End::unknown("the threads wait for each other");
                (end.root(&self.node((pid, tid))), Weight::Unknown)
            }
        };
        let last = root.tid.and_then(|tid| self.examined.get(&tid));
        root.at = match (&root.task, last, root.pid.zip(root.tid)) {
            (Some(_), ..) => root.at,
            (None, Some(last), _) => last.at.clone(),
            // It was not come to, but told of the one before.
            (None, None, Some(place)) => self.examine(place, false).at,
            (None, None, None) => None,
        };
        (found.links, root, weight)
    }

    fn node(&self, (pid, tid): Place) -> Node {
        let name = self.processes.name(pid, tid);
        Node {
            pid,
            tid,
            name,
            task: None,
        }
    }

    fn look(&mut self, (pid, tid): Place, begins: bool, is_guess: bool) -> Examined {
        if let Some(known) = self.examined.get(&tid) {
            return known.clone();
        }
        if !is_guess || !self.later.contains(&tid) {
            self.step(pid, tid);
        }
        let mut found = self.examine((pid, tid), begins);
        if let State::Waits(obstacles) = &mut found.state {
            let is_lone = obstacles.len() == 1;
            for obstacle in obstacles {
                left::settle(self.processes, (pid, tid), obstacle);
                self.ask_who_ends((pid, tid), obstacle, is_lone);
            }
        }
        self.examined.insert(tid, found.clone());
        (self.terms.hear)(self.known_links());
        found
    }

    fn examine(&mut self, (pid, tid): Place, begins: bool) -> Examined {
        let seen = (self.spun.get(&tid), self.asked.get(&tid));
        let mut found = examine(self.processes, pid, tid, seen, begins);
        let in_source = self.in_source.get(&tid).into_iter().flatten();
        let in_source = Spot::first_own(in_source.map(|spot| (spot.whose(), spot)));
        let in_loop = seen.0.and_then(|seen| seen.spin_loop.as_ref()?.at.as_ref());
        // Where tasks are told, that is the place of the thread with which they begin.
        let tasks = found.tasks.iter_mut().flat_map(|tasks| &mut tasks.links);
        let of_thread = tasks.take(1).find(|link| link.waiter.task.is_none());
        let at = of_thread.map_or(&mut found.at, |link| &mut link.at);
        *at = in_source.or(in_loop.cloned()).or(at.take());
        found
    }

    /// The links that are known by now, as far as it is one thread that owes each.
    fn known_links(&self) -> Vec<Link> {
        let mut links: Vec<Link> = Vec::new();
        let mut at = self.first;
        while let Some(examined) = self.examined.get(&at.1) {
            let State::Waits(obstacles) = &examined.state else {
                break;
            };
            let is_back = links.iter().any(|link| link.waiter.tid == at.1);
            let Some(obstacle) = obstacles.first().filter(|_| !is_back) else {
                break;
            };
            let debtor = match &obstacle.debtors[..] {
                [only] if !obstacle.by_elimination => Some(only),
                _ => None,
            };
            let next = debtor.and_then(|debtor| match &debtor.who {
                Who::Thread(pid, tid) => Some((*pid, *tid)),
                Who::Process(pid, _) => Some((*pid, *pid)),
                Who::AnyOf(..) => None,
            });
            links.push(Link {
                waiter: self.node(at),
                waits_for: obstacle.waits_for.clone(),
                owed_by: debtor.zip(next).map(|(debtor, place)| OwedBy {
                    node: self.node(place),
                    code: debtor.code.clone(),
                }),
                known: debtor.map_or(obstacle.known, |debtor| debtor.known),
                reason: debtor
                    .map_or(&obstacle.reason, |debtor| &debtor.reason)
                    .clone(),
                stack: examined.stack.clone(),
                at: obstacle.at.clone().or(examined.at.clone()),
                supposed: debtor.map_or_else(Vec::new, |debtor| debtor.supposed.clone()),
            });
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        links
    }

    /// Nothing new is looked at once the time limit is over.
    fn is_left_out(&self, (pid, tid): Place) -> bool {
        let what = || format!("what keeps thread {tid} of process {pid}");
        !self.examined.contains_key(&tid) && self.terms.deadline.leaves_out(what)
    }

    /// A thread of another process that polls is stepped, as those of the first are.
    fn step(&mut self, pid: u32, tid: u32) {
        let is_told = self.asked.get(&tid).is_some_and(|one| one.tells_all);
        if self.spun.contains_key(&tid) || self.to_step == 0 || is_told {
            return;
        }
        let Some(process) = self.processes.get(pid) else {
            return;
        };
        let polls = process
            .activity(tid)
            .is_some_and(|a| is_busy(process, a) && a.tracer == 0);
        if !polls || process.is_dead || pid == std::process::id() {
            return;
        }
        // Threads of Ruby try a lock that others have again and again, and note which.
        if java::tells(process, tid) || ruby::owed(process, tid).is_some() {
            return;
        }
        if self.terms.deadline.leaves_out(|| what_it_does(tid)) {
            return;
        }
        self.to_step -= 1;
        let before = Effort::begin();
        let options = SpinOptions {
            threads: vec![tid],
            budget: BUDGET,
            most: 1,
            deadline: self.terms.deadline.clone(),
            ..SpinOptions::default()
        };
        if let Ok(report) = spin(pid, &options, &|_| {}, |_| None) {
            let found = report.threads.into_iter().find(|thread| thread.tid == tid);
            self.spun.extend(found.map(|thread| (tid, thread)));
        }
        // This time does not count for the chain.
        self.effort.leave_out(before);
    }

    fn explore(&mut self, place: Place, trail: &mut Trail) -> Chosen {
        if let Some(at) = trail.path.iter().position(|seen| *seen == place) {
            return Chosen::bare(Outcome::Circle { at, note: None });
        }
        self.looks += 1;
        if trail.path.len() >= DEPTH || self.looks > MOST_LOOKS || self.effort.exceeds(PATIENCE) {
            let what = "the chain was not followed further: that takes too long";
            let end = End::unknown(what);
            return Chosen::end(end, &self.node(place));
        }
        if self.is_left_out(place) {
            let what = "the chain was not followed further: the time limit was over";
            return Chosen::end(End::unknown(what), &self.node(place));
        }
        let examined = self.look(place, trail.path.is_empty(), !trail.fanned.is_empty());
        let Some(tasks) = &examined.tasks else {
            return self.from(&self.node(place), &examined, place, trail);
        };
        let mut found = self.from(&tasks.last, &examined, place, trail);
        found.links.splice(0..0, tasks.links.iter().cloned());
        if let Outcome::Root(root, _) = &mut found.outcome {
            root.assumed |= tasks.links.iter().any(|link| link.known == Known::Assumed);
            if root.task == tasks.last.task {
                root.at.clone_from(&examined.at);
            }
        }
        found
    }

    /// From a thread that was examined, or from the last of its tasks: `node`.
    fn from(
        &mut self,
        node: &Node,
        examined: &Examined,
        place: Place,
        trail: &mut Trail,
    ) -> Chosen {
        let pid = place.0;
        let obstacles = match &examined.state {
            State::End(end) => return Chosen::end(end.clone(), node),
            State::Waits(obstacles) => obstacles.clone(),
        };
        trail.path.push(place);
        let mut ways = Vec::new();
        // What only threads of its own process end tells a thread to look for other work.
        let foreign = obstacles.iter().filter(|one| !one.is_within(pid)).count();
        for obstacle in &obstacles {
            let is_lone = obstacles.len() == 1 || foreign == 1 && !obstacle.is_within(pid);
            ways.extend(self.ways(node, examined, (obstacle, is_lone), trail));
        }
        trail.path.pop();
        let nested = trail.fanned.contains(&pid);
        let mut found = choose(ways, node, trail.path.len(), nested);
        if let Some(end) = &examined.awaits {
            found.explain_idle(node, end);
        }
        match &obstacles[..] {
            [only] if found.is_nobody(node) => self.lost_wakeup(place, only).unwrap_or(found),
            _ => found,
        }
    }

    /// All that may end this one wait. `is_lone`: the thread waits for nothing else from outside
    /// of its process.
    fn ways(
        &mut self,
        node: &Node,
        examined: &Examined,
        (obstacle, is_lone): (&Obstacle, bool),
        trail: &mut Trail,
    ) -> Vec<Way> {
        let step = |owed_by: Option<OwedBy>, known: Known, reason: String| Link {
            waiter: node.clone(),
            waits_for: obstacle.waits_for.clone(),
            owed_by,
            known,
            reason,
            stack: examined.stack.clone(),
            at: obstacle.at.clone().or(examined.at.clone()),
            supposed: Vec::new(),
        };
        if obstacle.debtors.is_empty() && obstacle.passing.is_empty() {
            let handler = self.handler(node.pid).filter(|_| obstacle.by_elimination);
            let end = handler.map_or_else(|| obstacle.otherwise.clone(), End::unknown);
            let known = match obstacle.by_elimination {
                true => Known::Assumed,
                false => obstacle.known,
            };
            let first = step(None, known, end.what.clone());
            let found = Chosen::end(end, node);
            return vec![Way::new(first, found, false, true)];
        }
        let fans = obstacle.by_elimination;
        let (mut all, is_whole) = self.threads(obstacle);
        // A thread is at both ends of a channel only if it is in a call on both.
        all.retain(|(place, debtor, direct)| {
            *direct || *place != (node.pid, node.tid) || holder(debtor).is_none()
        });
        let mut ways = Vec::new();
        let is_fanned = trail.fanned.contains(&node.pid);
        if fans && is_fanned {
            // The threads of its process are looked at already: nothing new can be found there.
            all.retain(|(place, ..)| place.0 != node.pid);
            let first = step(None, Known::Assumed, obstacle.reason.clone());
            ways.push(Way::new(first, Chosen::bare(Outcome::Idle), fans, false));
        }
        if fans {
            trail.fanned.push(node.pid);
            let others = (!is_whole).then(|| "more threads were not looked at".to_owned());
            let handler = self.handler(node.pid).filter(|_| !is_fanned);
            for what in others.into_iter().chain(handler) {
                let first = step(None, Known::Assumed, what.clone());
                let found = Chosen::end(End::unknown(what), node);
                ways.push(Way::new(first, found, fans, false));
            }
        }
        for place in &obstacle.passing {
            let owed = OwedBy {
                node: self.node(*place),
                code: None,
            };
            let first = step(Some(owed), Known::Assumed, obstacle.reason.clone());
            ways.push(Way::new(first, Chosen::bare(Outcome::Passes), fans, false));
        }
        for (place, debtor, direct) in all {
            let owing = self.node(place);
            let found = match obstacle.waits_for.kind {
                // It ran while it was looked at. What it does a moment later explains nothing.
                Kind::Cpu => Chosen::end(
                    End::fault(RootKind::Computes, "it uses the processor"),
                    &owing,
                ),
                // A process whose child has ended goes on, as a shell does between two `sleep`s.
                Kind::Child if self.processes.get(place.0).is_none() => {
                    let what = format!(
                        "its child {} has ended meanwhile, and what it does then was not found",
                        place.0
                    );
                    Chosen::end(End::unknown(what), node)
                }
                // It had a descriptor a moment ago, so its end is no hang.
                _ if matches!(debtor.who, Who::Process(_, Some(_)))
                    && self.processes.get(place.0).is_none() =>
                {
                    let what = format!("process {} has ended meanwhile", place.0);
                    Chosen::end(End::unknown(what), node)
                }
                _ => self.explore(place, trail),
            };
            let (found, owes) = match obstacle.is_request {
                true => from_client(found, &owing, node),
                false => (found, true),
            };
            let found = match obstacle.sent_last {
                // Whoever reads waits for this very one.
                Some(SentLast::Untold) if !self.looks(place) => found,
                Some(sent_last) => from_peer(found, sent_last, &owing, node),
                None => found,
            };
            if let (false, Outcome::Root(root, _)) = (owes, &found.outcome) {
                let first = step(None, obstacle.known, root.what.clone());
                ways.push(Way::new(first, found, false, direct));
                continue;
            }
            let found = match &debtor.who {
                // Of several channels most are silent, and whoever has their other end waits for
                // something else.
                Who::Process(pid, Some(file))
                    if is_lone && direct && !is_on(self.processes, *pid, place.1, file) =>
                {
                    found.of_one_elsewhere(place)
                }
                _ => found,
            };
            let found = match found.outcome {
                Outcome::Circle { .. } | Outcome::Idle
                    if debtor.known == Known::Assumed && self.ran(place) =>
                {
                    let end = End::unknown("it ran while it was looked at");
                    let links = found.links;
                    Chosen {
                        links,
                        ..Chosen::end(end, &owing)
                    }
                }
                _ => found,
            };
            let code = debtor.code.clone();
            let code = code.or_else(|| self.examined.get(&place.1).and_then(Examined::code));
            let owed = OwedBy { node: owing, code };
            let mut first = step(Some(owed), debtor.known, debtor.reason.clone());
            first.supposed.clone_from(&debtor.supposed);
            ways.push(Way::new(first, found, fans, direct));
        }
        if fans {
            trail.fanned.pop();
        }
        if obstacle.for_room {
            ways.iter_mut().for_each(Way::is_unread);
        }
        for debtor in &obstacle.debtors {
            if let Some((place, found)) = self.of_its_output(debtor, &ways) {
                let code = self.examined.get(&place.1).and_then(Examined::code);
                let owed = OwedBy {
                    node: self.node(place),
                    code,
                };
                let first = step(Some(owed), debtor.known, debtor.reason.clone());
                ways.retain(|way| !leads_to(way, place.0));
                ways.push(Way::new(first, found, false, true));
            }
        }
        ways
    }

    /// A process of several threads has a pipe as its output, and none of them is writing or leads
    /// anywhere. So it has inherited the pipe, as a server does that was started in the background:
    /// it lives on, and no end of file comes.
    fn of_its_output(&mut self, debtor: &Debtor, ways: &[Way]) -> Option<(Place, Chosen)> {
        let Who::Process(pid, Some(file)) = &debtor.who else {
            return None;
        };
        let is_idle = |way: &&Way| leads_to(way, *pid) && way.weight() <= Some(Weight::Idle);
        let idle = ways.iter().filter(is_idle).count();
        let all = ways.iter().filter(|way| leads_to(way, *pid)).count();
        let is_output = || {
            [1, 2]
                .into_iter()
                .any(|fd| link(*pid, fd).as_ref() == Some(file))
        };
        if idle < 2 || idle < all || !file.starts_with("pipe:") || !is_output() {
            return None;
        }
        let mut what = "it has the other end as its output, and lives on".to_owned();
        let first = ways.iter().find(|way| leads_to(way, *pid))?;
        if let Outcome::Root(root, Weight::Idle) = &first.outcome {
            what += &format!(": {}", root.what);
        }
        let place = (*pid, *pid);
        let end = End::outside(RootKind::Input, what);
        Some((place, Chosen::end(end, &self.node(place))))
    }

    /// Is the thread in a call that asks about descriptors, as event loops are?
    fn looks(&mut self, (pid, tid): Place) -> bool {
        let activity = self.processes.get(pid).and_then(|one| one.activity(tid));
        let call = activity.and_then(|activity| activity.call);
        call.is_some_and(|call| traits::looks(call.number))
    }

    /// Did it wake up, or run all the time, while its process was watched?
    fn ran(&mut self, (pid, tid): Place) -> bool {
        let process = self.processes.get(pid);
        let activity = process.and_then(|process| process.activity(tid));
        activity.is_some_and(|activity| activity.sleeps > 0 || activity.cpu > 0.0)
    }

    /// The signals whose handlers may do what no thread has ahead. Those of Java and Go run in
    /// threads.
    fn handler(&mut self, pid: u32) -> Option<String> {
        let process = self.processes.get(pid)?;
        let signals = match process.is_dead || process.handles_signals_in_threads() {
            true => None,
            false => children::own_handlers(pid),
        };
        signals.map(|signals| format!("a handler of {signals} may end it"))
    }

    /// Each thread that may owe, with what is known, and whether it is known to be this one; and
    /// whether these are all.
    fn threads(&mut self, obstacle: &Obstacle) -> (Vec<(Place, Debtor, bool)>, bool) {
        let mut all = Vec::new();
        let mut is_whole = true;
        let not_on = match obstacle.for_room {
            true => ("none", "reads it"),
            false => ("which", "is to use it is not known"),
        };
        let holders: Vec<u32> = obstacle.debtors.iter().filter_map(holder).collect();
        for debtor in &obstacle.debtors {
            if holder(debtor).is_some_and(|pid| is_passing(self.processes, pid, &holders)) {
                continue;
            }
            match &debtor.who {
                Who::Thread(pid, tid) => {
                    let is_direct = debtor.known != Known::Assumed;
                    all.push(((*pid, *tid), debtor.clone(), is_direct));
                }
                Who::AnyOf(pid, tids) => all.extend(tids.iter().map(|tid| {
                    let who = Who::Thread(*pid, *tid);
                    (
                        (*pid, *tid),
                        Debtor {
                            who,
                            ..debtor.clone()
                        },
                        false,
                    )
                })),
                Who::Process(pid, file) => {
                    is_whole &= self.of_process((*pid, file.as_deref()), debtor, not_on, &mut all);
                }
            }
        }
        (all, is_whole)
    }

    fn of_process(
        &mut self,
        (pid, file): (u32, Option<&str>),
        debtor: &Debtor,
        (which, does): (&str, &str),
        all: &mut Vec<(Place, Debtor, bool)>,
    ) -> bool {
        let tids = self
            .processes
            .get(pid)
            .map(super::process::Process::of_program);
        let tids = tids.unwrap_or_default();
        if tids.len() <= 1 {
            let tid = tids.first().copied().unwrap_or(pid);
            let is_direct = debtor.known != Known::Assumed;
            all.push(((pid, tid), debtor.clone(), is_direct));
            return true;
        }
        let count = tids.len();
        for tid in tids.into_iter().take(MOST_THREADS) {
            let is_on = file.is_some_and(|file| is_on(self.processes, pid, tid, file));
            let known = match is_on {
                true => debtor.known,
                false => Known::Assumed,
            };
            let which = match is_on {
                true => "this thread is in a call on it".to_owned(),
                false => format!("{which} of its {count} threads {does}"),
            };
            let reason = format!("{}; {which}", debtor.reason);
            let one = Debtor {
                known,
                reason,
                ..debtor.clone()
            };
            all.push(((pid, tid), one, is_on));
        }
        count <= MOST_THREADS
    }

    /// A circle among other threads of the process: what hangs there where the chosen thread does
    /// not. Only what is seen of their locks is followed: threads that wait for work are many.
    pub fn any_circle(&mut self, pid: u32) -> Option<(Vec<Link>, Root)> {
        let what = || format!("whether other threads of process {pid} wait in a circle");
        if self.terms.deadline.leaves_out(what) {
            return None;
        }
        self.effort = Effort::begin();
        self.to_step = 0;
        let tids = self.processes.get(pid).map(super::process::Process::tids)?;
        let waits: FxHashMap<u32, u32> = tids
            .iter()
            .filter_map(|tid| Some((*tid, self.waits_for(pid, *tid)?)))
            .collect();
        let tid = in_circle(&waits, &tids)?;
        let (links, root, _) = self.follow(pid, tid);
        (root.kind == RootKind::Deadlock).then_some((links, root))
    }

    /// The only thread of the same process that can end this one's wait, if one is seen. What is
    /// seen of the others is not kept: there may be thousands.
    fn waits_for(&mut self, pid: u32, tid: u32) -> Option<u32> {
        if self.effort.exceeds(PATIENCE) || self.is_left_out((pid, tid)) {
            return None;
        }
        let known = self.examined.get(&tid).cloned();
        let found = known.unwrap_or_else(|| self.examine((pid, tid), false));
        let State::Waits(obstacles) = found.state else {
            return None;
        };
        let debtors = match &obstacles[..] {
            [only] => &only.debtors[..],
            _ => return None,
        };
        match debtors {
            [Debtor {
                who: Who::Thread(of, owner),
                known: Known::Seen,
                ..
            }] if *of == pid => Some(*owner),
            _ => None,
        }
    }
}

/// Is it a thread of this process that owes?
fn leads_to(way: &Way, pid: u32) -> bool {
    let owed_by = way.links.first().and_then(|link| link.owed_by.as_ref());
    owed_by.is_some_and(|owed| owed.node.pid == pid)
}

/// The process of a debtor that has a descriptor.
fn holder(debtor: &Debtor) -> Option<u32> {
    match debtor.who {
        Who::Process(pid, Some(_)) => Some(pid),
        _ => None,
    }
}

/// The first of these threads that is in a circle, and not only before one.
fn in_circle(waits: &FxHashMap<u32, u32>, tids: &[u32]) -> Option<u32> {
    // With which of them each was come to.
    let mut seen: FxHashMap<u32, u32> = FxHashMap::default();
    let mut circles: FxHashSet<u32> = FxHashSet::default();
    for begin in tids {
        let mut at = *begin;
        while !seen.contains_key(&at) {
            seen.insert(at, *begin);
            match waits.get(&at) {
                Some(next) => at = *next,
                None => break,
            }
        }
        if waits.contains_key(&at) && seen.get(&at) == Some(begin) && circles.insert(at) {
            let mut next = waits.get(&at);
            while let Some(one) = next.filter(|one| circles.insert(**one)) {
                next = waits.get(one);
            }
        }
    }
    tids.iter().copied().find(|tid| circles.contains(tid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_before_a_circle_is_not_in_it() {
        let waits = FxHashMap::from_iter([(1, 2), (2, 3), (3, 2), (4, 5), (6, 6)]);
        let first = |tids: &[u32]| in_circle(&waits, tids);
        assert_eq!(first(&[1, 4, 2, 3]), Some(2));
        assert_eq!(first(&[1, 3, 2]), Some(3));
        assert_eq!(first(&[4, 5, 1]), None);
        assert_eq!(first(&[4, 6]), Some(6));
    }
}
