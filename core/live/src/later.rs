// SPDX-License-Identifier: MIT
//! Does a thread get past the word that it seems to wait for?
//!
//! Threads that take turns (at a lock, at work that others bring) wait a little, again and again. A
//! copy of one shows the wait alone, as the others do not move in it; a thread that is stepped is
//! so slow that the others do not see it come. So the thread is looked at again once it runs on:
//! its word is read, and the kernel notes where the thread is, all without a stop. In: the loop's
//! code and its first word. Out: without a word where the thread was seen to get past it. Blind
//! spots: a turn that comes more seldom than the second look is long; a loop that begins anew in
//! the code of the loop.

use std::time::{Duration, Instant};

use flagfinder_code::AddressSpace;
use flagfinder_flags::{has_flag, Places, Report, Rule, Verdict};
use flagfinder_replica::Live;
use flagfinder_step::Sampler;
use flagfinder_waits::proc;

use crate::deadline::Deadline;
use crate::stepping_job::Finding;

/// How long the second look takes: this where the word stays as it is, and so much where it moves,
/// unless more is known before.
const TIME: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_millis(1000);
/// How many looks at the word come one behind the other (a lock is free for moments only), the time
/// between, and how many such times come for one look at the thread.
const AT_ONCE: u32 = 16;
const BETWEEN: Duration = Duration::from_micros(100);
const PLACE: u32 = 64;
/// How long the thread runs from one place that the kernel notes to the next.
const EVERY: Duration = Duration::from_millis(1);
/// The word changed so often, or the thread left its loop so often.
const OFTEN: u32 = 3;
/// A thread that looks all the time sees a value that is there at one of so many looks.
const SHARE: u32 = 20;
/// A thread that is ready to run, and runs for less than this part of the time, misses much.
const STARVED: u32 = 4;
/// With fewer places it is not known where the thread is most of the time.
const ENOUGH: u32 = 20;
/// A word that counts goes no farther while it is looked at.
const FAR: u64 = 1 << 24;

/// Looks at all these threads for the second time. `is_hot`: uses it the processor?
pub(crate) fn look(
    pid: u32,
    findings: &mut [(u32, Finding)],
    (memory, deadline): (&dyn AddressSpace, &Deadline),
    is_hot: impl Fn(u32) -> bool,
) {
    if !Rule::GetsPast.is_on() {
        return;
    }
    leave_given(findings, &is_hot);
    let mut watched: Vec<Watched> = findings
        .iter_mut()
        .filter_map(|(tid, finding)| Watched::of(*tid, finding, is_hot(*tid)))
        .collect();
    if watched.is_empty() {
        return;
    }
    let live = Live::open(pid).ok();
    let is_clock = |pc| live.as_ref().is_some_and(|live| live.is_vdso(pc));
    let begin = Instant::now();
    for number in 0.. {
        for one in &mut watched {
            (0..AT_ONCE).for_each(|_| one.read(memory));
            one.beside.iter_mut().for_each(|beside| beside.read(memory));
            if number % PLACE == 0 {
                one.locate(pid, &is_clock);
            }
        }
        let time = begin.elapsed();
        let is_done = |one: &Watched| one.is_done(time);
        if time >= LONGEST || deadline.is_over() || watched.iter().all(is_done) {
            break;
        }
        std::thread::sleep(BETWEEN);
    }
    let time = begin.elapsed();
    let passed = watched.into_iter().filter_map(|one| one.tell(time));
    let passed: Vec<Passed> = passed.collect();
    // By now more threads are known to get on.
    leave_given(findings, &is_hot);
    leave_locks(findings, &passed, &is_hot);
}

/// A thread that gets past its word, and the value that lets it.
struct Passed {
    tid: u32,
    word: u64,
    exit: u64,
}

