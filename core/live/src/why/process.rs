// SPDX-License-Identifier: MIT
//! The processes on the way, each looked at once and without stopping anything.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

use flagfinder_code::{AddressSpace, ByPages, Code, Names, NamesInput, Spot, Whose};
use flagfinder_linux::proc::{self, is_over};
use flagfinder_replica::CoreFile;
use rustc_hash::{FxHashMap, FxHashSet};

use super::hotspot::{HotSpot, OF_MACHINE};
use super::perl;
use super::runtime;
use super::v8::{self, Constants};
use crate::dead::activity;
use crate::memory::Memory;
use crate::sample::{self, Activity};
use crate::spin::Looked;
use crate::stack::Stack;
use crate::thread_ways::{self, Way};
use flagfinder_waits::proc::Call;
use flagfinder_waits::Owners;

/// How long the threads of a process other than the first are watched.
const SAMPLE: Duration = Duration::from_millis(100);
/// Most threads that are asked whether they are helpers of a runtime.
const MOST_HELPERS: usize = 64;
/// Time to find who holds the other ends of pipes and sockets.
const PATIENCE: Duration = Duration::from_millis(1500);

pub struct Process {
    pub pid: u32,
    /// Threads as they behaved, the first thread first.
    pub activities: Vec<Activity>,
    /// Where each thread is among them.
    places: FxHashMap<u32, usize>,
    /// `None`: it may not be looked into.
    pub inside: Option<Inside>,
    /// The id that the process itself sees, and ours.
    pub own_ids: BTreeMap<u32, u32>,
    /// Threads that a core file lacks: they did not stop while it was written.
    pub left_out: Vec<u32>,
    idle_helpers: OnceCell<FxHashSet<u32>>,
    /// It left a core file: what lies outside of its memory is not known, and its number may be
    /// another process's by now.
    pub is_dead: bool,
}

/// Its memory and what lies there.
pub struct Inside {
    pub memory: Rc<dyn AddressSpace>,
    pub names: Names,
    hot_spot: OnceCell<Option<HotSpot>>,
    /// What V8 tells debuggers, as far as it was asked for.
    of_v8: Constants,
}

impl Inside {
    fn new(memory: Rc<dyn AddressSpace>, names: Names) -> Inside {
        Inside {
            memory,
            names,
            hot_spot: OnceCell::new(),
            of_v8: Constants::default(),
        }
    }
}

impl Process {
    /// `None`: it is gone.
    fn look(pid: u32) -> Option<Process> {
        Some(Process::of(pid, sample::sample(pid, SAMPLE).ok()?))
    }

    /// As `spin` saw it: what it read of files is not read again. `None`: it is gone.
    fn after_spin(pid: u32, looked: Looked) -> Option<Process> {
        let Looked {
            mut names,
            activities,
            ..
        } = looked;
        let activities = match activities {
            Some(activities) => activities,
            None => {
                let activities = sample::sample(pid, SAMPLE).ok()?;
                names.renew(NamesInput::from_live(pid).ok()?);
                activities
            }
        };
        Some(Process::with(pid, activities, Some(names)))
    }

    fn of(pid: u32, activities: Vec<Activity>) -> Process {
        let names = NamesInput::from_live(pid).ok().map(Names::new);
        Process::with(pid, activities, names)
    }

    fn with(pid: u32, activities: Vec<Activity>, names: Option<Names>) -> Process {
        let inside = names.and_then(|names| {
            let memory = Rc::new(Memory::open(pid).ok()?);
            Some(Inside::new(memory, names))
        });
        let of_inside = inside.as_ref().map(|inside| &inside.names.input().threads);
        let own_ids = of_inside.into_iter().flatten().map(|t| (t.own_id, t.tid));
        Process {
            pid,
            own_ids: own_ids.collect(),
            inside,
            places: places(&activities),
            activities,
            left_out: Vec::new(),
            idle_helpers: OnceCell::new(),
            is_dead: false,
        }
    }

    /// Is there a thread that may poll, or that may not be looked at?
    pub fn wants_stepping(&self) -> bool {
        let Some(inside) = &self.inside else {
            return true;
        };
        let waits = |activity: &Activity| thread_ways::way(activity, &*inside.memory) == Way::Waits;
        !self.activities.iter().all(waits)
    }

