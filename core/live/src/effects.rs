// SPDX-License-Identifier: MIT
//! Which threads would end another's wait, if they went on.
//!
//! In: what would end the wait ([`Effect`]), and the threads that may do it. Out: those of which a
//! copy, run on from where the thread stands, did it: once what it waits for came, or else at a
//! failure or an end of data. So the owner of a condition, a semaphore, a future or a channel is
//! known without a word about the runtime. Threads that wait at one place in one way are asked
//! once. Blind spots: copies halt at calls that have no answer, and at locks that other threads
//! hold; descriptors that a copy opens; what a call on semaphores of System V adds to them.

use std::cell::RefCell;
use std::thread::Builder;
use std::time::{Duration, Instant};

use flagfinder_code::{AddressSpace, Code, Names};
use flagfinder_linux::proc::is_over;
use flagfinder_linux::{futex, traits};
use flagfinder_replica::{
    keep, CoreFile, Halt, Live, MadeCall, Moment, Pages, Ran, Replica, Source, Supposed,
    Supposition, ThreadState, Wanted,
};
use rustc_hash::FxHashMap;

use crate::candidate::Owed;
use crate::ends_wait::Judge;
use crate::memory::Memory;
use crate::others::{Other, Others, Process};
use crate::owed_look::Target;
use crate::owed_proof::{ends_by_time, is_join, run_met, run_thread, Proofs, Strength};
use crate::prove::{learn, STOPS};
use crate::sample::Activity;

/// Time for the copies of one thread.
const OF_THREAD: Duration = Duration::from_millis(400);
/// Most places at which threads wait that are asked.
const PLACES: usize = 32;
/// Bytes of a futex's word.
const WORD: usize = 4;

/// What would end a wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    /// The futex's word gets another value than the one that is slept on.
    Store { address: u64, expected: u32 },
    /// A call that takes data out of one of these descriptors, and makes room.
    Read(Vec<i32>),
    /// A call that writes to one of these descriptors, or closes it.
    Write(Vec<i32>),
    /// The lock that one of these descriptors has is given back, or that is closed.
    Unlock(Vec<i32>),
    /// A signal to this process, or to this thread of it, as they see their own ids.
    Signal { process: u32, thread: u32 },
    /// A message to this queue of System V.
    Send(i32),
    /// A message is taken from it.
    Receive(i32),
}

impl Effect {
    /// Is it what this call does?
    fn is_made_by(&self, made: &MadeCall) -> bool {
        let (number, a) = (i64::from(made.number), &made.arguments);
        let is_among = |fds: &[i32], fd: u64| fds.contains(&(fd as i32));
        match self {
            Effect::Store { .. } => false,
            Effect::Read(fds) if number == libc::SYS_sendfile => is_among(fds, a[1]),
            Effect::Read(fds) => traits::receives(made.number) && is_among(fds, a[0]),
            Effect::Write(fds) if number == libc::SYS_splice => is_among(fds, a[2]),
            Effect::Write(fds) => {
                let does = traits::sends(made.number) || number == libc::SYS_close;
                does && is_among(fds, a[0])
            }
            Effect::Unlock(fds) => {
                const SETS: [i32; 2] = [libc::F_SETLK, libc::F_OFD_SETLK];
                let does = match number {
                    libc::SYS_close => true,
                    libc::SYS_flock => a[1] as i32 == libc::LOCK_UN,
                    libc::SYS_fcntl => SETS.contains(&(a[1] as i32)),
                    _ => false,
                };
                does && is_among(fds, a[0])
            }
            Effect::Signal { process, thread } => {
                let (first, second) = (a[0] as u32, a[1] as u32);
                match number {
                    libc::SYS_kill | libc::SYS_rt_sigqueueinfo => first == *process,
                    libc::SYS_tkill => first == *thread,
                    libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => {
                        (first, second) == (*process, *thread)
                    }
                    _ => false,
                }
            }
            Effect::Send(queue) => number == libc::SYS_msgsnd && a[0] as i32 == *queue,
            Effect::Receive(queue) => number == libc::SYS_msgrcv && a[0] as i32 == *queue,
        }
    }
}

/// Which copies are made of each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// Those that find the world as it is, but for the answer that it waits for.
    AsIs,
    /// Of those that sleep at a word: those that, woken, find what they look for.
    Met,
}

/// The process whose threads may do it, as it was seen, and who waits.
pub(crate) struct Asking<'a> {
    pub pid: u32,
    pub names: &'a Names,
    pub activities: &'a [Activity],
    /// `None`: it lives.
    pub core: Option<&'a CoreFile>,
    /// The thread that waits, where it is one of them, and its id as the process itself sees it.
    pub waiting: Option<(u32, u32)>,
}