/// What another thread gets again and again is given back each time: nobody keeps it, and who looks
/// all the time comes to it. Who waits for another value of the word may wait for ever.
fn leave_locks(findings: &mut [(u32, Finding)], passed: &[Passed], is_hot: &impl Fn(u32) -> bool) {
    for (waiting, finding) in findings {
        let Some(report) = finding.report.as_mut().filter(|report| has_flag(report)) else {
            continue;
        };
        let Some(flag) = report.flags.first() else {
            continue;
        };
        let asks = (flag.address.spin, flag.value.exit);
        let mut all = passed.iter();
        let other = all.find(|one| asks == (Some(one.word), Some(one.exit)));
        let comes = report.verdict == Verdict::Lock || is_hot(*waiting);
        if let Some(Passed { tid, .. }) = other.filter(|_| comes) {
            let why = format!("thread {tid} gets it again and again");
            leave(report, &why, false);
        }
    }
}

/// Another thread gives these what they wait for, again and again: they are about to get it, or
/// others are quicker. One that looks seldom may miss it for ever.
fn leave_given(findings: &mut [(u32, Finding)], is_hot: &impl Fn(u32) -> bool) {
    let givers: Vec<Giver> = findings.iter().filter_map(Giver::of).collect();
    for (tid, finding) in findings.iter_mut().filter(|(tid, _)| is_hot(*tid)) {
        let Some(report) = finding.report.as_mut().filter(|report| has_flag(report)) else {
            continue;
        };
        let flag = report.flags.first();
        let word = flag.and_then(|flag| Some((flag.address.spin?, flag.value.exit?)));
        let mut others = givers.iter().filter(|giver| giver.tid != *tid);
        let giver = word.and_then(|word| others.find(|giver| giver.words.contains(&word)));
        if let Some(giver) = giver {
            let why = format!(
                "thread {} writes the value that ends the loop again and again",
                giver.tid
            );
            leave(report, &why, false);
        }
    }
}

/// A thread that gets on, and the words that get the same values in its rounds.
struct Giver {
    tid: u32,
    words: Vec<(u64, u64)>,
}

impl Giver {
    fn of((tid, finding): &(u32, Finding)) -> Option<Giver> {
        let report = finding.report.as_ref()?;
        let gets_on = report.facts.gets_on && !has_flag(report);
        gets_on.then(|| Giver {
            tid: *tid,
            words: report.facts.rewritten.clone(),
        })
    }
}

/// A thread that seems to wait for a word.
struct Watched<'f> {
    tid: u32,
    report: &'f mut Report,
    address: u64,
    bytes: usize,
    exit: Option<u64>,
    is_hot: bool,
    /// ns on a processor, at the first look and at the last.
    ran: Option<(u64, u64)>,
    sampler: Option<Sampler>,
    seen: Seen,
    beside: Vec<Beside>,
}

/// A word that its loop reads beside.
struct Beside {
    address: u64,
    bytes: usize,
    last: Option<u64>,
    looks: u32,
    changes: u32,
}

impl Beside {
    fn of(&(address, bytes): &(u64, u32)) -> Beside {
        Beside {
            address,
            bytes: bytes as usize,
            last: None,
            looks: 0,
            changes: 0,
        }
    }

    fn is_moving(&self) -> bool {
        self.changes >= OFTEN && self.changes * 2 > self.looks
    }

    fn read(&mut self, memory: &dyn AddressSpace) {
        let value = memory.number(self.address, self.bytes);
        self.changes += u32::from(self.last.is_some() && value.is_some() && value != self.last);
        self.last = value.or(self.last);
        self.looks += 1;
    }
}

