// SPDX-License-Identifier: MIT
//! What is told of a process's threads, whether it lives or left a core file: one list of passes.
//!
//! In: which threads there are, and what was seen of those that were looked at. Out: their reports.
//! The passes: threads that are not looked at are described; findings become reports; the words
//! of a thread with a flag are tried out in copies, and who owes them is asked, or those of a
//! thread whose loop is open; a call is told with what it is about; threads that serve step back;
//! the order. What only a living process can be asked is behind [`Target`].

use std::time::{Duration, Instant};

use flagfinder_flags::{Flag, LoopKind, Report, Rule, Standing, Verdict};
use flagfinder_linux::syscalls;

use crate::candidate::Candidate;
use crate::chain;
use crate::chosen_threads::Choice;
use crate::deadline::Deadline;
use crate::helpers::what_it_does;
use crate::hot_call;
use crate::idle_helpers;
use crate::low_scores;
use crate::others::{Other, Others};
use crate::owed;
use crate::prove::not_proved;
use crate::report::{Class, Source, SpinReport, ThreadReport};
use crate::sample::{Activity, SAMPLE};
use crate::stepping_job::Finding;
use crate::thread_order;
use crate::thread_ways::{self, Told, Way};
use crate::vm_words;
use crate::wait::Describer;

/// Most blocked threads that are described.
pub(crate) const DESCRIBED: usize = 64;

/// Where the threads come from.
pub(crate) trait Target {
    /// Tries the thread's candidates in copies, and asks who of the others would write them, for at
    /// most `time`.
    fn prove(&self, thread: &mut ThreadReport, others: &Others, time: Duration);

    /// May words be tried that the code alone does not make flags?
    fn tries_unsure(&self) -> bool {
        true
    }
}

/// The threads of one process on their way into the report.
pub(crate) struct Driver<'a> {
    pub choice: Choice,
    pub describer: Describer<'a>,
    pub deadline: &'a Deadline,
    pub report: SpinReport,
}

