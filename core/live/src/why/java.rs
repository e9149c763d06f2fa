// SPDX-License-Identifier: MIT
//! A blocked thread of Java, as its virtual machine tells of it.
//!
//! The futex that it sleeps on belongs to this thread alone and names nobody. HotSpot's structures
//! name the owner of a lock, and the thread that is joined. Another wait may be ended by any of
//! Java's threads, but by none of the virtual machine's own.

use flagfinder_code::{Spot, Whose};

use super::hotspot::JavaWait;
use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::Process;
use super::report::{Kind, RootKind, WaitsFor};
use crate::pick::HOT;
use crate::sample::Activity;

/// What this thread waits for, where HotSpot names the thread that is to end the wait.
pub fn owed(process: &Process, tid: u32) -> Option<Obstacle> {
    let inside = process.inside.as_ref()?;
    let (kind, name, owner, reason) = match process.hot_spot()?.wait(&*inside.memory, tid)? {
        JavaWait::Enters { class, owner } => (
            Kind::Lock,
            format!("the monitor of {class}"),
            owner?,
            "the monitor names its owner",
        ),
        JavaWait::Parks { class, owner } => (
            Kind::Lock,
            class,
            owner?,
            "it is parked for this lock, which refers to its owner",
        ),
        JavaWait::Joins(other) => (
            Kind::Call,
            "the end of a Java thread".to_owned(),
            other,
            "it is in Object.wait() on that thread's java.lang.Thread, as in Thread.join()",
        ),
        JavaWait::Task { owner } => (
            Kind::Call,
            "the result of a FutureTask".to_owned(),
            owner?,
            "the task refers to the thread that runs it",
        ),
        JavaWait::Notified { .. } | JavaWait::Unknown { .. } => return None,
    };
    let debtor = Debtor::seen(Who::Thread(process.pid, owner), reason);
    Some(Obstacle::owed(kind, name, vec![debtor]))
}

/// What the thread has open in Java, innermost first.
pub fn calls(process: &Process, tid: u32) -> Vec<(Whose, Spot)> {
    let found = process.inside.as_ref().and_then(|inside| {
        let machine = process.hot_spot()?;
        Some(machine.calls(&*inside.memory, tid))
    });
    found.unwrap_or_default()
}

/// Threads of Java's own class that run none of the program's code.
const OF_MACHINE: [&str; 2] = ["Signal Dispatch", "Attach Listener"];
/// Beginnings of the names of threads that collect garbage, or hold the others while it is done.
const COLLECTORS: [&str; 5] = ["VM Thread", "GC Thread", "G1 ", "ZWorker", "Shenandoah"];

/// So much more than the thread itself they have to use: it is held for most of the time.
const LARGER: f64 = 1.5;

/// A thread of Java that uses a processor, or that the machine holds, while a collector of garbage
/// works more than it does: the collector keeps it.
pub fn collects(process: &Process, activity: &Activity) -> Option<End> {
    let is_collector = |one: &&Activity| {
        let mut names = COLLECTORS.iter();
        names.any(|begins| one.name.starts_with(begins))
    };
    let all = || process.activities.iter().filter(is_collector);
    let used: f64 = all().map(|one| one.wants).sum();
    let most = |one: &&Activity| (one.wants * 1000.0) as u64;
    let collector = all().max_by_key(most)?;
    if used < HOT || used < LARGER * activity.wants {
        return None;
    }
    let inside = process.inside.as_ref()?;
    let machine = process.hot_spot()?;
    let is_held = || {
        let wait = machine.wait(&*inside.memory, activity.tid);
        wait == Some(JavaWait::Unknown { class: None })
    };
    if machine.is_of_machine(&*inside.memory, activity.tid) || activity.wants < HOT && !is_held() {
        return None;
    }
    let what = format!(
        "it collects garbage, with {:.0} % of a processor for that; thread {} is held meanwhile",
        used * 100.0,
        activity.tid
    );
    let end = End::outside(RootKind::Computes, what);
    Some(end.of(process.pid, Some(collector.tid), collector.name.clone()))
}

/// What this thread waits for, where HotSpot names nobody. `None`: it is no thread of Java, or it
/// waits inside the virtual machine.
pub fn by_any(process: &Process, tid: u32) -> Option<Obstacle> {
    let inside = process.inside.as_ref()?;
    let machine = process.hot_spot()?;
    if machine.is_of_machine(&*inside.memory, tid) {
        let end = End::unknown("it is a thread of the virtual machine itself, which has no work");
        return Some(Obstacle::ends(Kind::Call, "work", end));
    }
    let (kind, name) = match machine.wait(&*inside.memory, tid)? {
        JavaWait::Enters { class, .. } => (Kind::Lock, format!("the monitor of {class}")),
        JavaWait::Parks { class, .. } => (Kind::Flag, class),
        JavaWait::Notified { class } => (Kind::Flag, format!("notify() on {class}")),
        JavaWait::Task { .. } => {
            let name = "the result of a FutureTask that no thread runs";
            (Kind::Flag, name.to_owned())
        }
        JavaWait::Unknown { class } => {
            let name = "what it is parked for, or the virtual machine";
            (Kind::Flag, class.unwrap_or_else(|| name.to_owned()))
        }
        JavaWait::Joins(_) => return None,
    };
    let waits_for = WaitsFor {
        kind,
        name,
        address: None,
        statement: None,
    };
    let is_of_machine = |other: &u32| {
        let activity = process.activity(*other);
        activity.is_some_and(|one| OF_MACHINE.contains(&&*one.name))
    };
    let others = machine.like(&*inside.memory, tid);
    let others = others.filter(|other| !is_of_machine(other)).collect();
    let reason = "it is one of those that could change it";
    let any = Debtor::any_of(process.pid, others, reason);
    Some(Obstacle::by_elimination(
        process.pid,
        any.into_iter().collect(),
        waits_for,
    ))
}