impl<'f> Watched<'f> {
    fn of(tid: u32, finding: &'f mut Finding, is_hot: bool) -> Option<Watched<'f>> {
        let report = finding.report.as_mut().filter(|report| has_flag(report))?;
        let flag = report.flags.first()?;
        let (address, exit, first) = (flag.address.spin?, flag.value.exit, flag.value.spin);
        let bytes = (1..=8).contains(&flag.size).then_some(flag.size as usize)?;
        let reads = report.facts.reads.clone();
        let reads = reads.iter().filter(|word| word.0 != address);
        let has_places = !report.facts.places.is_empty();
        Some(Watched {
            tid,
            report,
            address,
            bytes,
            exit,
            is_hot,
            ran: None,
            beside: reads.map(Beside::of).collect(),
            sampler: has_places
                .then(|| Sampler::start(tid, EVERY).ok())
                .flatten(),
            seen: Seen {
                first,
                ..Seen::default()
            },
        })
    }

    fn read(&mut self, memory: &dyn AddressSpace) {
        if let Some(value) = memory.number(self.address, self.bytes) {
            self.seen.add_value(value, self.exit);
        }
    }

    /// Takes what was noted of it, and the call in which it sleeps.
    fn locate(&mut self, pid: u32, is_clock: &dyn Fn(u64) -> bool) {
        let Some(look) = proc::look(pid, self.tid) else {
            return;
        };
        let (first, _) = *self.ran.get_or_insert((look.ran, look.ran));
        self.ran = Some((first, look.ran));
        let places = &self.report.facts.places;
        if places.is_empty() {
            return;
        }
        let noted = self.sampler.as_mut().map(Sampler::take).unwrap_or_default();
        for pc in noted.into_iter().chain(look.call.map(|call| call.pc)) {
            self.seen.add_place(is_here(places, pc, is_clock));
        }
    }

    /// Does it miss values that are there for moments?
    fn misses(&self, time: Duration) -> bool {
        self.report.verdict == Verdict::Lock || self.is_starved(time)
    }

    /// Do others have the processors that it asks for?
    fn is_starved(&self, time: Duration) -> bool {
        let ran = self
            .ran
            .map(|(first, last)| Duration::from_nanos(last - first));
        self.is_hot && time >= TIME && ran.is_some_and(|ran| ran * STARVED < time)
    }

    /// Is there no more to see of it?
    fn is_done(&self, time: Duration) -> bool {
        self.seen.got_past(self.misses(time)).is_some() || time >= TIME && !self.seen.may_get_past()
    }

    /// What it got past, if it did, and the value is known that let it.
    fn tell(self, time: Duration) -> Option<Passed> {
        let mut beside = self.beside.iter();
        self.report.facts.reads_news = beside.any(Beside::is_moving);
        let why = self.seen.got_past(self.misses(time))?;
        let gets_on = self.seen.is_left();
        leave(
            self.report,
            &format!("{why}, within {} ms", time.as_millis()),
            gets_on,
        );
        Some(Passed {
            tid: self.tid,
            word: self.address,
            exit: self.exit?,
        })
    }
}

/// It does not wait for its word. `gets_on`: it was seen to leave its loop.
fn leave(report: &mut Report, why: &str, gets_on: bool) {
    let name = report.flags.first().map_or("", |flag| &flag.name);
    let reason = format!("it does not wait for {name}: {why}");
    let mut nothing = Report::nothing(Verdict::NoFlag, reason);
    nothing.facts = std::mem::take(&mut report.facts);
    nothing.facts.gets_on |= gets_on;
    nothing.considered = std::mem::take(&mut report.flags);
    *report = nothing;
}

/// The loop's code; and where it asks for the time, all of the kernel's code that answers.
fn is_here(places: &Places, pc: u64, is_clock: &dyn Fn(u64) -> bool) -> bool {
    places.hold(pc) || is_clock(pc) && places.starts().any(is_clock)
}

/// What was seen of a word and its thread.
#[derive(Default)]
struct Seen {
    looks: u32,
    last: Option<u64>,
    changes: u32,
    /// At so many looks the value was there that ends the loop, and it came so often.
    there: u32,
    came: u32,
    /// The value with which the loop went on. The word counts, and has gone past the value that
    /// ends the loop.
    first: Option<u64>,
    is_past: bool,
    /// Places of the thread, those that are not of its loop, and how often it went there.
    places: u32,
    elsewhere: u32,
    left: u32,
    was_elsewhere: bool,
}

impl Seen {
    fn add_value(&mut self, value: u64, exit: Option<u64>) {
        let is_new = self.last.is_some_and(|last| last != value);
        let is_there = exit == Some(value);
        self.changes += u32::from(is_new);
        self.there += u32::from(is_there);
        self.came += u32::from(is_there && self.last != exit);
        self.looks += 1;
        self.last = Some(value);
        let first = *self.first.get_or_insert(value);
        let to = |value: u64| value.wrapping_sub(first);
        self.is_past |= exit.is_some_and(|exit| {
            let (now, end) = (to(value), to(exit));
            end > 0 && now > end && now - end < FAR && end < FAR
        });
    }

