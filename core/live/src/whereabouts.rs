// SPDX-License-Identifier: MIT
//! Whether a thread is where its copy goes.
//!
//! While the copy is looked at, the kernel notes where the thread is, without stopping it. A thread
//! that sleeps in a call is looked at through /proc. Only where neither tells enough it is stopped
//! for its registers.

use std::time::Duration;

use flagfinder_linux::{futex, syscalls};
use flagfinder_machine::decoded::is_syscall;
use flagfinder_machine::Window;
use flagfinder_replica::Live;
use flagfinder_step::{Pause, Sampler};
use flagfinder_waits::proc;
use rustc_hash::{FxHashMap, FxHashSet};

/// How long the thread runs from one place that the kernel notes to the next.
const EVERY: Duration = Duration::from_millis(1);
/// With fewer places nothing is known.
const LEAST: u32 = 3;
/// One of so many places may lie elsewhere, in a handler of a signal for example.
const ELSEWHERE: u32 = 20;

pub struct Whereabouts {
    pid: u32,
    tid: u32,
    sampler: Option<Sampler>,
    /// How long the thread may take to stop, and how long it has stood still in all.
    patience: Duration,
    pub held: Duration,
    /// Program counters, and how often the thread was at each. In a call it is the instruction
    /// behind the call.
    seen: FxHashMap<u64, u32>,
    /// The program counters at which it slept until another thread would wake it.
    turns: FxHashSet<u64>,
    /// How many calls it had made before that read or wrote.
    before: Option<proc::Transfers>,
}

impl Whereabouts {
    pub fn of(pid: u32, tid: u32, patience: Duration) -> Whereabouts {
        Whereabouts {
            pid,
            tid,
            sampler: Sampler::start(tid, EVERY).ok(),
            patience,
            held: Duration::ZERO,
            seen: FxHashMap::default(),
            turns: FxHashSet::default(),
            before: proc::transfers(pid, tid),
        }
    }

    /// Takes what was noted, and looks whether it sleeps in a call.
    pub fn look(&mut self) {
        let sleeps = proc::look(self.pid, self.tid).and_then(|look| look.call);
        let waits = sleeps.filter(|call| {
            futex::is_futex(call.number) && futex::waits_for_word(futex::command(&call.args))
        });
        self.turns.extend(waits.map(|call| call.pc));
        let noted = self.sampler.as_mut().map(Sampler::take).unwrap_or_default();
        for place in noted.into_iter().chain(sleeps.map(|call| call.pc)) {
            *self.seen.entry(place).or_default() += 1;
        }
    }

    fn count(&self) -> u32 {
        self.seen.values().sum()
    }

    /// How many places are known. If there are too few, the thread is stopped for the rest.
    pub fn complete(&mut self) -> u32 {
        self.look();
        for _ in self.count()..LEAST {
            let Ok(pause) = Pause::of(self.tid, self.patience) else {
                break;
            };
            let registers = pause.tracee().registers_before_call();
            self.held += pause.end();
            if let Ok(registers) = registers {
                *self.seen.entry(registers.rip).or_default() += 1;
            }
        }
        self.count()
    }

    /// Why the copy does not go where the thread goes; `None`: it does.
    pub fn elsewhere(&self, window: &Window, live: &Live) -> Option<String> {
        let is_here = here(std::slice::from_ref(window), live);
        let elsewhere = self.seen.iter().filter(|(pc, _)| !is_here(**pc));
        let (all, elsewhere) = (self.count(), elsewhere.map(|(_, n)| n).sum::<u32>());
        if all < LEAST {
            return Some("where it is could not be seen".into());
        }
        let transfers = self.transfers_elsewhere(std::slice::from_ref(window));
        if transfers.is_some() {
            return transfers;
        }
        (elsewhere * ELSEWHERE > all)
            .then(|| format!("{elsewhere} of {all} looks found it where its copy does not go"))
    }

