// SPDX-License-Identifier: MIT
//! What a blocked futex tells: a lock with its owner, a thread whose end is waited for, or a word
//! that somebody is to change.

use super::in_core;
use super::java;
use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::{descends, name, status_number, Inside, Process};
use super::report::{Kind, RootKind, WaitsFor};
use super::ruby;
use super::semaphore;
use crate::effects::Effect;
use crate::futex::{describe, Futex};
use crate::stack::Stack;
use flagfinder_code::{Code, Maps};
use flagfinder_linux::futex;
use flagfinder_waits::futex::Held;
use flagfinder_waits::proc::Call;

/// Where glibc keeps named semaphores (sem_overview(7)).
const SEMAPHORES: &str = "/dev/shm/sem.";

/// The function of V8 that `Atomics.wait` comes to.
const WAITS_OF_V8: &str = "v8::internal::FutexEmulation::Wait";

/// What a wait in `pthread_cond_wait` is called.
pub const CONDITION: &str = "condition variable";

/// What the thread waits for in futex(2). `stack`: its open calls.
pub fn obstacle(process: &Process, tid: u32, call: &Call, stack: &[Code]) -> Option<Obstacle> {
    let inside = process.inside.as_ref()?;
    let futex = describe(call, &*inside.memory, &inside.names, &process.own_ids)?;
    let owed = owner(process, call, &futex);
    let shape = shape(stack, &futex);
    // What the author's code called says more than an address.
    let of_runtime = || {
        let is_v8s = |code: &Code| {
            let symbol = code.symbol.as_deref();
            symbol.is_some_and(|symbol| symbol.contains(WAITS_OF_V8))
        };
        let of_v8 = stack.iter().any(is_v8s).then_some("Atomics.wait()");
        ruby::called(process, tid).or(of_v8).map(str::to_owned)
    };
    let is_plain = matches!(shape, "word" | "lock") && futex.is_nameless;
    let of_library = || {
        let stack = is_plain.then(|| Stack::of(call, &*inside.memory, &inside.names))?;
        stack.library_call(&inside.names)
    };
    let of_library = of_runtime().or_else(of_library);
    let waits_for = WaitsFor {
        kind: kind(&futex, shape, &owed),
        name: match (&owed, of_library) {
            (Owner::Ending(_), _) => "the end of a thread".into(),
            (_, Some(called)) => called,
            (_, None) if futex.name == futex.address => shape.to_owned(),
            (_, None) => format!("{shape} {}", whole(&futex.name)),
        },
        address: Some(futex.address.clone()),
        statement: None,
    };
    let debtors = match owed {
        Owner::Thread(pid, owner) => vec![Debtor::seen(
            Who::Thread(pid, owner),
            format!("the lock holds its owner's id, {owner}"),
        )],
        Owner::Ending(of) => vec![Debtor::seen(
            Who::Thread(process.pid, of),
            format!("it waits for thread {of} to end"),
        )],
        Owner::Gone(end) => {
            let ended = Obstacle::ends(Kind::Lock, "", end);
            return Some(Obstacle { waits_for, ..ended });
        }
        // The clock alone ends it.
        Owner::Unknown if java::sleeps(process, tid) => return None,
        Owner::Unknown => {
            let known = java::by_any(process, tid).or_else(|| {
                let is_shared = waits_for.name.starts_with("semaphore ") && !process.is_dead;
                let of_python =
                    || semaphore::obstacle(process.pid, inside, call.args[0], &waits_for);
                is_shared.then(of_python)?
            });
            return Some(known.unwrap_or_else(|| word(process, inside, tid, call, waits_for)));
        }
    };
    let name = waits_for.name.clone();
    Some(Obstacle {
        waits_for,
        ..Obstacle::owed(Kind::Lock, name, debtors)
    })
}

fn kind(futex: &Futex, shape: &str, owner: &Owner) -> Kind {
    match owner {
        Owner::Ending(_) => Kind::Call,
        Owner::Thread(..) | Owner::Gone(_) => Kind::Lock,
        Owner::Unknown if futex.kind == "lock" || shape == "read-write lock" => Kind::Lock,
        Owner::Unknown => Kind::Flag,
    }
}

/// What the word belongs to, by the function of the C library that waits.
fn shape(stack: &[Code], futex: &Futex) -> &'static str {
    const SHAPES: [(&str, &str); 8] = [
        ("pthread_cond_", CONDITION),
        ("cnd_wait", CONDITION),
        ("sem_", "semaphore"),
        ("pthread_barrier_", "barrier"),
        ("pthread_rwlock_", "read-write lock"),
        ("pthread_mutex_", "mutex"),
        ("pthread_join", "thread"),
        ("pthread_clockjoin", "thread"),
    ];
    // Fields of glibc's structures, where debug information names them.
    const FIELDS: [(&str, &str); 3] = [
        ("__g_signals", CONDITION),
        ("__wrphase_futex", "read-write lock"),
        ("__writers_futex", "read-write lock"),
    ];
    if let Some((_, shape)) = FIELDS.iter().find(|(field, _)| futex.name.contains(field)) {
        return shape;
    }
    let inner = stack
        .iter()
        .take(4)
        .filter_map(|code| code.symbol.as_deref());
    let of = |symbol: &str| {
        let symbol = symbol.trim_start_matches('_');
        let shape = SHAPES.iter().find(|(begin, _)| symbol.starts_with(begin));
        shape.map(|(_, shape)| *shape)
    };
    if futex.name.starts_with(SEMAPHORES) {
        return "semaphore";
    }
    match futex.kind {
        "word" => inner.filter_map(of).next().unwrap_or("word"),
        "lock" => inner.filter_map(of).next().unwrap_or("lock"),
        kind => kind,
    }
}

