// SPDX-License-Identifier: MIT
//! Which thread of Java is to end another one's wait that names no owner: the one that has the
//! object at hand, and comes to call what ends such waits.
//!
//! In: what a thread parks for, or is to be notified on, and by which method of the library it came
//! to wait. Out: the threads that owe it, and those that can't. A thread has the object at hand if
//! the methods that it has open, or the static fields of the classes that these name, refer to it,
//! or to what refers to it, a few steps on. Blind spots: longer ways, references that compiled code
//! keeps in registers or compressed on the stack, and what [`java_code`](super::java_code) lists.

use flagfinder_code::{AddressSpace, Whose};
use rustc_hash::{FxHashMap, FxHashSet};

use super::hotspot::{HotSpot, JavaThread, Look};
use super::java_frames::{whose, Frames, Open};

/// Objects, and steps from the first of them, that are searched for one thread.
const MOST_OBJECTS: usize = 4096;
const STEPS: usize = 5;
/// Most classes of a thread whose static fields are searched, and bytes of those.
const MOST_CLASSES: usize = 64;
const LARGEST_CLASS: u64 = 4096;
/// Most threads that are looked at.
const MOST_THREADS: usize = 256;
/// Each refers to what all threads share, or to what its thread waits for.
const SHARED: [&str; 3] = [
    "java.lang.Thread",
    "java.lang.Class",
    "java.lang.ClassLoader",
];

/// Methods of the library in which a thread waits, and those that end the wait. `all`: each thread
/// that comes to it has to.
struct Ends {
    of: &'static str,
    waits: &'static [&'static str],
    by: &'static [&'static str],
    all: bool,
}

const ADDS: &[&str] = &[
    "put",
    "offer",
    "add",
    "addAll",
    "putFirst",
    "putLast",
    "offerFirst",
    "offerLast",
    "addFirst",
    "addLast",
    "transfer",
    "tryTransfer",
];
const TAKES: &[&str] = &[
    "take",
    "poll",
    "takeFirst",
    "takeLast",
    "pollFirst",
    "pollLast",
    "drainTo",
    "remove",
    "clear",
    "removeIf",
    "removeAll",
];
const COMPLETES: &[&str] = &[
    "complete",
    "completeExceptionally",
    "completeValue",
    "completeNull",
    "completeThrowable",
    "completeRelay",
    "cancel",
    "obtrudeValue",
    "obtrudeException",
    "quietlyComplete",
    "setDone",
    "trySetThrown",
    "trySetComplete",
];
const JUC: &str = "java/util/concurrent/";
const ENDS: [Ends; 10] = [
    ends("CountDownLatch", &["await"], &["countDown"], true),
    ends("CyclicBarrier", &["await"], &["await", "reset"], true),
    ends("Phaser", PHASES, PHASES, true),
    ends(
        "Semaphore",
        &["acquire", "acquireUninterruptibly", "tryAcquire"],
        &["release"],
        false,
    ),
    ends("Exchanger", &["exchange"], &["exchange"], false),
    ends("CompletableFuture", &["get", "join"], COMPLETES, false),
    ends("ForkJoinTask", &["get", "join", "invoke"], COMPLETES, false),
    ends(
        "locks/AbstractQueuedSynchronizer$ConditionObject",
        &["await", "awaitNanos", "awaitUninterruptibly", "awaitUntil"],
        &["signal", "signalAll"],
        false,
    ),
    ends(
        "locks/",
        &[
            "lock",
            "lockInterruptibly",
            "tryLock",
            "readLock",
            "writeLock",
        ],
        &["unlock", "unlockRead", "unlockWrite"],
        true,
    ),
    ends(
        "",
        &[
            "take",
            "poll",
            "takeFirst",
            "takeLast",
            "pollFirst",
            "pollLast",
        ],
        ADDS,
        false,
    ),
];
const PHASES: &[&str] = &["arrive", "arriveAndAwaitAdvance", "arriveAndDeregister"];
/// Beside [`ENDS`]: room in a queue, and a notification.
const ROOM: Ends = ends(
    "",
    &["put", "putFirst", "putLast", "offer", "transfer"],
    TAKES,
    false,
);
const NOTIFIED: Ends = ends(
    "java/lang/Object",
    &["wait"],
    &["notify", "notifyAll"],
    false,
);

const fn ends(
    of: &'static str,
    waits: &'static [&'static str],
    by: &'static [&'static str],
    all: bool,
) -> Ends {
    Ends { of, waits, by, all }
}