/// What the copies did.
#[derive(Clone, Debug)]
pub(crate) struct Ahead {
    /// The threads that would do it, each by the surest of its copies. Those that only do so at a
    /// failure, at an end, or by themselves count where there is no other.
    pub owed: Vec<Owed>,
    pub strength: Strength,
    /// Each other thread was asked, and a copy of it went on until it blocked or ended, or for the
    /// whole of its time.
    pub is_complete: bool,
    /// Threads that wait for time, and of which all copies went on without doing it.
    pub passing: Vec<u32>,
}

/// `None`: nothing can be copied there.
pub(crate) fn ahead(
    asked: &Asking,
    effect: &Effect,
    copies: Copies,
    time: Duration,
) -> Option<Ahead> {
    if let Some(core) = asked.core {
        let capture = |tid| Ok(core.thread(tid).map_err(|e| e.to_string())?.state.clone());
        return Some(ask(
            asked,
            core,
            core,
            (&capture, &|_| {}),
            (effect, copies),
            time,
        ));
    }
    let (pid, names) = (asked.pid, asked.names);
    let (activities, waiting) = (asked.activities, asked.waiting);
    // ptrace belongs to the thread that started the copy, which also changes its own affinity.
    std::thread::scope(|scope| {
        let asking = Builder::new().spawn_scoped(scope, || {
            let live = Live::open(pid).ok()?;
            let memory = Memory::open(pid).ok()?;
            let known = RefCell::new(Wanted::default());
            let capture = |tid| {
                let known = known.borrow();
                let captured = live.capture_with(tid, STOPS, Moment::Now, &known);
                captured.map(|one| one.state).map_err(|e| e.to_string())
            };
            let learn = |pages: &Pages| learn(&mut known.borrow_mut(), pages);
            let asked = Asking {
                pid,
                names,
                activities,
                core: None,
                waiting,
            };
            let how: (Capture, Learn) = (&capture, &learn);
            Some(ask(&asked, &live, &memory, how, (effect, copies), time))
        });
        asking.ok()?.join().ok().flatten()
    })
}

type Capture<'a> = &'a dyn Fn(u32) -> std::result::Result<ThreadState, String>;
type Learn<'a> = &'a dyn Fn(&Pages);

fn ask(
    asked: &Asking,
    source: &dyn Source,
    memory: &dyn AddressSpace,
    (capture, learn): (Capture, Learn),
    (effect, copies): (&Effect, Copies),
    time: Duration,
) -> Ahead {
    let _keeping = keep();
    let process = Process {
        pid: asked.pid,
        names: asked.names,
        memory,
        others: &Others::default(),
        capture,
        learn,
        is_dead: asked.core.is_some(),
        time,
    };
    let waiting = asked.waiting.map_or(0, |(_, own)| own);
    let deadline = Instant::now() + time;
    let mut found: Vec<(Strength, Owed)> = Vec::new();
    let mut passing = Vec::new();
    let places = places(asked, effect);
    let mut is_complete = places.len() <= PLACES;
    for alike in places.into_iter().take(PLACES) {
        let joins = |one: &Activity| {
            let threads = &asked.names.input().threads;
            let call = one.call.map(|call| (call.number, call.args));
            call.is_some_and(|(n, a)| threads.iter().any(|thread| is_join(n, &a, thread.own_id)))
        };
        // One that waits for the end of another has nothing to look for.
        if copies == Copies::Met && joins(alike[0]) {
            continue;
        }
        if copies == Copies::Met && !at_word(alike[0]) {
            is_complete &= sleeps(alike[0]);
            continue;
        }
        let end = deadline.min(Instant::now() + OF_THREAD);
        let state = match capture(alike[0].tid) {
            Ok(state) if Instant::now() < end => state,
            _ => {
                is_complete = false;
                continue;
            }
        };
        let first = (&other(alike[0]), &state);
        let mut proofs = Proofs::default();
        let (word, is_call) = match effect {
            Effect::Store { address, expected } => (Some(target(*address, *expected)), false),
            _ => (None, true),
        };
        let is_it = |made: &MadeCall| effect.is_made_by(made);
        let mut judge = Judge {
            waiting,
            targets: word.as_slice(),
            experiment: None,
            known: FxHashMap::default(),
            call: is_call.then_some(&is_it),
            went_on: false,
            was_fed: false,
        };
        let run = match copies {
            Copies::AsIs => run_thread,
            Copies::Met => run_met,
        };
        let ran = run(&process, source, first, end, &mut judge, &mut proofs);
        is_complete &= ran.is_ok() && judge.went_on;
        let done = proofs.remove(&0);
        let Some((strength, owed)) = done else {
            if ran.is_ok() && judge.went_on && !judge.was_fed && sleeps(alike[0]) {
                passing.extend(alike.iter().map(|one| one.tid));
            }
            continue;
        };
        found.extend(alike.iter().map(|one| {
            let of_one = Owed {
                tid: one.tid,
                name: one.name.clone(),
                ..owed.clone()
            };
            (strength, of_one)
        }));
    }
    let (strength, owed) = surest(found);
    Ahead {
        owed,
        strength,
        is_complete,
        passing,
    }
}

