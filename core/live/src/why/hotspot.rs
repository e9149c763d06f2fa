// SPDX-License-Identifier: MIT
//! What a Java thread waits for: a lock and its owner, the end of a thread, or a notification.
//!
//! Read from HotSpot's structures, where its own table says that they lie; nothing is stopped. A
//! thread in `LockSupport.park` refers to what it parks for, and the locks of java.util.concurrent
//! refer to the thread that has them. Blind spots: virtual threads, read locks, and what
//! [`Objects`] can't read.

use std::cell::RefCell;
use std::collections::BTreeMap;

use flagfinder_code::{AddressSpace, ByPages, Names, Spot, Whose};
use rustc_hash::{FxHashMap, FxHashSet};

use super::java_code::Ahead;
use super::java_frames::{whose, Frames};
use super::java_objects::Objects;
use super::vm_structs::VmStructs;

/// No process has so many threads.
const MOST_THREADS: u64 = 100_000;
/// The monitor does not name its owner: the owner is the thread with the object in its lock stack.
const ANONYMOUS: u64 = 1;
/// HotSpot's lock stacks have room for 8.
const MOST_LOCKS: u64 = 64;

/// What a thread of a pool runs; it descends from the locks, for the pool's own ends.
const WORKER: &str = "java.util.concurrent.ThreadPoolExecutor$Worker";
/// The pool that has it, and where a thread keeps it from JDK 19 on.
const POOL: &str = "java.util.concurrent.ThreadPoolExecutor";
const HOLDER: &str = "java.lang.Thread$FieldHolder";
/// Most parts of a queue that are looked at.
const MOST_QUEUED: usize = 4096;
/// Words of a stack that are searched; none below the first page refers to anything.
const MOST_WORDS: u64 = 4096;
const PAGE: u64 = 4096;
/// The state `_thread_blocked`.
const BLOCKED: u64 = 10;

/// What a thread parks for that waits for the result of a task. It refers to the thread that runs
/// the task, from its beginning to its end.
const TASK: &str = "java.util.concurrent.FutureTask";
/// The same in other pools, and what is queued there for a future's sake.
const FORKED: &str = "java.util.concurrent.ForkJoinWorkerThread";
const FORK_POOL: &str = "java.util.concurrent.ForkJoinPool";
const FORKED_TASK: &str = "java.util.concurrent.ForkJoinTask";
const FUTURE: &str = "java.util.concurrent.CompletableFuture";
const COMPLETION: &str = "java.util.concurrent.CompletableFuture$";
/// What else a thread of the library parks for has such a name.
const LIBRARY: &str = "java.util.concurrent.";

/// Threads of these classes run none of the program's code (`Cleaner`s run what the library gives
/// them).
const OF_LIBRARY: [&str; 3] = [
    "jdk.internal.misc.InnocuousThread",
    "java.lang.ref.Finalizer$FinalizerThread",
    REFERENCES,
];
/// The one of them that every process has.
const REFERENCES: &str = "java.lang.ref.Reference$ReferenceHandler";

/// What runs virtual threads, one after the other.
const CARRIER: &str = "jdk.internal.misc.CarrierThread";

/// A child, as the program has it.
const PROCESS: &str = "java.lang.ProcessImpl";

/// Ancestor of java.util.concurrent's locks, with a reference to the thread that has the lock.
const OWNED: &str = "java.util.concurrent.locks.AbstractOwnableSynchronizer";

/// Threads of Java's own class that run none of the program's code.
pub const OF_MACHINE: [&str; 2] = ["Signal Dispatch", "Attach Listener"];

/// What the names of its threads begin with that are no threads of Java.
pub const MACHINES: [&str; 6] = [
    "VM Thread",
    "VM Periodic",
    "GC Thread",
    "G1 ",
    "ZWorker",
    "Shenandoah",
];

pub struct HotSpot {
    structs: VmStructs,
    threads: Vec<JavaThread>,
    known: KnownThreads,
}

/// What was found of threads, by id: each may be asked for many others.
#[derive(Default)]
pub struct KnownThreads {
    pub at_hand: RefCell<FxHashMap<u32, FxHashSet<u64>>>,
    pub ahead: RefCell<FxHashMap<u32, Ahead>>,
}