impl Driver<'_> {
    /// Adds the threads that are not looked at.
    pub fn describe(&mut self) {
        let chosen = self.choice.tids();
        let is_left = |(activity, _): &&(Activity, Way)| !chosen.contains(&activity.tid);
        let left: Vec<&(Activity, Way)> = self.choice.threads.iter().filter(is_left).collect();
        for (activity, way) in left.iter().take(DESCRIBED) {
            let what = || format!("what thread {} waits for", activity.tid);
            let thread = match self.deadline.leaves_out(what) {
                true => unlooked(activity),
                false => untouched(activity, way, &mut self.describer),
            };
            self.report.threads.push(thread);
        }
        if left.len() > DESCRIBED {
            self.report.notes.push(format!(
                "{} more blocked threads are not shown; --thread TID shows one",
                left.len() - DESCRIBED
            ));
        }
    }

    /// Adds what was seen of a thread.
    pub fn add(&mut self, tid: u32, finding: &Finding) {
        let Some((activity, way)) = self.choice.get(tid) else {
            return;
        };
        let thread = stepped(activity, way, finding, &mut self.describer);
        self.report.threads.push(thread);
    }

    /// Adds a thread that was chosen, but only waits.
    pub fn add_waiting(&mut self, tid: u32) {
        if let Some((activity, _)) = self.choice.get(tid) {
            let thread = untouched(activity, &Way::Waits, &mut self.describer);
            self.report.threads.push(thread);
        }
    }

    /// Adds the chosen threads of which nothing was seen.
    pub fn add_unlooked(&mut self) {
        for tid in self.choice.tids() {
            let is_known = self.report.threads.iter().any(|told| told.tid == *tid);
            if let Some((activity, _)) = self.choice.get(*tid).filter(|_| !is_known) {
                self.report.threads.push(unlooked(activity));
            }
        }
    }

    /// Tries out, and puts in order. `all`: the threads of the process. `of_program`: those of
    /// which the program's own code tells. `time`: for copies of other threads, for the first
    /// thread.
    pub fn settle(
        &mut self,
        target: &dyn Target,
        all: &[(Activity, Way)],
        of_program: &[u32],
        time: Duration,
    ) {
        let threads = &mut self.report.threads;
        let others = others(threads, all);
        // If some thread has a flag, the others are not asked more closely.
        let has_none = !threads.iter().any(ThreadReport::has_flag);
        let idle = idle_helpers::idle_beside_busy(threads);
        let is_asked = |thread: &ThreadReport| has_none && !idle.contains(&thread.tid);
        let is_unsure = |thread: &ThreadReport| {
            vm_words::is_open(thread) || is_asked(thread) && low_scores::is_open(thread)
        };
        let is_open = |thread: &&mut ThreadReport| {
            thread.has_flag() || target.tries_unsure() && is_unsure(thread)
        };
        let (begin, mut time) = (Instant::now(), time);
        for thread in threads.iter_mut().filter(is_open) {
            let tid = thread.tid;
            if of_program.contains(&tid) || vm_words::is_late(thread, begin.elapsed()) {
                vm_words::leave(thread);
                continue;
            }
            let what = || format!("who owes what thread {tid} polls, and its proof");
            if self.deadline.leaves_out(what) {
                not_proved(thread, "the time limit was over");
                vm_words::leave(thread);
                continue;
            }
            // No copy goes where its calls were counted.
            if !is_counted(thread) {
                target.prove(thread, &others, self.deadline.at_most(time));
                time = time.min(owed::TIME_OF_OTHERS);
            }
            let Describer {
                pid,
                memory,
                ref mut owners,
                ..
            } = self.describer;
            hot_call::tell(pid, thread, memory, owners);
        }
        self.arrange();
    }

    /// The threads that tell most come first, with those that wait for them.
    fn arrange(&mut self) {
        let threads = &mut self.report.threads;
        if self.report.source == Source::Core && Rule::OneMoment.is_on() {
            assume_the_moment(threads);
        }
        threads.iter_mut().for_each(idle_helpers::leave);
        idle_helpers::leave_idle(threads);
        for thread in threads.iter_mut() {
            for flag in &mut thread.considered {
                flag.flag.standing = Standing::RuledOut;
            }
            let activity = self.choice.get(thread.tid).map(|(activity, _)| activity);
            if let (true, Some(activity)) = (leave_unsure(thread), activity) {
                let call = activity.call.is_some();
                thread.wait = call.then(|| self.describer.wait(activity.call, &activity.sleeps_in));
            }
        }
        threads.iter_mut().for_each(ThreadReport::settle_condition);
        thread_order::sort(threads);
        let tells = |thread: &ThreadReport| thread.has_flag() || thread.steps > 0;
        let fixed = threads.iter().take_while(|t| tells(t)).count();
        let chains = chain::sort(threads, fixed);
        self.report.notes.extend(chains);
        let left_out = self.choice.left_out();
        if left_out > 0 {
            self.report.notes.push(format!(
                "{left_out} more threads repeat something and were not looked at; --thread TID \
                 looks at one"
            ));
        }
    }

    /// Is there no time left to look at the thread?
    pub fn leaves_out(&self, tid: u32) -> bool {
        self.deadline.leaves_out(|| what_it_does(tid))
    }
}

/// Whether a thread gets on, one moment does not show: it may have come to its loop right before.
/// Only where who is to write waits for something itself, the loop goes on until that comes. Else a
/// word is no more than assumed.
fn assume_the_moment(threads: &mut [ThreadReport]) {
    let waiting = threads.iter().filter(|one| one.class == Class::LongWait);
    let waiting: Vec<u32> = waiting.map(|one| one.tid).collect();
    for flag in threads.iter_mut().flat_map(|thread| &mut thread.flags) {
        let owed = flag.owed();
        let is_claimed = flag.is_word() && flag.flag.standing < Standing::Assumed;
        if !is_claimed || owed.iter().any(|owed| waiting.contains(&owed.tid)) {
            continue;
        }
        let why = match owed.first() {
            Some(owed) => format!("thread {} may be about to write it", owed.tid),
            None => "nobody is known to owe it".into(),
        };
        flag.flag.standing = Standing::Assumed;
        flag.note(format!(
            "assumed: that the thread does not get on, as {why}"
        ));
    }
}