    fn add_place(&mut self, is_here: bool) {
        self.places += 1;
        self.elsewhere += u32::from(!is_here);
        self.left += u32::from(!is_here && !self.was_elsewhere);
        self.was_elsewhere = !is_here;
    }

    /// Does the word move, so that more may be seen?
    fn may_get_past(&self) -> bool {
        self.changes >= OFTEN
    }

    /// Was the thread seen to leave its loop?
    fn is_left(&self) -> bool {
        self.changes >= OFTEN && self.left >= OFTEN || self.is_elsewhere()
    }

    fn is_elsewhere(&self) -> bool {
        self.places >= ENOUGH && self.elsewhere * 2 > self.places
    }

    /// How it is known that the thread gets past its word, or would. Neither a word that moves nor
    /// a thread that does something else shows that alone: another's count moves for ever beside a
    /// reader that it starves, and a thread that waits in vain may write a line from time to time.
    /// A value that ends the loop and comes again and again is no news that the thread waits for.
    /// One that is there for moments counts where the thread may miss them: it gets no processor,
    /// or others take the lock before it.
    fn got_past(&self, misses: bool) -> Option<String> {
        let Seen {
            looks,
            changes,
            there,
            came,
            places,
            elsewhere,
            left,
            ..
        } = *self;
        if changes >= OFTEN && left >= OFTEN {
            return Some(format!(
                "it changed at {changes} of {looks} looks, and the thread left its loop {left} \
                 times"
            ));
        }
        if came >= OFTEN && (misses || there * SHARE >= looks) {
            return Some(format!(
                "it had the value that ends the loop at {there} of {looks} looks"
            ));
        }
        if self.is_past && changes >= OFTEN {
            return Some("it counts, and went past the value that ends the loop".into());
        }
        self.is_elsewhere().then(|| {
            format!("{elsewhere} of {places} looks found the thread where its loop does not go")
        })
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_flags::{Flag, FlagKind};

    use super::*;

    /// What is seen of a word that ends a loop by 0.
    fn seen(values: &[u64], is_here: &[bool]) -> Seen {
        let mut seen = Seen::default();
        values
            .iter()
            .for_each(|value| seen.add_value(*value, Some(0)));
        is_here.iter().for_each(|here| seen.add_place(*here));
        seen
    }

    fn gets_past(values: &[u64], is_here: &[bool]) -> bool {
        seen(values, is_here).got_past(false).is_some()
    }

    #[test]
    fn a_thread_gets_past_a_word_that_changes_while_the_thread_leaves_its_loop() {
        let count = [1, 2, 3, 4, 5];
        let turns = [true, false, true, false, true, false];
        assert!(gets_past(&count, &turns));
        assert!(!gets_past(&[1; 5], &turns), "it writes lines meanwhile");
        assert!(!gets_past(&count, &[true; 6]), "it is starved");
        let once = [true, true, false, false, false, true];
        assert!(!gets_past(&count, &once), "it left once");
    }

    #[test]
    fn a_thread_that_is_mostly_elsewhere_does_not_wait_in_its_loop() {
        let mostly = |here: usize, elsewhere: usize| {
            let mut places = vec![true; here];
            places.extend(vec![false; elsewhere]);
            gets_past(&[1; 5], &places)
        };
        assert!(mostly(10, 11));
        assert!(!mostly(11, 10));
        assert!(!mostly(3, 9), "hardly seen");
    }

    #[test]
    fn a_count_that_goes_past_the_awaited_value_is_not_waited_for_any_more() {
        let past = |values: &[u64]| {
            let mut seen = Seen::default();
            values
                .iter()
                .for_each(|value| seen.add_value(*value, Some(7)));
            seen.got_past(false).is_some()
        };
        assert!(past(&[5, 6, 8, 9]));
        assert!(!past(&[2, 3, 4, 5]), "it does not come so far");
        assert!(!past(&[8, 9, 10, 11]), "it was past it before");
        assert!(!past(&[5, 5, 5, 1 << 40]), "it is no count");
    }

    #[test]
    fn a_value_that_comes_again_and_again_is_not_waited_for() {
        let comes = |values: &[u64]| gets_past(values, &[]);
        assert!(comes(&[0, 9, 0, 9, 0, 9]));
        assert!(!comes(&[9; 6]));
        assert!(!comes(&[0, 0, 0, 0, 9, 9]), "it came once and stayed");
        let mut seldom = vec![9; 100];
        (0..3).for_each(|at| seldom[at * 30] = 0);
        assert!(!comes(&seldom), "the thread would see it");
        assert!(
            seen(&seldom, &[]).got_past(true).is_some(),
            "it hardly runs"
        );
    }

    #[test]
    fn what_another_thread_gives_again_and_again_is_not_waited_for() {
        let polls = |words: Vec<(u64, u64)>, is_hot: bool| {
            let mut flag = Flag::new(FlagKind::Heap, "lock");
            (flag.address.spin, flag.value.exit, flag.size) = (Some(0x1000), Some(0), 4);
            flag.confidence = 0.9;
            let mut report = Report::nothing(Verdict::DataFlag, "");
            report.flags.push(flag);
            let mut finding = Finding::missing("");
            finding.report = Some(report);
            let mut other = Finding::missing("");
            let mut gets_on = Report::nothing(Verdict::NoFlag, "");
            (gets_on.facts.gets_on, gets_on.facts.rewritten) = (true, words);
            other.report = Some(gets_on);
            let mut findings = [(1, finding), (2, other)];
            leave_given(&mut findings, &|_| is_hot);
            let report = findings[0].1.report.take().expect("a report");
            let is_left = !has_flag(&report);
            assert!(!report.facts.gets_on, "nobody saw this one get on");
            !is_left
        };
        assert!(!polls(vec![(0x1000, 1), (0x1000, 0)], true));
        assert!(polls(vec![(0x1000, 1), (0x1008, 0)], true), "other words");
        assert!(polls(vec![(0x1000, 0)], false), "it looks seldom");
    }

    #[test]
    fn a_lock_that_another_thread_gets_again_and_again_is_kept_by_nobody() {
        let of = |verdict: Verdict, word: u64, exit: u64, is_hot: bool| {
            let mut flag = Flag::new(FlagKind::Heap, "lock");
            (flag.address.spin, flag.value.exit, flag.confidence) = (Some(0x1000), Some(0), 0.9);
            let mut report = Report::nothing(verdict, "");
            report.flags.push(flag);
            let mut finding = Finding::missing("");
            finding.report = Some(report);
            let mut findings = [(1, finding)];
            let passed = [Passed { tid: 2, word, exit }];
            leave_locks(&mut findings, &passed, &|_| is_hot);
            let report = findings[0].1.report.as_ref().expect("a report");
            assert!(!report.facts.gets_on, "nobody saw this one get on");
            !has_flag(report)
        };
        let is_left = |verdict, word, exit| of(verdict, word, exit, false);
        assert!(is_left(Verdict::Lock, 0x1000, 0));
        assert!(!is_left(Verdict::Lock, 0x1008, 0), "another lock");
        assert!(!is_left(Verdict::Lock, 0x1000, 2), "another value");
        assert!(!is_left(Verdict::DataFlag, 0x1000, 0), "it may miss it");
        assert!(
            of(Verdict::DataFlag, 0x1000, 0, true),
            "it looks all the time"
        );
    }

    #[test]
    fn all_of_the_kernel_s_code_is_of_a_loop_that_asks_for_the_time() {
        let is_clock = |pc: u64| pc >= 0x9000;
        let places = |starts: &[u64]| starts.iter().map(|at| (*at, at + 4)).collect::<Places>();
        let (asks, other) = (places(&[0x1000, 0x9000]), places(&[0x1000]));
        assert!(is_here(&asks, 0x9ff0, &is_clock) && !is_here(&other, 0x9ff0, &is_clock));
        assert!(is_here(&other, 0x1003, &is_clock) && !is_here(&other, 0x1004, &is_clock));
    }
}