/// `queue->changed` of `queue->changed.__data.__g_signals[0] (app+0x68)`, and the file of a
/// semaphore that has one.
fn whole(name: &str) -> &str {
    let name = name.split(".__data").next().unwrap_or(name);
    let file = name.strip_suffix("+0x0");
    file.filter(|file| file.starts_with(SEMAPHORES))
        .unwrap_or(name)
}

enum Owner {
    Thread(u32, u32),
    Ending(u32),
    Gone(End),
    Unknown,
}

fn owner(process: &Process, call: &Call, futex: &Futex) -> Owner {
    let pid = process.pid;
    match (futex.kind, futex.owner) {
        ("thread", Some(tid)) => return Owner::Ending(tid),
        (_, Some(tid)) => return by_id(process, tid).unwrap_or(Owner::Thread(pid, tid)),
        _ => {}
    }
    match futex.held {
        Some(held) => found(process, call, held),
        None => Owner::Unknown,
    }
}

/// The thread of that id, as the process itself counts, or what became of it.
fn found(process: &Process, call: &Call, Held { id, is_robust }: Held) -> Owner {
    if let Some(tid) = process.own_ids.get(&id) {
        return Owner::Thread(process.pid, *tid);
    }
    if !sees_our_ids(process) {
        return Owner::Unknown;
    }
    if process.is_dead {
        return Owner::Gone(in_core::owner(process, call, id));
    }
    by_id(process, id).unwrap_or_else(|| {
        let robust = match is_robust {
            true => ", though it is robust",
            false => "",
        };
        let what = format!(
            "the lock is held by thread {id}, which has ended without unlocking it{robust}"
        );
        let name = name(process.pid, id);
        Owner::Gone(End::fault(RootKind::Ended, what).of(process.pid, Some(id), name))
    })
}

fn sees_our_ids(process: &Process) -> bool {
    process.own_ids.iter().all(|(own, tid)| own == tid)
}

/// A thread of the process, or of another: one that shares the lock, or from which it was forked.
fn by_id(process: &Process, id: u32) -> Option<Owner> {
    if process.own_ids.values().any(|tid| *tid == id) {
        return Some(Owner::Thread(process.pid, id));
    }
    if process.is_dead {
        return None;
    }
    let other = status_number(id, "Tgid:")?;
    if descends(process.pid, other) && !shares_memory(process, other) {
        let what = format!(
            "the lock is held by thread {id} of process {other} ({}), from which process {} was \
             forked: a fork copies the lock, and not that thread",
            name(other, other),
            process.pid
        );
        return Some(Owner::Gone(End::fault(RootKind::Ended, what).of(
            process.pid,
            Some(id),
            name(process.pid, id),
        )));
    }
    shares_memory(process, other).then_some(Owner::Thread(other, id))
}

/// Do they have memory in common that both may write?
fn shares_memory(process: &Process, other: u32) -> bool {
    let Some(inside) = &process.inside else {
        return false;
    };
    let ours = inside.names.input().maps.iter().flat_map(Maps::all);
    let theirs = maps_of(other);
    let shared = ours.filter(|mapping| mapping.shared && mapping.inode != 0);
    let mut files = shared.map(|mapping| (mapping.inode, mapping.path.clone()));
    files.any(|(inode, path)| {
        let mut all = theirs.all().iter();
        all.any(|m| m.shared && m.inode == inode && m.path == path)
    })
}

fn maps_of(pid: u32) -> Maps {
    Maps::parse(&flagfinder_linux::proc::text_of(pid, "maps").unwrap_or_default())
}

/// A word whose owner is not known: whoever can write it may owe it.
fn word(
    process: &Process,
    inside: &Inside,
    tid: u32,
    call: &Call,
    waits_for: WaitsFor,
) -> Obstacle {
    if process.is_dead && in_core::may_be_shared(process, call) {
        return in_core::shared(waits_for);
    }
    let is_private = futex::is_private(&call.args);
    let sharers = match is_private {
        true => Vec::new(),
        false => sharers(process.pid, inside, call.args[0]),
    };
    let asleep = (call.args[0], futex::expected(&call.args) as u32);
    others(process, tid, &sharers, Some(asleep), waits_for)
}

/// By elimination: any other thread of the process, or one of a process that shares the word.
/// `asleep`: the word at which it sleeps, and its value then.
pub fn others(
    process: &Process,
    tid: u32,
    sharers: &[(u32, u64)],
    asleep: Option<(u64, u32)>,
    waits_for: WaitsFor,
) -> Obstacle {
    let pid = process.pid;
    let rest = process.tids().into_iter().filter(|other| *other != tid);
    let rest: Vec<u32> = rest
        .filter(|other| !process.is_idle_helper(*other))
        .collect();
    let reason = match rest.len() + sharers.len() {
        1 => "it is the only other one that could change it",
        _ => "it is one of those that could change it",
    };
    let effect = |address| {
        let (_, expected) = asleep?;
        Some(Effect::Store { address, expected })
    };
    let own = asleep.and_then(|(address, _)| effect(address));
    let own = Debtor::any_of(pid, rest, reason).map(|any| Debtor { effect: own, ..any });
    let foreign = sharers.iter().map(|(of, there)| Debtor {
        effect: effect(*there),
        ..Debtor::assumed(Who::Process(*of, None), reason)
    });
    Obstacle::by_elimination(pid, own.into_iter().chain(foreign).collect(), waits_for)
}

/// Other processes that map the page of a shared word, and where it lies there.
pub fn sharers(pid: u32, inside: &Inside, address: u64) -> Vec<(u32, u64)> {
    crate::sharers::sharers(pid, &inside.names, address)
}
