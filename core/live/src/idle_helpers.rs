// SPDX-License-Identifier: MIT
//! Threads that serve a virtual machine or an allocator: HotSpot's compilers, timers and collectors
//! wait for work in loops of their own, with a time limit.
//!
//! In: a thread's report. Out: without a flag, if HotSpot's own code reads that and the thread
//! looks seldom. What a program of Java polls is read by the code that was made from it. Where
//! HotSpot itself waits for the program (for all threads to stand still), it looks often. Nor has a
//! thread a flag that looks seldom beside one which is busy and makes progress, if its word is not
//! sure and nobody is known to owe it: jemalloc's background thread gives back unused pages.

use flagfinder_flags::{Rule, Verdict};

use crate::report::ThreadReport;
use crate::thread_ways::HOT;
use crate::why::HOTSPOT;

/// A thread that sleeps so many times a second looks often.
const OFTEN: f64 = 100.0;
/// A thread that wants so little of a processor is idle nearly all the time.
const IDLE: f64 = 0.02;
/// A word with no higher score is not sure.
const UNSURE: f64 = 0.5;

/// If it is such a thread, it then has no flag.
pub(crate) fn leave(thread: &mut ThreadReport) {
    let Some(first) = thread.flags.first() else {
        return;
    };
    let reader = first.flag.readers.first();
    let is_own = reader.is_some_and(|code| code.module.as_deref() == Some(HOTSPOT));
    if !Rule::ServesMachine.is_on()
        || !is_own
        || thread.wants >= HOT
        || thread.sleeps_per_second >= OFTEN
    {
        return;
    }
    let name = &first.flag.name;
    thread.reason = format!("it serves the virtual machine, and polls {name} until it has work");
    has_none(thread);
}

/// The same for all threads of a process of which one is busy and makes progress.
pub(crate) fn leave_idle(threads: &mut [ThreadReport]) {
    let gets_on = |thread: &ThreadReport| thread.facts.gets_on && thread.wants >= HOT;
    if !Rule::IdleBesideProgress.is_on() || !threads.iter().any(gets_on) {
        return;
    }
    for thread in threads {
        let Some(first) = thread.flags.first() else {
            continue;
        };
        let is_owed = !first.owed().is_empty();
        if !is_idle(thread) || is_owed || first.flag.confidence > UNSURE {
            continue;
        }
        let name = &first.flag.name;
        thread.reason = format!(
            "it sleeps nearly all the time, beside a thread that makes progress; it may poll \
             {name}, which nobody is known to owe"
        );
        has_none(thread);
    }
}

/// Does it sleep nearly all the time?
fn is_idle(thread: &ThreadReport) -> bool {
    thread.wants < IDLE && thread.sleeps_per_second < OFTEN
}

/// The threads that sleep nearly all the time, beside one that burns a processor: they are not what
/// the process hangs in. (A runtime's clock tests whether it is to stop.)
pub(crate) fn idle_beside_busy(threads: &[ThreadReport]) -> Vec<u32> {
    let burns = threads.iter().any(|thread| thread.wants >= HOT);
    let idle = threads.iter().filter(|thread| burns && is_idle(thread));
    idle.map(|thread| thread.tid).collect()
}

fn has_none(thread: &mut ThreadReport) {
    thread.verdict = Some(Verdict::NoFlag);
    thread.serves = true;
    thread.considered.splice(..0, thread.flags.drain(..));
}

#[cfg(test)]
mod tests {
    use flagfinder_code::Code;
    use flagfinder_flags::Facts;

    use super::*;
    use crate::candidate::tests::{debtor, word};
    use crate::candidate::Known;
    use crate::report::Class;

    fn reads(module: &str, sleeps_per_second: f64) -> ThreadReport {
        let mut flag = word("WatcherThread::_should_terminate", 0.6, None);
        flag.flag.readers.push(Code {
            module: Some(module.into()),
            ..Code::default()
        });
        let mut thread = ThreadReport {
            flags: vec![flag],
            sleeps_per_second,
            ..ThreadReport::blank(1, Class::RepeatedYield)
        };
        leave(&mut thread);
        thread
    }

    #[test]
    fn an_unsure_word_of_an_idle_thread_is_no_flag_beside_progress() {
        let housekeeping = |confidence, wants, owed| {
            let mut word = word("word", confidence, None);
            word.owed_by(owed);
            ThreadReport {
                flags: vec![word],
                sleeps_per_second: 5.0,
                wants,
                ..ThreadReport::blank(1, Class::RepeatedYield)
            }
        };
        let busy = |gets_on| ThreadReport {
            facts: Facts {
                gets_on,
                ..Facts::default()
            },
            wants: 0.9,
            ..ThreadReport::blank(2, Class::LongRunning)
        };
        let has_flag = |thread, gets_on| {
            let mut threads = [thread, busy(gets_on)];
            leave_idle(&mut threads);
            threads[0].has_flag()
        };
        let nobody = Vec::new;
        assert!(!has_flag(housekeeping(0.5, 0.003, nobody()), true));
        assert!(has_flag(housekeeping(0.5, 0.003, nobody()), false));
        assert!(has_flag(housekeeping(0.8, 0.003, nobody()), true));
        assert!(has_flag(housekeeping(0.5, 0.4, nobody()), true));
        let owed = vec![debtor(2, Known::ByCode)];
        assert!(has_flag(housekeeping(0.5, 0.003, owed), true));
    }

    #[test]
    fn a_thread_that_sleeps_is_idle_beside_one_that_burns_a_processor() {
        let thread = |tid, wants| ThreadReport {
            wants,
            ..ThreadReport::blank(tid, Class::RepeatedYield)
        };
        let pair = || vec![thread(1, 0.0), thread(2, 0.05)];
        assert!(idle_beside_busy(&pair()).is_empty());
        let beside = pair()
            .into_iter()
            .chain([thread(3, 1.0)])
            .collect::<Vec<_>>();
        assert_eq!(idle_beside_busy(&beside), [1]);
    }

    #[test]
    fn a_word_that_hotspot_polls_for_itself_is_no_flag() {
        let timer = reads(HOTSPOT, 20.0);
        assert!(timer.serves && !timer.has_flag());
        assert!(timer.reason.contains("_should_terminate"));
        assert_eq!(timer.considered.len(), 1);
        assert!(reads(HOTSPOT, 900.0).has_flag(), "it waits for the program");
        assert!(reads("libmine.so", 20.0).has_flag());
    }
}