    /// Where a core has no thread's name, each has the program's.
    fn of_core(core: &Rc<CoreFile>) -> Process {
        let path = Path::new(core.program());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let activities = core.threads().iter().map(|thread| {
            let mut activity = activity(thread);
            if activity.name.is_empty() {
                activity.name = name.clone().into_owned();
            }
            activity
        });
        let activities: Vec<Activity> = activities.collect();
        Process {
            pid: core.pid(),
            left_out: core.left_out().to_vec(),
            idle_helpers: OnceCell::new(),
            places: places(&activities),
            activities,
            own_ids: core.threads().iter().map(|t| (t.tid, t.tid)).collect(),
            inside: Some(Inside::new(core.clone(), Names::new(core.names_input()))),
            is_dead: true,
        }
    }

    pub fn activity(&self, tid: u32) -> Option<&Activity> {
        self.activities.get(*self.places.get(&tid)?)
    }

    pub fn tids(&self) -> Vec<u32> {
        let living = self.activities.iter().filter(|a| !is_over(a.state));
        living.map(|a| a.tid).collect()
    }

    /// The virtual machine of Java that runs in it.
    pub fn hot_spot(&self) -> Option<&HotSpot> {
        let inside = self.inside.as_ref()?;
        let read = || HotSpot::of(&inside.names, &*inside.memory, &self.own_ids);
        inside.hot_spot.get_or_init(read).as_ref()
    }

    /// The threads that may run code of the program: not those of a virtual machine itself, nor
    /// those of a runtime that are given no work.
    pub fn of_program(&self) -> Vec<u32> {
        let mut tids = self.tids();
        tids.retain(|tid| !self.is_idle_helper(*tid));
        let machine = self
            .inside
            .as_ref()
            .and_then(|i| Some((&*i.memory, self.hot_spot()?)));
        if let Some((memory, machine)) = machine {
            let memory = ByPages::new(|address, buffer: &mut [u8]| memory.read(address, buffer));
            let all = tids.clone();
            let named = |tid: u32| self.activity(tid).map_or("", |one| &one.name);
            tids.retain(|tid| {
                machine.runs_program(&memory, *tid) && !OF_MACHINE.contains(&named(*tid))
            });
            // Nothing tells them apart.
            if tids.is_empty() {
                return all;
            }
        }
        tids
    }

    /// Is it a thread of node's own that waits to be given work?
    pub fn is_idle_helper(&self, tid: u32) -> bool {
        let helpers = self.idle_helpers.get_or_init(|| {
            let all = self.activities.iter().take(MOST_HELPERS);
            let is_idle = |one: &&Activity| {
                let stack = one.call.map(|call| self.stack(&call).0).unwrap_or_default();
                let symbols = stack.iter().map(|code| {
                    let symbol = code.symbol.as_deref().unwrap_or_default();
                    symbol.rsplit_once('+').map_or(symbol, |(name, _)| name)
                });
                runtime::is_idle(&symbols.collect::<Vec<&str>>())
            };
            all.filter(is_idle).map(|one| one.tid).collect()
        });
        helpers.contains(&tid)
    }

    /// What a thread has open in the language of its runtime, innermost first. Java's and Python's
    /// calls are read elsewhere.
    pub fn calls_of_runtime(&self, tid: u32) -> Vec<(Whose, Spot)> {
        let Some(inside) = &self.inside else {
            return Vec::new();
        };
        let (names, memory) = (&inside.names, &*inside.memory);
        let call = self.activity(tid).and_then(|activity| activity.call);
        let of_v8 = match call {
            Some(call) => v8::calls((names, memory), &inside.of_v8, call.sp),
            None if self.is_dead => Vec::new(),
            None => v8::calls_while_running((names, memory), &inside.of_v8, tid),
        };
        if !of_v8.is_empty() {
            return of_v8;
        }
        let mut threads = names.input().threads.iter();
        let fs_base = threads.find(|thread| thread.tid == tid);
        perl::calls(names, memory, fs_base.and_then(|thread| thread.fs_base))
    }

    /// Where async functions of JavaScript are suspended.
    pub fn awaits_of_v8(&self) -> Vec<(Whose, Spot)> {
        let of = |inside: &Inside| v8::awaits((&inside.names, &*inside.memory), &inside.of_v8);
        self.inside.as_ref().map_or_else(Vec::new, of)
    }

    /// Does its runtime hand on signals to threads of its own?
    pub fn handles_signals_in_threads(&self) -> bool {
        let is_of_go = |inside: &Inside| inside.names.go_data().is_some();
        self.hot_spot().is_some() || self.inside.as_ref().is_some_and(is_of_go)
    }