/// A thread whose first flag is too unsure to be told has none. Was it such a thread?
fn leave_unsure(thread: &mut ThreadReport) -> bool {
    let unsure = thread.flags.first();
    let Some(first) = unsure.filter(|first| !first.flag.standing.is_told()) else {
        return false;
    };
    let doubt = first.flag.evidence.first().map_or("", String::as_str);
    let name = &first.flag.name;
    thread.reason = match first.is_word() {
        true => format!("it may poll {name}, which is not sure: {doubt}"),
        false => format!("it may go on because {name}; that is not sure: {doubt}"),
    };
    thread.verdict = Some(Verdict::NoFlag);
    thread.groups.clear();
    thread.considered.splice(..0, thread.flags.drain(..));
    true
}

fn is_counted(thread: &ThreadReport) -> bool {
    let call = thread
        .flags
        .first()
        .and_then(|first| first.flag.call.as_ref());
    call.is_some_and(|call| call.per_second.is_some())
}

/// A thread of which there is no time to ask more.
pub(crate) fn unlooked(activity: &Activity) -> ThreadReport {
    let class = match activity.wants >= thread_ways::HOT || activity.state == 'R' {
        true => Class::LongRunning,
        false => Class::LongWait,
    };
    ThreadReport {
        reason: format!("not looked at, for want of time; {}", does(activity)),
        ..blank(activity, class)
    }
}

pub(crate) fn does(activity: &Activity) -> String {
    let call = activity.call.map(|call| syscalls::name(call.number));
    let call = call.map_or(String::new(), |name| format!(" in {name}"));
    let place = match activity.sleeps_in.as_str() {
        "" => String::new(),
        place => format!(" (in the kernel's {place})"),
    };
    let state = match activity.state {
        'R' => "runs, or is ready to",
        'D' => "waits without being interruptible",
        'T' | 't' => "is stopped",
        'Z' | 'X' => "has ended",
        _ => "waits",
    };
    format!("it {state}{call}{place}")
}

/// The threads that may be copied, those that were described first, and why another one may not.
fn others(reports: &[ThreadReport], threads: &[(Activity, Way)]) -> Others {
    let known = |tid: u32| reports.iter().find(|report| report.tid == tid);
    let mut others = Others::default();
    for (activity, way) in threads {
        match (way, known(activity.tid)) {
            (Way::Untouchable(why), _) => {
                let why = format!("thread {} can't be copied: {why}", activity.tid);
                others.left_out.get_or_insert(why);
            }
            (_, Some(report)) => others.list.push(Other::of(report)),
            (way, None) => others.list.push(Other {
                tid: activity.tid,
                name: activity.name.clone(),
                waits: (*way == Way::Waits)
                    .then(|| activity.call.map(|call| syscalls::name(call.number)))
                    .flatten(),
                polls: false,
            }),
        }
    }
    others.list.sort_by_key(|other| known(other.tid).is_none());
    others
}

fn blank(activity: &Activity, class: Class) -> ThreadReport {
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    ThreadReport {
        name: activity.name.clone(),
        cpu: round(activity.cpu),
        wants: round(activity.wants),
        sleeps_per_second: round(activity.sleeps as f64 / SAMPLE.as_secs_f64()),
        ..ThreadReport::blank(activity.tid, class)
    }
}

fn untouched(activity: &Activity, way: &Way, describer: &mut Describer) -> ThreadReport {
    let class = match way {
        Way::Hot | Way::Told(Told::Ends) => Class::LongRunning,
        Way::Repeats | Way::Told(Told::Known) => Class::RepeatedYield,
        Way::Waits | Way::Untouchable(_) => Class::LongWait,
    };
    let wait = describer.wait(activity.call, &activity.sleeps_in);
    ThreadReport {
        reason: match way {
            Way::Untouchable(why) => format!("not stepped: {why}"),
            Way::Hot | Way::Repeats => "not stepped: others seemed to tell more".into(),
            Way::Waits => wait.summary.clone(),
            Way::Told(Told::Known) => "not stepped: the program's own code tells its loop".into(),
            Way::Told(Told::Ends) => {
                "its loop comes to an end by itself, as its own code tells".into()
            }
        },
        wait: Some(wait),
        ..blank(activity, class)
    }
}