pub struct JavaThread {
    pub address: u64,
    pub tid: u32,
}

/// What a Java thread waits for. `class`: of the object that it waits on, if it can be read.
#[derive(Debug, PartialEq, Eq)]
pub enum JavaWait {
    /// `synchronized`.
    Enters { class: String, owner: Option<u32> },
    /// `Object.wait()` on the `java.lang.Thread` of another.
    Joins(u32),
    /// `Object.wait()` on another object.
    Notified { class: String },
    /// `LockSupport.park`, for a lock or another thing like it.
    Parks { class: String, owner: Option<u32> },
    /// `LockSupport.park` for the result of a task, which the owner runs. `pool`: where none does,
    /// the threads of the pool in whose queue it is.
    Task { owner: Option<u32>, pool: Vec<u32> },
    /// `LockSupport.park` for the result of what is in the queue of the pool of these threads.
    Queued(Vec<u32>),
    /// `LockSupport.park` for something else: a condition, a queue.
    Unknown { class: Option<String> },
}

impl HotSpot {
    /// `ids`: our thread ids by those that the process itself sees.
    pub fn of(
        names: &Names,
        memory: &dyn AddressSpace,
        ids: &BTreeMap<u32, u32>,
    ) -> Option<HotSpot> {
        let memory = &ByPages::new(|address, buffer: &mut [u8]| memory.read(address, buffer));
        let structs = VmStructs::read(names, memory)?;
        let list = memory.word(structs.place("ThreadsSMRSupport", "_java_thread_list")?)?;
        let count = memory.number(list + structs.place("ThreadsList", "_length")?, 4)?;
        let array = memory.word(list + structs.place("ThreadsList", "_threads")?)?;
        let os_thread = structs.of_thread("_osthread")?;
        let id = structs.place("OSThread", "_thread_id")?;
        let thread = |index: u64| {
            let address = memory.word(array + index * 8)?;
            let os_thread = memory.word(address + os_thread)?;
            let own_id = memory.number(os_thread + id, 4)? as u32;
            let tid = *ids.get(&own_id)?;
            Some(JavaThread { address, tid })
        };
        let threads = (0..count.min(MOST_THREADS)).filter_map(thread).collect();
        Some(HotSpot::with(structs, threads))
    }

    fn with(structs: VmStructs, threads: Vec<JavaThread>) -> HotSpot {
        HotSpot {
            structs,
            threads,
            known: KnownThreads::default(),
        }
    }

