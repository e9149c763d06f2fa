// SPDX-License-Identifier: MIT
//! A lock that was left locked: its holder does something else, and no code ahead of it gives a
//! lock back.
//!
//! In: a thread that waits for a lock of the program's, whose owner is seen. Out: the same wait, as
//! one that nobody ends, if all code ahead of the owner is known, and no function that the owner is
//! in is sure to have taken it: an early return left it locked, in a function that is over. Blind
//! spots: what [`LockBalance`] lists; locks of a runtime, whose code is not the program's.

use flagfinder_analysis::runtime::is_runtime_module;
use flagfinder_code::{GivesBack, LockBalance, Whose};

use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::{Process, Processes};
use super::report::{Kind, Known, RootKind};
use crate::sample::Activity;
use crate::stack::Stack;

/// What the functions of the C library begin with that wait for a lock.
const LOCKS: [&str; 3] = ["pthread_mutex_", "pthread_rwlock_", "mtx_lock"];
const LENT: [&str; 3] = ["pthread_cond_", "cnd_", "std::condition_variable"];
/// What calls the first function of a thread.
const STARTS: [&str; 5] = [
    "start_thread",
    "clone",
    "_start",
    "__libc_start",
    "execute_native_thread_routine",
];
/// What the libraries of C++ begin with, in which a thread starts.
const PLAIN: [&str; 3] = ["libstdc++", "libc++", "libgcc"];
/// So many of the outermost calls are the system's.
const OUTERMOST: usize = 4;

/// Ends the chain at the owner, if it has left the lock locked.
pub fn settle(
    processes: &mut Processes,
    (pid, tid): (u32, u32),
    obstacle: &mut Obstacle,
) -> Option<()> {
    let [Debtor {
        who: Who::Thread(of, owner),
        known: Known::Seen,
        ..
    }] = obstacle.debtors[..]
    else {
        return None;
    };
    if obstacle.waits_for.kind != Kind::Lock || (of, owner) == (pid, tid) {
        return None;
    }
    let waiter = processes.get(pid)?;
    stands_in_lock(waiter, waiter.activity(tid)?).filter(|own| *own)?;
    let process = processes.get(of)?;
    let activity = process.activity(owner)?;
    if !is_left(process, activity)? {
        return None;
    }
    let what = format!(
        "thread {owner} ({}) has the lock, and no code ahead of it gives it back",
        activity.name
    );
    let end = End::fault(RootKind::LeftLocked, what);
    *obstacle = Obstacle {
        waits_for: obstacle.waits_for.clone(),
        at: obstacle.at.clone(),
        known: Known::ByCode,
        ..Obstacle::ends(
            Kind::Lock,
            "",
            end.of(of, Some(owner), activity.name.clone()),
        )
    };
    Some(())
}

/// Is it in a function that waits for a lock? And did code of the program call that?
fn stands_in_lock(process: &Process, activity: &Activity) -> Option<bool> {
    let inside = process.inside.as_ref()?;
    let stack = Stack::of(&activity.call?, &*inside.memory, &inside.names);
    let calls = stack.calls(&inside.names);
    let (place, _) = calls
        .iter()
        .enumerate()
        .find(|(_, (whose, name, is_sure))| {
            let name = name.trim_start_matches('_');
            *is_sure
                && *whose == Whose::System
                && LOCKS.iter().any(|begins| name.starts_with(begins))
        })?;
    let (whose, _, is_sure) = calls.get(place + 1)?;
    Some(*is_sure && *whose != Whose::System)
}

/// All its open calls are sure, and what is ahead in them gives no lock back. One that waits for a
/// lock itself may be in a circle.
fn is_left(process: &Process, activity: &Activity) -> Option<bool> {
    let inside = process.inside.as_ref()?;
    if stands_in_lock(process, activity).is_some() {
        return None;
    }
    let stack = Stack::of(&activity.call?, &*inside.memory, &inside.names);
    let calls = stack.calls(&inside.names);
    let is_start =
        |(_, name, _): &(Whose, String, bool)| STARTS.iter().any(|begins| name.starts_with(begins));
    let is_whole = calls.iter().all(|(_, _, is_sure)| *is_sure)
        && calls.iter().rev().take(OUTERMOST).any(is_start);
    let program = inside.names.input().modules.first();
    let program = program.map(|module| module.identity.name.to_string());
    let is_programs = |(whose, ..): &(Whose, String, bool)| *whose != Whose::System;
    if !is_whole || !calls.iter().any(is_programs) {
        return None;
    }
    // A loop of a library calls what its callers gave it: that may give the lock back.
    let calls_back = |(address, (whose, ..)): (&u64, &(Whose, String, bool))| {
        let module = inside.names.code(address.wrapping_sub(1)).module;
        let is_plain = |module: &String| PLAIN.iter().any(|begins| module.starts_with(begins));
        let is_language = module
            .as_ref()
            .is_none_or(|it| is_runtime_module(it) || is_plain(it));
        *whose == Whose::System && !is_language && module != program
    };
    if stack.addresses().iter().zip(&calls).any(calls_back) {
        return None;
    }
    // One that waits at a condition has that one's lock afterwards.
    let is_lent = calls.iter().any(|(whose, name, _)| {
        let name = name.trim_start_matches('_');
        *whose == Whose::System && LENT.iter().any(|begins| name.starts_with(begins))
    });
    let balance = LockBalance::new(&inside.names, &*inside.memory);
    // A function that is open may have taken it, and keeps it on purpose.
    let lent = i8::from(is_lent);
    let is_kept = balance.kept(stack.addresses())? > lent;
    Some(!is_kept && balance.ahead(stack.addresses(), &[], lent) == GivesBack::No)
}
