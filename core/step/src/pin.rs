// SPDX-License-Identifier: MIT
//! The stepped thread and its tracer on one processor.
//!
//! A step is two changes of turn between them. On one processor that costs a change of context, on
//! two it costs waking the other each time, which takes four times as long in a virtual machine.
//! The scheduler moves whom it wakes to an idle processor, so the thread is kept from moving while
//! it is stepped. Its affinity is given back when it is let go, and for each call that would show
//! it, change it or pass it on.

use std::mem::size_of_val;

use flagfinder_linux::proc::Stat;

/// Enough for every Linux (CONFIG_NR_CPUS is at most 8192).
const WORDS: usize = 8192 / 64;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Processors([u64; WORDS]);

impl Processors {
    const ALL: Processors = Processors([u64::MAX; WORDS]);

    fn only(processor: usize) -> Processors {
        let mut words = [0; WORDS];
        words[processor / 64] = 1 << (processor % 64);
        Processors(words)
    }

    /// The processors that the thread may use; thread 0 is the calling one.
    fn of(tid: i32) -> Option<Processors> {
        let mut words = [0u64; WORDS];
        // SAFETY: a buffer of ours and its size.
        let got = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                tid,
                size_of_val(&words),
                words.as_mut_ptr(),
            )
        };
        (got > 0).then_some(Processors(words))
    }

    fn give(&self, tid: i32) -> bool {
        // SAFETY: the kernel only reads our words.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sched_setaffinity,
                tid,
                size_of_val(&self.0),
                self.0.as_ptr(),
            )
        };
        result == 0
    }

    fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..WORDS * 64).filter(|n| self.0[n / 64] >> (n % 64) & 1 == 1)
    }
}

/// A thread that is kept on one processor until this is dropped.
pub struct Pin {
    tid: i32,
    own: Processors,
    here: Processors,
}

impl Pin {
    /// Brings this process and the thread to the processor; `None`, and the thread is left alone,
    /// where one of them may not go there.
    pub fn to(processor: usize, tid: i32) -> Option<Pin> {
        let here = Processors::only(processor);
        if !here.give(0) {
            return None;
        }
        let own = Processors::of(tid)?;
        here.give(tid).then_some(Pin { tid, own, here })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // If the program has changed it meanwhile, that stays.
        if Processors::of(self.tid) != Some(self.here) {
            return;
        }
        // The kernel keeps what was asked for apart from what the cpuset leaves of it. A thread
        // that never asked is left as it was by a request for all.
        let all = Processors::ALL.give(self.tid) && Processors::of(self.tid) == Some(self.own);
        if !all {
            self.own.give(self.tid);
        }
    }
}

/// A processor for each of the threads, which are stepped at the same time: the one it ran on last,
/// or one that fewer of them have. `None` for a thread that is gone.
pub fn places(tids: &[u32]) -> Vec<Option<usize>> {
    let mut taken = [0u32; WORDS * 64];
    let mut place = |tid: &u32| {
        let last = last_processor(*tid)?;
        let may_use = Processors::of(*tid as i32)?;
        let least = |n: &usize| (taken[*n], *n != last);
        let best = may_use.numbers().min_by_key(least)?;
        taken[best] += 1;
        Some(best)
    };
    tids.iter().map(&mut place).collect()
}

fn last_processor(tid: u32) -> Option<usize> {
    Stat::of(tid)?.field(Stat::PROCESSOR)
}
