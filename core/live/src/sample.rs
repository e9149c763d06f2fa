// SPDX-License-Identifier: MIT
//! What each thread did during a fraction of a second.

use std::time::{Duration, Instant};

use flagfinder_linux::proc::threads;
use rustc_hash::FxHashMap;

use flagfinder_waits::proc::{self, Call, Look};

/// How long threads are watched.
pub(crate) const SAMPLE: Duration = Duration::from_millis(200);
/// How often threads are looked at during the sample, to see the calls that they sleep in. A look
/// at more than [`CROWD`] threads takes longer than the sample.
const LOOKS: u32 = 8;
const LOOKS_AT_CROWD: u32 = 2;
const CROWD: usize = 2000;

/// A thread's behaviour over the sample.
#[derive(Clone, Debug, Default)]
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
    sample_until(pid, time, || {})
}

/// The same; `stirs` is called once one of them is seen to run, or to have slept anew.
pub fn sample_until(
    pid: u32,
    time: Duration,
    stirs: impl FnOnce(),
) -> std::io::Result<Vec<Activity>> {
    let mut stirs = Some(stirs);
    let mut tell = |any: bool| {
        if let Some(stirs) = stirs.take_if(|_| any) {
            stirs();
        }
    };
    let begin = Instant::now();
    let looks = |tids: Vec<u32>| -> Vec<(u32, Look)> {
        let looked = tids.into_iter().map(|tid| (tid, proc::look(pid, tid)));
        looked
            .filter_map(|(tid, look)| Some((tid, look?)))
            .collect()
    };
    let first = looks(threads(pid)?);
    tell(first.iter().any(|(_, look)| look.state == 'R'));
    let begun: FxHashMap<u32, u64> = first.iter().map(|(tid, l)| (*tid, l.switches)).collect();
    let mut calls: FxHashMap<u32, Call> = FxHashMap::default();
    let mut runnable: FxHashMap<u32, u32> = FxHashMap::default();
    let mut last = Vec::new();
    let count = if first.len() > CROWD {
        LOOKS_AT_CROWD
    } else {
        LOOKS
    };
    for _ in 0..count {
        std::thread::sleep(time / count);
        last = looks(threads(pid)?);
        let moved = |(tid, now): &(u32, Look)| begun.get(tid) != Some(&now.switches);
        tell(last.iter().any(moved));
        for (tid, look) in &last {
            if let Some(call) = look.call {
                calls.insert(*tid, call);
            }
            *runnable.entry(*tid).or_default() += u32::from(look.state == 'R');
        }
    }
    let spent = begin.elapsed().as_nanos() as f64;
    let before: FxHashMap<u32, Look> = first.into_iter().collect();
    let activity = |(tid, now): (u32, Look)| {
        let then = before.get(&tid).cloned().unwrap_or_default();
        let ran = now.ran.saturating_sub(then.ran) as f64;
        let queued = now.queued.saturating_sub(then.queued) as f64;
        // On a busy machine the thread may have been queued all the time, which the kernel counts
        // once that ends.
        let always = runnable.get(&tid) == Some(&count) && then.state == 'R';
        Activity {
            tid,
            cpu: (ran / spent).min(1.0),
            wants: if always {
                1.0
            } else {
                ((ran + queued) / spent).min(1.0)
            },
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

/// A thread of which no more is known than one look tells; `None`: it is gone.
pub fn now(pid: u32, tid: u32) -> Option<Activity> {
    let look = proc::look(pid, tid)?;
    Some(Activity {
        tid,
        name: look.name,
        state: look.state,
        cpu: 0.0,
        wants: 0.0,
        sleeps: 0,
        tracer: look.tracer,
        call: look.call,
        sleeps_in: look.sleeps_in,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    /// Computes on that processor until told.
    fn compute(processor: usize, over: &AtomicBool, policy: libc::c_int, tid: &AtomicU32) {
        let mut processors: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: structures of ours; 0 is this thread.
        unsafe {
            libc::CPU_SET(processor, &mut processors);
            libc::sched_setaffinity(0, size_of_val(&processors), &processors);
            libc::sched_setscheduler(0, policy, &parameters);
            tid.store(libc::gettid() as u32, Ordering::Release);
        }
        while !over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn only_threads_that_run_or_wake_stir() {
        let stirs = |command: &str| {
            let mut shell = Command::new("sh")
                .args(["-c", command])
                .spawn()
                .expect("sh");
            std::thread::sleep(Duration::from_millis(200));
            let mut told = false;
            let sampled = sample_until(shell.id(), Duration::from_millis(300), || told = true);
            shell.kill().expect("it is ours");
            shell.wait().expect("it is ours");
            sampled.expect("it lives");
            told
        };
        assert!(!stirs("exec sleep 60"));
        assert!(stirs("while :; do :; done"));
        assert!(stirs("while :; do sleep 0.05; done"));
    }

    #[test]
    fn a_thread_that_only_waits_for_a_processor_is_hot() {
        // SAFETY: cannot fail.
        let processor = unsafe { libc::sched_getcpu() } as usize;
        let (over, starved) = (AtomicBool::new(false), AtomicU32::new(0));
        let other = AtomicU32::new(0);
        let wants = std::thread::scope(|scope| {
            scope.spawn(|| compute(processor, &over, libc::SCHED_IDLE, &starved));
            while starved.load(Ordering::Acquire) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            scope.spawn(|| compute(processor, &over, libc::SCHED_OTHER, &other));
            while other.load(Ordering::Acquire) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let pid = std::process::id();
            let activities = sample(pid, Duration::from_millis(100)).expect("its own /proc");
            over.store(true, Ordering::Relaxed);
            let tid = starved.load(Ordering::Relaxed);
            let of_starved = activities.into_iter().find(|a| a.tid == tid);
            of_starved.expect("it runs").wants
        });
        assert!(wants > 0.9, "{wants}");
    }
}
