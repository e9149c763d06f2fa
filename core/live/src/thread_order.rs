// SPDX-License-Identifier: MIT
//! Which of a process's threads is reported first.
//!
//! Threads may wait for each other: of those with a clear answer the hottest comes first. What
//! wakes a few times a second beside a thread that repeats a wait all the time is that process's
//! heartbeat (a virtual machine's timer, a log's flusher): it polls a word too, whether to stop,
//! but is not what the process hangs in, even if nothing is found for the other, if the copies of
//! that one do not agree, or if hardly anything of it was seen. Blind spot: a thread that waits in
//! vain and looks seldom, beside a healthy one that waits for a while.

use flagfinder_flags::{FlagKind, Rule};

use crate::report::{Class, ThreadReport};
use crate::thread_ways::HOT;

/// A thread whose score is lower than the best by this much is not reported first.
const LESS_CERTAIN: f64 = 0.35;
/// A heartbeat sleeps so many times less often than a thread that repeats a wait all the time.
const SELDOM: f64 = 10.0;
/// A heartbeat also uses so many times less of the processor.
const LITTLE: f64 = 4.0;
/// With fewer steps it can't be told whether a thread repeats anything.
const HARDLY_SEEN: u64 = 1000;

pub fn sort(threads: &mut [ThreadReport]) {
    let heartbeats: Vec<u32> = threads
        .iter()
        .filter(|_| Rule::Heartbeats.is_on())
        .filter(|thread| threads.iter().any(|busy| is_heartbeat(thread, busy)))
        .map(|thread| thread.tid)
        .collect();
    let has_flag = |t: &ThreadReport| t.has_flag() && !heartbeats.contains(&t.tid);
    let best = threads
        .iter()
        .filter(|t| has_flag(t))
        .map(ThreadReport::confidence)
        .fold(0.0, f64::max);
    let class = |t: &ThreadReport| {
        let clear = has_flag(t) && t.confidence() + LESS_CERTAIN >= best;
        let is_heartbeat = heartbeats.contains(&t.tid);
        (!clear, !has_flag(t), t.serves, t.steps == 0, is_heartbeat)
    };
    threads.sort_by(|a, b| {
        class(a)
            .cmp(&class(b))
            .then(b.wants.total_cmp(&a.wants))
            .then(a.tid.cmp(&b.tid))
    });
}

/// Is `thread` the heartbeat of a process in which `busy` repeats a wait for which nothing was
/// found?
fn is_heartbeat(thread: &ThreadReport, busy: &ThreadReport) -> bool {
    // The copies of several moments wait for different words, so none shows progress.
    let do_not_agree = busy.steps > 0 && busy.facts.gets_on;
    let is_hardly_seen = busy.verdict.is_some() && busy.steps < HARDLY_SEEN;
    let is_unclear = busy.spin_loop.is_none() && (do_not_agree || is_hardly_seen);
    let repeats = busy.spin_loop.is_some() && !busy.facts.gets_on;
    let is_open = (repeats || is_unclear) && !busy.has_flag();
    let (often, seldom) = (busy.sleeps_per_second, thread.sleeps_per_second);
    let sleeps_more = often >= SELDOM * seldom.max(1.0);
    // A thread in a virtual machine's loop seldom has a flag; a global of the machine is none of
    // its program's words.
    let first = thread.flags.first();
    let is_global = first.is_some_and(|first| first.flag.kind == FlagKind::Global);
    let serves = busy.facts.machine.is_some() && is_global;
    let repeats_a_wait = busy.class == Class::RepeatedYield || is_unclear || serves;
    let gives_way = repeats_a_wait && busy.wants >= HOT;
    let little = busy.cpu > 0.0 && busy.cpu >= LITTLE * thread.cpu;
    let is_calm = thread.has_flag() && thread.wants < HOT;
    is_calm && is_open && (sleeps_more || gives_way) && little
}

#[cfg(test)]
mod tests {
    use flagfinder_code::Code;
    use flagfinder_flags::{Facts, LoopKind, LoopReport, Verdict, VirtualMachine};