    /// Says that the thread read or wrote at many looks while these copies did not; `None`: it did
    /// so at few. A loop that finds a queue empty at some moments does not wait if it takes data
    /// from the queue at others.
    pub fn transfers_elsewhere(&self, windows: &[Window]) -> Option<String> {
        let unseen = self.transfers_unlike(windows);
        (unseen * u64::from(ELSEWHERE) > u64::from(self.count())).then(|| {
            let copies = match windows {
                [_] => "its copy does",
                _ => "its copies do",
            };
            format!("it read or wrote {unseen} times meanwhile, which {copies} not do")
        })
    }

    /// How often the thread read, if no copy reads, and wrote, if no copy writes.
    fn transfers_unlike(&self, windows: &[Window]) -> u64 {
        let Some((before, now)) = self.before.zip(proc::transfers(self.pid, self.tid)) else {
            return 0;
        };
        let made = |is_such: fn(u32) -> bool, now: u64, before: u64| {
            let mut calls = windows.iter().flat_map(|window| &window.syscalls);
            let seen = calls.any(|call| is_such(call.number));
            if seen {
                0
            } else {
                now.saturating_sub(before)
            }
        };
        made(syscalls::is_read, now.reads, before.reads)
            + made(syscalls::is_write, now.writes, before.writes)
    }

    /// The same for several copies. Looks that find the thread waiting for its turn do not count.
    pub fn mostly_elsewhere(&self, windows: &[Window], live: &Live) -> Option<String> {
        let is_here = here(windows, live);
        let works = self.seen.iter().filter(|(pc, _)| !self.turns.contains(*pc));
        let (mut all, mut elsewhere) = (0, 0);
        for (pc, looks) in works {
            all += looks;
            elsewhere += if is_here(*pc) { 0 } else { *looks };
        }
        (elsewhere * 2 > all)
            .then(|| format!("{elsewhere} of {all} looks found it where its copies do not go"))
    }
}

/// Whether these copies execute what stands at an address.
fn here<'l>(windows: &[Window], live: &'l Live) -> impl Fn(u64) -> bool + 'l {
    let mut here: FxHashSet<u64> = FxHashSet::default();
    for window in windows {
        for index in 0..window.code_count() as u32 {
            let instruction = &window.code_at(index).instruction;
            here.insert(instruction.ip());
            if is_syscall(instruction) {
                here.insert(instruction.next_ip());
            }
        }
    }
    // The clock's page can't be copied, so the copy goes another way through the vDSO.
    let asks_clock = here.iter().any(|pc| live.is_vdso(*pc));
    move |pc| here.contains(&pc) || (asks_clock && live.is_vdso(pc))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::sync::atomic::{AtomicBool, Ordering};

    use flagfinder_machine::Syscall;

    use super::*;

    #[test]
    fn a_copy_that_never_reads_is_unlike_a_thread_that_does() {
        static DONE: AtomicBool = AtomicBool::new(false);
        let (send, receive) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            // SAFETY: cannot fail.
            let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
            send.send(tid).expect("the test waits");
            let mut zeros = File::open("/dev/zero").expect("there is one");
            while !DONE.load(Ordering::Relaxed) {
                zeros.read_exact(&mut [0]).expect("it has no end");
            }
        });
        let (pid, tid) = (std::process::id(), receive.recv().expect("it starts"));
        let whereabouts = Whereabouts::of(pid, tid, Duration::ZERO);
        let read = |call: i64| {
            let mut window = Window::default();
            window.syscalls.push(Syscall {
                step: 0,
                number: call as u32,
                args: [0; 6],
                result: Some(0),
                written: Vec::new(),
            });
            window
        };
        let polls = || [read(libc::SYS_poll), read(libc::SYS_poll)];
        while whereabouts.transfers_unlike(&polls()) < 1000 {
            std::thread::yield_now();
        }
        let why = whereabouts.transfers_elsewhere(&polls());
        assert!(why.is_some_and(|why| why.ends_with("which its copies do not do")));
        let one_reads = [read(libc::SYS_poll), read(libc::SYS_read)];
        assert_eq!(whereabouts.transfers_unlike(&one_reads), 0);
        DONE.store(true, Ordering::Relaxed);
        reader.join().expect("it reads");
    }
}