    /// What is open where the thread is in this call, and where its author's code is in it.
    pub fn stack(&self, call: &Call) -> (Vec<Code>, Option<Spot>) {
        let Some(inside) = &self.inside else {
            return (Vec::new(), None);
        };
        let stack = Stack::of(call, &*inside.memory, &inside.names);
        (stack.codes(&inside.names), stack.own(&inside.names))
    }
}

fn places(activities: &[Activity]) -> FxHashMap<u32, usize> {
    // Of two of one number, as a damaged core may have them, the first one is meant.
    let places = activities.iter().enumerate().rev();
    places.map(|(at, activity)| (activity.tid, at)).collect()
}

/// All processes that were looked at.
pub struct Processes {
    by_pid: FxHashMap<u32, Option<Process>>,
    pub owners: Owners,
    /// The only one is that of a core file.
    is_dead: bool,
}

impl Default for Processes {
    fn default() -> Self {
        Processes {
            by_pid: FxHashMap::default(),
            owners: Owners::within(PATIENCE),
            is_dead: false,
        }
    }
}

impl Processes {
    /// Watches all of these at the same time.
    pub fn at_once(pids: &[u32], time: Duration) -> Processes {
        let sampled: Vec<_> = std::thread::scope(|scope| {
            let begin = |pid: &u32| {
                let pid = *pid;
                let watch = move || sample::sample(pid, time).ok();
                (pid, Builder::new().spawn_scoped(scope, watch))
            };
            let watchers: Vec<_> = pids.iter().map(begin).collect();
            let end = |(pid, watcher): (u32, std::io::Result<ScopedJoinHandle<_>>)| match watcher {
                Ok(watcher) => (pid, watcher.join().ok().flatten()),
                // No more threads may be started.
                Err(_) => (pid, sample::sample(pid, time).ok()),
            };
            watchers.into_iter().map(end).collect()
        });
        let looked = sampled
            .into_iter()
            .map(|(pid, sample)| (pid, sample.map(|activities| Process::of(pid, activities))));
        Processes {
            by_pid: looked.collect(),
            ..Processes::default()
        }
    }

    /// At first the one that `spin` looked at.
    pub fn after_spin(pid: u32, looked: Looked) -> Processes {
        Processes {
            by_pid: [(pid, Process::after_spin(pid, looked))]
                .into_iter()
                .collect(),
            ..Processes::default()
        }
    }

    /// The process of a core file, and no other.
    pub fn of_core(core: &Rc<CoreFile>) -> Processes {
        Processes {
            by_pid: [(core.pid(), Some(Process::of_core(core)))]
                .into_iter()
                .collect(),
            owners: Owners::default(),
            is_dead: true,
        }
    }

    /// Name of a thread, as [`name`].
    pub fn name(&self, pid: u32, tid: u32) -> String {
        if !self.is_dead {
            return name(pid, tid);
        }
        let process = self.by_pid.get(&pid).and_then(Option::as_ref);
        let activities = process.map_or(&[][..], |process| &process.activities);
        let own = process.and_then(|process| process.activity(tid));
        let found = own.or(activities.first());
        found.map_or_else(String::new, |activity| activity.name.clone())
    }

    /// As far as it was looked at.
    pub fn known(&self, pid: u32) -> Option<&Process> {
        self.by_pid.get(&pid)?.as_ref()
    }

    /// `None`: there is none of that number.
    pub fn get(&mut self, pid: u32) -> Option<&Process> {
        let is_dead = self.is_dead;
        let look = || if is_dead { None } else { Process::look(pid) };
        let looked = self.by_pid.entry(pid).or_insert_with(look);
        looked.as_ref()
    }
}

/// Name of a thread, of its process where it is gone, or nothing.
pub fn name(pid: u32, tid: u32) -> String {
    let name = proc::name(pid, tid).or_else(|| proc::name(pid, pid));
    name.unwrap_or_default()
}

/// A number of /proc/PID/status.
pub fn status_number(pid: u32, field: &str) -> Option<u32> {
    proc::Status::of(pid)?.number(field)
}

/// Was the process started by this one, or by one that it started?
pub fn descends(pid: u32, other: u32) -> bool {
    let mut above = status_number(pid, "PPid:");
    while let Some(one) = above.filter(|one| *one > 1) {
        if one == other {
            return true;
        }
        above = status_number(one, "PPid:");
    }
    false
}