/// Does it sleep at a futex's word, for as long as it takes?
fn at_word(activity: &Activity) -> bool {
    let is_it = |call: flagfinder_waits::proc::Call| {
        futex::is_futex(call.number)
            && futex::waits_for_word(futex::command(&call.args))
            && !ends_by_time(call.number, &call.args)
    };
    activity.call.is_some_and(is_it)
}

/// Does it wait for time alone, or for a wake-up until then?
fn sleeps(activity: &Activity) -> bool {
    let call = activity.call;
    call.is_some_and(|call| ends_by_time(call.number, &call.args))
}

/// Only the surest count. A thread that first waits for the end of the one that waits closes a
/// circle by what it stores behind that, unless it tears down what both used, as a call may do.
fn surest(found: Vec<(Strength, Owed)>) -> (Strength, Vec<Owed>) {
    let best = found.iter().map(|(strength, _)| *strength).max();
    let best = best.unwrap_or(Strength::Circular);
    let surest = found.into_iter();
    let surest = surest.filter(|(one, owed)| {
        let is_owed = || owed.value.is_some() && !tears_down(owed.code.as_ref());
        *one == best && (*one > Strength::Circular || is_owed())
    });
    (best, surest.map(|(_, owed)| owed).collect())
}

/// Does the code end the life of what it stores to?
fn tears_down(code: Option<&Code>) -> bool {
    let symbol = code.and_then(|code| Some((code, code.symbol.as_deref()?)));
    symbol.is_none_or(|(code, symbol)| {
        symbol.contains("destroy") || code.is_standard_library() && symbol.contains("free")
    })
}

/// Would the thread go on, if it was woken at the condition variable at `word` for which it waits?
/// `None`: that could not be seen.
pub(crate) fn once_woken(asked: &Asking, tid: u32, word: u64, time: Duration) -> Option<bool> {
    if let Some(core) = asked.core {
        return woken(core, &core.thread(tid).ok()?.state, word, time);
    }
    let pid = asked.pid;
    // ptrace belongs to the thread that started the copy.
    std::thread::scope(|scope| {
        let asking = Builder::new().spawn_scoped(scope, || {
            let live = Live::open(pid).ok()?;
            let captured = live.capture_with(tid, STOPS, Moment::Now, &Wanted::default());
            woken(&live, &captured.ok()?.state, word, time)
        });
        asking.ok()?.join().ok().flatten()
    })
}

/// A condition variable's words lie that close together.
const CONDITION: u64 = 48;

fn woken(source: &dyn Source, state: &ThreadState, word: u64, time: Duration) -> Option<bool> {
    let _keeping = keep();
    let pages = Pages::new(source);
    let mut copy = Replica::start(&pages, state).ok()?;
    // It counts up, as a signal does.
    copy.suppose(Supposition::Number).ok()?;
    let ran = copy.run(&mut [], Instant::now() + time).ok()?;
    let waits = waits_at(word, copy.supposed());
    match (ran, &waits[..]) {
        // What it goes on to wait for there is something else, as the next job's end.
        (_, [_, again, ..]) => Some(wakes_others(word, *again, copy.made())),
        (Ran::Halt(Halt::Blocks { .. } | Halt::Exits) | Ran::TimeOver, [_]) => Some(true),
        _ => None,
    }
}

/// Which of these are waits at a condition variable.
fn waits_at(word: u64, supposed: &[Supposed]) -> Vec<usize> {
    let is_it = |one: &Supposed| {
        futex::is_futex(one.number)
            && futex::waits_for_word(futex::command(&one.arguments))
            && one.arguments[0].abs_diff(word) < CONDITION
    };
    let all = supposed.iter().enumerate();
    all.filter(|(_, one)| is_it(one))
        .map(|(at, _)| at)
        .collect()
}