fn stepped(
    activity: &Activity,
    way: &Way,
    finding: &Finding,
    describer: &mut Describer,
) -> ThreadReport {
    let mut report = blank(activity, class(way, finding.report.as_ref()));
    report.steps = finding.steps;
    report.pause_ms = finding.pause_ms;
    if report.steps > 0 {
        report.via = Some(finding.via);
        report.via_reason = Some(finding.via_reason.clone());
    }
    report.late.clone_from(&finding.late);
    report.held.clone_from(&finding.held);
    match &finding.report {
        Some(found) => {
            // All that the loop tests rests on the answers with which it is a loop.
            let assumed = |flag: &Flag| flag.standing == Standing::Assumed;
            let is_assumed = finding.is_assumed || found.flags.iter().any(assumed);
            let doubt = is_assumed.then_some(Standing::Assumed);
            let of = |flag: &Flag| {
                let mut candidate = Candidate::new(flag.clone());
                candidate.doubt = doubt;
                let standing = candidate.flag.standing;
                candidate.flag.standing = doubt.map_or(standing, |doubt| doubt.max(standing));
                candidate
            };
            let candidates = |flags: &[Flag]| flags.iter().map(of).collect();
            report.verdict = Some(found.verdict);
            report.reason.clone_from(&found.reason);
            report.spin_loop.clone_from(&found.spin_loop);
            report.flags = candidates(&found.flags);
            report.considered = candidates(&found.considered);
            report.groups.clone_from(&found.groups);
            report.notes.clone_from(&found.notes);
            report.explain.clone_from(&found.explain);
            report.facts = found.facts.clone();
        }
        None => {
            let error = finding.error.as_deref().unwrap_or_default();
            report.reason = format!("not stepped: {error}");
        }
    }
    if !finding.ended.is_empty() {
        report.reason += &format!("; {}", finding.ended);
    }
    if let Some(why) = &finding.halted {
        report.reason += &format!("; its copy went no further: {why}");
    }
    report.halted.clone_from(&finding.halted);
    report.is_assumed = finding.is_assumed;
    if activity.call.is_some() && !report.has_flag() {
        report.wait = Some(describer.wait(activity.call, &activity.sleeps_in));
    }
    report
}

/// A thread that polls repeats a wait, whether it gives way or not; a thread that computes runs
/// long.
fn class(way: &Way, found: Option<&Report>) -> Class {
    let kind = found.and_then(|found| Some(found.spin_loop.as_ref()?.kind));
    let gives_way = matches!(
        kind,
        Some(LoopKind::Yield | LoopKind::Sleep | LoopKind::Syscall)
    );
    let polls = found.is_some_and(|found| !found.flags.is_empty());
    if polls || gives_way || *way == Way::Repeats {
        Class::RepeatedYield
    } else {
        Class::LongRunning
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::tests::{debtor, word, LEAVES};
    use crate::candidate::Known;

    /// How a word of a core is known, of which this was known, where thread 7 owes it or nobody
    /// does.
    fn in_a_core(known: Standing, writer: Option<Class>) -> Standing {
        let mut flag = word("ready", 0.8, LEAVES);
        flag.flag.standing = known;
        let owed = writer.map(|_| debtor(7, Known::ByCode));
        flag.owed_by(owed.into_iter().collect());
        let mut threads = [
            ThreadReport {
                flags: vec![flag],
                ..ThreadReport::blank(1, Class::RepeatedYield)
            },
            ThreadReport::blank(7, writer.unwrap_or(Class::LongWait)),
        ];
        assume_the_moment(&mut threads);
        threads[0].flags[0].flag.standing
    }

    #[test]
    fn one_moment_shows_a_wait_only_where_the_writer_waits_too() {
        let (ends, by_code) = (Standing::EndsLoop, Standing::ByCode);
        let (waits, runs) = (Some(Class::LongWait), Some(Class::LongRunning));
        assert_eq!(in_a_core(ends, waits), ends);
        assert_eq!(in_a_core(by_code, waits), by_code);
        assert_eq!(in_a_core(ends, runs), Standing::Assumed);
        assert_eq!(in_a_core(ends, None), Standing::Assumed);
        assert_eq!(in_a_core(by_code, None), Standing::Assumed);
    }
}