    use super::*;
    use crate::candidate::tests::word;

    fn thread(tid: u32, cpu: f64, sleeps_per_second: f64, confidence: Option<f64>) -> ThreadReport {
        let flags = confidence.map(|confidence| word("word", confidence, None));
        let spin_loop = LoopReport {
            kind: LoopKind::Busy,
            function: None,
            module: None,
            iterations: 9,
            header: Code::default(),
            at: None,
        };
        ThreadReport {
            cpu,
            wants: cpu,
            sleeps_per_second,
            spin_loop: Some(spin_loop),
            flags: flags.into_iter().collect(),
            steps: 1000,
            ..ThreadReport::blank(tid, Class::RepeatedYield)
        }
    }

    fn first(mut threads: Vec<ThreadReport>) -> u32 {
        sort(&mut threads);
        threads[0].tid
    }

    #[test]
    fn a_heartbeat_is_not_what_a_process_hangs_in() {
        let heartbeat = || thread(1, 0.001, 20.0, Some(0.6));
        let sleeper = || thread(2, 0.02, 900.0, None);
        let yielder = || thread(2, 0.9, 0.0, None);
        assert_eq!(first(vec![heartbeat(), sleeper()]), 2);
        let wants_more = || thread(1, 0.003, 20.0, Some(0.6));
        let sleeper_at_times = ThreadReport {
            wants: 0.002,
            ..sleeper()
        };
        assert_eq!(first(vec![wants_more(), sleeper_at_times]), 2);
        assert_eq!(first(vec![heartbeat(), yielder()]), 2);
        let dozes = thread(1, 0.0, 0.0, Some(0.6));
        let hot_at_times = ThreadReport {
            class: Class::LongRunning,
            ..sleeper()
        };
        assert_eq!(first(vec![dozes, hot_at_times]), 2);
        let spins = ThreadReport {
            wants: 0.9,
            ..thread(1, 0.1, 0.0, Some(0.6))
        };
        assert_eq!(first(vec![spins, yielder()]), 1, "it gets little");
        let poller = thread(3, 0.002, 100.0, Some(0.5));
        assert_eq!(first(vec![heartbeat(), sleeper(), poller]), 3);
    }

    #[test]
    fn beside_a_thread_that_gets_on_it_may_be() {
        let seldom = || thread(1, 0.001, 20.0, Some(0.6));
        let server = ThreadReport {
            facts: Facts {
                gets_on: true,
                ..Facts::default()
            },
            ..thread(2, 0.3, 900.0, None)
        };
        assert_eq!(first(vec![seldom(), server]), 1);
        let unclear = ThreadReport {
            facts: Facts {
                gets_on: true,
                ..Facts::default()
            },
            class: Class::LongRunning,
            spin_loop: None,
            ..thread(2, 0.9, 0.0, None)
        };
        assert_eq!(first(vec![seldom(), unclear]), 2, "its copies do not agree");
        let stepped = |steps| ThreadReport {
            steps,
            verdict: Some(Verdict::NoFlag),
            class: Class::LongRunning,
            spin_loop: None,
            ..thread(2, 0.9, 0.0, None)
        };
        assert_eq!(first(vec![seldom(), stepped(70)]), 2, "it is hardly seen");
        assert_eq!(first(vec![seldom(), stepped(20_000)]), 1);
        let computes = ThreadReport {
            class: Class::LongRunning,
            ..thread(2, 0.9, 0.0, None)
        };
        assert_eq!(first(vec![seldom(), computes.clone()]), 1);
        let interprets = || ThreadReport {
            facts: Facts {
                machine: Some(VirtualMachine::default()),
                ..Facts::default()
            },
            ..computes.clone()
        };
        assert_eq!(first(vec![seldom(), interprets()]), 1);
        let mut serves = seldom();
        serves.flags[0].flag.kind = FlagKind::Global;
        assert_eq!(first(vec![serves, interprets()]), 2, "the machine's own");
        let like_it = thread(2, 0.002, 90.0, None);
        assert_eq!(first(vec![seldom(), like_it]), 1);
    }
}
