//! What each thread did during a fraction of a second.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::proc::{self, Call, Look};

/// How often threads are looked at meanwhile, for the calls that they sleep in.
const LOOKS: u32 = 8;

/// A thread's behaviour over the sample.
#[derive(Clone, Debug)]
pub struct Activity {
    pub tid: u32,
    pub name: String,
    pub state: char,
    /// Share of the time on a processor, 0..=1.
    pub cpu: f64,
    /// Share of the time running or waiting for a processor: what it would use alone.
    pub wants: f64,
    /// Times that it went to sleep.
    pub sleeps: u64,
    pub tracer: u32,
    /// The call it was seen in last.
    pub call: Option<Call>,
    pub sleeps_in: String,
}

/// Watches all threads of the process. Threads that end meanwhile are left out.
///
/// # Errors
/// When the process is gone.
pub fn sample(pid: u32, time: Duration) -> std::io::Result<Vec<Activity>> {
    let begin = Instant::now();
    let looks = |tids: Vec<u32>| -> Vec<(u32, Look)> {
        let looked = tids.into_iter().map(|tid| (tid, proc::look(pid, tid)));
        looked
            .filter_map(|(tid, look)| Some((tid, look?)))
            .collect()
    };
    let first = looks(proc::threads(pid)?);
    let mut calls: FxHashMap<u32, Call> = FxHashMap::default();
    let mut last = Vec::new();
    for _ in 0..LOOKS {
        std::thread::sleep(time / LOOKS);
        last = looks(proc::threads(pid)?);
        for (tid, look) in &last {
            if let Some(call) = look.call {
                calls.insert(*tid, call);
            }
        }
    }
    let spent = begin.elapsed().as_nanos() as f64;
    let before: FxHashMap<u32, Look> = first.into_iter().collect();
    let activity = |(tid, now): (u32, Look)| {
        let then = before.get(&tid).cloned().unwrap_or_default();
        let ran = now.ran.saturating_sub(then.ran) as f64;
        let queued = now.queued.saturating_sub(then.queued) as f64;
        Activity {
            tid,
            cpu: (ran / spent).min(1.0),
            wants: ((ran + queued) / spent).min(1.0),
            sleeps: now.switches.saturating_sub(then.switches),
            call: calls.get(&tid).copied(),
            name: now.name,
            state: now.state,
            tracer: now.tracer,
            sleeps_in: now.sleeps_in,
        }
    };
    Ok(last.into_iter().map(activity).collect())
}