/// What ends the wait of a thread that called this method of this class.
fn ended_by(class: &str, method: &str) -> Option<&'static Ends> {
    let waits = |one: &&Ends| one.waits.contains(&method);
    if class == NOTIFIED.of {
        return Some(&NOTIFIED).filter(waits);
    }
    let class = class.strip_prefix(JUC)?;
    let mut known = ENDS.iter().chain([&ROOM]).filter(waits);
    known.find(|one| class.starts_with(one.of))
}

/// A future refers to the stages that wait for it, and each of these to its own future.
const STAGES: [&str; 2] = [
    "java.util.concurrent.CompletableFuture",
    "java.util.concurrent.CompletableFuture$Completion",
];

/// What objects of a class refer to, as far as that is followed.
enum Holds {
    Nothing,
    Elements,
    Fields,
    /// That is no step further on.
    Stages,
}

/// Which threads end a wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Owes {
    /// By which method of the library it waits.
    pub entry: String,
    /// They have the object at hand, and come to end such waits.
    pub owing: Vec<u32>,
    /// Others that may.
    pub unsure: Vec<u32>,
    /// Is each of `owing` known to owe?
    pub is_known: bool,
    /// All that they come to call is known, and none of it ends the wait; or they wait for it
    /// themselves.
    pub out: Vec<u32>,
}

/// Which of the threads `others`, which run the program's code, are to end the wait of this one.
/// `None`: what ends it is not known.
pub fn owes(
    machine: &HotSpot,
    memory: &dyn AddressSpace,
    tid: u32,
    others: &[u32],
) -> Option<Owes> {
    let others: Vec<&JavaThread> = others
        .iter()
        .filter_map(|tid| machine.thread(*tid))
        .collect();
    machine.look(memory).owes(machine.thread(tid)?, &others)
}