    /// The other threads that run the program's code as this one does, so may notify it. Those of
    /// the machine itself (its compilers, say) and of its library are of classes of their own.
    pub fn like<'a>(
        &'a self,
        memory: &'a dyn AddressSpace,
        tid: u32,
    ) -> impl Iterator<Item = u32> + 'a {
        let kind = |thread: &JavaThread| memory.word(thread.address);
        let own = self.threads.iter().find(|thread| thread.tid == tid);
        let own = own.and_then(kind);
        let others = self.threads.iter().filter(move |other| other.tid != tid);
        let look = self.look(memory);
        let alike = others.filter(move |other| kind(other) == own && !look.is_of_library(other));
        alike.map(|thread| thread.tid)
    }

    /// May the thread run code of the program?
    pub fn runs_program(&self, memory: &dyn AddressSpace, tid: u32) -> bool {
        let look = self.look(memory);
        let is_plain = |thread: &JavaThread| !look.is_of_library(thread);
        self.thread(tid).is_some_and(is_plain) && !self.is_of_machine(memory, tid)
    }

    /// Is there a thread that runs virtual threads?
    pub fn runs_virtual(&self, memory: &dyn AddressSpace) -> bool {
        let look = self.look(memory);
        let class = |thread: &JavaThread| look.class_name(look.java_lang_thread(thread));
        self.threads.iter().any(|thread| class(thread) == CARRIER)
    }

    /// Is it a thread of the machine itself, which runs no code of Java? Such a thread is of
    /// another class than that which handles references.
    pub fn is_of_machine(&self, memory: &dyn AddressSpace, tid: u32) -> bool {
        let look = self.look(memory);
        let is_plain =
            |thread: &&JavaThread| look.class_name(look.java_lang_thread(thread)) == REFERENCES;
        let kind = |thread: &JavaThread| memory.word(thread.address);
        let plain = self.threads.iter().find(is_plain).and_then(kind);
        let own = self.threads.iter().find(|thread| thread.tid == tid);
        own.is_some_and(|own| plain.is_some() && kind(own) != plain)
    }

    /// Is it the machine's, whether it may run code of Java or not? `name`: the thread's.
    pub fn is_own(&self, memory: &dyn AddressSpace, tid: u32, name: &str) -> bool {
        MACHINES.iter().any(|begins| name.starts_with(begins)) || self.is_of_machine(memory, tid)
    }

    pub fn look<'a>(&'a self, memory: &'a dyn AddressSpace) -> Look<'a> {
        Look {
            machine: self,
            memory,
            objects: Objects {
                structs: &self.structs,
                memory,
            },
        }
    }

    /// What the thread has open in Java, innermost first.
    pub fn calls(&self, memory: &dyn AddressSpace, tid: u32) -> Vec<(Whose, Spot)> {
        let frames = self.look(memory).frames();
        let thread = self.thread(tid);
        thread.map_or_else(Vec::new, |thread| frames.of(thread.address))
    }

    /// Of its package the first two parts, as files of classes lie there (`com/acme/`). `None`: the
    /// first thread has left it.
    pub fn folder_of_main(&self, memory: &dyn AddressSpace) -> Option<String> {
        let frames = self.look(memory).frames();
        let first = self.threads.iter().min_by_key(|thread| thread.tid)?;
        let open = frames.open(first.address);
        let mut open = open.iter().map(|one| one.method);
        let main = open.find(|method| frames.name_of(*method).as_deref() == Some("main"))?;
        let class = frames.class_of(main)?;
        let parts: Vec<&str> = class.split('/').collect();
        let package = &parts[..parts.len() - 1];
        let parts = package.iter().take(2);
        Some(parts.map(|part| format!("{part}/")).collect())
    }

    pub fn thread(&self, tid: u32) -> Option<&JavaThread> {
        self.threads.iter().find(|thread| thread.tid == tid)
    }

    /// Does it sleep for a time, and wait for nothing?
    pub fn sleeps(&self, memory: &dyn AddressSpace, tid: u32) -> bool {
        let frames = self.look(memory).frames();
        let open = self.thread(tid).map(|thread| frames.open(thread.address));
        let inner = open.as_ref().and_then(|open| open.first());
        let method =
            inner.and_then(|one| Some((frames.class_of(one.method)?, frames.name_of(one.method)?)));
        let is_sleep = |name: &str| name.starts_with("sleep");
        method.is_some_and(|(class, name)| class == "java/lang/Thread" && is_sleep(&name))
    }

    /// The child for whose end the thread waits, of these: it is in `waitFor()`, and the object
    /// that it has at hand there holds the child's id.
    pub fn child(&self, memory: &dyn AddressSpace, tid: u32, children: &[u32]) -> Option<u32> {
        if children.is_empty() {
            return None;
        }
        let (look, thread) = (self.look(memory), self.thread(tid)?);
        let frames = look.frames();
        let open = frames.open(thread.address).into_iter();
        let classes = open.map_while(|one| Some((frames.class_of(one.method)?, one.method)));
        let mut of_library = classes.take_while(|(class, _)| whose(class) == Whose::System);
        of_library.find(|(class, method)| {
            *class == PROCESS.replace('.', "/")
                && frames.name_of(*method).as_deref() == Some("waitFor")
        })?;
        let is_process = |object: &u64| look.class_name(Some(*object)) == PROCESS;
        let objects = look.on_stack(thread).into_iter().filter(is_process);
        let mut found = objects.flat_map(|object| look.objects.halves(object));
        found.find(|word| children.contains(word))
    }

    pub fn wait(&self, memory: &dyn AddressSpace, tid: u32) -> Option<JavaWait> {
        let thread = self.threads.iter().find(|thread| thread.tid == tid)?;
        let look = self.look(memory);
        let monitor = |field: &str| look.word(thread, field).filter(|monitor| *monitor != 0);
        if let Some(monitor) = monitor("_current_pending_monitor") {
            return Some(JavaWait::Enters {
                class: look.class_name(look.object(monitor)),
                owner: look.owner(monitor),
            });
        }
        let Some(monitor) = monitor("_current_waiting_monitor") else {
            if !look.is_parked(thread) {
                return None;
            }
            let locks = look.objects.refer_to(look.java_lang_thread(thread)?, OWNED);
            let mut parks = locks.into_iter().map(|lock| JavaWait::Parks {
                class: look.class_name(Some(lock)),
                owner: look.owner_of_lock(lock),
            });
            // A thread of a pool also refers to the pool's worker that it runs, a lock which it has
            // itself while the worker is at work, and which nobody waits for while it is not.
            let is_worker = |wait: &JavaWait| match wait {
                JavaWait::Parks { class, owner } => *owner == Some(tid) || class == WORKER,
                _ => false,
            };
            let parks = parks.find(|wait| !is_worker(wait));
            return Some(parks.unwrap_or_else(|| look.parks_for(thread)));
        };
        let object = look.object(monitor);
        Some(match object.and_then(|object| look.of_object(object)) {
            Some(tid) => JavaWait::Joins(tid),
            None => JavaWait::Notified {
                class: look.class_name(object),
            },
        })
    }
}