/// Did it wake others before the second wait (`again`)? Who only looks again at what it asks for
/// wakes at most those who want its mutex.
fn wakes_others(word: u64, again: usize, made: &[MadeCall]) -> bool {
    const WAKES: [i32; 2] = [libc::FUTEX_WAKE, libc::FUTEX_WAKE_BITSET];
    let mut woken: Vec<u64> = made
        .iter()
        .filter(|one| one.supposed <= again && futex::is_futex(one.number))
        .filter(|one| WAKES.contains(&futex::command(&one.arguments)))
        .map(|one| one.arguments[0])
        .filter(|at| at.abs_diff(word) >= CONDITION)
        .collect();
    woken.sort_unstable();
    woken.dedup();
    woken.len() > 1
}

fn target(address: u64, expected: u32) -> Target {
    Target {
        flag: 0,
        address,
        bytes: WORD,
        now: Some(expected.into()),
        exit: None,
        asleep_on: Some(expected.into()),
        field: None,
        module: None,
        is_global: false,
        of_library: false,
    }
}

fn other(activity: &Activity) -> Other {
    Other {
        tid: activity.tid,
        name: activity.name.clone(),
        waits: None,
        polls: false,
    }
}

/// The other threads, those together that wait at one place in one way; those that run come last.
/// Whoever sleeps at the same word waits for the same.
fn places<'a>(asked: &Asking<'a>, effect: &Effect) -> Vec<Vec<&'a Activity>> {
    let sleeps_there = |one: &Activity| match effect {
        Effect::Store { address, .. } => {
            let call = one.call.filter(|call| futex::is_futex(call.number));
            call.is_some_and(|call| call.args[0] == *address)
        }
        _ => false,
    };
    let others = asked.activities.iter().filter(|one| {
        let is_waiting = asked.waiting.is_some_and(|(tid, _)| tid == one.tid);
        !is_waiting && !is_over(one.state) && one.tracer == 0 && !sleeps_there(one)
    });
    let mut places: Vec<Vec<&Activity>> = Vec::new();
    let mut known = FxHashMap::default();
    for one in others {
        let place = one.call.map(|call| (call.pc, call.number, call.args[0]));
        match place.and_then(|place| known.get(&place).copied()) {
            Some(at) => {
                let alike: &mut Vec<&Activity> = &mut places[at];
                alike.push(one);
            }
            None => {
                if let Some(place) = place {
                    known.insert(place, places.len());
                }
                places.push(vec![one]);
            }
        }
    }
    places.sort_by_key(|alike| alike[0].call.is_none());
    places
}

#[cfg(test)]
mod tests {
    use flagfinder_code::NamesInput;
    use flagfinder_waits::proc::Call;

    use super::*;
    use crate::candidate::tests::debtor;
    use crate::candidate::Known;

    fn activity(tid: u32, call: Option<(i64, u64)>) -> Activity {
        Activity {
            tid,
            name: String::new(),
            state: 'S',
            cpu: 0.0,
            wants: 0.0,
            sleeps: 0,
            tracer: 0,
            call: call.map(|(number, first)| Call {
                number: number as u32,
                args: [first, 0, 0, 0, 0, 0],
                sp: 0,
                pc: 0x1000,
            }),
            sleeps_in: String::new(),
        }
    }

    #[test]
    fn threads_that_wait_alike_are_asked_once_and_none_at_the_same_word() {
        let activities = [
            activity(1, Some((libc::SYS_futex, 0x5000))),
            activity(2, None),
            activity(3, Some((libc::SYS_futex, 0x5000))),
            activity(4, Some((libc::SYS_read, 7))),
            activity(5, Some((libc::SYS_futex, 0x6000))),
            activity(6, Some((libc::SYS_read, 7))),
            Activity {
                state: 'Z',
                ..activity(7, None)
            },
        ];
        let names = Names::new(NamesInput::default());
        let asked = Asking {
            pid: 1,
            names: &names,
            activities: &activities,
            core: None,
            waiting: Some((1, 1)),
        };
        let told = |effect| -> Vec<Vec<u32>> {
            let places = places(&asked, &effect).into_iter();
            places
                .map(|alike| alike.iter().map(|one| one.tid).collect())
                .collect()
        };
        let store = Effect::Store {
            address: 0x5000,
            expected: 0,
        };
        assert_eq!(told(store), [vec![4, 6], vec![5], vec![2]]);
        assert_eq!(
            told(Effect::Write(vec![4])),
            [vec![3], vec![4, 6], vec![5], vec![2]]
        );
    }