impl Look<'_> {
    fn owes(&self, thread: &JavaThread, others: &[&JavaThread]) -> Option<Owes> {
        let object = self.awaited(thread)?;
        let frames = self.frames();
        let (class, method) = entry(&frames, &frames.open(thread.address))?;
        let ends = ended_by(&class, &method)?;
        let simple = class.rsplit(['/', '$']).next().unwrap_or(&class);
        let mut found = Owes {
            entry: format!("{simple}.{method}()"),
            ..Owes::default()
        };
        let mut perhaps = Vec::new();
        found
            .unsure
            .extend(others.iter().skip(MOST_THREADS).map(|one| one.tid));
        for other in others.iter().take(MOST_THREADS) {
            if self.awaited(other) == Some(object) {
                found.out.push(other.tid);
                continue;
            }
            let open = frames.open(other.address);
            let mut known = self.known().ahead.borrow_mut();
            let ahead = known.entry(other.tid);
            let ahead = ahead.or_insert_with(|| frames.ahead(&open));
            let is_among =
                |names: &FxHashSet<String>| ends.by.iter().any(|one| names.contains(*one));
            let (does, may) = (is_among(&ahead.names), is_among(&ahead.assumed));
            let list = match (does || may, ahead.is_all) {
                (false, true) => Some(&mut found.out),
                _ if self.has_at_hand(other, &open, object) => match (does, may) {
                    (true, _) => Some(&mut found.owing),
                    (false, true) => Some(&mut perhaps),
                    (false, false) => Some(&mut found.unsure),
                },
                (true, _) => Some(&mut found.unsure),
                (false, false) => None,
            };
            list.into_iter().for_each(|list| list.push(other.tid));
        }
        // If an object is of the right class, its method ends the wait.
        if found.owing.is_empty() {
            found.owing = perhaps;
            return Some(found);
        }
        found.unsure.extend(perhaps);
        let is_one = ends.all || found.owing.len() == 1;
        found.is_known = is_one && found.unsure.is_empty();
        Some(found)
    }

    /// Do the thread's open methods, or the classes that these name, refer to the object?
    fn has_at_hand(&self, thread: &JavaThread, open: &[Open], object: u64) -> bool {
        let mut all = self.known().at_hand.borrow_mut();
        let near = all.entry(thread.tid);
        let near = near.or_insert_with(|| self.reached(thread, open));
        near.contains(&object)
    }

    /// Does the other thread have the one object of the class at hand that this one has?
    pub fn share(
        &self,
        (one, open): (&JavaThread, &[Open]),
        (other, its): (&JavaThread, &[Open]),
        class: &str,
    ) -> bool {
        let mut all = self.known().at_hand.borrow_mut();
        for (thread, open) in [(one, open), (other, its)] {
            let near = all.entry(thread.tid);
            near.or_insert_with(|| self.reached(thread, open));
        }
        let class = class.replace('/', ".");
        let near = all[&one.tid].iter().copied();
        let objects: Vec<u64> = near.filter(|at| self.objects.is_a(*at, &class)).collect();
        matches!(objects[..], [only] if all[&other.tid].contains(&only))
    }

    /// All objects that it has at hand, and other words.
    fn reached(&self, thread: &JavaThread, open: &[Open]) -> FxHashSet<u64> {
        let mut near = self.on_stack(thread);
        near.extend(self.in_classes(open));
        let (mut seen, mut objects) = (FxHashSet::default(), 0);
        let mut holders: FxHashMap<u64, Holds> = FxHashMap::default();
        for step in 0..STEPS {
            let mut next = Vec::new();
            while let Some(one) = near.pop() {
                let is_new = one % 8 == 0 && objects < MOST_OBJECTS && seen.insert(one);
                let Some(class) = self.objects.class(one).filter(|_| is_new) else {
                    continue;
                };
                objects += 1;
                match holders.entry(class).or_insert_with(|| self.holds(class)) {
                    Holds::Stages => near.extend(self.objects.all_referred(one)),
                    _ if step + 1 == STEPS => {}
                    Holds::Nothing => {}
                    Holds::Elements => next.extend(self.objects.elements(one)),
                    Holds::Fields => next.extend(self.objects.all_referred(one)),
                }
            }
            near = next;
        }
        seen
    }

    fn holds(&self, class: u64) -> Holds {
        let is_shared = |name: &&str| self.objects.ancestor_of(class, name).is_some();
        let name = self.objects.name(class);
        match name.as_deref().unwrap_or_default().as_bytes() {
            [b'[', b'L' | b'[', ..] => Holds::Elements,
            [b'[', ..] => Holds::Nothing,
            _ if SHARED.iter().any(is_shared) => Holds::Nothing,
            _ if STAGES.iter().any(is_shared) => Holds::Stages,
            _ => Holds::Fields,
        }
    }

    /// What the static fields refer to of the classes that the methods of the program name.
    fn in_classes(&self, open: &[Open]) -> Vec<u64> {
        let frames = self.frames();
        let mut classes: Vec<u64> = Vec::new();
        for one in open {
            let class = frames.class_of(one.method);
            if class.is_some_and(|class| whose(&class) != Whose::System) {
                classes.extend(frames.classes_near(one.method));
            }
        }
        classes.sort_unstable();
        classes.dedup();
        let mirrors = classes.into_iter().take(MOST_CLASSES);
        let mirrors = mirrors.filter_map(|class| {
            self.memory
                .word(frames.word(class, "Klass", "_java_mirror")?)
        });
        let size = self
            .objects
            .structs
            .place("java_lang_Class", "_oop_size_offset");
        let size = size.and_then(|at| self.memory.number(at, 4));
        let referred = mirrors.flat_map(|mirror| {
            let size = size.and_then(|at| self.memory.number(mirror.checked_add(at)?, 4));
            let size = size.map_or(LARGEST_CLASS / 8, |words| words * 8);
            self.objects.words(mirror, size.min(LARGEST_CLASS))
        });
        referred.collect()
    }
}

/// The method of the library by which the program's own code came to wait: class and name.
fn entry(frames: &Frames, open: &[Open]) -> Option<(String, String)> {
    let mut last = None;
    for one in open {
        let class = frames.class_of(one.method)?;
        if whose(&class) != Whose::System {
            break;
        }
        last = Some((class, frames.name_of(one.method)?));
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_wait_is_told_by_the_method_that_waits() {
        let by = |class: &str, method: &str| ended_by(class, method).map_or("", |ends| ends.by[0]);
        assert_eq!(
            by("java/util/concurrent/LinkedBlockingQueue", "take"),
            "put"
        );
        assert_eq!(by("java/util/concurrent/ArrayBlockingQueue", "put"), "take");
        assert_eq!(
            by("java/util/concurrent/CountDownLatch", "await"),
            "countDown"
        );
        let lock = "java/util/concurrent/locks/ReentrantReadWriteLock$WriteLock";
        assert_eq!(by(lock, "lock"), "unlock");
        let condition = "java/util/concurrent/locks/AbstractQueuedSynchronizer$ConditionObject";
        assert_eq!(by(condition, "await"), "signal");
        assert_eq!(by("java/lang/Object", "wait"), "notify");
        assert_eq!(
            by(
                "java/util/concurrent/ThreadPoolExecutor",
                "awaitTermination"
            ),
            ""
        );
        assert_eq!(by("app/Queue", "take"), "");
    }
}