/// A look at the structures in a process's memory.
pub struct Look<'a> {
    machine: &'a HotSpot,
    pub memory: &'a dyn AddressSpace,
    pub objects: Objects<'a>,
}

impl<'a> Look<'a> {
    pub fn frames(&self) -> Frames<'a> {
        Frames {
            structs: &self.machine.structs,
            memory: self.memory,
        }
    }

    /// What a field of the thread holds.
    pub fn word(&self, thread: &JavaThread, field: &str) -> Option<u64> {
        let at = self.machine.structs.of_thread(field)?;
        self.memory.word(thread.address + at)
    }

    pub fn known(&self) -> &'a KnownThreads {
        &self.machine.known
    }

    /// The object that it is parked for, or on which it waits to be notified.
    pub fn awaited(&self, thread: &JavaThread) -> Option<u64> {
        let monitor = self.word(thread, "_current_waiting_monitor");
        if let Some(monitor) = monitor.filter(|monitor| *monitor != 0) {
            return self.object(monitor);
        }
        let own = self
            .java_lang_thread(thread)
            .filter(|_| self.is_parked(thread))?;
        let mut locks = self.objects.refer_to(own, OWNED).into_iter();
        let lock = locks.find(|lock| self.class_name(Some(*lock)) != WORKER);
        lock.or_else(|| Some(self.parked_for(thread).next()?.0))
    }

    fn of_monitor(&self, monitor: u64, field: &str) -> Option<u64> {
        let at = self.machine.structs.place("ObjectMonitor", field)?;
        self.memory.word(monitor + at)
    }

    /// Does HotSpot hold it, neither in Java's code nor in a call of that into the system?
    fn is_parked(&self, thread: &JavaThread) -> bool {
        let at = self.machine.structs.of_thread("_thread_state");
        let state = at.and_then(|at| self.memory.number(thread.address + at, 4));
        state == Some(BLOCKED)
    }

    /// What it is parked for, which is no lock. A thread of a pool refers to its worker as well.
    fn parks_for(&self, thread: &JavaThread) -> JavaWait {
        match self.parked_for(thread).next() {
            Some((task, _)) if self.objects.is_a(task, TASK) => {
                let owner = self.runner(task);
                let pool = owner.map_or_else(|| self.pool(task), |_| Vec::new());
                JavaWait::Task { owner, pool }
            }
            Some((object, class)) => {
                let forked = Some(object).filter(|one| self.objects.is_a(*one, FORKED_TASK));
                let task = self.future(thread, object).or(forked);
                let pool = task.map_or_else(Vec::new, |task| self.pool(task));
                match pool.is_empty() {
                    true => JavaWait::Unknown { class: Some(class) },
                    false => JavaWait::Queued(pool),
                }
            }
            None => JavaWait::Unknown { class: None },
        }
    }

    /// Words of its stack, from what it has open on.
    pub fn on_stack(&self, thread: &JavaThread) -> Vec<u64> {
        let words = || {
            let begin = self.frames().last_sp(thread.address)?;
            let end = self.word(thread, "_stack_base")?;
            let count = end.checked_sub(begin)?.min(MOST_WORDS * 8);
            let mut bytes = vec![0; count as usize];
            let got = self.memory.read(begin, &mut bytes);
            let words = bytes[..got].chunks_exact(8);
            let words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
            Some(words.filter(|word| *word > PAGE).collect())
        };
        words().unwrap_or_default()
    }

    /// The future for which the thread waits that parks for this: it refers to that.
    fn future(&self, thread: &JavaThread, parked_for: u64) -> Option<u64> {
        let mut words = self.on_stack(thread).into_iter();
        words.find(|one| {
            self.objects.is_a(*one, FUTURE) && self.objects.all_referred(*one).contains(&parked_for)
        })
    }

    fn parked_for<'b>(
        &'b self,
        thread: &'b JavaThread,
    ) -> impl Iterator<Item = (u64, String)> + 'b {
        let own = self.java_lang_thread(thread);
        let referred = own.map_or_else(Vec::new, |own| self.objects.all_referred(own));
        referred.into_iter().filter_map(|object| {
            let class = self.objects.class_name(object)?;
            let is_other = class.starts_with(LIBRARY) && class != WORKER;
            // A thread may be made to run a task, and refers to that as well.
            let is_own = self.objects.is_a(object, TASK) && self.runner(object) == Some(thread.tid);
            (is_other && !is_own).then_some((object, class))
        })
    }

    /// The threads of the pool in whose queue the task is.
    fn pool(&self, task: u64) -> Vec<u32> {
        let memory = ByPages::new(|address, buffer: &mut [u8]| self.memory.read(address, buffer));
        let look = self.machine.look(&memory);
        let all = self.machine.threads.iter();
        let pooled = all.filter_map(|thread| Some((thread.tid, look.pool_of(thread)?)));
        let pooled: Vec<(u32, u64)> = pooled.collect();
        let mut pools: Vec<u64> = pooled.iter().map(|(_, pool)| *pool).collect();
        pools.sort_unstable();
        pools.dedup();
        let with_task = pools.into_iter().find(|pool| look.queues(*pool, task));
        let of_pool = pooled.iter().filter(|(_, pool)| Some(*pool) == with_task);
        of_pool.map(|(tid, _)| *tid).collect()
    }

    /// The pool whose worker the thread runs. From JDK 19 on a thread keeps that in an object of
    /// its own.
    fn pool_of(&self, thread: &JavaThread) -> Option<u64> {
        let own = self.java_lang_thread(thread)?;
        if self.objects.is_a(own, FORKED) {
            return self.objects.refer_to(own, FORK_POOL).pop();
        }
        let of_class = |object: u64, name: &str| {
            let mut referred = self.objects.all_referred(object).into_iter();
            referred.find(|other| self.objects.class_name(*other).as_deref() == Some(name))
        };
        let worker = of_class(own, WORKER);
        let worker = worker.or_else(|| of_class(of_class(own, HOLDER)?, WORKER))?;
        self.objects.refer_to(worker, POOL).pop()
    }

    /// Does the pool's queue hold the task, in a list or in an array?
    fn queues(&self, pool: u64, task: u64) -> bool {
        let of_queue = |object: &u64| {
            let class = self.objects.class_name(*object).unwrap_or_default();
            class.starts_with(LIBRARY) && class.contains("Queue")
        };
        // What is queued may be there for another object's sake.
        let is_for = |object: &u64| {
            let class = || self.objects.class_name(*object).unwrap_or_default();
            *object == task
                || class().starts_with(COMPLETION)
                    && self.objects.all_referred(*object).contains(&task)
        };
        let mut todo = self.objects.all_referred(pool);
        let is_array = |one: &u64| {
            self.objects
                .class_name(*one)
                .is_some_and(|n| n.starts_with('['))
        };
        let arrays: Vec<u64> = todo.iter().copied().filter(is_array).collect();
        todo.extend(
            arrays
                .into_iter()
                .flat_map(|array| self.objects.elements(array)),
        );
        todo.retain(of_queue);
        let mut seen = FxHashSet::default();
        while let Some(object) = todo.pop().filter(|_| seen.len() < MOST_QUEUED) {
            if !seen.insert(object) {
                continue;
            }
            for next in self.objects.all_referred(object) {
                let class = || self.objects.class_name(next).unwrap_or_default();
                let in_array =
                    || class().starts_with('[') && self.objects.elements(next).iter().any(is_for);
                if is_for(&next) || in_array() {
                    return true;
                }
                if of_queue(&next) {
                    todo.push(next);
                }
            }
        }
        false
    }

    fn runner(&self, task: u64) -> Option<u32> {
        let mut referred = self.objects.all_referred(task).into_iter();
        referred.find_map(|object| self.of_object(object))
    }

    fn owner_of_lock(&self, lock: u64) -> Option<u32> {
        let mut objects = self.objects.of_ancestor(lock, OWNED).into_iter();
        objects.find_map(|object| self.of_object(object))
    }

    fn find(&self, is_it: impl Fn(&JavaThread) -> Option<bool>) -> Option<u32> {
        let mut threads = self.machine.threads.iter();
        let found = threads.find(|thread| is_it(thread) == Some(true));
        found.map(|thread| thread.tid)
    }

    fn owner(&self, monitor: u64) -> Option<u32> {
        let owner = self.of_monitor(monitor, "_owner")?;
        if owner == ANONYMOUS {
            return self.with_lock(self.object(monitor)?);
        }
        // From JDK 24 on a monitor holds the number that Java gives to its owner.
        const NUMBER: &str = "_monitor_owner_id";
        if self.machine.structs.of_thread(NUMBER).is_some() {
            return self.find(|thread| Some(self.word(thread, NUMBER)? == owner));
        }
        let is_it = |thread: &JavaThread| Some(thread.address == owner);
        self.find(is_it).or_else(|| self.with_record(owner))
    }

    /// A lock that was taken before anybody waited: its record is on the stack of its owner.
    fn with_record(&self, record: u64) -> Option<u32> {
        self.find(|thread| {
            let below = self.word(thread, "_stack_base")?.checked_sub(record)?;
            Some(below <= self.word(thread, "_stack_size")?)
        })
    }

    /// The thread that has the object in its lock stack.
    fn with_lock(&self, object: u64) -> Option<u32> {
        let structs = &self.machine.structs;
        let stack = structs.of_thread("_lock_stack")?;
        let top = stack + structs.place("LockStack", "_top")?;
        let base = stack + structs.place("LockStack", "_base[0]")?;
        self.find(|thread| {
            // The top is told as an offset within the thread.
            let top = self.memory.number(thread.address + top, 4)?;
            let mut locks = (base..top.min(base + 8 * MOST_LOCKS)).step_by(8);
            Some(locks.any(|at| self.memory.word(thread.address + at) == Some(object)))
        })
    }

    fn object(&self, monitor: u64) -> Option<u64> {
        let handle = self.of_monitor(monitor, "_object")?;
        self.memory.word(handle).filter(|object| *object != 0)
    }

    fn is_of_library(&self, thread: &JavaThread) -> bool {
        let object = self.java_lang_thread(thread);
        OF_LIBRARY.contains(&&*self.class_name(object))
    }

    fn java_lang_thread(&self, thread: &JavaThread) -> Option<u64> {
        self.memory.word(self.word(thread, "_threadObj")?)
    }

    /// The thread whose `java.lang.Thread` the object is.
    fn of_object(&self, object: u64) -> Option<u32> {
        self.find(|thread| Some(self.java_lang_thread(thread)? == object))
    }

    fn class_name(&self, object: Option<u64>) -> String {
        let name = object.and_then(|object| self.objects.class_name(object));
        name.unwrap_or_else(|| "a Java object".into())
    }
}