    #[test]
    fn a_thread_that_writes_by_itself_counts_only_where_no_other_does() {
        let told = |found: &[(Strength, u32)]| -> Vec<u32> {
            let owed = |(strength, tid): &(Strength, u32)| (*strength, debtor(*tid, Known::Proved));
            let (_, surest) = surest(found.iter().map(owed).collect());
            surest.iter().map(|one| one.tid).collect()
        };
        use Strength::{Circular, Late, Next};
        assert_eq!(told(&[(Late, 2), (Next, 3), (Circular, 4)]), [3]);
        assert_eq!(told(&[(Late, 2), (Circular, 4)]), [2]);
        assert!(told(&[(Circular, 4)]).is_empty(), "it is a call");
        assert!(told(&[]).is_empty());
        let stores = |symbol: &str| {
            let owed = Owed {
                value: Some(1),
                code: Some(Code {
                    symbol: Some(symbol.into()),
                    ..Code::default()
                }),
                ..debtor(4, Known::Proved)
            };
            surest(vec![(Circular, owed)]).1.len()
        };
        assert_eq!((stores("finish+0x10"), stores("queue_destroy+0x8")), (1, 0));
    }

    #[test]
    fn whoever_wakes_others_between_two_waits_at_one_place_has_gone_on() {
        let call = |at: u64, command: i32| [at, command as u64, 0, 0, 0, 0];
        let waits = |at| Supposed {
            number: libc::SYS_futex as u32,
            arguments: call(at, libc::FUTEX_WAIT),
            descriptor: None,
            result: 0,
        };
        let supposed = [waits(0x5000), waits(0x7000), waits(0x5004)];
        assert_eq!(waits_at(0x5000, &supposed), [0, 2]);
        let wakes = |supposed: usize, at| MadeCall {
            number: libc::SYS_futex as u32,
            arguments: call(at, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG),
            supposed,
        };
        let (mutex, own, other) = (wakes(1, 0x6000), wakes(1, 0x5008), wakes(2, 0x8000));
        let looks = [mutex.clone(), own, mutex.clone()];
        assert!(!wakes_others(0x5000, 2, &looks));
        assert!(wakes_others(0x5000, 2, &[mutex.clone(), other]));
        assert!(
            !wakes_others(0x5000, 2, &[mutex, wakes(3, 0x8000)]),
            "it came later"
        );
    }

    #[test]
    fn what_is_written_ends_a_read_and_what_is_read_makes_room() {
        let made = |number: i64, fd: u64| MadeCall {
            number: number as u32,
            arguments: [fd, 0, 0, 0, 0, 0],
            supposed: 0,
        };
        let is_on = |number, effect: Effect| effect.is_made_by(&made(number, 4));
        let (writes, reads) = (Effect::Write(vec![3, 4]), Effect::Read(vec![3, 4]));
        assert!(is_on(libc::SYS_write, writes.clone()) && is_on(libc::SYS_close, writes.clone()));
        assert!(!is_on(libc::SYS_read, writes) && is_on(libc::SYS_read, reads));
        assert!(!is_on(libc::SYS_write, Effect::Write(vec![5])));
    }

    #[test]
    fn a_signal_a_lock_and_a_message_are_told_by_their_calls() {
        let made = |number: i64, arguments: [u64; 6]| MadeCall {
            number: number as u32,
            arguments,
            supposed: 0,
        };
        let to = Effect::Signal {
            process: 7,
            thread: 9,
        };
        assert!(to.is_made_by(&made(libc::SYS_kill, [7, 10, 0, 0, 0, 0])));
        assert!(to.is_made_by(&made(libc::SYS_tgkill, [7, 9, 10, 0, 0, 0])));
        assert!(!to.is_made_by(&made(libc::SYS_tgkill, [7, 8, 10, 0, 0, 0])));
        assert!(!to.is_made_by(&made(libc::SYS_kill, [8, 10, 0, 0, 0, 0])));
        let lock = Effect::Unlock(vec![3]);
        let flock = |how: i32| made(libc::SYS_flock, [3, how as u64, 0, 0, 0, 0]);
        assert!(lock.is_made_by(&flock(libc::LOCK_UN)));
        assert!(!lock.is_made_by(&flock(libc::LOCK_EX)));
        let sent = made(libc::SYS_msgsnd, [5, 0, 0, 0, 0, 0]);
        assert!(Effect::Send(5).is_made_by(&sent) && !Effect::Receive(5).is_made_by(&sent));
    }
}