impl VmStructs {
    /// Offset of a field of a thread: versions of HotSpot keep some in `Thread`, others in
    /// `JavaThread`, which begins as that does.
    fn of_thread(&self, field: &str) -> Option<u64> {
        let kinds = ["JavaThread", "Thread"];
        kinds.iter().find_map(|kind| self.place(kind, field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory from address 0 on.
    struct Memory(Vec<u8>);

    impl Memory {
        fn put(&mut self, address: u64, value: u64) {
            let at = address as usize;
            self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }

        /// A class of objects of 24 bytes, with a name that is no longer than 80 bytes.
        fn class(&mut self, address: u64, name: &str, ancestor: u64) {
            let symbol = address + 24;
            self.put(address, symbol);
            self.put(address + 8, ancestor);
            self.put(address + 16, 24);
            self.put(symbol, name.len() as u64);
            let body = symbol as usize + 2;
            self.0[body..body + name.len()].copy_from_slice(name.as_bytes());
        }
    }

    impl AddressSpace for Memory {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let begin = usize::try_from(address).unwrap_or(usize::MAX);
            let rest = self.0.get(begin..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            count
        }
    }

    const FIRST: u64 = 0x100;
    const SECOND: u64 = 0x200;
    const MONITOR: u64 = 0x300;
    /// What holds the address of the monitor's object.
    const HANDLE: u64 = 0x340;
    /// The `java.lang.Thread` of each.
    const FIRST_OBJECT: u64 = 0x400;
    const SECOND_OBJECT: u64 = 0x440;
    const LOCK: u64 = 0x480;
    const PENDING: u64 = FIRST;
    const WAITING: u64 = FIRST + 8;

    fn machine() -> (HotSpot, Memory) {
        let structs = VmStructs::of(&[
            ("JavaThread", "_current_pending_monitor", 0),
            ("JavaThread", "_current_waiting_monitor", 8),
            ("JavaThread", "_threadObj", 16),
            ("Thread", "_stack_base", 24),
            ("Thread", "_stack_size", 32),
            ("JavaThread", "_thread_state", 40),
            ("ObjectMonitor", "_owner", 0),
            ("ObjectMonitor", "_object", 8),
            ("oopDesc", "_metadata._klass", 8),
            ("Klass", "_name", 0),
            ("Klass", "_super", 8),
            ("Klass", "_layout_helper", 16),
            ("Symbol", "_length", 0),
            ("Symbol", "_body", 2),
        ]);
        let thread = |address, tid| JavaThread { address, tid };
        let threads = vec![thread(FIRST, 1), thread(SECOND, 2)];
        let mut memory = Memory(vec![0; 0x1000]);
        let (plain, owned, lock) = (0x600, 0x700, 0x800);
        memory.class(plain, "java/lang/Thread", 0);
        memory.class(owned, &OWNED.replace('.', "/"), 0);
        memory.class(lock, "Lock", owned);
        let threads_of = [(FIRST, FIRST_OBJECT, 0x500), (SECOND, SECOND_OBJECT, 0x508)];
        for (address, object, handle) in threads_of {
            memory.put(handle, object);
            memory.put(address + 16, handle);
            memory.put(object + 8, plain);
            memory.put(address + 24, address * 0x1_0000);
            memory.put(address + 32, 0x1000);
        }
        memory.put(LOCK + 8, lock);
        memory.put(MONITOR + 8, HANDLE);
        memory.put(HANDLE, LOCK);
        (HotSpot::with(structs, threads), memory)
    }

    const UNKNOWN: JavaWait = JavaWait::Unknown { class: None };

    fn enters(owner: Option<u32>) -> Option<JavaWait> {
        let class = "Lock".into();
        Some(JavaWait::Enters { class, owner })
    }

    #[test]
    fn a_monitor_names_its_owner_or_the_owners_record_of_it() {
        let (machine, mut memory) = machine();
        assert_eq!(machine.wait(&memory, 1), None);
        memory.put(PENDING, MONITOR);
        let on_stack = SECOND * 0x1_0000 - 0x80;
        for (owner, told) in [
            (SECOND, Some(2)),
            (on_stack, Some(2)),
            (0, None),
            (77, None),
        ] {
            memory.put(MONITOR, owner);
            assert_eq!(machine.wait(&memory, 1), enters(told), "{owner:#x}");
        }
        assert_eq!(machine.wait(&memory, 3), None, "no thread of Java");
    }

    #[test]
    fn a_wait_on_a_threads_object_is_a_join() {
        let (machine, mut memory) = machine();
        memory.put(WAITING, MONITOR);
        let class = "Lock".into();
        assert_eq!(machine.wait(&memory, 1), Some(JavaWait::Notified { class }));
        memory.put(HANDLE, SECOND_OBJECT);
        assert_eq!(machine.wait(&memory, 1), Some(JavaWait::Joins(2)));
    }

    #[test]
    fn a_parked_thread_refers_to_a_lock_and_that_to_its_owner() {
        let (machine, mut memory) = machine();
        let parks = |owner| {
            let class = "Lock".into();
            Some(JavaWait::Parks { class, owner })
        };
        memory.put(FIRST_OBJECT + 16, LOCK);
        assert_eq!(machine.wait(&memory, 1), None, "it runs");
        memory.put(FIRST + 40, BLOCKED);
        assert_eq!(machine.wait(&memory, 1), parks(None));
        memory.put(LOCK + 16, SECOND_OBJECT);
        assert_eq!(machine.wait(&memory, 1), parks(Some(2)));
    }

    #[test]
    fn a_pools_thread_does_not_wait_for_the_worker_that_it_runs() {
        let (machine, mut memory) = machine();
        memory.put(FIRST + 40, BLOCKED);
        assert_eq!(machine.wait(&memory, 1), Some(UNKNOWN));
        memory.put(FIRST_OBJECT + 16, LOCK);
        memory.put(LOCK + 16, FIRST_OBJECT);
        let waits = machine.wait(&memory, 1);
        assert_eq!(waits, Some(UNKNOWN), "its own");
        memory.put(LOCK + 16, 0);
        memory.class(0xa00, &WORKER.replace('.', "/"), 0x700);
        memory.put(LOCK + 8, 0xa00);
        assert_eq!(machine.wait(&memory, 1), Some(UNKNOWN), "idle");
    }

    #[test]
    fn the_result_of_a_task_is_owed_by_the_thread_that_runs_it() {
        let (machine, mut memory) = machine();
        memory.put(FIRST + 40, BLOCKED);
        memory.class(0x800, &TASK.replace('.', "/"), 0);
        memory.put(FIRST_OBJECT + 16, LOCK);
        let waits = |memory: &Memory| machine.wait(memory, 1);
        assert_eq!(
            waits(&memory),
            Some(JavaWait::Task {
                owner: None,
                pool: Vec::new()
            })
        );
        memory.put(LOCK + 16, SECOND_OBJECT);
        assert_eq!(
            waits(&memory),
            Some(JavaWait::Task {
                owner: Some(2),
                pool: Vec::new()
            })
        );
        memory.class(0xa00, "java/util/concurrent/Phaser", 0);
        memory.put(LOCK + 8, 0xa00);
        let class = Some("java.util.concurrent.Phaser".into());
        assert_eq!(waits(&memory), Some(JavaWait::Unknown { class }));
    }

    #[test]
    fn threads_of_the_library_run_nothing_of_the_program() {
        let (machine, mut memory) = machine();
        memory.class(0x900, &OF_LIBRARY[0].replace('.', "/"), 0x600);
        memory.put(SECOND_OBJECT + 8, 0x900);
        assert_eq!(machine.like(&memory, 1).count(), 0);
    }

    #[test]
    fn threads_of_the_machine_are_of_other_classes() {
        let (machine, mut memory) = machine();
        let like = |memory: &Memory| machine.like(memory, 1).collect::<Vec<u32>>();
        assert_eq!(like(&memory), [2]);
        memory.put(SECOND, 0x7000);
        assert!(like(&memory).is_empty());
        assert!(
            !machine.is_of_machine(&memory, 1),
            "nothing shows which are"
        );
        memory.class(0x900, &REFERENCES.replace('.', "/"), 0x600);
        memory.put(SECOND_OBJECT + 8, 0x900);
        assert!(machine.is_of_machine(&memory, 1) && !machine.is_of_machine(&memory, 2));
    }
}
